"""A comparison as tables of text, and on the terminal."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grok_lightning.compare.c3 import show_ratio
from grok_lightning.compare.cells import Cell, ClockStats, Interval
from grok_lightning.compare.comparison import Comparison
from grok_lightning.compare.final_table import final_table
from grok_lightning.compare.pairs import Contrast
from grok_lightning.compare.settings import show
from grok_lightning.loggers.screen import print_safely

WIDTH = 200
"""Columns of a table that is piped: nobody's window to fit."""


class Sheet(NamedTuple):
    """A table as text, wherever it is shown."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sheets(comparison: Comparison) -> list[tuple[Sheet | None, list[str]]]:
    """Tables with the lines that explain each: cells with what was left out, contrasts, last values, claims."""
    first = _explain(comparison) + [f"left out: {run.path}: {run.reason}" for run in comparison.left_out]
    found: list[tuple[Sheet | None, list[str]]] = [(_cell_sheet(comparison), first)]
    if comparison.contrasts:
        found.append((_contrast_sheet(comparison), _explain_contrasts(comparison)))
    else:
        found.append((None, [_why_no_contrast(comparison)]))
    for key in dict.fromkeys(final.key for final in comparison.finals):
        table, explained = final_table(comparison, key)
        found.append((Sheet(*table), explained))
    lines = []
    for claim in comparison.claims:
        where = ", ".join(f"{name} = {show(value)}" for name, value in claim.context)
        n = ", ".join(f"{k} with {claim.setting} = {c}" for c, k in claim.n.items())
        lines += [f"{claim.name} {claim.text}", f"  in {where}: {claim.verdict}"]
        lines += [f"  n: {n}; estimate: {claim.estimate}", f"  why: {claim.why}"]
    return [*found, (None, lines)]


def print_comparison(comparison: Comparison) -> None:
    """Print cells, what was left out, contrasts and claims, in this order."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, WIDTH))
    with console.capture() as captured:
        for sheet, lines in sheets(comparison):
            if sheet is not None:
                console.print(_as_table(sheet))
            for line in lines:
                console.print(line, markup=False, soft_wrap=True)
    print_safely(captured.get().rstrip("\n"))


def _as_table(sheet: Sheet) -> Table:
    table = Table(title=escape(sheet.title), title_justify="left")
    for header in sheet.headers:
        table.add_column(escape(header), overflow="fold")
    for row in sheet.rows:
        table.add_row(*map(escape, row))
    return table


def _cell_sheet(comparison: Comparison) -> Sheet:
    covered = f"{comparison.bootstrap.level:.0%}"
    title = f"Time to grok in steps; brackets are {covered} intervals"
    headers = ("n", "clock", "grokked", "rate", "T_grok", "T_mem", "delay", "censored at", "final test accuracy")
    rows = []
    for cell in comparison.cells:
        for i, stats in enumerate(cell.clocks):
            first = i == 0
            head = [show(value) if first else "" for _, value in cell.key]
            tail = _accuracy(cell) if first else ""
            rows.append((*head, str(len(cell.runs)) if first else "", *_cells(stats), tail))
    return Sheet(title, (*comparison.by, *headers), tuple(rows))


def _cells(stats: ClockStats) -> list[str]:
    low, high = stats.rate_interval
    return [
        stats.clock,
        str(stats.grokked),
        f"{stats.rate:.2f} [{low:.2f}, {high:.2f}]",
        _steps(stats.t_grok) + _interval(stats.t_grok_interval),
        _steps(stats.t_mem),
        "-" if stats.delay is None else _steps(stats.delay),
        _counted(stats.censored_steps),
    ]


def _counted(steps: Sequence[int]) -> str:
    """``3000 (2), 5000``."""
    if not steps:
        return "none"
    counts = {step: steps.count(step) for step in dict.fromkeys(steps)}
    return ", ".join(f"{step}{f' ({n})' if n > 1 else ''}" for step, n in counts.items())


def _steps(value: float) -> str:
    return "not reached" if math.isinf(value) else f"{value:g}" if value % 1 else f"{value:.0f}"


def _interval(ends: Interval) -> str:
    return "" if ends is None else f" [{_steps(ends[0])}, {_steps(ends[1])}]"


