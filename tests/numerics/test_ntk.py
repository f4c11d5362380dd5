"""The block NTK against explicit Jacobians in float64 and closed forms."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from grok_lightning.nets.mlp import EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.nets.transformer import TransformerNet
from grok_lightning.numerics.ntk import ntk_gram, one_minus_cka, relative_drift

V, C, N = 7, 5, 11


def small_net(kind):
    torch.manual_seed(0)
    if kind == "embedding_mlp":
        return EmbeddingMLPNet(V, C, d_model=3, hidden=6).double()
    if kind == "embedding_free":
        return EmbeddingFreeMLPNet(V, C, hidden=6, input_scale=0.2).double()
    sizes = {"d_model": 4, "n_layers": 2, "n_heads": 2, "d_mlp": 6}
    return TransformerNet(V, C, **sizes, tied=kind == "tied_transformer").double()


def probe(n=N, seed=0):
    operands = torch.randint(0, V - 2, (n, 2), generator=torch.Generator().manual_seed(seed))
    op, eq = torch.full((n,), V - 2), torch.full((n,), V - 1)
    return torch.stack([operands[:, 0], op, operands[:, 1], eq], dim=1)


def jacobian(net, tokens, names):
    """Rows (sample, class), one column per entry of the named parameters, in one batched forward pass."""
    params = {name: p.detach() for name, p in net.named_parameters()}

    def logits(moving):
        return functional_call(net, params | moving, (tokens,))

    J = jacrev(logits)({name: params[name] for name in names})
    return torch.cat([J[name].flatten(2) for name in names], dim=2)  # (n, C, P)


KINDS = ["embedding_mlp", "embedding_free", "transformer", "tied_transformer"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk_size", [1, 4, 64])
def test_each_block_equals_the_explicit_jacobian(kind, chunk_size):
    net, tokens = small_net(kind), probe()
    blocks = net.blocks()
    K = ntk_gram(net, tokens, blocks, chunk_size)
    assert list(K) == list(blocks)
    for block, names in blocks.items():
        J = jacobian(net, tokens, names).sum(1)  # (n, P)
        torch.testing.assert_close(K[block], J @ J.T / C, rtol=1e-10, atol=1e-12)
        assert torch.linalg.matrix_norm(K[block]) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_add_up_to_the_kernel_of_all_parameters(kind):
    net, tokens = small_net(kind), probe()
    names = [name for name, _ in net.named_parameters()]
    everything = ntk_gram(net, tokens, {"all": names})["all"]
    torch.testing.assert_close(sum(ntk_gram(net, tokens, net.blocks()).values()), everything, rtol=1e-10, atol=1e-12)


def test_a_direction_selects_a_logit_and_its_sum_over_classes_is_the_full_kernel():
    net, tokens = small_net("embedding_mlp"), probe()
    names = net.blocks()["embedding"]
    J = jacobian(net, tokens, names)
    total = torch.zeros(N, N, dtype=torch.float64)
    for v in torch.eye(C):
        total += ntk_gram(net, tokens, {"E": names}, direction=v)["E"]
    torch.testing.assert_close(total, torch.einsum("icp,jcp->ij", J, J), rtol=1e-10, atol=1e-12)


class Linear(nn.Module):
    """Logits ``x Wᵀ + b``: ∂Σ_c f_c/∂W is the row x, C times over."""

    def __init__(self):
        super().__init__()
        self.W, self.b = nn.Parameter(torch.randn(C, 4)), nn.Parameter(torch.zeros(C))

    def forward(self, tokens):
        return tokens.to(self.W.dtype) @ self.W.T + self.b


def test_a_linear_model_has_its_closed_form_kernel_at_any_weights():
    tokens = probe()
    x = tokens.double()
    K = ntk_gram(Linear(), tokens, {"W": ["W"], "b": ["b"]}, chunk_size=3)
    torch.testing.assert_close(K["W"], x @ x.T, rtol=1e-6, atol=0)  # C terms ⟨x_i, x_j⟩, divided by C
    torch.testing.assert_close(K["b"], torch.ones(N, N, dtype=torch.float64))
    again = ntk_gram(Linear(), tokens, {"W": ["W"]})["W"]
    assert relative_drift(again, K["W"]) < 1e-6
    assert one_minus_cka(again, K["W"]) < 1e-12


def test_the_default_is_blind_to_a_layer_whose_class_sum_cancels():
    net, tokens = small_net("embedding_mlp"), probe()
    with torch.no_grad():
        last = net.stack.layers[-1].weight
        last -= last.mean(0)
    names = {"E": ["E"]}
    assert float(ntk_gram(net, tokens, names)["E"].abs().max()) < 1e-24
    assert float(ntk_gram(net, tokens, names, direction=torch.eye(C)[0])["E"].abs().max()) > 1e-4


def test_nothing_of_the_network_or_the_random_state_changes():
    net, tokens = small_net("transformer").train(), probe()
    before = {name: p.clone() for name, p in net.named_parameters()}
    state = torch.get_rng_state()
    with torch.no_grad():
        ntk_gram(net, tokens, net.blocks())
    ntk_gram(net, tokens, net.blocks())
    assert torch.equal(torch.get_rng_state(), state)
    assert net.training
    for name, p in net.named_parameters():
        assert torch.equal(p, before[name])
        assert p.grad is None
        assert p.requires_grad


def test_autocast_around_the_call_does_not_change_the_kernel():
    net, tokens = small_net("embedding_mlp").float(), probe()
    plain = ntk_gram(net, tokens, net.blocks())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ntk_gram(net, tokens, net.blocks())
    exact = ntk_gram(net.double(), tokens, net.blocks())
    for block, K in exact.items():
        assert torch.equal(plain[block], inside[block])
        assert relative_drift(plain[block], K) < 1e-5


def test_wrong_blocks_and_chunks_are_refused():
    net = small_net("embedding_free")
    with pytest.raises(ValueError, match="lacks: E"):
        ntk_gram(net, probe(), {"embedding": ["E"]})
    with pytest.raises(ValueError, match="chunk_size"):
        ntk_gram(net, probe(), net.blocks(), chunk_size=0)


def kernels(seed):
    generator = torch.Generator().manual_seed(seed)
    X, Y = (torch.randn(9, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    return X, Y, X @ X.T, Y @ Y.T


def test_drift_of_known_kernels():
    _, _, K, _ = kernels(0)
    assert relative_drift(K, K) == 0.0
    assert relative_drift(1.25 * K, K) == pytest.approx(0.25)
    assert relative_drift(torch.diag(torch.tensor([3.0, 4.0])), torch.diag(torch.tensor([3.0, 0.0]))) == pytest.approx(
        4 / 3
    )
    assert math.isnan(relative_drift(0 * K, 0 * K))


def test_cka_equals_linear_cka_of_features_and_has_its_invariances():
    X, Y, K, K0 = kernels(1)
    # linear CKA from centred features: ‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖) (arXiv:1905.00414), no kernel formed
    X, Y = X - X.mean(0), Y - Y.mean(0)
    cka = torch.linalg.norm(X.T @ Y) ** 2 / (torch.linalg.norm(X.T @ X) * torch.linalg.norm(Y.T @ Y))
    assert one_minus_cka(K, K0) == pytest.approx(1 - float(cka), rel=1e-12)
    assert one_minus_cka(3 * K + 7, K0) == pytest.approx(one_minus_cka(K, K0), rel=1e-12)
    assert one_minus_cka(5 * K, K) < 1e-15
    u, v = torch.tensor([1.0, -1, 0, 0]), torch.tensor([0.0, 0, 1, -1])
    assert one_minus_cka(torch.outer(u, u), torch.outer(v, v)) == pytest.approx(1.0)
    assert math.isnan(one_minus_cka(torch.ones(4, 4), torch.outer(u, u)))


def test_cka_of_nearly_equal_kernels_does_not_cancel():
    u, v = torch.tensor([1.0, -1, 0, 0]), torch.tensor([0.0, 0, 1, -1])
    t = 1e-9  # the angle between K and K₀ is arctan(t): 1 − cos = t²/2, far below float64's epsilon
    K0 = torch.outer(u, u).double()
    assert one_minus_cka(K0 + t * torch.outer(v, v).double(), K0) == pytest.approx(t**2 / 2, rel=1e-6, abs=0)
