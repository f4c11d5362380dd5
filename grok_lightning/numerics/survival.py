"""Times to an event that some runs were not watched long enough to see: Kaplan–Meier, log-rank, bootstrap.

Right-censoring: a run without the event up to step t is known to have its time beyond t, and nothing else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import CensoredData, ecdf, logrank

from grok_lightning.numerics.inference import percentile_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 1e-12
"""S(t) is a product of fractions; 1/2 may come out a rounding error above it."""


@dataclass(frozen=True)
class Times:
    """One time per run.

    Attributes:
        times: Time of the event, or, where it was not observed, the last time it was known not to have happened.
        observed: Whether the event was observed.
    """

    times: tuple[float, ...]
    observed: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.times) != len(self.observed):
            raise ValueError(f"{len(self.times)} times but {len(self.observed)} marks")
        if not all(math.isfinite(time) for time in self.times):
            raise ValueError("times have to be finite")

    @classmethod
    def of(cls, events: Sequence[float | None], ends: Sequence[float]) -> "Times":
        """Event times, ``None`` where the run ended (at ``ends``) without one."""
        pairs = list(zip(events, ends, strict=True))
        return cls(
            tuple(end if event is None else event for event, end in pairs),
            tuple(event is not None for event, _ in pairs),
        )

    def __len__(self) -> int:
        return len(self.times)

    @property
    def n_events(self) -> int:
        """How many events were observed."""
        return sum(self.observed)

    @property
    def censored(self) -> tuple[float, ...]:
        """Sorted times at which runs were last seen without the event."""
        return tuple(sorted(time for time, seen in zip(self.times, self.observed, strict=True) if not seen))

    def as_scipy(self) -> CensoredData:
        """The form that scipy.stats takes."""
        uncensored = [time for time, seen in zip(self.times, self.observed, strict=True) if seen]
        return CensoredData(uncensored=uncensored, right=list(self.censored))


def survival_curve(times: Times) -> tuple[Floats, Floats]:
    """Kaplan–Meier estimate ``S(t) = Π_{t_i ≤ t} (1 − d_i/n_i)``: the share without the event after t.

    d_i events at t_i among n_i runs still watched (those censored at t_i included).

    Returns:
        The distinct times, increasing, shape (k,), and S right after each of them, shape (k,).

    Raises:
        ValueError: If there is no run.
    """
    if len(times) == 0:
        raise ValueError("no times")
    function = ecdf(times.as_scipy()).sf
    return np.asarray(function.quantiles, dtype=float), np.asarray(function.probabilities, dtype=float)


def median_time(times: Times) -> float:
    """``min{t : S(t) ≤ 1/2}`` of the Kaplan–Meier estimate; infinite if half of the runs never get there.

    Raises:
        ValueError: If there is no run.
    """
    at, share = survival_curve(times)
    reached = share <= 0.5 + _ROUNDING
    return float(at[reached.argmax()]) if reached.any() else math.inf


def medians_of_draws(times: Times, draws: Ints) -> Floats:
    """The median of :func:`median_time` for many resamples at once.

    Args:
        times: The runs.
        draws: Which runs each resample holds, shape (n_draws, n).

    Returns:
        Shape (n_draws,).
    """
    time, seen = np.array(times.times, dtype=float), np.array(times.observed)
    order = np.lexsort((~seen, time))  # at equal times events come first: who is censored then was still watched
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    ranks = np.sort(place[draws], axis=1)
    time, seen = time[order][ranks], seen[order][ranks]
    n = draws.shape[1]
    watched = n - np.arange(n)
    share = np.cumprod(np.where(seen, (watched - 1) / watched, 1.0), axis=1)
    reached = share <= 0.5 + _ROUNDING
    first = reached.argmax(axis=1)
    found = time[np.arange(len(draws)), first]
    return np.where(reached.any(axis=1), found, math.inf)


def median_interval(
    times: Times, n_draws: int, level: float, generator: np.random.Generator
) -> tuple[float, float] | None:
    """Bootstrap percentile interval of :func:`median_time`: runs are resampled with their censoring.

    Args:
        times: The runs.
        n_draws: Number of resamples.
        level: Coverage, such as 0.95.
        generator: Source of the resamples.

    Returns:
        Lower and upper end, infinite where not reached; ``None`` for fewer than two runs.
    """
    if len(times) < 2:
        return None
    draws = generator.integers(len(times), size=(n_draws, len(times)))
    return percentile_interval(medians_of_draws(times, draws), level)


def logrank_p(one: Times, other: Times) -> float | None:
    """Two-sided p-value of the log-rank test that two groups have the same distribution of times.

    Returns:
        ``None`` where the test says nothing: fewer than two runs in a group, or no event that tells them apart.
    """
    if min(len(one), len(other)) < 2 or one.n_events + other.n_events == 0:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):  # zero variance, answered below
        p_value = float(logrank(one.as_scipy(), other.as_scipy()).pvalue)
    return p_value if math.isfinite(p_value) else None
