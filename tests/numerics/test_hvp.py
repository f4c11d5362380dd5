"""Hessian products against closed forms, torch.func.hessian, Gauss-Newton and a real second process."""

import gc
import resource
import time
import warnings
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from grok_lightning.errors import ConfigError
from grok_lightning.nets.mlp import EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.nets.transformer import TransformerNet
from grok_lightning.numerics.hvp import HessianOperator
from grok_lightning.numerics.lanczos import lanczos

VOCAB, CLASSES = 7, 5


def data(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB - 2, (n, 4), generator=generator)
    tokens[:, 1], tokens[:, 3] = VOCAB - 2, VOCAB - 1
    return tokens, torch.randint(0, CLASSES, (n,), generator=generator)


def mlp(seed: int = 0) -> EmbeddingMLPNet:
    torch.manual_seed(seed)
    return EmbeddingMLPNet(VOCAB, CLASSES, d_model=3, hidden=6)


def transformer(**options) -> TransformerNet:
    torch.manual_seed(0)
    return TransformerNet(VOCAB, CLASSES, d_model=4, n_layers=1, n_heads=2, d_mlp=6, **options)


def embedding_free() -> EmbeddingFreeMLPNet:
    torch.manual_seed(0)
    return EmbeddingFreeMLPNet(VOCAB, CLASSES, hidden=6, depth=3, input_scale=0.3)


def dense_block(op: HessianOperator, block: str) -> Tensor:
    return torch.stack([op.hvp(block, e) for e in torch.eye(op.sizes[block])])


def of_block(net: nn.Module, names: list[str], function, flat: Tensor) -> Tensor:
    """``function(logits-making call)`` as a function of the flattened parameters ``names``; float64."""
    params = {name: p.detach().double() for name, p in net.named_parameters()}
    buffers = {name: b.double() if b.is_floating_point() else b for name, b in net.named_buffers()}
    parts = flat.split([params[name].numel() for name in names])
    chosen = {name: part.view_as(params[name]) for name, part in zip(names, parts, strict=True)}
    return function(lambda tokens: torch.func.functional_call(net, params | buffers | chosen, (tokens,)))


