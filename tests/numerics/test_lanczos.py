"""Lanczos against eigvalsh, scipy's eigsh and spectra that are known by construction."""

import math

import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

from grok_lightning.errors import ConfigError
from grok_lightning.nets.mlp import EmbeddingMLPNet
from grok_lightning.numerics.eigen import MatVec
from grok_lightning.numerics.hvp import HessianOperator
from grok_lightning.numerics.lanczos import lanczos

F64 = torch.float64


def diagonal(values, dtype: torch.dtype = F64) -> MatVec:
    d = torch.as_tensor(values, dtype=dtype)
    return lambda v: d * v.to(dtype)


def rotated(values, seed: int = 0) -> Tensor:
    """A dense symmetric matrix with these eigenvalues."""
    d = torch.as_tensor(values, dtype=F64)
    generator = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(len(d), len(d), generator=generator, dtype=F64)).Q
    return Q @ torch.diag(d) @ Q.T


def expected(values: Tensor, k: int, which: str) -> Tensor:
    key = {"LA": values, "SA": -values, "LM": values.abs()}[which]
    return values[key.argsort(descending=True)[:k]].sort(descending=True).values


def true_residuals(A: Tensor, result) -> Tensor:
    V = result.eigenvectors.to(F64)
    return torch.linalg.vector_norm(V @ A - result.eigenvalues[:, None] * V, dim=1)


def is_orthonormal(V: Tensor, atol: float) -> bool:
    return torch.allclose(V @ V.T, torch.eye(len(V), dtype=V.dtype), rtol=0, atol=atol)


@pytest.mark.parametrize("which", ["LA", "SA", "LM"])
@pytest.mark.parametrize("max_krylov", [100, 12], ids=["one cycle", "thick restarts"])
@pytest.mark.parametrize(("dtype", "tol", "error"), [(F64, 1e-6, 1e-10), (torch.float32, 1e-4, 2e-6)])
@pytest.mark.parametrize("seed", [0, 1])
def test_random_indefinite_matrices_against_eigvalsh(which, max_krylov, dtype, tol, error, seed):
    A = rotated(torch.randn(300, generator=torch.Generator().manual_seed(seed), dtype=F64), seed)
    truth = torch.linalg.eigvalsh(A)
    low = A.to(dtype)
    result = lanczos(
        lambda v: low @ v, 300, 5, which=which, tol=tol, max_krylov=max_krylov, max_matvec=3000, dtype=dtype
    )
    assert result.converged.all()
    assert result.n_matvec > 12
    torch.testing.assert_close(result.eigenvalues, expected(truth, 5, which), rtol=error, atol=0)
    assert is_orthonormal(result.eigenvectors, 1e-12 if dtype == F64 else 1e-5)
    # the bound is the true residual up to rounding
    rounding = 1e-12 if dtype == F64 else 3e-6
    torch.testing.assert_close(result.residuals, true_residuals(A, result), rtol=1e-2, atol=rounding)
    assert (result.relative_residuals <= tol).all()
    assert result.lambda_min >= truth[0] - 1e-5
    if which != "LA":
        assert result.lambda_abs_max == pytest.approx(float(expected(truth, 1, "LM")), rel=1e-4)


def test_the_largest_is_the_algebraically_largest():
    result = lanczos(diagonal([1.0, -2.0]), 2, dtype=F64)
    assert result.eigenvalues.tolist() == pytest.approx([1.0], rel=1e-14)
    assert (result.lambda_min, result.lambda_abs_max) == pytest.approx((-2.0, -2.0), rel=1e-14)
    assert lanczos(diagonal([1.0, -2.0]), 2, which="LM", dtype=F64).eigenvalues.tolist() == pytest.approx([-2.0])


@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-5])
def test_nearly_degenerate_tops(gap):
    values = torch.cat([1 + gap * torch.arange(4, dtype=F64), torch.linspace(0, 0.8, 200, dtype=F64)])
    A = rotated(values)
    result = lanczos(lambda v: A @ v, len(values), 4, tol=1e-8, dtype=F64, max_matvec=1000)
    assert result.converged.all()
    torch.testing.assert_close(result.eigenvalues, expected(values, 4, "LA"), rtol=1e-10, atol=0)
    assert is_orthonormal(result.eigenvectors, 1e-12)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("which", ["LA", "SA", "LM"])
