"""Starts and structures of the networks against their formulas written out."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from grok_lightning.errors import ConfigError
from grok_lightning.nets.embedding import EmbeddingOptions, fourier_basis
from grok_lightning.nets.mlp import EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.nets.transformer import TransformerNet
from grok_lightning.optim.recipe import Recipe, parameter_groups

TOKENS = torch.randint(0, 9, (40, 4), generator=torch.Generator().manual_seed(0))


def mlp(depth=2, **settings):
    torch.manual_seed(0)
    options = EmbeddingOptions(**settings.pop("embedding", {}))
    return EmbeddingMLPNet(9, 7, 8, 32, depth, options, **settings).double()


def transformer(**embedding):
    torch.manual_seed(0)
    return TransformerNet(9, 7, 8, 1, 2, 16, embedding=EmbeddingOptions(**embedding)).double()


def both_forms(net):
    """Logits of few rows and of many, which the first layer computes in two ways."""
    return torch.cat([torch.cat([net(row[None]) for row in TOKENS]), net(TOKENS)])


def written_out(net, E, summed=False):
    x = E[TOKENS].sum(1) if summed else E[TOKENS].flatten(1)
    x = torch.relu(x @ net.first.weight.T + net.first.bias)
    logits = x @ net.stack.layers[-1].weight.T + net.stack.layers[-1].bias
    return torch.cat([logits, logits])


def test_scale_multiplies_the_embedding_alone():
    plain, scaled = mlp(), mlp(embedding={"scale": 0.25})
    assert torch.equal(scaled.E, 0.25 * plain.E)
    assert torch.equal(scaled.first.weight, plain.first.weight)


@pytest.mark.parametrize("make", [lambda s: mlp(init_scale=s), lambda s: EmbeddingFreeMLPNet(9, 7, 8, init_scale=s)])
def test_init_scale_multiplies_everything(make):
    torch.manual_seed(0)
    plain = make(1.0)
    torch.manual_seed(0)
    for a, b in zip(make(4.0).parameters(), plain.parameters(), strict=True):
        assert torch.equal(a, 4.0 * b)


@pytest.mark.parametrize("rank", [None, 3])
def test_sigma_matched(rank):
    for net, names in (
        (mlp(embedding={"sigma_matched": True, "rank": rank}), ["W"]),
        (transformer(sigma_matched=True, rank=rank), ["W_Q.0", "W_K.0", "W_V.0"]),
    ):
        matrices = {name: matrix.detach().numpy() for name, matrix in net.matrices().items()}
        top = np.linalg.norm(np.concatenate([matrices[name] for name in names]), ord=2)
        assert np.linalg.norm(matrices["E"], ord=2) == pytest.approx(top, rel=1e-6)


@pytest.mark.parametrize("make", [lambda: mlp(embedding={"rank": 3}), lambda: transformer(rank=3)])
def test_low_rank_is_a_product_of_two_trained_factors(make):
    net = make()
    assert net.blocks()["embedding"] == ["E_left", "E_right"]
    E = net.matrices()["E"]
    assert torch.equal(E, net.E_left @ net.E_right)
    assert E.shape == (9, 8)
    assert int(torch.linalg.matrix_rank(E)) == 3
    F.cross_entropy(net(TOKENS), torch.arange(40) % 7).backward()
    assert all(net.get_parameter(name).grad.abs().sum() > 0 for name in ("E_left", "E_right"))


def test_low_rank_logits():
    net = mlp(embedding={"rank": 3})
    assert torch.allclose(both_forms(net), written_out(net, net.E_left @ net.E_right), atol=1e-12)


def test_low_rank_starts_with_entries_of_variance_1():
    torch.manual_seed(0)
    net = EmbeddingMLPNet(500, 7, 400, 8, embedding=EmbeddingOptions(rank=50))
    assert float(net.matrices()["E"].detach().var()) == pytest.approx(1.0, rel=0.05)


def test_summed_embeddings():
    net = mlp(combine="sum")
    assert net.first.weight.shape == (32, 8)
    assert torch.allclose(both_forms(net), written_out(net, net.E, summed=True), atol=1e-12)
    assert torch.equal(net.matrices()["EW"], net.E @ net.first.weight.T)
    tokens = TOKENS.clone()
    tokens[:, 1], tokens[:, 3] = 7, 8
    swapped = tokens[:, [2, 1, 0, 3]]
    assert torch.allclose(net(tokens), net(swapped), atol=1e-12)


def test_residual_layers():
    net = mlp(depth=4, residual=True)
    x = net.E[TOKENS].flatten(1) @ net.first.weight.T + net.first.bias
    for layer in net.stack.layers[:-1]:
        x = x + torch.relu(x) @ layer.weight.T + layer.bias
    last = net.stack.layers[-1]
    assert torch.allclose(net(TOKENS), torch.relu(x) @ last.weight.T + last.bias, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7, 10])
def test_fourier_basis_is_orthonormal_and_each_column_has_one_frequency(n):
    basis = fourier_basis(n)
    assert torch.allclose(basis @ basis.T, torch.eye(n, dtype=torch.float64), atol=1e-13)
    power = np.abs(np.fft.rfft(basis.numpy(), axis=0)) > 1e-9
    assert power.sum(0).tolist() == [1] * n


@pytest.mark.parametrize("inputs", ["one_hot", "fourier"])
def test_fixed_inputs(inputs):
    net = mlp(embedding={"inputs": inputs})
    rows = torch.eye(9, dtype=torch.float64)
    if inputs == "fourier":
        rows[:7, :7] = fourier_basis(7)
    assert net.first.weight.shape == (32, 36)
    assert torch.allclose(both_forms(net), written_out(net, rows), atol=1e-6)
    assert set(net.blocks()) == {"first_layer", "rest"}
    assert "E" not in net.matrices()
    assert not any(name.startswith("E") for name in net.state_dict())
    with pytest.raises(ConfigError, match="no embedding to scale"):
        parameter_groups(net, Recipe(c=2.0))


def test_defaults_draw_what_torch_would():
    torch.manual_seed(0)
    E, first = torch.randn(9, 8), torch.nn.Linear(32, 32)
    net = mlp().float()
    assert torch.equal(net.E, E)
    assert torch.equal(net.first.weight, first.weight)


def saved(path, **state):
    torch.save({"state_dict": {f"net.{name}": value for name, value in state.items()}}, path)
    return str(path)


def test_an_embedding_of_another_run(tmp_path):
    E, left, right = torch.randn(9, 8), torch.randn(9, 3), torch.randn(3, 8)
    whole, small = saved(tmp_path / "whole.ckpt", E=E), saved(tmp_path / "small.ckpt", E=left)
    factors = saved(tmp_path / "factors.ckpt", E_left=left, E_right=right)
    assert torch.equal(mlp(embedding={"source": whole}).E, E.double())
    assert torch.allclose(transformer(source=factors).E, (left @ right).double())
    net = mlp(embedding={"source": small, "rank": 3})
    assert torch.equal(net.E_left, left.double())  # and E_right stays random
    assert torch.equal(net.E_right, mlp(embedding={"rank": 3}).E_right)
    with pytest.raises(ConfigError, match=r"shape \(9, 3\), this run needs \(9, 8\); set model.embedding.rank to 3"):
        mlp(embedding={"source": small})
    with pytest.raises(ConfigError, match=r"shape \(5, 8\), this run needs \(9, 8\)$"):
        mlp(embedding={"source": saved(tmp_path / "other.ckpt", E=torch.randn(5, 8))})
    with pytest.raises(ConfigError, match="holds no trained embedding"):
        mlp(embedding={"source": saved(tmp_path / "free.ckpt", W=E)})
    with pytest.raises(ConfigError, match="there is no such file"):
        mlp(embedding={"source": str(tmp_path / "none.ckpt")})
    (tmp_path / "junk.ckpt").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(ConfigError, match="cannot be read as a checkpoint"):
        mlp(embedding={"source": str(tmp_path / "junk.ckpt")})


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: mlp(embedding={"inputs": "hot"}), "model.embedding.inputs"),
        (lambda: mlp(embedding={"scale": 0.0}), "model.embedding.scale"),
        (lambda: mlp(embedding={"rank": 9}), "model.embedding.rank"),
        (lambda: mlp(embedding={"rank": 0}), "model.embedding.rank"),
        (lambda: mlp(embedding={"scale": 2.0, "sigma_matched": True}), "model.embedding.scale"),
        (lambda: mlp(embedding={"inputs": "one_hot", "rank": 2}), "model.embedding.inputs"),
        (lambda: transformer(inputs="fourier"), "model.embedding.inputs"),
        (lambda: mlp(combine="mean"), "model.combine"),
        (lambda: mlp(residual=True), "model.residual"),
        (lambda: mlp(init_scale=-1.0), "model.init_scale"),
    ],
)
def test_what_cannot_be_built_is_refused(make, field):
    with pytest.raises(ConfigError, match=f"{field} = "):
        make()
