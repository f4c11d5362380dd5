"""Whether a logged series can be read at all, and whether its end is flat.

Every function returns reasons as strings that start with a code and a colon; none means all is well.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median, pstdev, stdev


def unusable(steps: Sequence[int], values: Sequence[float], what: str, top: float) -> tuple[str, ...]:
    """Reasons why a series cannot be read.

    Args:
        steps: One step per value; they have to increase strictly.
        values: Finite, in [0, top].
        what: Name of the series in the reasons.
        top: Largest value that makes sense.

    Returns:
        Reasons with the codes ``no_points``, ``single_point``, ``non_monotone_steps``, ``not_finite`` and
        ``out_of_range``.
    """
    if len(values) < 2:
        return (f"single_point: {what} was logged once" if values else f"no_points: {what} was never logged",)
    back = next(((a, b) for a, b in pairwise(steps) if b <= a), None)
    bad = [i for i, value in enumerate(values) if not math.isfinite(value)]
    out = [value for value in values if math.isfinite(value) and not 0 <= value <= top]
    reasons = []
    if back is not None:
        reasons.append(f"non_monotone_steps: step {back[1]} of {what} follows step {back[0]}")
    if bad:
        first = steps[bad[0]]
        reasons.append(f"not_finite: {len(bad)} of {len(values)} {what} values, first at step {first}")
    if out:
        reasons.append(f"out_of_range: {what} {out[0]:g} is not in [0, {top:g}]")
    return tuple(reasons)


def not_flat(
    steps: Sequence[int], values: Sequence[float], n: int, horizon: int, margin: float, max_cv: float
) -> tuple[str, ...]:
    """Reasons why the last n points are not a plateau.

    Two blocks are compared: the n points and the n before them; or, where the n points cover half of the horizon
    (a log-spaced record), the halves of the n points. With the medians m₁, m₂ of their k values each and t₁, t₂
    of their steps, ``rate = (m₂ - m₁) / (t₂ - t₁)``; the end is flat iff ``|rate|·horizon ≤ margin`` and the
    standard deviation of the last n is at most max_cv times their mean. A trend is called noise unless
    ``|m₂ - m₁| > 2·sqrt(π/2)·sqrt((s₁² + s₂²)/k)``, twice the standard error for normal samples. Noise is no
    plateau either.

    Args:
        steps: Steps, strictly increasing.
        values: One value per step; at least 2n of them.
        n: Points of the window, 2 or more.
        horizon: Steps for which the present trend is carried on.
        margin: Largest change over the horizon, in units of the values.
        max_cv: Largest coefficient of variation.

    Returns:
        Reasons with the codes ``floor_falling``, ``floor_rising``, ``floor_unclear`` and ``floor_noisy``.
    """
    last = values[-n:]
    k, skipped = (n // 2, n % 2) if n >= 4 and 2 * (steps[-1] - steps[-n]) >= horizon else (n, 0)
    early, late = slice(-2 * k - skipped, -k - skipped), slice(-k, None)
    before, after = values[early], values[late]
    change = median(after) - median(before)
    moved = change / (median(steps[late]) - median(steps[early])) * horizon
    cv = pstdev(last) / fmean(last) if fmean(last) > 0 else 0.0
    reasons = []
    if abs(moved) > margin:
        error = math.sqrt(math.pi / 2) * math.sqrt((stdev(before) ** 2 + stdev(after) ** 2) / k)
        code, still = ("floor_rising", "rising again") if change > 0 else ("floor_falling", "still falling")
        if abs(change) <= 2 * error:
            code, still = "floor_unclear", "too noisy to be shown flat"
        trend = f"its trend over the last {2 * k} points, kept up for {horizon} steps (as many as since T_grok),"
        reasons.append(f"{code}: floor is {still}: {trend} moves it by {moved:+.3g} (limit ±{margin:.3g})")
    if cv > max_cv:
        reasons.append(f"floor_noisy: varies by {cv:.0%} of its mean in the window (limit {max_cv:.0%})")
    return tuple(reasons)
