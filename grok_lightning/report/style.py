"""How figures look: axes of steps, curves that can be told apart without colour, marks of the clocks."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from grok_lightning.report.drawn import Subject

Dashes = str | tuple[int, tuple[float, ...]]

STYLES: tuple[tuple[str, Dashes, str], ...] = (
    ("#000000", "-", "o"),
    ("#0072B2", "--", "s"),
    ("#D55E00", "-.", "^"),
    ("#009E73", (0, (1, 1)), "D"),
    ("#AA4499", (0, (6, 1, 1, 1, 1, 1)), "v"),
    ("#9A7B00", (0, (3, 3)), "P"),
)
"""Colour (told apart by the colour-blind), dashes and marker: each by itself tells curves apart."""

WIDTH = 7.0
"""Inches: the text width of a paper."""

_RC: Any = {
    "text.parse_math": False,  # a dollar in the name of a run is a dollar
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "0.88",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "legend.fontsize": 8,
    "legend.framealpha": 0.8,
    "legend.edgecolor": "none",
    "svg.hashsalt": "grok_lightning",  # the same run gives the same file
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # letters stay letters, which journals ask for
}


@contextmanager
def house_style() -> Iterator[None]:
    """Figures made and saved inside look alike, whatever the user's own settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def grid(rows: int, columns: int, height: float = 2.5) -> tuple[Figure, list[Axes]]:
    """A figure of panels, row by row, without pyplot and its global state.

    Args:
        rows: Number of rows.
        columns: Number of columns.
        height: Height of a row in inches.
    """
    figure = Figure(figsize=(WIDTH, height * rows + 0.2), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def curve(axes: Axes, series: tuple[Sequence[int], Sequence[float]], label: str, style: int, **more: Any) -> Line2D:
    """One series against its steps; markers wherever they do not run into each other."""
    color, dashes, marker = STYLES[style % len(STYLES)]
    steps, values = series
    every = max(1, math.ceil(len(steps) / 25))
    settings: dict[str, Any] = {"color": color, "linestyle": dashes, "marker": marker, "markevery": every}
    (line,) = axes.plot(steps, values, label=printable(label), **(settings | more))
    return line


def step_axis(axes: Axes, steps: Iterable[int], label: bool = True, most: int = 5) -> None:
    """Optimiser steps on a logarithmic axis; step 0 stands at its left, half a decade before the first other step."""
    known = sorted(set(steps))
    positive = [step for step in known if step > 0]
    first, last = (positive[0], positive[-1]) if positive else (1, 1)
    axes.set_xscale("symlog", linthresh=first, linscale=0.5)
    ticks = [m * 10**k for k in range(len(str(last))) for m in (1, 2, 5) if first <= m * 10**k <= last] or [first]
    for kept in ("15", "1"):
        ticks = ticks if _have_room(ticks, first, last, most) else [tick for tick in ticks if str(tick)[0] in kept]
    axes.xaxis.set_major_locator(FixedLocator([0, *ticks] if 0 in known else ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: thousands(x)))
    axes.set_xlim((-0.15 * first if 0 in known else first / 1.2), last * 1.25)
    if label:
        axes.set_xlabel("optimiser step")


def _have_room(ticks: Sequence[int], first: int, last: int, most: int) -> bool:
    """Whether the labels of so many ticks stay apart: none takes more than six tenths of its share of the axis."""
    width = 0.65 + math.log10(1.25 * last / first)  # in decades, of which step 0 takes half and the margin 0.15
    gaps = [math.log10(after / before) / width for before, after in pairwise(ticks)]
    return len(ticks) <= most and min(gaps, default=1.0) >= 0.6 / most


def thousands(number: float) -> str:
    """``12 000``, with a thin space."""
    return f"{number:,.0f}".replace(",", "\u2009") if number == round(number) else f"{number:g}"


def log_values(axes: Axes, values: Iterable[float]) -> None:
    """A logarithmic y axis; linear around zero where some values are not positive."""
    finite = [value for value in values if math.isfinite(value)]
    positive = [value for value in finite if value > 0]
    if not positive:
        return
    if len(positive) == len(finite):
        axes.set_yscale("log")
        decades = math.log10(max(positive) / min(positive))
        plain_log(axes.yaxis, (1.0,) if decades > 3 else (1.0, 2.0, 5.0))
        if decades < 0.4:  # no tick may fall into so little
            middle, reach = math.sqrt(max(positive) * min(positive)), 10**0.3
            axes.set_ylim(middle / reach, middle * reach)
    else:
        axes.set_yscale("symlog", linthresh=min(abs(value) for value in finite if value))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


def plain_log(axis: Axis, subs: tuple[float, ...] = (1.0,)) -> None:
    """Ticks of a logarithmic axis as plain numbers."""
    axis.set_major_locator(LogLocator(subs=subs, numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axis.set_minor_formatter(NullFormatter())


def mark_clocks(axes: Axes, subject: Subject) -> None:
    """Vertical lines at T_mem and T_grok, named at their upper ends."""
    for name, step, dashes, side in (
        ("T_mem", subject.t_mem, (0, (4, 3)), "right"),
        ("T_grok", subject.t_grok, "-", "left"),
    ):
        if step is not None:
            mark(axes, step, name, dashes, side)


def mark(axes: Axes, step: int, name: str, dashes: Dashes, side: str) -> None:
    """A vertical line with its name beside its upper end."""
    axes.axvline(step, color="0.45", linestyle=dashes, linewidth=0.9, zorder=1, label=f"_{name}")
    axes.annotate(
        name,
        (step, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-2 if side == "right" else 2, 1),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=7.5,
        color="0.25",
    )


def legend(axes: Axes, **more: Any) -> None:
    """A legend, if there is anything to tell apart."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, **more)


@cache
def _letters() -> frozenset[int]:
    return frozenset(FT2Font(findfont("DejaVu Sans")).get_charmap())


def printable(text: str, longest: int = 48) -> str:
    """Text from a file as a figure can show it: on one line, in letters that the font has, not too long."""
    line = " ".join(text.split())
    shown = "".join(letter if ord(letter) in _letters() else "\ufffd" for letter in line)
    shown = shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
    return f" {shown}" if shown.startswith("_") else shown  # matplotlib hides labels that begin with it