@pytest.mark.parametrize(
    ("values", "k"),
    [
        ([3.0, 3, 1, 0, 0, 0], 3),
        ([5.0, 5, 5, -7, -7, 0, 0, 0], 4),
        ([2.0] * 12, 5),
        ([3.0, 3, 3, 2, 2, 1] + [0.0] * 60, 6),
        ([0.0] * 9 + [-1.0], 4),
    ],
)
def test_every_copy_of_a_multiple_eigenvalue_is_found_after_a_breakdown(values, k, which, dtype):
    A = rotated(values).to(dtype)
    result = lanczos(lambda v: A @ v, len(values), k, which=which, tol=1e-5, dtype=dtype)
    truth = expected(torch.tensor(values, dtype=F64), k, which)
    torch.testing.assert_close(result.eigenvalues, truth, rtol=0, atol=1e-12 if dtype == F64 else 1e-5)
    assert result.n_matvec <= len(values)
    assert is_orthonormal(result.eigenvectors, 1e-12 if dtype == F64 else 1e-5)


def test_independent_blocks_are_reached_from_a_start_vector_inside_one():
    A = torch.block_diag(rotated([1.0, 2.0, 3.0]), rotated([10.0, 20.0]))
    start = torch.tensor([1.0, 2.0, 3.0, 0.0, 0.0])
    result = lanczos(lambda v: A @ v, 5, 4, start=start, dtype=F64)
    assert result.eigenvalues.tolist() == pytest.approx([20.0, 10.0, 3.0, 2.0], rel=1e-12)


def test_a_nearly_invariant_subspace_keeps_an_honest_residual():
    """Its remainder is dropped at this tolerance: the residual has to say so."""
    A = torch.diag(torch.tensor([3.0, 2.0, 1.5, 0.1, 0.2, 0.3], dtype=F64))
    A[2, 3] = A[3, 2] = 1e-5
    start = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    result = lanczos(lambda v: A @ v, 6, 2, start=start, tol=1e-3, dtype=F64)
    truth = true_residuals(A, result)
    assert truth.max() > 1e-6
    assert (result.residuals >= truth * (1 - 1e-9)).all()
    assert result.converged.all()


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_a_spectrum_over_many_decades_keeps_the_basis_orthonormal(dtype):
    """The remainder of a step is small against the product, so one Gram-Schmidt pass is not enough."""
    values = torch.logspace(0, -6, 60, dtype=F64)
    A = rotated(values).to(dtype)
    result = lanczos(lambda v: A @ v, 60, 8, tol=1e-4, dtype=dtype)
    assert is_orthonormal(result.eigenvectors, 1e-13 if dtype == F64 else 1e-6)


def test_no_ghost_copies_in_float32():
    """Without reorthogonalisation the top value comes back again and again once it has converged."""
    values = torch.cat([torch.tensor([100.0, 50.0]), torch.linspace(0, 1, 400)])
    result = lanczos(diagonal(values, torch.float32), 402, 4, tol=1e-4, max_krylov=200)
    assert result.converged.all()
    torch.testing.assert_close(result.eigenvalues, expected(values.double(), 4, "LA"), rtol=1e-5, atol=0)


@pytest.mark.parametrize("k", [1, 3])
def test_an_exactly_zero_operator(k):
    result = lanczos(torch.zeros_like, 50, k)
    assert torch.equal(result.eigenvalues, torch.zeros(k, dtype=F64))
    assert torch.equal(result.relative_residuals, torch.zeros(k, dtype=F64))
    assert result.converged.all()
    assert result.n_matvec == k
    assert (result.density.trace, result.density.frobenius_norm) == (0.0, 0.0)


