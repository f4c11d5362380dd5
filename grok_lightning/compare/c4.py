"""Claim C4 of arXiv:2505.15624: test accuracy has an optimum in c, near 10."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grok_lightning.compare.cells import Bootstrap, grok_times
from grok_lightning.compare.evidence import Claim, Draws, Group, Verdict, rates_by, resamples
from grok_lightning.compare.runs import Run
from grok_lightning.compare.settings import Value, show
from grok_lightning.numerics.inference import percentile_interval, wilson
from grok_lightning.numerics.survival import medians_of_draws

TEXT = "test accuracy against c has an interior optimum near 10; large c is unstable"
NEAR = (4.0, 16.0)
"""What counts as near 10."""
LARGE = 32.0
"""The least c that counts as large: the one that does not generalise in arXiv:2505.15624."""
MIN_RUNS = 5
"""Fewest runs of a c that can carry a verdict: resamples of fewer repeat themselves."""

_TIE = 1e-12
Cells = dict[float, list[Run]]
Accuracies = NDArray[np.float64]


def judge_c4(group: Group, pool: Sequence[str], alpha: float, bootstrap: Bootstrap) -> Claim:
    """C4 in two parts, both over the values of c with at least :data:`MIN_RUNS` runs.

    *Optimum.* Runs are resampled (whole seeds, where every c has the same ones; else inside each c); in each
    resample the best c is the one with the highest mean test accuracy at one step for all: the last up to which every
    run was evaluated, so that runs which stop early are not compared with longer ones. (The rule was settled after
    the sweep of docs/sweeps.md had been seen; last accuracies of runs of unequal length had given the opposite.)
    Part holds if the best c lies
    in :data:`NEAR` and is neither the smallest nor the largest in at least 1 − alpha of the resamples, fails if in
    at most alpha of them. Values of c that are equally good share a resample.

    *Instability.* The largest c (it has to be at least :data:`LARGE`) against the one nearest to 10 in log c, named
    before looking. Part holds if in at least 1 − alpha of the resamples the largest c has the lower mean accuracy,
    or the lower share of grokked runs (by a step up to which all runs are known); fails if both are so in at most
    alpha of them and most runs of the largest c grok (Wilson interval above 1/2).

    Supported if both hold, contradicted if either fails, else undetermined. The c with the least median T_grok is
    reported beside them and decides nothing.
    """
    context, everything = group
    cells = _usable(everything)
    n = {show(c): len(runs) for c, runs in everything.items()}
    if not any(NEAR[0] <= c <= NEAR[1] for c in list(cells)[1:-1]):
        have = ", ".join(f"{c} ({k})" for c, k in n.items())
        why = f"needs {MIN_RUNS} runs each of a c in 4–16, a smaller and a larger one; runs by c: {have}"
        return Claim("C4", TEXT, context, "undetermined", n, "none", why, {})
    cells, draws = resamples(cells, pool, bootstrap)
    step = min(run.test_acc[0][-1] for runs in cells.values() for run in runs)
    acc = {c: np.array([run.test_acc_at(step) for run in runs], dtype=float) for c, runs in cells.items()}
    optimum, best = _optimum(acc, draws)
    sooner = _soonest(cells, draws)
    numbers: dict[str, float | int | None] = {
        "step": step, "share_optimum_interior": optimum, "share_t_grok_interior": sooner,
    }  # fmt: skip
    estimate = (
        f"best mean accuracy at step {step} at c = {show(best)}; interior and in 4–16 in {optimum:.1%} of resamples"
    )
    estimate += "" if sooner is None else f" (least median T_grok: {sooner:.1%})"
    unstable = _instability(cells, acc, draws, bootstrap) if max(cells) >= LARGE else None
    if unstable is not None:
        numbers |= vars(unstable)
        estimate += f"; accuracy at c = {show(unstable.c_large)} {unstable.words()}"
    verdict, why = _verdict(optimum, unstable, alpha)
    return Claim("C4", TEXT, context, verdict, n, estimate, why + _caveats(cells, step), numbers)


def _usable(cells: Mapping[Value, Sequence[Run]]) -> Cells:
    """Values of c, in order, with enough runs whose test accuracy is known."""
    found: Cells = {}
    for c, runs in cells.items():
        known = [run for run in runs if run.test_acc[0]]
        if isinstance(c, int | float) and len(known) >= MIN_RUNS:
            found[float(c)] = known
    return dict(sorted(found.items()))


def _inside(cells: Mapping[float, object]) -> NDArray[np.bool_]:
    """Which values of c are near 10 and neither the smallest nor the largest."""
    values = np.array(list(cells))
    inside: NDArray[np.bool_] = (values >= NEAR[0]) & (values <= NEAR[1])
    inside[[0, -1]] = False
    return inside


def _optimum(acc: Mapping[float, Accuracies], draws: Draws) -> tuple[float, float]:
    """Share of resamples with the highest accuracy where the claim has it, and the best c of all runs."""
    means = np.stack([own[draws[c]].mean(axis=1) for c, own in acc.items()], axis=1)
    return _share(means, _inside(acc)), max(acc, key=lambda c: float(acc[c].mean()))


def _soonest(cells: Cells, draws: Draws) -> float | None:
    """The same share for the least median T_grok; ``None`` if in some resample no c has a median."""
    times = np.stack([medians_of_draws(grok_times(runs, "first"), draws[c]) for c, runs in cells.items()], axis=1)
    if not np.isfinite(times).any(axis=1).all():
        return None
    return _share(np.where(np.isfinite(times), -times, -np.finfo(float).max), _inside(cells))


def _share(scores: NDArray[np.float64], inside: NDArray[np.bool_]) -> float:
    best = scores >= scores.max(axis=1, keepdims=True) - _TIE
    return float(((best & inside).sum(axis=1) / best.sum(axis=1)).mean())


@dataclass(frozen=True)
class Instability:
    """The largest c against the one nearest to 10.

    Attributes:
        c_large: The largest c.
        c_near: The one nearest to 10.
        difference: Mean accuracy at c_large minus that at c_near.
        difference_low: Lower end of its interval.
        difference_high: Upper end of its interval.
        share_acc_lower: Share of resamples in which it is negative.
        share_rate_lower: Share of resamples in which fewer runs grok at c_large.
        grokked_large: Runs that grok at c_large by the step ``horizon``.
        grokked_near: Runs that grok at c_near by the step ``horizon``.
        horizon: Step up to which all these runs are known.
        rate_large_low: Lower end of the Wilson interval of grokked_large as a share.
    """

    c_large: float
    c_near: float
    difference: float
    difference_low: float
    difference_high: float
    share_acc_lower: float
    share_rate_lower: float
    grokked_large: int
    grokked_near: int
    horizon: int
    rate_large_low: float

    def words(self) -> str:
        """The difference with its interval."""
        interval = f"{self.difference_low:+.3f} to {self.difference_high:+.3f}"
        return f"minus at c = {show(self.c_near)}: {self.difference:+.3f} (interval {interval})"


def _instability(cells: Cells, acc: Mapping[float, Accuracies], draws: Draws, bootstrap: Bootstrap) -> Instability:
    large = max(cells)
    near = min((c for c in cells if NEAR[0] <= c <= NEAR[1]), key=lambda c: abs(math.log(c / 10)))
    difference = acc[large][draws[large]].mean(axis=1) - acc[near][draws[near]].mean(axis=1)
    grokked_large, grokked_near, horizon = rates_by(cells[large], cells[near])
    rates = {}
    for c in (large, near):
        times = [run.clocks.t_grok["first"] for run in cells[c]]
        rates[c] = np.array([t is not None and t <= horizon for t in times])[draws[c]].mean(axis=1)
    low, high = percentile_interval(difference, bootstrap.level)
    return Instability(
        large,
        near,
        float(acc[large].mean() - acc[near].mean()),
        low,
        high,
        float((difference < -_TIE).mean()),
        float((rates[large] < rates[near] - _TIE).mean()),
        grokked_large,
        grokked_near,
        horizon,
        wilson(grokked_large, len(cells[large]), bootstrap.level)[0],
    )


def _verdict(optimum: float, unstable: Instability | None, alpha: float) -> tuple[Verdict, str]:
    if optimum <= alpha:
        return "contradicted", f"the best c is near 10 and interior in {optimum:.1%} of resamples only"
    found = f"the best c is near 10 and interior in {optimum:.1%} of resamples"
    if unstable is None:
        return "undetermined", f"{found}, and there are not {MIN_RUNS} runs of a c ≥ {show(LARGE)}"
    share = max(unstable.share_acc_lower, unstable.share_rate_lower)
    worse = f"c = {show(unstable.c_large)} is worse than c = {show(unstable.c_near)} in {share:.1%}"
    if share <= alpha and unstable.rate_large_low > 0.5:
        return "contradicted", f"{found}, but {worse} only: large c is not unstable here"
    if optimum >= 1 - alpha and share >= 1 - alpha:
        return "supported", f"{found}, and {worse}"
    return "undetermined", f"{found}, and {worse}: neither enough for the claim nor against it"


def _caveats(cells: Cells, step: int) -> str:
    ends = {run.test_acc[0][-1] for runs in cells.values() for run in runs}
    return f"; the first of these runs ends at step {step}, others go on to step {max(ends)}" if len(ends) > 1 else ""
