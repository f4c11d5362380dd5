"""Networks against the paper's formulas written out."""

import math

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.errors import ConfigError
from grok_lightning.nets.base import same_symbols
from grok_lightning.nets.first_layer import concatenated, gathered, products
from grok_lightning.nets.mlp import EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.nets.transformer import TransformerNet

TOKENS = torch.randint(0, 9, (40, 4), generator=torch.Generator().manual_seed(0))

NETS = {
    "mlp": lambda: EmbeddingMLPNet(9, 7, 8, 32),
    "mlp-6": lambda: EmbeddingMLPNet(9, 7, 8, 16, depth=6),
    "free": lambda: EmbeddingFreeMLPNet(9, 7, 32),
    "transformer": lambda: TransformerNet(9, 7, 8, 2, 2, 16),
    "tied": lambda: TransformerNet(9, 7, 8, 1, 4, 16, layer_norm=False, tied=True, activation="gelu"),
}


@pytest.fixture(params=NETS)
def net(request):
    torch.manual_seed(0)
    return NETS[request.param]().double()


def test_blocks_partition_the_parameters(net):
    names = [name for block in net.blocks().values() for name in block]
    assert sorted(names) == sorted(name for name, _ in net.named_parameters())
    assert len(names) == len(set(names))
    assert ("embedding" in net.blocks()) == ("E" in net.matrices())


def test_matrices_are_two_dimensional_and_live(net):
    matrices = net.matrices()
    assert all(matrix.ndim == 2 for matrix in matrices.values())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.0)
    for name, matrix in net.matrices().items():
        factor = 4 if name.startswith("EW") else 2
        same_storage = not name.startswith("EW")
        reference = matrices[name] if same_storage else matrices[name] * factor
        assert torch.allclose(matrix, reference)


def test_batches_do_not_mix(net):
    alone = torch.cat([net(row[None]) for row in TOKENS])
    assert torch.allclose(net(TOKENS), alone, atol=1e-12)


def test_embedding_mlp_is_equation_2_in_both_forms():
    net = NETS["mlp"]().double()
    E, W, W2 = net.E, net.first.weight, net.stack.layers[0]
    x = torch.cat([E[TOKENS[:, slot]] for slot in range(4)], dim=1)
    expected = torch.relu(x @ W.T + net.first.bias) @ W2.weight.T + W2.bias
    few, many = TOKENS[:8], TOKENS  # fewer and more rows than tokens: the two forms of the first layer
    assert torch.allclose(net(few), expected[:8], atol=1e-12)
    assert torch.allclose(net(many), expected, atol=1e-12)


def layer(net):
    return net.embedding(), net.first.weight, net.first.bias, net.n_read


def by_token(net, tokens):
    return gathered(tokens, products(tokens, *layer(net), same_symbols(tokens)))


def test_both_forms_of_the_first_layer_have_the_same_gradients():
    net = NETS["mlp"]().double()
    labels = torch.arange(40) % 7
    gradients = []
    for hidden in (concatenated(TOKENS, *layer(net)), by_token(net, TOKENS)):
        loss = F.cross_entropy(net.stack(hidden), labels)
        gradients.append(torch.autograd.grad(loss, list(net.parameters())))
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, atol=1e-10, rtol=0)


def test_equal_symbols_are_read_once():
    net = NETS["mlp"]().double()
    tokens = TOKENS.clone()
    tokens[:, 1], tokens[:, 3] = 7, 8
    assert torch.allclose(by_token(net, tokens), concatenated(tokens, *layer(net)), atol=1e-12)
    tokens[-1, 3] = 0  # one row that differs must not be read as the others are
    assert torch.allclose(by_token(net, tokens), concatenated(tokens, *layer(net)), atol=1e-12)


def test_products_that_are_kept_follow_tokens_and_weights(net):
    same, other = TOKENS.clone(), TOKENS.clone()
    same[:, 1::2], other[:, 1::2] = torch.tensor([7, 8]), torch.tensor([8, 7])
    with torch.no_grad():
        for _ in range(2):
            expected = [net(tokens) for tokens in (same, other, TOKENS)]
            with net.still():
                found = [net(tokens[:20]) for tokens in (same, other, TOKENS, same)]
            for one, whole in zip(found, [*expected, expected[0]], strict=True):
                assert torch.allclose(one, whole[:20], atol=1e-12)
            for parameter in net.parameters():
                parameter.mul_(1.5)