def written_out_layer_norm(self: nn.LayerNorm, x: Tensor) -> Tensor:
    """torch.func.hessian of the built-in one is wrong under vmap (torch 2.13: it is not even symmetric)."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias


def flat_of(net: nn.Module, names: list[str]) -> Tensor:
    return torch.cat([net.get_parameter(name).detach().double().reshape(-1) for name in names])


@pytest.mark.parametrize("n", [5, 20], ids=["fewer samples than tokens", "gathered first layer"])
@pytest.mark.parametrize(
    "build",
    [
        mlp,
        embedding_free,
        transformer,
        partial(transformer, layer_norm=False, activation="gelu"),
        partial(transformer, tied=True),
    ],
)
def test_every_block_equals_the_dense_hessian_of_torch_func(build, n, monkeypatch):
    net, (tokens, labels) = build(), data(n)
    blocks = net.blocks()
    with HessianOperator(net, tokens, labels, blocks, dtype=torch.float64) as op:
        assert op.sizes.keys() == {*blocks, "all"}
        for block, names in {**blocks, "all": [name for name, _ in net.named_parameters()]}.items():
            loss = partial(of_block, net, names, lambda f: cross_entropy(f(tokens), labels))
            with warnings.catch_warnings(), monkeypatch.context() as patch:
                warnings.simplefilter("ignore")  # of vmap, about missing batching rules
                patch.setattr(nn.LayerNorm, "forward", written_out_layer_norm)
                dense = torch.func.hessian(loss)(flat_of(net, names))
            assert dense.abs().max() > 1e-4
            torch.testing.assert_close(dense_block(op, block), dense, rtol=0, atol=1e-10)


class SoftmaxRegression(nn.Module):
    def __init__(self, features: Tensor, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("features", features)
        self.W = nn.Parameter(torch.randn(n_classes, features.shape[1]))

    def forward(self, rows: Tensor) -> Tensor:
        return self.features[rows] @ self.W.T


def test_softmax_regression_has_its_closed_form_hessian():
    """(1/N) Σ_i (diag p_i − p_i p_iᵀ) ⊗ x_i x_iᵀ, and gradient (1/N) Σ_i (p_i − y_i) ⊗ x_i."""
    torch.manual_seed(1)
    x, labels = torch.randn(11, 4), torch.randint(0, 3, (11,))
    net = SoftmaxRegression(x, 3)
    x, W = x.double(), net.W.detach().double()
    p = (x @ W.T).softmax(1)
    expected = torch.zeros(12, 12, dtype=torch.float64)
    for i in range(11):
        expected += torch.kron(torch.diag(p[i]) - torch.outer(p[i], p[i]), torch.outer(x[i], x[i])) / 11
    gradient = (p - functional.one_hot(labels, 3)).T @ x / 11
    with HessianOperator(net, torch.arange(11), labels, {"W": ["W"]}, dtype=torch.float64, chunk_size=4) as op:
        torch.testing.assert_close(dense_block(op, "W"), expected, rtol=0, atol=1e-14)
        assert op.grad_norms["W"] == pytest.approx(float(gradient.norm()), rel=1e-12)
        assert op.loss_value == pytest.approx(float(-p[range(11), labels].log().mean()), rel=1e-12)


def test_another_loss():
    """Half the mean squared logit of softmax regression: H = (1/N) I ⊗ XᵀX."""
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(2))
    net = SoftmaxRegression(x, 2)

    def half_square(logits: Tensor, _: Tensor) -> Tensor:
        return logits.square().sum() / (2 * len(logits))

    with HessianOperator(net, torch.arange(6), torch.zeros(6), {}, loss=half_square, chunk_size=5) as op:
        expected = torch.kron(torch.eye(2), x.T @ x / 6)
        torch.testing.assert_close(dense_block(op, "all"), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("block", ["embedding", "first_layer"])
def test_a_single_layer_of_a_relu_mlp_has_its_gauss_newton_block(block):
    """Logits are piecewise linear in one layer, so H = (1/N) Σ_i J_iᵀ (diag p_i − p_i p_iᵀ) J_i, which is PSD."""
    net, (tokens, labels) = mlp(), data(20)
    names, flat = net.blocks()[block], flat_of(net, net.blocks()[block])
    logits = partial(of_block, net, names, lambda f: f(tokens))
    J = torch.func.jacrev(logits)(flat)  # (N, C, n_b)
    p = logits(flat).softmax(1)
    S = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = torch.einsum("nci,ncd,ndj->ij", J, S, J) / len(tokens)
    with HessianOperator(net, tokens, labels, net.blocks(), dtype=torch.float64) as op:
        dense = dense_block(op, block)
    torch.testing.assert_close(dense, expected, rtol=0, atol=1e-12)
    assert torch.linalg.eigvalsh(dense)[0] > -1e-12 * dense.norm()


def test_the_qkv_block_of_a_transformer_is_indefinite():
    net, (tokens, labels) = transformer(), data(20)
    with HessianOperator(net, tokens, labels, net.blocks(), dtype=torch.float64) as op:
        values = torch.linalg.eigvalsh(dense_block(op, "first_layer"))
        found = lanczos(op.matvec("first_layer"), op.sizes["first_layer"], which="SA", dtype=torch.float64)
    assert values[0] < -0.05 * values[-1] < 0
    assert found.lambda_min == pytest.approx(float(values[0]), rel=1e-4)


@pytest.mark.parametrize("chunk_size", [1, 7, 19, 20, 1000])
def test_uneven_chunks_weigh_by_their_samples(chunk_size):
    net, (tokens, labels) = mlp(), data(20)
    v = torch.randn(sum(p.numel() for p in net.parameters()), dtype=torch.float64)
    with HessianOperator(net, tokens, labels, {}, dtype=torch.float64) as whole:
        expected = whole.hvp("all", v)
    with HessianOperator(net, tokens, labels, {}, dtype=torch.float64, chunk_size=chunk_size) as op:
        torch.testing.assert_close(op.hvp("all", v), expected, rtol=0, atol=1e-12)
        assert op.loss_value == pytest.approx(whole.loss_value, rel=1e-12)
        assert op.grad_norms["all"] == pytest.approx(whole.grad_norms["all"], rel=1e-12)


@pytest.mark.parametrize("cut", [0, 3, 10])
def test_the_parts_of_uneven_shards_sum_to_the_whole(cut):
    net, (tokens, labels) = mlp(), data(20)
    v = torch.randn(sum(p.numel() for p in net.parameters()))
    calls: list[int] = []
    with HessianOperator(net, tokens, labels, {}) as whole:
        expected = whole.hvp("all", v)
    total, loss = torch.zeros_like(v), 0.0
    for part in (slice(0, cut), slice(cut, 20)):
        shard = HessianOperator(
            net, tokens[part], labels[part], {}, n_total=20, all_reduce=lambda flat: calls.append(flat.numel())
        )
        with shard:
            total += shard.hvp("all", v)
            loss += shard.loss_value
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-6)
    assert loss == pytest.approx(whole.loss_value, rel=1e-6)
    assert calls == [len(v) + 1, len(v)] * 2  # one flat sum on entry, one per product


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        tokens, labels = data(20)
        part = slice(0, 13) if rank == 0 else slice(13, 20)
        net = nn.parallel.DistributedDataParallel(mlp())
        blocks = net.module.blocks()
        op = HessianOperator(
            net, tokens[part], labels[part], blocks, n_total=20, all_reduce=torch.distributed.all_reduce
        )
        with op:
            found = [lanczos(op.matvec(block), op.sizes[block], 3, tol=1e-4) for block in op.sizes]
        results = {"values": torch.stack([r.eigenvalues for r in found]), "vectors": found[-1].eigenvectors}
        torch.save(results | {"loss": op.loss_value, "norms": op.grad_norms}, f"{folder}/{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.ddp
def test_two_processes_with_uneven_shards_equal_one(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    workers = torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2, join=False)
    deadline = time.monotonic() + 60
    try:
        while not workers.join(timeout=1):
            assert time.monotonic() < deadline, "the two processes did not finish in 60 s"
    finally:
        for process in workers.processes:
            process.kill()
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert torch.equal(first["values"], second["values"])
    assert torch.equal(first["vectors"], second["vectors"])
    assert (first["loss"], first["norms"]) == (second["loss"], second["norms"])
    net, (tokens, labels) = mlp(), data(20)
    with HessianOperator(net, tokens, labels, net.blocks()) as op:
        alone = torch.stack([lanczos(op.matvec(b), op.sizes[b], 3, tol=1e-4).eigenvalues for b in op.sizes])
    torch.testing.assert_close(first["values"], alone, rtol=1e-6, atol=1e-9)
    assert first["loss"] == pytest.approx(op.loss_value, rel=1e-6)
    assert first["norms"] == pytest.approx(op.grad_norms, rel=1e-6)


class Restless(nn.Module):
    """Dropout, a draw in eval mode too, BatchNorm statistics and an overridden train()."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.norm, self.drop = mlp(), nn.BatchNorm1d(CLASSES), nn.Dropout(0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        torch.rand(3)
        return self.drop(self.norm(self.net(tokens)))

    def train(self, mode: bool = True) -> "Restless":
        raise AssertionError("flags are to be set one by one")


