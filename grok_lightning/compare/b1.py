"""Claim B1 of arXiv:2505.20172: generalisation comes at a time of order 1/λ, λ the weight decay."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from grok_lightning.compare.cells import Bootstrap, grok_times
from grok_lightning.compare.evidence import Claim, Group, Verdict, resamples
from grok_lightning.compare.runs import Run
from grok_lightning.compare.settings import Value, show
from grok_lightning.numerics.inference import percentile_interval
from grok_lightning.numerics.survival import Times, median_time, medians_of_draws

LAMBDA = "model.weight_decay"
GROUPING = (
    "data", "data.task", "model", "model.optimizer", "model.momentum", "model.lr", "data.batch_size",
)  # fmt: skip
"""Settings that the claim speaks of: runs that differ in them are judged apart, pooled or not."""
TEXT = "T_grok ∝ 1/λ: the slope of log T_grok against log λ is −1 (λ ≪ ‖∇F(w_0)‖/‖w_GF‖)"
MIN_RUNS = 5
"""Fewest runs of a λ that can carry a verdict."""
SMALL = 0.1
"""What counts as ≪: the largest λ that is fitted, as a share of ‖∇F(w_0)‖/‖w_GF‖."""
MIN_VALUES, MIN_SPAN = 3, 10.0
"""Fewest values of λ in a fit, and the least ratio of the largest to the smallest."""
BAND = (-1.1, -0.9)
"""Slopes that count as −1: corrections of order λ log λ are part of the theory."""
STRAIGHT = (-1.25, -0.75)
"""Where the slope between neighbouring λ has to lie for a power law."""
LATE = 2.0
"""T_grok / T_mem at the smallest λ from which on there is a second phase to speak of; and how many times longer than
the fit predicts a λ may be watched without grokking before it speaks against the fit."""

Floats = NDArray[np.float64]


def judge_b1(group: Group, pool: Sequence[str], bootstrap: Bootstrap) -> Claim:
    """B1 by a fit of log T_grok on log λ. The rule was written before any run of it had been made.

    *What counts.* SGD without momentum, λ > 0, at least :data:`MIN_RUNS` runs of a λ, and λ at most :data:`SMALL`
    times the median of ``two_phase/bound`` = ‖∇F(w_0)‖/‖w_GF‖ over the runs: the theory is of gradient flow and of
    λ ≪ that bound. Larger λ decide nothing. At the smallest λ the median T_grok has to be at least :data:`LATE` times
    the median T_mem, or there is no second phase whose length could be judged.

    *Estimate.* T(λ) is the Kaplan–Meier median of T_grok (first crossing) over ALL runs of a λ; runs without it are
    censored at their last evaluation, so that a λ at which half of them or more never get there has no T and is not
    fitted. The slope is that of least squares over the λ that have one, each with the same weight. Its interval is
    the percentile interval over resamples of the runs (whole seeds, where every λ has the same ones).

    *Verdict.* Over at least :data:`MIN_VALUES` values of λ and a span of :data:`MIN_SPAN`: supported if the whole
    interval lies in :data:`BAND`, every slope between neighbouring λ lies in :data:`STRAIGHT`, and no λ without a T
    was watched for more than :data:`LATE` times what the fit predicts there; contradicted if the interval and
    :data:`BAND` are disjoint; else undetermined.
    """
    context, everything = group
    n = {show(decay): len(runs) for decay, runs in everything.items()}
    found = _sort_out(dict(context), everything)
    if isinstance(found, str):
        return Claim("B1", TEXT, context, "undetermined", n, "none", found, {}, "λ")
    fitted, open_ended, bound = found
    fit = _fit(fitted, pool, bootstrap)
    blocked = _against(open_ended, fit)
    verdict, why = _verdict(fit, blocked)
    if not math.isfinite(fit.low) or not math.isfinite(fit.high):
        why += "; in some resamples a λ has no median T_grok"
    numbers: dict[str, float | int | None] = {
        "slope": fit.slope, "slope_low": fit.low, "slope_high": fit.high, "bound": bound,
        "n_values": len(fitted), "lambda_low": min(fitted), "lambda_high": max(fitted),
        "steepest": min(fit.local), "flattest": max(fit.local),
    }  # fmt: skip
    local = ", ".join(f"{slope:.2f}" for slope in fit.local)
    estimate = f"slope {fit.slope:.3f} (interval {fit.low:.3f} to {fit.high:.3f}) over λ = {_names(fitted)}"
    estimate += f"; between neighbours {local}{_scaled(dict(context), fitted)}"
    return Claim("B1", TEXT, context, verdict, n, estimate, why + _left(everything, fitted, bound), numbers, "λ")


@dataclass(frozen=True)
class Fit:
    """Least squares of log T on log λ.

    Attributes:
        slope: The slope.
        low: Lower end of its interval.
        high: Upper end.
        level: log T at log λ = 0.
        local: Slopes between neighbouring λ.
    """

    slope: float
    low: float
    high: float
    level: float
    local: tuple[float, ...]


def _sort_out(
    context: Mapping[str, Value], cells: Mapping[Value, Sequence[Run]]
) -> tuple[dict[float, Sequence[Run]], dict[float, Sequence[Run]], float] | str:
    """Runs by λ that are fitted, those of λ without a median, and the bound; or what is lacking."""
    if context["model.optimizer"] != "sgd" or context["model.momentum"] not in (None, 0):
        return "the claim is about gradient flow: model.optimizer = sgd without momentum"
    bounds = [run.decay_bound for runs in cells.values() for run in runs if run.decay_bound is not None]
    if not bounds:
        return "no run recorded two_phase/bound: --two_phase.every_n_steps, and weights that fit the data"
    bound = float(np.median(bounds))
    small = {
        float(decay): runs
        for decay, runs in cells.items()
        if isinstance(decay, int | float) and 0 < decay <= SMALL * bound and len(runs) >= MIN_RUNS
    }
    medians = {decay: median_time(grok_times(runs, "first")) for decay, runs in small.items()}
    fitted = {decay: small[decay] for decay in sorted(small) if 0 < medians[decay] < math.inf}
    if len(fitted) < MIN_VALUES or max(fitted) / min(fitted) < MIN_SPAN * (1 - 1e-9):
        have = ", ".join(f"{show(decay)} ({len(runs)})" for decay, runs in cells.items())
        return (
            f"needs {MIN_VALUES} values of λ up to {SMALL * bound:.2g} ({SMALL:g} of the bound) and a span of "
            f"{MIN_SPAN:g} at which most of {MIN_RUNS} runs grok; runs by λ: {have}"
        )
    least = fitted[min(fitted)]
    mem = median_time(Times.of([run.clocks.t_mem["first"] for run in least], [run.clocks.last_step for run in least]))
    if medians[min(fitted)] < LATE * mem:
        times = f"T_grok {medians[min(fitted)]:g} and T_mem {mem:g} steps"
        return f"there is no second phase to time: at λ = {min(fitted):g} the medians are {times}"
    return fitted, {decay: small[decay] for decay in sorted(small) if decay not in fitted}, bound


def _fit(cells: Mapping[float, Sequence[Run]], pool: Sequence[str], bootstrap: Bootstrap) -> Fit:
    kept, draws = resamples({decay: list(runs) for decay, runs in cells.items()}, pool, bootstrap)
    x = np.log(np.array(list(kept)))
    times = {decay: grok_times(runs, "first") for decay, runs in kept.items()}
    y = np.log(np.array([median_time(own) for own in times.values()]))
    drawn = np.stack([medians_of_draws(own, draws[decay]) for decay, own in times.items()], axis=1)
    slope = float(_slopes(x, y[None])[0])
    low, high = percentile_interval(_slopes(x, np.log(np.maximum(drawn, 0.5))), bootstrap.level)
    local = tuple(float((b[1] - a[1]) / (b[0] - a[0])) for a, b in pairwise(zip(x, y, strict=True)))
    return Fit(slope, low, high, float(y.mean() - slope * x.mean()), local)


def _slopes(x: Floats, y: Floats) -> Floats:
    """Slopes of the rows of y over x; infinite where a time is, with the sign that its place gives."""
    weight = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    whole = np.isfinite(y).all(axis=1)
    finite: Floats = np.where(np.isfinite(y), y, 0.0) @ weight
    steep = np.where((np.isinf(y) * weight).sum(axis=1) > 0, math.inf, -math.inf)
    return np.where(whole, finite, steep)


def _against(open_ended: Mapping[float, Sequence[Run]], fit: Fit) -> str:
    """λ in reach of the theory that were watched long enough to grok by the fit, and did not."""
    for decay, runs in open_ended.items():
        predicted = math.exp(fit.level + fit.slope * math.log(decay))
        watched = min(run.clocks.last_step for run in runs)
        if watched > LATE * predicted:
            return f"most runs at λ = {decay:g} do not grok in {watched} steps, where the fit predicts {predicted:.0f}"
    return ""


def _verdict(fit: Fit, blocked: str) -> tuple[Verdict, str]:
    band = f"{BAND[0]:g} to {BAND[1]:g}"
    if fit.low > BAND[1] or fit.high < BAND[0]:
        return "contradicted", f"the interval of the slope lies outside {band}"
    if not BAND[0] <= fit.low <= fit.high <= BAND[1]:
        return "undetermined", f"the interval of the slope is not inside {band}, and not outside"
    inside = f"the interval of the slope lies in {band}"
    if not all(STRAIGHT[0] <= slope <= STRAIGHT[1] for slope in fit.local):
        steps = ", ".join(f"{slope:.2f}" for slope in fit.local)
        return "undetermined", f"{inside}, but T_grok is no power of λ: slopes between neighbouring λ are {steps}"
    return ("undetermined", f"{inside}, but {blocked}") if blocked else ("supported", inside)


def _scaled(context: Mapping[str, Value], cells: Mapping[float, Sequence[Run]]) -> str:
    """Median λ·η·T_grok of every λ: constant if the claim holds."""
    lr = context["model.lr"]
    if not isinstance(lr, int | float):
        return ""
    each = (decay * lr * median_time(grok_times(runs, "first")) for decay, runs in cells.items())
    return f"; λ·lr·T_grok {', '.join(f'{value:.3g}' for value in each)}"


def _left(cells: Mapping[Value, Sequence[Run]], fitted: Mapping[float, Sequence[Run]], bound: float) -> str:
    left = [decay for decay in cells if decay not in fitted]
    return f"; not fitted: λ = {_names(left)} (bound {bound:.3g})" if left else f" (bound {bound:.3g})"


def _names(values: Sequence[Value] | Mapping[float, object]) -> str:
    return ", ".join(show(value) for value in values)