def _accuracy(cell: Cell) -> str:
    if cell.final_test_acc is None:
        return "-"
    ends = cell.final_test_acc_interval
    return f"{cell.final_test_acc:.4f}" + ("" if ends is None else f" [{ends[0]:.4f}, {ends[1]:.4f}]")


def _explain(comparison: Comparison) -> list[str]:
    lines = []
    for definition in dict.fromkeys(run.definition for run in comparison.runs):
        rest = "the rest of the run" if definition.sustain is None else f"{definition.sustain} evaluations"
        mem, grok = (("?" if value is None else f"{value:g}") for value in (definition.mem, definition.grok))
        lines.append(
            f"clocks: T_mem training accuracy ≥ {mem}, T_grok {definition.part} accuracy ≥ {grok}; sustained for {rest}"
        )
    lines.append(
        "rate: Wilson interval; T_grok, T_mem, delay: Kaplan–Meier medians over all runs, those that did not get there "
        "censored at their last evaluation (delay: over the runs that memorised); final test accuracy: median"
    )
    if resolutions := sorted({cell.resolution for cell in comparison.cells if cell.resolution is not None}):
        lines.append(f"resolution: T_grok lies within {resolutions[-1]} steps before the value given")
    return [*lines, *(f"note: {note}" for note in comparison.notes)]


def _contrast_sheet(comparison: Comparison) -> Sheet:
    name = comparison.by[0]
    title = f"T_grok against {name} = {show(comparison.baseline)}"
    if comparison.by[1:]:
        title += f", at equal {', '.join(comparison.by[1:])}"
    headers = (
        "clock", "n", "log-rank p (Holm)", "pairs", "sooner / later", "tied / open", "sign p (Holm)",
        "signed-rank p (Holm)", "rank-biserial", "T / T_base",
    )  # fmt: skip
    rows = tuple(tuple(_contrast_cells(contrast)) for contrast in comparison.contrasts)
    return Sheet(title, (name, *comparison.by[1:], *headers), rows)


def _contrast_cells(contrast: Contrast) -> list[str]:
    paired = contrast.paired
    return [
        show(contrast.value),
        *(show(value) for _, value in contrast.context),
        contrast.clock,
        f"{contrast.n} / {contrast.n_baseline}",
        _p(contrast.logrank_p, contrast.logrank_holm),
        str(paired.n),
        f"{paired.sooner} / {paired.later}",
        f"{paired.tied} / {paired.undetermined}",
        _p(paired.sign_p, contrast.sign_holm),
        _p(paired.wilcoxon_p, contrast.wilcoxon_holm),
        "-" if paired.rank_biserial is None else f"{paired.rank_biserial:+.2f}",
        show_ratio(paired).removeprefix("median ratio "),
    ]


def _p(value: Any, adjusted: Any) -> str:
    return "-" if value is None else f"{value:.2g} ({adjusted:.2g})"


def _explain_contrasts(comparison: Comparison) -> list[str]:
    lines = [
        "p-values are two-sided, in brackets Holm-adjusted over the rows of the same clock; 'open' pairs are those in "
        "which censoring hides who came first; the signed-rank test needs pairs without censoring"
    ]
    family = sum(contrast.clock == "first" for contrast in comparison.contrasts)
    for n in sorted({contrast.paired.n for contrast in comparison.contrasts}):
        smallest = min(contrast.paired.smallest_p for contrast in comparison.contrasts if contrast.paired.n == n)
        held = min(1.0, smallest * family)
        lines.append(
            f"{n} pairs cannot go below p = {smallest:.3g} two-sided ({held:.3g} for the smallest of {family} by Holm)"
            if n
            else "no pair of runs has equal seeds in some rows: paired tests are not made there"
        )
    if alone := sum(contrast.unpaired for contrast in comparison.contrasts if contrast.clock == "first"):
        lines.append(f"runs without a partner of equal seeds, over all rows: {alone}")
    return lines


def _why_no_contrast(comparison: Comparison) -> str:
    if len(comparison.cells) == 1:
        return f"no comparison: all runs have {comparison.cells[0].label}"
    base = f"{comparison.by[0]} = {show(comparison.baseline)}"
    return f"no comparison: no cell shares the other settings with one of {base}"
