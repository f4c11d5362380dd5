"""Rates, p-values and intervals for small numbers of runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, fisher_exact, rankdata

Alternative = Literal["two-sided", "less", "greater"]


def wilson(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a rate k/n.

    ``(k + z²/2 ± z √(k(n−k)/n + z²/4)) / (n + z²)`` with z the normal quantile of (1 + level)/2.

    Raises:
        ValueError: If n is 0 or k is not in [0, n].
    """
    interval = binomtest(k, n).proportion_ci(confidence_level=level, method="wilson")
    return float(interval.low), float(interval.high)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down adjustment: ``p̃_(i) = max_{j ≤ i} min(1, (m − j + 1) p_(j))`` over the m tests of a family.

    ``None`` is a test that could not be made; it stays ``None`` and does not count in m. Source: Holm 1979.
    """
    made = [i for i, p in enumerate(p_values) if p is not None]
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for done, i in enumerate(sorted(made, key=lambda i: p_values[i] or 0.0)):
        highest = max(highest, min(1.0, (len(made) - done) * (p_values[i] or 0.0)))
        adjusted[i] = highest
    return adjusted


def sign_test(k: int, n: int, alternative: Alternative = "two-sided") -> float | None:
    """Exact sign test: p-value of k successes in n fair coin tosses; ``None`` for n = 0."""
    return None if n == 0 else float(binomtest(k, n, 0.5, alternative=alternative).pvalue)


def smallest_sign_p(n: int) -> float:
    """``2 · 2^−n``: the smallest two-sided p-value that n pairs can reach (1 for none)."""
    return min(1.0, 2.0 ** (1 - n))


def lower_rate_p(k: int, n: int, k_other: int, n_other: int) -> float:
    """One-sided Fisher exact p-value of "rate k/n is lower than k_other/n_other"."""
    table = [[k, n - k], [k_other, n_other - k_other]]
    return float(fisher_exact(table, alternative="less").pvalue)


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test.

    Attributes:
        p_value: Exact two-sided p-value over all 2^n signs, ties included.
        rank_biserial: ``(W₊ − W₋)/(W₊ + W₋)`` in [−1, 1]: the matched-pairs rank-biserial correlation.
        n: Differences that are not zero.
    """

    p_value: float
    rank_biserial: float
    n: int


def signed_rank(differences: Sequence[float]) -> SignedRank | None:
    """Exact Wilcoxon signed-rank test that differences are symmetric about 0; zeros are left out first.

    Times on a grid of evaluations tie often, which scipy's exact form does not allow for; here the distribution
    of W₊ under random signs is counted for the mid-ranks as they are.

    Returns:
        ``None`` if every difference is zero.
    """
    kept = np.array([d for d in differences if d != 0.0])
    if len(kept) == 0:
        return None
    doubled = np.rint(2 * rankdata(np.abs(kept))).astype(int)  # mid-ranks are halves
    total = int(doubled.sum())
    chances = np.zeros(total + 1)
    chances[0] = 1.0
    for rank in doubled:
        chances = (chances + np.concatenate([np.zeros(rank), chances[: total + 1 - rank]])) / 2
    plus = int(doubled[kept > 0].sum())
    extreme = min(plus, total - plus)
    p_value = min(1.0, 2 * float(chances[: extreme + 1].sum()))
    return SignedRank(p_value, (2 * plus - total) / total, len(kept))


def percentile_interval(values: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Ends that leave at most (1 − level)/2 of the values on either side; values may be infinite."""
    ordered = np.sort(values)
    tail = (1.0 - level) / 2
    low = min(math.floor(tail * len(ordered)), len(ordered) - 1)
    return float(ordered[low]), float(ordered[len(ordered) - 1 - low])


def median_of_values(
    values: Sequence[float], n_draws: int, level: float, generator: np.random.Generator
) -> tuple[float, float] | None:
    """Bootstrap percentile interval of the median; ``None`` for fewer than two values."""
    if len(values) < 2:
        return None
    draws = generator.integers(len(values), size=(n_draws, len(values)))
    return percentile_interval(np.median(np.asarray(values, dtype=float)[draws], axis=1), level)