@pytest.mark.parametrize("good", [0, 3])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_are_no_exception(good, bad):
    calls = []

    def matvec(v: Tensor) -> Tensor:
        calls.append(1)
        return torch.arange(30) * v if len(calls) <= good else torch.full_like(v, bad)

    result = lanczos(matvec, 30, 2)
    assert result.n_matvec == good + 1
    assert result.eigenvalues.isnan().all()
    assert result.eigenvectors.shape == (2, 30)
    assert not result.converged.any()
    assert math.isnan(result.lambda_min)
    assert result.next_start is None
    assert result.density is None


def test_more_pairs_than_dimensions():
    result = lanczos(diagonal([3.0, -1.0, 2.0]), 3, 10, dtype=F64)
    assert result.eigenvalues.tolist() == pytest.approx([3.0, 2.0, -1.0], rel=1e-13)
    assert result.converged.all()
    assert result.n_matvec == 3


def test_giving_up_is_reported():
    values = torch.linspace(0, 1, 500)
    result = lanczos(diagonal(values), 500, 3, max_matvec=10, dtype=F64)
    assert result.n_matvec == 10
    assert not result.converged.any()
    assert (result.residuals > 0).all()
    assert (result.eigenvalues < 1.0).all()


@pytest.mark.parametrize("max_matvec", [19, 20, 21, 35, 36])
def test_residuals_are_true_wherever_it_gives_up(max_matvec):
    """Also right where a restart would have been due."""
    A = rotated(torch.linspace(0, 1, 200))
    result = lanczos(lambda v: A @ v, 200, 3, max_krylov=20, max_matvec=max_matvec, dtype=F64, tol=1e-6)
    assert result.n_matvec == max_matvec
    torch.testing.assert_close(result.residuals, true_residuals(A, result), rtol=1e-8, atol=1e-13)
    assert not result.converged.any()


def test_a_warm_start_is_cheaper_and_recorded():
    values = torch.cat([torch.linspace(0, 1, 500), torch.tensor([1.1, 1.2])])
    A = rotated(values)
    cold = lanczos(lambda v: A @ v, 502, 2, dtype=F64)
    moved = A + 1e-3 * rotated(torch.linspace(-1, 1, 502), seed=5)
    again = lanczos(lambda v: moved @ v, 502, 2, dtype=F64)
    warm = lanczos(lambda v: moved @ v, 502, 2, start=cold.next_start, dtype=F64)
    assert (cold.warm_start, warm.warm_start) == (False, True)
    assert warm.n_matvec < again.n_matvec
    assert warm.density is None
    assert again.density is not None
    torch.testing.assert_close(warm.eigenvalues, expected(torch.linalg.eigvalsh(moved), 2, "LA"), rtol=1e-4, atol=0)


@pytest.mark.parametrize("start", [torch.zeros(4), torch.full((4,), math.nan), torch.ones(5), torch.ones(1, 4)])
def test_unusable_start_vectors(start):
    with pytest.raises(ValueError, match="finite nonzero"):
        lanczos(diagonal([1.0, 2, 3, 4]), 4, start=start)


def test_the_density_is_unbiased_and_exact_in_the_end():
    """Means over seeds against tr A and ‖A‖_F², within 4 standard errors; a full run reproduces A's moments."""
    values = torch.cat([torch.linspace(-1, 2, 90, dtype=F64), torch.tensor([8.0, -5.0], dtype=F64)])
    densities = [lanczos(diagonal(values), 92, dtype=F64, seed=seed).density for seed in range(300)]
    for found, truth in (
        (torch.tensor([d.trace for d in densities], dtype=F64), values.sum()),
        (torch.tensor([d.frobenius_norm**2 for d in densities], dtype=F64), values.square().sum()),
    ):
        assert abs(found.mean() - truth) < 4 * found.std() / math.sqrt(len(found))
        assert found.std() > 0
    for d in densities[:20]:
        assert float(d.weights.sum()) == pytest.approx(1.0, rel=1e-12)
        assert d.nodes.shape == d.weights.shape
    # more steps do not change the first moments of the same start vector, thick restarts or not
    runs = [lanczos(diagonal(values), 92, 3, tol=1e-10, max_krylov=m, dtype=F64).density for m in (10, 100)]
    assert runs[0].trace == pytest.approx(runs[1].trace, rel=1e-10)
    assert len(runs[0].nodes) == 10 < len(runs[1].nodes)


