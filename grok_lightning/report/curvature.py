"""The top of the Hessian, block by block, and how well each eigenvalue is known."""

import re
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grok_lightning.report.drawn import Drawn, NotRecorded, Outcome, Subject, gaps
from grok_lightning.report.style import STYLES, curve, grid, legend, log_values, mark_clocks, step_axis

_KEY = re.compile(r"hessian/(?P<block>[^/]+)/(?P<kind>lambda_max|lambda_abs_max)")
_ORDER = ("E", "W", "rest", "all")


def figures(subject: Subject) -> list[Outcome]:
    """λ_max of every block, with residuals."""
    title = "Largest eigenvalue of the Hessian by block"
    chosen = _chosen(subject)
    if not chosen:
        return [NotRecorded(title, "hessian/<block>/lambda_max")]
    figure, (above, below) = grid(2, 1, 2.4)
    steps, values, residuals, missed = [], [], [], 0
    for style, (block, key) in enumerate(chosen):
        series = subject.recorded.scalars[key]
        signed = "" if key.endswith("lambda_max") else ", largest magnitude"
        curve(above, series, f"{block}{signed}", style)
        missed += _ring_unconverged(above, subject, block, series, style)
        steps += series[0]
        values += series[1]
        if (residual := subject.series(f"hessian/{block}/residual")) is not None:
            curve(below, residual, block, style)
            residuals += residual[1]
    log_values(above, values)
    log_values(below, residuals)
    tol = subject.recorded.settings.get("hessian.tol")
    if isinstance(tol, int | float) and not isinstance(tol, bool):
        below.axhline(tol, color="0.45", linewidth=0.9, linestyle=":")
        below.annotate("tol", (1.0, tol), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7.5)
    for axes in (above, below):
        step_axis(axes, steps, label=axes is below)
        mark_clocks(axes, subject)
    above.set_ylabel("λ_max (nats)")
    below.set_ylabel("‖Hv − λv‖ / |λ|")
    legend(above, loc="best", ncols=2)
    return [_drawn(subject, title, figure, chosen, missed)]


def _drawn(subject: Subject, title: str, figure: Figure, chosen: Sequence[tuple[str, str]], missed: int) -> Drawn:
    caption = (
        "λ_max(∂²L/∂θ_b²) of the diagonal blocks of the Hessian: the algebraically largest eigenvalue unless "
        "the legend says otherwise. L is the mean cross-entropy of the training set without weight decay. "
        "Blocks: E (embedding), W (the layer that reads it, with its bias), rest, all. Below: the relative "
        "residual of each; rings mark values whose residual did not meet the tolerance."
    )
    residuals = [f"hessian/{block}/residual" for block, _ in chosen]
    absent = [key for key in residuals if subject.series(key) is None]
    keys = [key for _, key in chosen] + [key for key in residuals if key not in absent]
    notes = [f"not recorded: {', '.join(absent)}"] if absent else []
    notes += [f"not recorded: hessian/{b}/lambda_max" for b in ("E", "W") if b not in {block for block, _ in chosen}]
    notes += [f"{missed} values are not converged"] if missed else []
    notes += gaps(subject, keys)
    return Drawn("lambda_max", title, figure, caption, tuple(keys), "arXiv:2505.15624, Fig. 7 and C.1", tuple(notes))


def _chosen(subject: Subject) -> list[tuple[str, str]]:
    """(block, key) of every block: the algebraically largest eigenvalue, else the one of largest magnitude."""
    found: dict[str, str] = {}
    for match in filter(None, map(_KEY.fullmatch, subject.recorded.scalars)):
        if match["kind"] == "lambda_max" or match["block"] not in found:
            found[match["block"]] = match[0]
    ranked = {block: _ORDER.index(block) if block in _ORDER else len(_ORDER) for block in found}
    return [(block, found[block]) for block in sorted(found, key=lambda block: (ranked[block], block))]


def _ring_unconverged(
    axes: Axes, subject: Subject, block: str, series: tuple[Sequence[int], Sequence[float]], style: int
) -> int:
    """Ring the values whose residual did not meet the tolerance, and count them."""
    converged = subject.series(f"hessian/{block}/converged")
    bad = set() if converged is None else {step for step, flag in zip(*converged, strict=True) if flag != 1}
    ringed = [(step, value) for step, value in zip(*series, strict=True) if step in bad]
    if ringed:
        axes.plot(
            [step for step, _ in ringed],
            [value for _, value in ringed],
            "o",
            markersize=9,
            markerfacecolor="none",
            markeredgecolor=STYLES[style % len(STYLES)][0],
            label=f"{block}: not converged",
        )
    return len(ringed)
