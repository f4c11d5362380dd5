"""The compression clock: when the rank reaches its floor, and whether the data can tell (arXiv:2607.06639).

With accuracy a(t), logged rank r(t) and n logged rank points::

    T_grok     = min{t : a(t) ≥ threshold}                        over the evaluations
    r_grok     = rank at the first point logged at or after T_grok
    floor      = median of the last ⌈0.10·n⌉ rank points          (the window)
    drop       = r_grok - floor
    T_compress = min{t ≥ T_grok : r(t) ≤ floor + 0.10·drop}       over the rank points
    lag        = T_compress - T_grok
    frac_pre   = (r_init - r_grok) / (r_init - floor)

The source asks for a plateau check and prints none. Ours (:func:`.series_checks.not_flat`): carry
the trend at the end of the series on for t_end - T_grok steps; the rank may move by
0.10·max(|drop|, 1), the margin that defines T_compress, and vary by 15 % within the window.

Some point of the window is always at or below its own median, so with drop > 0 the rule finds a T_compress in
every series. One that lies inside the window proves nothing and counts as censored.

Codes of the reasons: those of ``series_checks`` and ``never_groks``, ``grokked_at_start``,
``few_floor_points``, ``stopped_at_grok``, ``rank_rises``, ``drop_too_small``, ``t_compress_censored``,
``coarse_logging``, ``no_final_accuracy``, ``boundary``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, NamedTuple

from grok_lightning.errors import require
from grok_lightning.numerics.clocks import crossing
from grok_lightning.numerics.compression_rule import CompressionRule
from grok_lightning.numerics.series_checks import not_flat, unusable

__all__ = ["CompressionClock", "CompressionRule", "compression_clock"]


@dataclass(frozen=True)
class CompressionClock:
    """What one run says; ``None`` where it says nothing.

    Attributes:
        t_grok: First evaluation at or above the threshold, in steps.
        t_compress: First rank point within epsilon of the floor, in steps; only with a plateau, a sufficient
            drop and not censored.
        lag: T_compress - T_grok, in steps.
        lag_interval: Bounds of the lag from the distances between logged points, in steps.
        frac_pre: Share of the whole fall that came before T_grok; only with a plateau and r_init > floor.
        r_init: First logged rank.
        r_grok: Rank at the first point logged at or after T_grok.
        floor: Median rank of the window; ``None`` if the run stopped at T_grok; no more than a bound
            unless ``plateau``.
        floor_start: First step of the window.
        plateau: Whether the floor is one (see the module).
        censored_grok: The run ended before T_grok.
        censored_compress: T_grok was reached, but T_compress not before the window began.
        boundary: Whether the run generalises or compresses only in part: median accuracy in the window below
            the threshold, drop / r_grok below 0.25, or floor above 3 times the group's.
        verdict: ``large_lag`` (lag / T_grok ≥ 0.5), ``small_lag`` or ``refused``.
        reasons: Why the verdict is refused, each ``code: sentence``; empty otherwise.
    """

    t_grok: int | None = None
    t_compress: int | None = None
    lag: int | None = None
    lag_interval: tuple[int, int] | None = None
    frac_pre: float | None = None
    r_init: float | None = None
    r_grok: float | None = None
    floor: float | None = None
    floor_start: int | None = None
    plateau: bool | None = None
    censored_grok: bool | None = None
    censored_compress: bool | None = None
    boundary: bool | None = None
    verdict: Literal["large_lag", "small_lag", "refused"] = "refused"
    reasons: tuple[str, ...] = ()


class _Run(NamedTuple):
    steps: Sequence[int]
    rank: Sequence[float]
    at: Sequence[int]
    accuracy: Sequence[float]
    rule: CompressionRule


class _Floor(NamedTuple):
    t_grok: int
    r_grok: float
    value: float
    start: int
    n: int


_Judged = tuple[CompressionClock, tuple[str, ...]]


def compression_clock(
    steps: Sequence[int],
    accuracy: Sequence[float],
    rank: Sequence[float],
    *,
    accuracy_steps: Sequence[int] | None = None,
    rule: CompressionRule | None = None,
    group_floor: float | None = None,
) -> CompressionClock:
    """Read the compression clock of one run; formulas in the module's docstring.

    Args:
        steps: Steps at which the rank was logged, strictly increasing.
        accuracy: Held-out or test accuracy as a share in [0, 1].
        rank: One rank per step, any notion (name it where the result is reported).
        accuracy_steps: Steps of the evaluations, if they differ from ``steps``.
        rule: Thresholds; the defaults of :class:`CompressionRule` if ``None``.
        group_floor: Median floor of comparable runs for the boundary gate; ``None`` leaves that part out.

    Raises:
        ConfigError: If lengths differ. Series that carry no verdict are not errors: see ``reasons``.
    """
    at = steps if accuracy_steps is None else accuracy_steps
    require(len(steps) == len(rank), "rank", len(rank), f"must have one value for each of {len(steps)} steps")
    require(
        len(at) == len(accuracy),
        "accuracy",
        len(accuracy),
        f"must have one value for each of {len(at)} steps",
    )
    unread = unusable(steps, rank, "rank", math.inf) + unusable(at, accuracy, "accuracy", 1.0)
    if unread:
        return CompressionClock(reasons=tuple(dict.fromkeys(unread)))
    run = _Run(steps, rank, at, accuracy, rule or CompressionRule())
    limit = run.rule.threshold
    t_grok = crossing(at, accuracy, limit).first
    clock = CompressionClock(t_grok=t_grok, r_init=float(rank[0]), censored_grok=t_grok is None)
    if t_grok is None:
        reason = f"never_groks: accuracy stays below {limit:g} (highest {max(accuracy):.4g})"
        return replace(clock, reasons=(reason,))
    if t_grok == at[0]:
        reason = f"grokked_at_start: accuracy is {limit:g} or more in the first evaluation, step {t_grok}"
        return replace(clock, reasons=(reason,))
    floor, reasons = _window(run, t_grok)
    if floor is None:
        stopped = any(reason.startswith("stopped_at_grok") for reason in reasons)
        return replace(clock, censored_compress=stopped or None, reasons=reasons)
    return _judge(clock, run, floor, group_floor)


def _window(run: _Run, t_grok: int) -> tuple[_Floor | None, tuple[str, ...]]:
    """Place the window, or say why there is no floor to speak of."""
    total, reasons = len(run.rank), []
    n = math.ceil(run.rule.floor_share * total - 1e-9)
    after = [i for i, step in enumerate(run.steps) if step >= t_grok]
    if n < run.rule.min_floor_points:
        part = f"the last {run.rule.floor_share:.0%} of {total} rank points is {n}"
        reasons.append(f"few_floor_points: {part}, at least {run.rule.min_floor_points} are needed")
    if not after or after[0] >= total - n:
        part = f"{len(after)} rank points at or after T_grok, the floor alone takes {n}"
        reasons.append(f"stopped_at_grok: {part}: a run that stopped at T_grok cannot report a converged rank")
    if reasons:
        return None, tuple(reasons)
    floor = float(median(run.rank[-n:]))
    return _Floor(t_grok, float(run.rank[after[0]]), floor, run.steps[-n], n), ()


def _judge(clock: CompressionClock, run: _Run, floor: _Floor, group_floor: float | None) -> CompressionClock:
    """Plateau, frac_pre, lag and gate; any reason refuses the verdict."""
    rule, r_init = run.rule, run.rank[0]
    margin = rule.epsilon * max(abs(floor.r_grok - floor.value), rule.min_drop)
    horizon = run.steps[-1] - floor.t_grok
    reasons = not_flat(run.steps, run.rank, floor.n, horizon, margin, rule.max_floor_cv)
    known = not reasons and r_init > floor.value
    clock = replace(
        clock,
        r_grok=floor.r_grok,
        floor=floor.value,
        floor_start=floor.start,
        plateau=not reasons,
        frac_pre=(r_init - floor.r_grok) / (r_init - floor.value) if known else None,
    )
    clock, lag = _judge_lag(clock, run, floor)
    clock, gate = _judge_boundary(clock, run, floor, group_floor)
    reasons = (*reasons, *lag, *gate)
    return replace(clock, verdict="refused", reasons=reasons) if reasons else clock


def _judge_lag(clock: CompressionClock, run: _Run, floor: _Floor) -> _Judged:
    """T_compress, lag and the verdict that they carry on a plateau."""
    steps, at, rule, drop = run.steps, run.at, run.rule, floor.r_grok - floor.value
    if drop < rule.min_drop:
        code, moves = ("rank_rises", "rises") if drop <= -rule.min_drop else ("drop_too_small", "hardly falls")
        reason = f"{code}: rank {moves} from {floor.r_grok:.4g} at T_grok to {floor.value:.4g}"
        return clock, (f"{reason} (a fall of at least {rule.min_drop:g} is needed)",)
    target = floor.value + rule.epsilon * drop
    i = next(i for i, t in enumerate(steps) if t >= floor.t_grok and run.rank[i] <= target)
    clock = replace(clock, censored_compress=steps[i] >= floor.start)
    if clock.censored_compress:
        return clock, (f"t_compress_censored: not reached before the window began at step {floor.start}",)
    if not clock.plateau:
        return clock, ()
    eve = at[at.index(floor.t_grok) - 1]
    low, high = steps[i - 1] - floor.t_grok, steps[i] - eve
    clock = replace(clock, t_compress=steps[i], lag=steps[i] - floor.t_grok, lag_interval=(low, high))
    if low >= rule.large_lag * floor.t_grok:
        return replace(clock, verdict="large_lag"), ()
    if high < rule.large_lag * eve:
        return replace(clock, verdict="small_lag"), ()
    where = f"lag in ({low}, {high}), T_grok in ({eve}, {floor.t_grok}]"
    return clock, (f"coarse_logging: {where}: cannot be compared with {rule.large_lag:g} T_grok",)


def _judge_boundary(clock: CompressionClock, run: _Run, floor: _Floor, group_floor: float | None) -> _Judged:
    """The gate for runs that never fully generalise or compress."""
    rule, why, drop = run.rule, [], floor.r_grok - floor.value
    final = [a for t, a in zip(run.at, run.accuracy, strict=True) if t >= floor.start]
    if not final:
        return clock, (f"no_final_accuracy: last evaluation at step {run.at[-1]}, window from {floor.start}",)
    if median(final) < rule.threshold:
        why.append(f"median accuracy {median(final):.4g} in the window, threshold {rule.threshold:g}")
    if rule.min_drop <= drop < rule.min_relative_drop * floor.r_grok:  # a smaller drop has its own reason
        why.append(f"drop {drop:.3g} is under {rule.min_relative_drop:.0%} of {floor.r_grok:.3g}, the rank at T_grok")
    if group_floor is not None and floor.value > rule.max_floor_ratio * group_floor:
        why.append(f"floor {floor.value:.3g} is over {rule.max_floor_ratio:g} times the group's {group_floor:.3g}")
    return replace(clock, boundary=bool(why)), tuple(f"boundary: {reason}" for reason in why)
