"""Ranks and singular values against numpy, scipy and closed forms."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from grok_lightning.numerics.spectra import (
    erank,
    erank_sq,
    numerical_rank,
    participation_ratio,
    rank_summary,
    singular_values,
    stable_rank,
)

NAMES = {"erank", "erank_sq", "stable_rank", "participation_ratio", "numerical_rank"}


def ranks_of(matrix):
    return rank_summary(singular_values(matrix), tuple(matrix.shape))


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_every_rank_of_a_scaled_identity_is_n(n):
    found = ranks_of(1e-3 * torch.eye(n))
    assert set(found) == NAMES
    assert found == pytest.approx(dict.fromkeys(NAMES, n))


def test_every_rank_of_a_rank_one_matrix_is_one():
    # powers of two: the outer product is exact, so no rounding adds to the rank
    u, v = 2.0 ** torch.arange(-3, 6), 2.0 ** torch.arange(4, -2, -1)
    assert ranks_of(torch.outer(u, v)) == pytest.approx(dict.fromkeys(NAMES, 1.0), abs=1e-12)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (0, 4)])
def test_a_zero_or_empty_matrix_has_rank_zero(shape):
    assert ranks_of(torch.zeros(shape)) == dict.fromkeys(NAMES, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_matrix_that_blew_up_gives_nan_and_no_exception(bad):
    M = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    M[1, 2] = bad
    sigma = singular_values(M)
    assert sigma.shape == (4,)
    assert sigma.isnan().all()
    assert all(math.isnan(x) for x in ranks_of(M).values())


@pytest.mark.parametrize("shape", [(99, 128), (512, 97), (33, 33)])
def test_spectrum_and_ranks_equal_numpy_and_scipy(shape):
    M = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * torch.linspace(0.01, 2, shape[1])
    before = M.clone()
    sigma = singular_values(M)
    exact = scipy.linalg.svdvals(M.numpy().astype(np.float64))
    assert sigma.dtype == torch.float64
    np.testing.assert_allclose(sigma.numpy(), exact, rtol=1e-11)
    assert torch.equal(M, before)
    found = ranks_of(M)
    assert found["erank"] == pytest.approx(np.exp(scipy.stats.entropy(exact)), rel=1e-12)
    assert found["erank_sq"] == pytest.approx(np.exp(scipy.stats.entropy(exact**2)), rel=1e-12)
    assert found["stable_rank"] == pytest.approx(
        np.linalg.norm(M.double(), "fro") ** 2 / np.linalg.norm(M.double(), 2) ** 2, rel=1e-12
    )
    # Σσ⁴ = ‖MᵀM‖_F²: no singular value enters this reference
    gram = M.double().numpy().T @ M.double().numpy()
    assert found["participation_ratio"] == pytest.approx(np.trace(gram) ** 2 / np.sum(gram**2), rel=1e-12)
    assert found["numerical_rank"] == np.linalg.matrix_rank(M.numpy())


def test_geometric_spectrum_has_its_closed_form_entropy():
    n, q = 30, 0.7
    sigma = q ** torch.arange(n, dtype=torch.float64)

    def entropy(r):
        # weights r^i / Z, i < n: H = ln Z − ln r · Σ i r^i / Z
        Z = (1 - r**n) / (1 - r)
        mean = r / (1 - r) - n * r**n / (1 - r**n)
        return math.log(Z) - mean * math.log(r)

    assert float(erank(sigma)) == pytest.approx(math.exp(entropy(q)), rel=1e-12)
    assert float(erank_sq(sigma)) == pytest.approx(math.exp(entropy(q**2)), rel=1e-12)
    assert float(stable_rank(sigma)) == pytest.approx((1 - q ** (2 * n)) / (1 - q**2), rel=1e-12)
    s2, s4 = (1 - q ** (2 * n)) / (1 - q**2), (1 - q ** (4 * n)) / (1 - q**4)
    assert float(participation_ratio(sigma)) == pytest.approx(s2**2 / s4, rel=1e-12)


def test_the_notions_differ_and_are_not_sum_over_max():
    # σ = (2, 1, 1): q = (½, ¼, ¼) and q² = (⅔, ⅙, ⅙)
    sigma = torch.tensor([2.0, 1.0, 1.0])
    assert float(erank(sigma)) == pytest.approx(2**1.5)
    assert float(erank_sq(sigma)) == pytest.approx((3 / 2) ** (2 / 3) * 6 ** (1 / 3))
    assert float(stable_rank(sigma)) == pytest.approx(1.5)
    assert float(participation_ratio(sigma)) == pytest.approx(2.0)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_ranks_do_not_change_with_scale_even_where_squares_leave_float64(scale):
    sigma = torch.tensor([3.0, 2.0, 0.5, 0.1], dtype=torch.float64)
    assert rank_summary(scale * sigma, (4, 4)) == pytest.approx(rank_summary(sigma, (4, 4)), rel=1e-12)


def test_numerical_rank_uses_the_tolerance_it_states():
    eps = float(np.finfo(np.float32).eps)
    shape, sigma = (
        (10, 40),
        torch.tensor([8.0, 1.0, 8 * 40 * eps * 1.01, 8 * 40 * eps * 0.99], dtype=torch.float64),
    )
    assert float(numerical_rank(sigma, shape)) == 3
    assert float(numerical_rank(sigma, shape, tol=1.0)) == 1  # strictly above
    assert float(numerical_rank(sigma, shape, tol=0.0)) == 4


def test_numerical_rank_sees_through_float32_rounding():
    generator = torch.Generator().manual_seed(2)
    M = torch.randn(60, 5, generator=generator) @ torch.randn(5, 80, generator=generator)
    assert ranks_of(M)["numerical_rank"] == 5 == np.linalg.matrix_rank(M.numpy())
    assert (singular_values(M) > 0).sum() == 60  # rounding did fill the rest


def test_low_precision_parameters_with_a_graph_are_accepted():
    M = torch.nn.Parameter(torch.eye(4, dtype=torch.bfloat16))
    sigma = singular_values(M)
    assert not sigma.requires_grad
    assert M.grad is None
    assert sigma.tolist() == [1.0] * 4


def test_a_vector_is_refused():
    with pytest.raises(ValueError, match="2-D"):
        singular_values(torch.ones(3))