def test_nothing_of_the_module_or_the_process_changes():
    net, (tokens, labels) = Restless(), data(20)
    net.norm.training = False  # a frozen BatchNorm inside a training net
    cross_entropy(net(tokens), labels).backward()
    flags = [m.training for m in net.modules()]
    before = {name: x.clone() for name, x in net.state_dict().items()}
    grads = [(p.grad, p.grad.clone(), p._version) for p in net.parameters()]
    rng, precision = torch.get_rng_state(), torch.get_float32_matmul_precision()
    with HessianOperator(net, tokens, labels, {"net": ["net.E"]}) as op:
        op.hvp("net", torch.ones(op.sizes["net"]))
        assert [m.training for m in net.modules()] == flags
    assert torch.equal(torch.get_rng_state(), rng)
    assert torch.get_float32_matmul_precision() == precision
    assert all(torch.equal(x, before[name]) for name, x in net.state_dict().items())
    for p, (grad, values, version) in zip(net.parameters(), grads, strict=True):
        assert p.grad is grad
        assert torch.equal(p.grad, values)
        assert p._version == version


class Witness(nn.Module):
    """Notes the settings that its forward runs under."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.drop, self.seen = mlp(), nn.Dropout(0.5), []

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen.append((torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu"), self.drop.training))
        return self.drop(self.net(tokens))


def test_the_forward_runs_in_eval_mode_and_full_precision():
    net, (tokens, labels) = Witness(), data(20)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16), HessianOperator(net, tokens, labels, {}) as op:
            pass
    finally:
        torch.set_float32_matmul_precision(precision)
    assert set(net.seen) == {("highest", False, False)}
    assert op.loss_value == pytest.approx(cross_entropy(net.net(tokens), labels).item(), rel=1e-6)
    assert net.drop.training


def test_a_step_of_the_optimiser_does_not_reach_the_operator():
    net, (tokens, labels) = mlp(), data(20)
    v = torch.randn(net.E.numel())
    with HessianOperator(net, tokens, labels, net.blocks()) as op:
        expected = op.hvp("embedding", v)
        with torch.no_grad():
            for p in net.parameters():
                p.add_(1.0)
        assert torch.equal(op.hvp("embedding", v), expected)
    with HessianOperator(net, tokens, labels, net.blocks()) as op:
        assert not torch.allclose(op.hvp("embedding", v), expected)


def test_inference_mode_autocast_and_low_precision_do_not_matter():
    net, (tokens, labels) = mlp(), data(20)
    v = torch.randn(net.E.numel())
    with HessianOperator(net, tokens, labels, net.blocks()) as op:
        expected = op.hvp("embedding", v)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            made_here = tokens.clone(), labels.clone()
            with HessianOperator(net, *made_here, net.blocks()) as op:
                assert torch.equal(op.hvp("embedding", v.clone()), expected)
                assert lanczos(op.matvec("all"), op.sizes["all"], max_matvec=200).converged.all()
            assert torch.is_inference_mode_enabled()
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(precision)


@pytest.mark.skipif(torch.__version__ < "2.9", reason="needs a precision per backend")
def test_a_precision_set_per_backend_is_respected_and_restored():
    net, (tokens, labels) = mlp(), data(20)
    backend, seen = torch.backends.mkldnn.matmul, []
    before = backend.fp32_precision
    backend.fp32_precision = "bf16"
    try:
        with pytest.raises(RuntimeError):  # what makes this a case of its own
            torch.get_float32_matmul_precision()
        with HessianOperator(net, tokens, labels, {}, loss=lambda x, y: seen.append(backend.fp32_precision) or x.sum()):
            pass
        assert backend.fp32_precision == "bf16"
    finally:
        backend.fp32_precision = before
    assert set(seen) == {"ieee"}


class Odd(nn.Module):
    """An unused parameter and a tied pair around the MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()
        self.unused = nn.Parameter(torch.ones(2, 2))
        self.alias = self.net.E

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(tokens)