def test_the_start_vector_is_seeded_and_apart_from_the_global_generator():
    A = diagonal(torch.linspace(0, 1, 64))
    state = torch.get_rng_state()
    first, same, other = (lanczos(A, 64, seed=seed, dtype=F64) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.eigenvectors, same.eigenvectors)
    assert not torch.equal(first.eigenvectors, other.eigenvectors)
    seen: list[Tensor] = []
    lanczos(lambda v: seen.append(v.clone()) or v, 64, seed=3, dtype=F64)
    initial = torch.randn(64, generator=torch.Generator().manual_seed(3), dtype=F64)
    assert abs(torch.nn.functional.cosine_similarity(seen[0], initial, dim=0)) < 0.5


def test_the_reduce_hook_decides():
    """A second rank whose products differ in the last bits does what the first one does."""
    A = rotated(torch.linspace(0, 1, 200))
    record: list[Tensor] = []
    first = lanczos(lambda v: A @ v, 200, 3, dtype=F64, reduce=lambda x: record.append(x.clone()))
    assert len(record) >= first.n_matvec
    replay = iter(record)

    def replayed(x: Tensor) -> None:
        x.copy_(next(replay))

    second = lanczos(lambda v: A @ v * (1 + 1e-9), 200, 3, dtype=F64, reduce=replayed)
    assert next(replay, None) is None
    assert torch.equal(first.eigenvalues, second.eigenvalues)
    assert torch.equal(first.residuals, second.residuals)


def test_refusals():
    A = diagonal([1.0, 2.0])
    with pytest.raises(ConfigError, match=r"hessian\.k"):
        lanczos(A, 2, 0)
    with pytest.raises(ConfigError, match=r"hessian\.which"):
        lanczos(A, 2, which="BE")
    with pytest.raises(ConfigError, match="max_matvec"):
        lanczos(A, 2, 2, max_matvec=1)


def test_hessian_of_a_trained_net_against_scipy():
    """Top 3 of every block: eigvalsh of the dense float64 block, eigsh with our products, ours in float32."""
    torch.manual_seed(0)
    net = EmbeddingMLPNet(13, 11, d_model=6, hidden=16)
    a, b = torch.cartesian_prod(torch.arange(11), torch.arange(11)).T
    tokens, labels = torch.stack([a, torch.full_like(a, 11), b, torch.full_like(a, 12)], 1), (a + b) % 11
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(50):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(tokens), labels).backward()
        optimiser.step()
    with (
        HessianOperator(net, tokens, labels, net.blocks(), dtype=F64) as exact,
        HessianOperator(net, tokens, labels, net.blocks()) as op,
    ):
        for block, n in op.sizes.items():
            H = torch.stack([exact.hvp(block, e) for e in torch.eye(n)])
            truth = torch.linalg.eigvalsh(H)
            top = truth[-3:].flip(0)
            product = LinearOperator(
                (n, n), matvec=lambda v, b=block: exact.hvp(b, torch.as_tensor(v.ravel())).numpy(), dtype="float64"
            )
            oracle = eigsh(product, 3, which="LA", v0=torch.ones(n).numpy(), return_eigenvectors=False)
            assert sorted(oracle, reverse=True) == pytest.approx(top.tolist(), rel=1e-10)
            verified = lanczos(exact.matvec(block), n, 3, tol=1e-7, dtype=F64)
            torch.testing.assert_close(verified.eigenvalues, top, rtol=1e-12, atol=0)
            result = lanczos(op.matvec(block), n, 3)
            assert result.converged.all()
            torch.testing.assert_close(result.eigenvalues, top, rtol=1e-5, atol=0)
            assert result.n_matvec == op.n_hvp[block]
            lowest = lanczos(exact.matvec("all"), exact.sizes["all"], which="SA", dtype=F64)
        assert lowest.lambda_min == pytest.approx(float(truth[0]), rel=1e-5)
        assert lowest.lambda_min < 0
