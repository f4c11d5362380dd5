"""Pairs of runs that share their seeds, each with a time that may be censored."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import t as student

from grok_lightning.numerics.inference import (
    percentile_interval,
    sign_test,
    signed_rank,
    smallest_sign_p,
)

Order = Literal["sooner", "later", "tied", "undetermined"]


@dataclass(frozen=True)
class Pair:
    """A run and its base of the same seeds.

    Attributes:
        time: T of the run, or the last step at which it had not got there.
        observed: Whether T was observed.
        base_time: The same of the base.
        base_observed: The same of the base.
    """

    time: float
    observed: bool
    base_time: float
    base_observed: bool

    @property
    def order(self) -> Order:
        """Which of the two came first, as far as it is known.

        A run censored at t has its time beyond t, so it is later than one that was observed at t or before.
        """
        if self.observed and self.base_observed:
            return "tied" if self.time == self.base_time else "sooner" if self.time < self.base_time else "later"
        if self.observed and self.base_time >= self.time:
            return "sooner"
        if self.base_observed and self.time >= self.base_time:
            return "later"
        return "undetermined"

    @property
    def ratio(self) -> tuple[float, float]:
        """What T / T_base can be: both ends equal if both are observed, (0, ∞) if neither is or T_base is 0."""
        if self.base_time <= 0:
            return 0.0, math.inf
        quotient = self.time / self.base_time
        return quotient if self.base_observed else 0.0, quotient if self.observed else math.inf


@dataclass(frozen=True)
class PairedTest:
    """What pairs of equal seeds say about T against T_base.

    Attributes:
        n: Pairs.
        sooner: Pairs in which the run came first.
        later: Pairs in which the base came first.
        tied: Pairs with equal times, to within the distance of evaluations.
        undetermined: Pairs in which censoring hides who came first.
        sign_p: Exact two-sided sign test on the pairs that are sooner or later; ``None`` if there are none.
        sooner_p: One-sided p-value of "sooner".
        later_p: One-sided p-value of "later".
        smallest_p: Smallest two-sided p-value that n pairs could reach.
        wilcoxon_p: Exact signed-rank test of T − T_base; ``None`` if a pair is censored or all are tied.
        rank_biserial: Of the same, in [−1, 1]; negative where the run is sooner.
        ratio: Least and greatest value that the median of T / T_base can have; equal without censoring.
        ratio_interval: Bootstrap percentile interval over pairs, of both; ``None`` for fewer than two pairs.
    """

    n: int
    sooner: int
    later: int
    tied: int
    undetermined: int
    sign_p: float | None
    sooner_p: float | None
    later_p: float | None
    smallest_p: float
    wilcoxon_p: float | None
    rank_biserial: float | None
    ratio: tuple[float, float] | None
    ratio_interval: tuple[float, float] | None


def paired_test(pairs: Sequence[Pair], n_draws: int, level: float, generator: np.random.Generator) -> PairedTest:
    """Compare a group with its base over shared seeds; see :class:`PairedTest`."""
    orders = [pair.order for pair in pairs]
    sooner, later = orders.count("sooner"), orders.count("later")
    whole = all(pair.observed and pair.base_observed for pair in pairs)
    ranks = signed_rank([pair.time - pair.base_time for pair in pairs]) if whole else None
    bounds = np.array([pair.ratio for pair in pairs], dtype=float).reshape(-1, 2)
    return PairedTest(
        n=len(pairs),
        sooner=sooner,
        later=later,
        tied=orders.count("tied"),
        undetermined=orders.count("undetermined"),
        sign_p=sign_test(sooner, sooner + later),
        sooner_p=sign_test(sooner, sooner + later, "greater"),
        later_p=sign_test(later, sooner + later, "greater"),
        smallest_p=smallest_sign_p(len(pairs)),
        wilcoxon_p=None if ranks is None else ranks.p_value,
        rank_biserial=None if ranks is None else ranks.rank_biserial,
        ratio=(float(np.median(bounds[:, 0])), float(np.median(bounds[:, 1]))) if pairs else None,
        ratio_interval=_ratio_interval(bounds, n_draws, level, generator),
    )


def mean_interval(differences: Sequence[float], level: float) -> tuple[float, float] | None:
    """Student's interval of a mean, ``d̄ ± t_{(1 + level)/2, n−1} · s/√n``; ``None`` for fewer than two values.

    It takes differences to be normal, and holds its level for any n where they are; the bootstrap, which does not need
    that, covers too little with five pairs.
    """
    n = len(differences)
    if n < 2:
        return None
    values = np.asarray(differences, dtype=float)
    half = float(student.ppf((1 + level) / 2, n - 1) * values.std(ddof=1) / n**0.5)
    return float(values.mean()) - half, float(values.mean()) + half


def _ratio_interval(
    bounds: np.typing.NDArray[np.float64], n_draws: int, level: float, generator: np.random.Generator
) -> tuple[float, float] | None:
    """Lower end from the least values, upper end from the greatest, so that it holds for every completion."""
    n = len(bounds)
    if n < 2:
        return None
    draws = generator.integers(n, size=(n_draws, n))
    low, _ = percentile_interval(np.median(bounds[:, 0][draws], axis=1), level)
    _, high = percentile_interval(np.median(bounds[:, 1][draws], axis=1), level)
    return low, high
