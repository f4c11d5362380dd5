"""When a run memorises and when it generalises.

All times are in optimiser steps and lie on the grid of evaluations; a crossing at step t means that the weights
after t updates were the first evaluated ones above the threshold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

ROUNDING = 1e-7
"""Accuracies are kept in float32, where 38/40 falls short of 0.95 by 5e-8."""


@dataclass(frozen=True)
class Crossing:
    """When a series reached a threshold.

    Attributes:
        first: First step at or above the threshold; ``None`` if there is none.
        sustained: First step from which the series stays at or above the threshold; ``None`` if there is none.
        resolution: Distance in steps to the evaluation before ``first`` (the crossing lies within it); ``None``
            without a crossing.
    """

    first: int | None
    sustained: int | None
    resolution: int | None


def crossing(
    steps: Sequence[int], values: Sequence[float], threshold: float, n_evaluations: int | None = None
) -> Crossing:
    """First and sustained crossing of a threshold.

    ``first = min{t : v(t) ≥ threshold}``; ``sustained = min{t : v(s) ≥ threshold for every logged s ≥ t}``, or,
    given n, for the n evaluations from t on. Not-a-number never reaches a threshold.

    Args:
        steps: Steps of the evaluations, strictly increasing.
        values: One value per step.
        threshold: Level to reach.
        n_evaluations: How many evaluations in a row count as sustained; ``None`` asks for the rest of the run.

    Raises:
        ValueError: If lengths differ, steps do not increase, or n_evaluations is below 1.
    """
    if len(steps) != len(values):
        raise ValueError(f"{len(steps)} steps but {len(values)} values")
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise ValueError("steps have to increase strictly")
    if n_evaluations is not None and n_evaluations < 1:
        raise ValueError(f"n_evaluations = {n_evaluations}: must be 1 or more")
    level = threshold * (1 - ROUNDING)
    above = [value >= level for value in values]  # False for nan
    first = next((i for i, hit in enumerate(above) if hit), None)
    if first is None:
        return Crossing(None, None, None)
    run = _long_run(above, n_evaluations)
    sustained = None if run is None else steps[run]
    return Crossing(steps[first], sustained, steps[first] - (steps[first - 1] if first else 0))


def _long_run(above: Sequence[bool], n: int | None) -> int | None:
    """Start of the first run of n hits, or of the run that lasts to the end."""
    start: int | None = None
    for i, hit in enumerate(above):
        start = None if not hit else i if start is None else start
        if n is not None and start is not None and i - start + 1 == n:
            return start
    return start if n is None else None


@dataclass(frozen=True)
class GrokClocks:
    """Clocks of a run, in optimiser steps.

    Attributes:
        t_mem: Training accuracy reaches ``mem_threshold`` (arXiv:2505.15624: 0.99).
        t_grok: Accuracy on held-out pairs reaches ``grok_threshold`` (0.95; arXiv:2607.06639 uses 0.90).
    """

    t_mem: Crossing
    t_grok: Crossing

    @property
    def delay(self) -> int | None:
        """T_grok - T_mem from the first crossings; ``None`` unless the run reached both."""
        if self.t_mem.first is None or self.t_grok.first is None:
            return None
        return self.t_grok.first - self.t_mem.first

    def as_dict(self) -> dict[str, int | None]:
        """Flat form: clock name → steps."""
        return {
            "t_mem": self.t_mem.first,
            "t_mem_sustained": self.t_mem.sustained,
            "t_grok": self.t_grok.first,
            "t_grok_sustained": self.t_grok.sustained,
            "delay": self.delay,
        }


def check_threshold(value: float) -> bool:
    """Whether an accuracy threshold makes sense: in (0, 1]."""
    return math.isfinite(value) and 0 < value <= 1
