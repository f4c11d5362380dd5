"""Interpolators of least norm against their optimality conditions and an exhaustive search."""

from itertools import combinations

import numpy as np
import pytest

from grok_lightning.numerics.interpolators import distance, least_l1, least_l2, nuclear_norm


@pytest.mark.parametrize("seed", range(5))
def test_least_l1_is_the_best_of_all_basic_solutions(seed):
    """Some minimiser has at most n entries: try every support of n."""
    generator = np.random.default_rng(seed)
    X, y = generator.normal(size=(3, 7)), generator.normal(size=3)
    best = min(np.abs(np.linalg.solve(X[:, list(support)], y)).sum() for support in combinations(range(7), 3))
    found = least_l1(X, y)
    assert X @ found == pytest.approx(y, abs=1e-9)
    assert np.abs(found).sum() == pytest.approx(best, rel=1e-9)


def test_least_l2_is_in_the_row_space_and_interpolates():
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(4, 9)), generator.normal(size=4)
    found = least_l2(X, y)
    assert X @ found == pytest.approx(y)
    assert found == pytest.approx(X.T @ np.linalg.solve(X @ X.T, y))


def test_without_an_interpolator_there_is_no_least_one():
    assert least_l1(np.array([[1.0], [1.0]]), np.array([0.0, 1.0])) is None


def test_distance_and_nuclear_norm_by_hand():
    assert distance(np.array([3.0, 4.0]), np.array([3.0, 0.0])) == pytest.approx(4 / 3)
    assert np.isnan(distance(np.ones(2), np.zeros(2)))
    assert nuclear_norm(np.diag([3.0, -2.0, 0.0])) == pytest.approx(5)