def test_unused_tied_and_frozen_parameters():
    net, odd, (tokens, labels) = mlp(), Odd(), data(20)
    odd.net.E.requires_grad_(False)
    blocks = {"E": ["alias", "net.E"], "unused": ["unused"], "both": ["unused", "alias"]}
    v = torch.randn(net.E.numel())
    with HessianOperator(net, tokens, labels, net.blocks()) as op:
        expected = op.hvp("embedding", v)
    with HessianOperator(odd, tokens, labels, blocks) as op:
        n = v.numel()
        assert op.sizes == {"E": n, "unused": 4, "both": n + 4, "all": sum(p.numel() for p in odd.parameters())}
        assert torch.equal(op.hvp("E", v), expected)
        assert torch.equal(op.hvp("unused", torch.ones(4)), torch.zeros(4))
        assert torch.equal(op.hvp("both", torch.cat([torch.ones(4), v])), torch.cat([torch.zeros(4), expected]))
        assert op.hvp("all", torch.ones(op.sizes["all"])).isfinite().all()
    assert not odd.net.E.requires_grad


class Fused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.E = nn.Parameter(torch.randn(VOCAB, 8))
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, CLASSES)
        self.written_out = False

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = self.qkv(self.E[tokens]).view(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        if self.written_out:
            mixed = (q @ k.transpose(-1, -2) / 2.0).softmax(-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(-1, 4, 8)[:, -1])


def test_fused_attention_is_replaced_by_its_math_kernel():
    net, (tokens, labels) = Fused(), data(20)
    loss = cross_entropy(net(tokens), labels)
    (g,) = torch.autograd.grad(loss, [net.E], create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):  # or this test would prove nothing
        torch.autograd.grad(g.sum(), net.E)
    with HessianOperator(net, tokens, labels, {}, dtype=torch.float64) as op:
        v = torch.randn(op.sizes["all"])
        found = op.hvp("all", v)
    net.written_out = True
    with HessianOperator(net, tokens, labels, {}, dtype=torch.float64) as op:
        torch.testing.assert_close(found, op.hvp("all", v), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_module_is_taken_eagerly(in_place):
    net, (tokens, labels) = mlp(), data(20)
    v = torch.randn(net.E.numel())
    with HessianOperator(net, tokens, labels, net.blocks()) as op:
        expected = op.hvp("embedding", v)
    blocks = net.blocks()
    if in_place:
        net.compile(backend="aot_eager")
        compiled: nn.Module = net
    else:
        compiled = torch.compile(net, backend="aot_eager")
    compiled(tokens)
    with HessianOperator(compiled, tokens, labels, blocks) as op:
        assert torch.equal(op.hvp("embedding", v), expected)


def test_a_nan_is_passed_on():
    net, (tokens, labels) = mlp(), data(20)
    with torch.no_grad():
        net.E[0, 0] = float("nan")
    with HessianOperator(net, tokens, labels, net.blocks()) as op:
        result = lanczos(op.matvec("all"), op.sizes["all"], 2)
    assert op.loss_value != op.loss_value
    assert result.eigenvalues.isnan().all()
    assert not result.converged.any()


def test_a_saturated_loss_has_a_zero_hessian():
    """Logits of ±1000 give probabilities of exactly 0 and 1 in float32, so every derivative is exactly 0."""
    net = SoftmaxRegression(torch.eye(3), 3)
    with torch.no_grad():
        net.W.copy_(2000 * torch.eye(3) - 1000)
    with HessianOperator(net, torch.arange(3), torch.arange(3), {"W": ["W"]}) as op:
        result = lanczos(op.matvec("W"), 9, 2)
    assert op.loss_value == 0.0
    assert torch.equal(result.eigenvalues, torch.zeros(2, dtype=torch.float64))
    assert result.converged.all()


def test_counts_and_times():
    net, (tokens, labels) = mlp(), data(20)
    with HessianOperator(net, tokens, labels, net.blocks()) as op:
        for _ in range(3):
            op.hvp("rest", torch.ones(op.sizes["rest"]))
        op.matvec("all")(torch.ones(op.sizes["all"]))
        assert op.n_hvp == {"embedding": 0, "first_layer": 0, "rest": 3, "all": 1}
        assert op.seconds["embedding"] == 0.0 < min(op.seconds["rest"], op.seconds["all"], op.gradient_seconds)
    with pytest.raises(RuntimeError, match="with block"):
        op.hvp("all", torch.ones(op.sizes["all"]))


def test_a_hundred_probes_do_not_grow_memory():
    torch.manual_seed(0)
    net, (tokens, labels) = EmbeddingMLPNet(VOCAB, CLASSES, d_model=8, hidden=256), data(1024)
    v = torch.ones(net.E.numel())

    def probe() -> None:
        with HessianOperator(net, tokens, labels, net.blocks()) as op:
            op.hvp("embedding", v)

    def state() -> tuple[int, int]:
        alive = sum(issubclass(type(x), Tensor) for x in gc.get_objects())
        return alive, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    gc.collect()
    gc.disable()  # what only the collector frees counts as a leak: a graph is big and no one calls it
    try:
        for _ in range(10):
            probe()
        tensors, kilobytes = state()
        for _ in range(100):
            probe()
        later_tensors, later_kilobytes = state()
    finally:
        gc.enable()
    assert later_tensors == tensors
    graph = 1024 * 256 * 4 / 1024  # kB of a single activation; a hundred leaked graphs are hundreds of these
    assert later_kilobytes - kilobytes < 20 * graph


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCAB, CLASSES, mode="sum")

    def forward(self, tokens: Tensor) -> Tensor:
        return self.bag(tokens)


def test_refusals():
    net, (tokens, labels) = mlp(), data(20)
    with pytest.raises(ConfigError, match="sparse"):
        HessianOperator(nn.Sequential(nn.Embedding(VOCAB, 2, sparse=True)), tokens, labels, {})
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(ConfigError, match="float32 or float64 parameters"):
            HessianOperator(mlp().to(dtype), tokens, labels, {})
    with pytest.raises(ConfigError, match="no parameter of the network"):
        HessianOperator(net, tokens, labels, {"E": ["W"]})
    with pytest.raises(ConfigError, match="has no parameters"):
        HessianOperator(net, tokens, labels, {"E": []})
    with pytest.raises(ConfigError, match="block of all"):
        HessianOperator(net, tokens, labels, {"all": ["E"]})
    with pytest.raises(ConfigError, match="float32 or float64"):
        HessianOperator(net, tokens, labels, {}, dtype=torch.bfloat16)
    with pytest.raises(ConfigError, match="samples"):
        HessianOperator(net, tokens[:0], labels[:0], {})
    with pytest.raises(ConfigError, match="chunk_size"):
        HessianOperator(net, tokens, labels, {}, chunk_size=0)
    with pytest.raises(ConfigError, match="n_total"):
        HessianOperator(net, tokens, labels, {}, all_reduce=lambda flat: None)
    with HessianOperator(Bag(), tokens, labels, {}) as op, pytest.raises(ConfigError, match="second derivative"):
        op.hvp("all", torch.ones(op.sizes["all"]))