def test_a_frozen_embedding_gets_no_gradient():
    tokens = TOKENS.clone()
    tokens[:, 1::2] = torch.tensor([7, 8])
    net = NETS["mlp"]().double()
    expected = torch.autograd.grad(net(tokens).sum(), list(net.parameters()))
    net.E.requires_grad_(False)
    net(tokens).sum().backward()
    assert net.E.grad is None
    rest = [p for p in net.parameters() if p is not net.E]
    assert all(torch.equal(p.grad, g) for p, g in zip(rest, expected[1:], strict=True))


def test_slot_products_add_up_to_the_first_layer():
    net = NETS["mlp"]().double()
    parts = net.matrices()
    d = net.E.shape[1]
    fixed = net.E[7] @ net.first.weight[:, d : 2 * d].T + net.E[8] @ net.first.weight[:, 3 * d :].T + net.first.bias
    tokens = torch.tensor([[3, 7, 5, 8]])
    assert torch.allclose(concatenated(tokens, *layer(net))[0], parts["EW_a"][3] + parts["EW_b"][5] + fixed, atol=1e-12)


def test_embedding_free_mlp_is_equation_1():
    net = EmbeddingFreeMLPNet(9, 7, 16, input_scale=0.5).double()
    W2 = net.stack.layers[0]
    x = 0.5 * TOKENS.double()
    expected = torch.relu(x @ net.first.weight.T + net.first.bias) @ W2.weight.T + W2.bias
    assert torch.allclose(net(TOKENS), expected, atol=1e-12)


def test_sizes_of_the_paper():
    shapes = {name: tuple(value.shape) for name, value in EmbeddingMLPNet(99, 97, 128, 512).named_parameters()}
    assert shapes["E"] == (99, 128)
    assert shapes["first.weight"] == (512, 512)
    assert shapes["stack.layers.0.weight"] == (97, 512)
    assert sum(math.prod(shape) for shape in shapes.values()) == 325_089


def test_attention_equals_torchs_own():
    torch.manual_seed(0)
    attention = TransformerNet(9, 7, 8, 1, 2, 16).layers[0].attention.double()
    x = torch.randn(5, 4, 8, dtype=torch.float64)
    heads = [f(x).view(5, 4, 2, 4).transpose(1, 2) for f in (attention.W_Q, attention.W_K, attention.W_V)]
    mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(5, 4, 8)
    keys_values = attention.keys_values(x)
    for q in (1, 2, 4):
        assert torch.allclose(attention(x[:, -q:], *keys_values), attention.W_O(mixed)[:, -q:], atol=1e-12)


def test_attention_is_causal():
    layer = TransformerNet(9, 7, 8, 1, 2, 16).layers[0].double()
    x = torch.randn(1, 4, 8, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x)[0, 1].sum(), x)
    assert torch.all(gradient[0, 2:] == 0)
    assert torch.all(gradient[0, 1] != 0)


@pytest.mark.parametrize("name", ["transformer", "tied", "mlp"])
def test_second_derivatives_exist(name):
    net = NETS[name]().double()
    loss = F.cross_entropy(net(TOKENS), torch.arange(40) % 7)
    first = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    second = torch.autograd.grad(sum((g * g).sum() for g in first), list(net.parameters()))
    assert all(torch.isfinite(g).all() for g in second)
    assert sum(float(g.abs().sum()) for g in second) > 0


def test_a_tied_unembedding_is_the_embedding():
    net = NETS["tied"]().double()
    assert "W_U" not in net.matrices()
    assert not any("unembedding" in name for name, _ in net.named_parameters())
    before = net(TOKENS)
    with torch.no_grad():
        net.E[6] += 1.0  # a label that TOKENS may hold too; class 6 must move for every row
    assert torch.all(net(TOKENS)[:, 6] != before[:, 6])


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: EmbeddingMLPNet(9, 7, 0, 8), "model.d_model"),
        (lambda: EmbeddingMLPNet(9, 7, 8, 0), "model.hidden"),
        (lambda: EmbeddingMLPNet(9, 7, 8, 8, depth=1), "model.depth"),
        (lambda: EmbeddingFreeMLPNet(9, 7, 8, depth=0), "model.depth"),
        (lambda: EmbeddingFreeMLPNet(9, 7, 8, input_scale=0.0), "model.input_scale"),
        (lambda: TransformerNet(9, 7, 10, 1, 4, 8), "model.d_model"),
        (lambda: TransformerNet(9, 7, 8, 0, 4, 8), "model.n_layers"),
        (lambda: TransformerNet(9, 7, 8, 1, 0, 8), "model.n_heads"),
        (lambda: TransformerNet(9, 10, 8, 1, 4, 8, tied=True), "model.tied"),
    ],
)
def test_impossible_sizes_are_refused(make, field):
    with pytest.raises(ConfigError, match=field):
        make()
