"""The figure of a comparison: who has not grokked yet, and when each run did."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from grok_lightning.compare.cells import Cell
from grok_lightning.compare.comparison import Comparison
from grok_lightning.compare.export import write_whole
from grok_lightning.compare.settings import show
from grok_lightning.errors import require
from grok_lightning.numerics.survival import survival_curve

SUFFIXES = (".png", ".svg", ".pdf")
MAX_CURVES = 10
"""Beyond so many curves nobody can tell them apart."""

_DASHES = ("-", "--", "-.", ":")


def check_suffix(path: Path) -> None:
    """Refuse a format that is not written.

    Raises:
        ConfigError: Naming the formats.
    """
    require(path.suffix.lower() in SUFFIXES, "figure", str(path), f"must end in {', '.join(SUFFIXES)}")


def write_figure(comparison: Comparison, path: Path) -> None:
    """Draw the first-cross clock of every cell.

    Args:
        comparison: The comparison.
        path: File to write; its ending decides the format.
    """
    figure = draw(comparison)
    kind = path.suffix.lower().removeprefix(".")
    metadata = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
    with mpl.rc_context({"svg.hashsalt": "grok_lightning"}):  # the same runs give the same file
        write_whole(path, lambda partial: figure.savefig(partial, format=kind, dpi=150, metadata=metadata))


def draw(comparison: Comparison) -> Figure:
    """The figure, without pyplot and its global state."""
    curves = len(comparison.cells) <= MAX_CURVES
    figure = Figure(figsize=(11 if curves else 7, 4.2), layout="constrained")
    axes = figure.subplots(1, 2 if curves else 1, squeeze=False)[0]
    if curves:
        _draw_curves(axes[0], comparison.cells)
    _draw_times(axes[-1], comparison)
    return figure


def _grey(i: int, n: int) -> tuple[float, float, float, float]:
    """Colours whose lightness orders the cells in print too."""
    return mpl.colormaps["viridis"](0.85 * i / max(n - 1, 1))


def _draw_curves(axes: Axes, cells: Sequence[Cell]) -> None:
    last = 1
    for i, cell in enumerate(cells):
        times = cell.times("first")
        at, share = survival_curve(times)
        steps, height = [1.0, *(max(float(t), 1.0) for t in at)], [1.0, *map(float, share)]
        color, label = _grey(i, len(cells)), f"{_short(cell)} (n = {len(cell.runs)})"
        axes.step(steps, height, where="post", label=label, color=color, linestyle=_DASHES[i % len(_DASHES)])
        gone = times.censored
        heights = [height[max(j for j, t in enumerate(steps) if t <= max(step, 1.0))] for step in gone]
        axes.plot([max(step, 1.0) for step in gone], heights, "+", color=color, markersize=8)
        last = max(last, *(run.clocks.last_step for run in cell.runs))
    earliest = min((t for cell in cells for t in cell.times("first").times if t > 0), default=1.0)
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis)
    axes.set_xlim(max(earliest / 2, 0.9), last * 1.1)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("optimiser step")
    axes.set_ylabel("fraction not yet grokked")
    axes.set_title("Kaplan–Meier (+: censored)", fontsize="medium")
    axes.legend(title=", ".join(name for name, _ in cells[0].key), fontsize="small", title_fontsize="small")


def _plain_ticks(axis: Axis) -> None:
    """1, 2 and 5 times powers of ten, as steps are written."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _draw_times(axes: Axes, comparison: Comparison) -> None:
    cells = comparison.cells
    places, logarithmic = _places(comparison)
    for place, cell in zip(places, cells, strict=True):
        stats, times = cell.clocks[0], cell.times("first")
        spread = _spread(place, len(times), logarithmic)
        for marker, observed, face in (("o", True, "0.55"), ("^", False, "none")):
            chosen = [
                (x, t) for x, t, seen in zip(spread, times.times, times.observed, strict=True) if seen == observed
            ]
            axes.plot([x for x, _ in chosen], [t for _, t in chosen], marker, mec="0.3", mfc=face, markersize=5)
        if math.isfinite(stats.t_grok):
            axes.plot([place], [stats.t_grok], "_", color="black", markersize=18, markeredgewidth=2.5)
        if stats.t_grok_interval is not None and math.isfinite(stats.t_grok_interval[0]):
            top = stats.t_grok_interval[1]
            end = top if math.isfinite(top) else max(times.times)
            axes.plot([place, place], [stats.t_grok_interval[0], end], "-", color="black", linewidth=1.2)
    if logarithmic:
        axes.set_xscale("log", base=2)
    axes.set_xticks(places, [_short(cell) for cell in cells], fontsize="small", rotation=45 if len(cells) > 6 else 0)
    axes.minorticks_off()
    axes.set_yscale("log", nonpositive="clip")
    _plain_ticks(axes.yaxis)
    axes.set_xlabel(", ".join(comparison.by))
    axes.set_ylabel("T_grok (steps)")
    covered = f"{comparison.bootstrap.level:.0%}"
    axes.set_title(f"dots: T_grok, open triangles: censored; bar: median, line: {covered} interval", fontsize="small")


def _places(comparison: Comparison) -> tuple[list[float], bool]:
    """Where cells stand on the x axis, and whether it is logarithmic: one positive number per cell makes it so."""
    values = [cell.key[0][1] for cell in comparison.cells]
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(comparison.by) == 1 and len(numbers) == len(values) > 1 and min(numbers) > 0:
        return numbers, True
    return [float(i) for i in range(len(values))], False


def _spread(place: float, n: int, logarithmic: bool) -> list[float]:
    """Side by side, so that equal times stay visible."""
    offsets = [0.0 if n == 1 else 0.3 * (i / (n - 1) - 0.5) for i in range(n)]
    return [place * 2**offset if logarithmic else place + offset for offset in offsets]


def _short(cell: Cell) -> str:
    return ", ".join(show(value) for _, value in cell.key)
