"""Power iteration: right where it can be, and wrong where theory says so."""

import math

import pytest
import torch
from torch import Tensor

from grok_lightning.errors import ConfigError
from grok_lightning.numerics.lanczos import lanczos
from grok_lightning.numerics.power import power_iteration

F64 = torch.float64


def diagonal(values):
    d = torch.as_tensor(values, dtype=F64)
    return lambda v: d * v


def test_well_separated_values_with_both_signs():
    values = [16.0, -8.0, 4.0, 2.0, -1.0]
    result = power_iteration(diagonal(values), 5, 3, dtype=F64)
    assert result.method == "power"
    assert result.eigenvalues.tolist() == pytest.approx([16.0, 4.0, -8.0], rel=1e-12)  # by magnitude, then sorted
    assert result.lambda_abs_max == pytest.approx(16.0, rel=1e-12)
    assert result.n_matvec == 300
    assert result.converged.all()
    V = result.eigenvectors
    torch.testing.assert_close(V @ V.T, torch.eye(3, dtype=F64), rtol=0, atol=1e-12)
    torch.testing.assert_close(V.abs().argmax(1), torch.tensor([0, 2, 1]))


def test_the_most_negative_hides_the_largest():
    assert power_iteration(diagonal([1.0, -2.0]), 2, dtype=F64).eigenvalues.tolist() == pytest.approx([-2.0])
    assert lanczos(diagonal([1.0, -2.0]), 2, dtype=F64).eigenvalues.tolist() == pytest.approx([1.0])


def test_residuals_are_the_true_ones():
    values = torch.linspace(-1, 2, 60, dtype=F64)
    result = power_iteration(diagonal(values), 60, 2, n_iterations=15, dtype=F64)
    V = result.eigenvectors
    truth = torch.linalg.vector_norm(V * values - result.eigenvalues[:, None] * V, dim=1)
    torch.testing.assert_close(result.residuals, truth, rtol=1e-10, atol=1e-14)
    assert not result.converged.any()


def test_a_clustered_top_comes_out_too_small_where_lanczos_does_not():
    """Five values 2 % apart over a bulk: the decay (λ₂/λ₁)^200 has not done its work after 100 iterations."""
    values = torch.cat([torch.linspace(0, 0.9, 300, dtype=F64), 1 - 0.02 * torch.arange(5, dtype=F64)])
    truth = values.sort(descending=True).values[:5]
    power = power_iteration(diagonal(values), len(values), 5, dtype=F64)
    exact = lanczos(diagonal(values), len(values), 5, dtype=F64)
    error = [float((1 - r.eigenvalues / truth).abs().max()) for r in (power, exact)]
    assert error[0] > 1e-3 > 1e-5 > error[1]
    assert power.n_matvec == 500 > 5 * exact.n_matvec


def test_zero_null_space_nan_and_too_many():
    zero = power_iteration(torch.zeros_like, 20, 2)
    assert torch.equal(zero.eigenvalues, torch.zeros(2, dtype=F64))
    assert zero.converged.all()
    rank_one = power_iteration(diagonal([1.0, 0.0, 0.0]), 3, 5, dtype=F64)
    torch.testing.assert_close(rank_one.eigenvalues, torch.tensor([1.0, 0, 0], dtype=F64), rtol=0, atol=1e-12)
    u = torch.nn.functional.normalize(torch.arange(1.0, 31.0), dim=0)
    outer = power_iteration(lambda v: (u @ v) * u, 30, 3)  # rounding leaves a trace of u after deflation
    torch.testing.assert_close(outer.eigenvalues, torch.tensor([1.0, 0, 0], dtype=F64), rtol=0, atol=1e-6)
    nan = power_iteration(lambda v: v * math.nan, 20, 2)
    assert nan.eigenvalues.isnan().all()
    assert not nan.converged.any()
    assert nan.n_matvec == 1


def test_seeded_and_apart_from_the_global_generator():
    state = torch.get_rng_state()
    runs: list[Tensor] = [
        power_iteration(diagonal(torch.linspace(0, 1, 9)), 9, n_iterations=3, seed=s, dtype=F64).eigenvectors
        for s in (1, 1, 2)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_refusals():
    with pytest.raises(ConfigError, match=r"hessian\.k"):
        power_iteration(diagonal([1.0]), 1, 0)
    with pytest.raises(ConfigError, match="n_iterations"):
        power_iteration(diagonal([1.0]), 1, n_iterations=0)
