"""The language model against torch's own Transformer layers, finite differences and its formulas."""

import math

import pytest
import torch
import yaml
from conftest import ROOT
from torch import nn

from grok_lightning.errors import ConfigError
from grok_lightning.nets.embedding import EmbeddingOptions
from grok_lightning.nets.language import LanguageNet
from grok_lightning.numerics.hvp import HessianOperator
from grok_lightning.optim.losses import CROSS_ENTROPY
from grok_lightning.optim.recipe import Recipe, build_optimizer

TOKENS = torch.randint(0, 11, (5, 7), generator=torch.Generator().manual_seed(0))


def net(**settings):
    torch.manual_seed(0)
    return LanguageNet(11, 7, 8, 2, 2, 16, **settings).double()


def reference(ours):
    """The same weights in nn.TransformerEncoderLayer."""
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    x = ours.E[TOKENS] + ours.positions
    for layer in ours.layers:
        theirs = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True).double()
        with torch.no_grad():
            theirs.self_attn.in_proj_weight.copy_(torch.cat([W.weight for W in (layer.W_Q, layer.W_K, layer.W_V)]))
            theirs.self_attn.in_proj_bias.zero_()
            theirs.self_attn.out_proj.weight.copy_(layer.W_O.weight)
            theirs.self_attn.out_proj.bias.zero_()
        for module, name in ((theirs.linear1, "W_in"), (theirs.linear2, "W_out")):
            module.load_state_dict(layer.get_submodule(name).state_dict())
        theirs.norm1.load_state_dict(layer.norm_attention.state_dict())
        theirs.norm2.load_state_dict(layer.norm_mlp.state_dict())
        x = theirs(x, src_mask=mask)
    final = nn.functional.layer_norm(x, (8,), ours.norm_final.weight, ours.norm_final.bias)
    unembedding = ours.E if ours.unembedding is None else ours.unembedding.weight
    return torch.einsum("btd,vd->bvt", final, unembedding)


@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_those_of_torchs_layers(tied):
    ours = net(tied=tied)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    assert ours(TOKENS).shape == (5, 11, 7)
    assert torch.allclose(ours(TOKENS), reference(ours), atol=1e-12)


def test_no_position_sees_what_follows():
    ours, changed = net(), TOKENS.clone()
    changed[:, 4:] = (changed[:, 4:] + 3) % 11
    before, after = ours(TOKENS), ours(changed)
    assert torch.equal(before[..., :4], after[..., :4])
    assert not torch.allclose(before[..., 4:], after[..., 4:])
    assert torch.allclose(ours(TOKENS[:, :4]), before[..., :4], atol=1e-12)


@pytest.mark.parametrize("tied", [False, True])
def test_blocks_and_matrices(tied):
    ours = net(tied=tied)
    names = [name for block in ours.blocks().values() for name in block]
    assert sorted(names) == sorted(name for name, _ in ours.named_parameters())
    assert ours.blocks()["embedding"] == ["E"]
    assert ours.blocks()["first_layer"] == [f"layers.0.{name}.weight" for name in ("W_Q", "W_K", "W_V")]
    assert ("W_U" in ours.matrices()) == (not tied)
    assert len(ours.matrices()) == 1 + 2 * 6 + (not tied)
    assert all(matrix.ndim == 2 for matrix in ours.matrices().values())


def test_c_of_a_tied_model_moves_its_unembedding():
    optimizer = build_optimizer(net(tied=True), Recipe(lr=0.1, c=3.0, weight_decay=0.0, optimizer="sgd"))
    assert {g["name"]: g["lr"] for g in optimizer.param_groups}["embedding"] == pytest.approx(0.3)
    untied = net()
    rest = {id(p) for g in build_optimizer(untied, Recipe(c=3.0)).param_groups[2:] for p in g["params"]}
    assert id(untied.unembedding.weight) in rest


def test_second_derivatives_are_those_of_finite_differences():
    """torch.func.hessian is wrong through LayerNorm in torch 2.13, so the reference is the gradient itself."""
    ours, labels = net(), TOKENS.roll(-1, 1)
    params, h = dict(ours.named_parameters()), 1e-5
    generator = torch.Generator().manual_seed(1)

    def gradient(shift):
        moved = {name: (p + shift * directions.get(name, 0)).detach().requires_grad_() for name, p in params.items()}
        loss = CROSS_ENTROPY(torch.func.functional_call(ours, moved, (TOKENS,)), labels)
        return dict(zip(moved, torch.autograd.grad(loss, list(moved.values())), strict=True))

    with HessianOperator(ours, TOKENS, labels, ours.blocks(), loss=CROSS_ENTROPY, dtype=torch.float64) as operator:
        for block, names in ours.blocks().items():
            directions = {n: torch.randn(params[n].shape, generator=generator, dtype=torch.float64) for n in names}
            product = operator.hvp(block, torch.cat([directions[name].flatten() for name in names]))
            high, low = gradient(h), gradient(-h)
            expected = torch.cat([((high[name] - low[name]) / (2 * h)).flatten() for name in names])
            assert torch.allclose(product, expected, rtol=1e-5, atol=1e-7 * float(expected.abs().max())), block


def test_the_start():
    torch.manual_seed(0)
    untied, tied = LanguageNet(512, 8, 64), LanguageNet(512, 8, 64, tied=True)
    assert untied.E.std().item() == pytest.approx(1, rel=0.02)
    assert tied.E.std().item() == pytest.approx(1 / 8, rel=0.02)
    tokens = torch.randint(0, 512, (32, 8))
    for each, most in ((untied, 0.3), (tied, 1.0)):  # not far above uniform
        assert math.log(512) < CROSS_ENTROPY(each(tokens), tokens.roll(1, 0)).item() < math.log(512) + most


def test_five_million_parameters():
    content = yaml.safe_load((ROOT / "configs" / "wikitext103.yaml").read_text())
    data, model = content["data"]["init_args"], content["model"]["init_args"]
    sizes = [model[name] for name in ("d_model", "n_layers", "n_heads")]
    large = LanguageNet(data["vocab_size"], data["context_length"], *sizes, 4 * model["d_model"], tied=model["tied"])
    assert 4.8e6 < sum(p.numel() for p in large.parameters()) < 5.2e6


@pytest.mark.parametrize("settings", [{"embedding": EmbeddingOptions(inputs="one_hot")}, {"init_scale": 0.0}])
def test_refusals(settings):
    with pytest.raises(ConfigError, match="model"):
        net(**settings)
    for sizes in ((7, 8, 2, 3, 16), (7, 8, 0, 2, 16), (7, 0, 2, 2, 16)):
        with pytest.raises(ConfigError, match="model"):
            LanguageNet(11, *sizes)
