"""Last values of series as text."""

import math

from grok_lightning.compare.cells import Interval
from grok_lightning.compare.comparison import Comparison
from grok_lightning.compare.final import Final
from grok_lightning.compare.settings import show

Rows = tuple[tuple[str, ...], ...]


def final_table(comparison: Comparison, key: str) -> tuple[tuple[str, tuple[str, ...], Rows], list[str]]:
    """Title, headers and rows; and the lines that explain them.

    Args:
        comparison: The comparison.
        key: The series.
    """
    covered = f"{comparison.bootstrap.level:.0%}"
    base = f"{comparison.by[0]} = {show(comparison.baseline)}"
    title = f"Last {key} of every run; brackets are {covered} intervals"
    headers = (
        "n", "median", f"mean difference to {base}", "pairs", "lower / higher", "sign p (Holm)", "signed-rank p (Holm)",
    )  # fmt: skip
    chosen = [final for final in comparison.finals if final.key == key]
    rows = tuple((*(show(value) for _, value in final.cell), *_cells(final)) for final in chosen)
    lines = [
        "median: over runs, bootstrap interval; mean difference: over pairs of equal seeds, Student's interval, which "
        "takes differences to be normal; p-values are two-sided, in brackets Holm-adjusted over the rows"
    ]
    if lost := sum(final.lost for final in chosen):
        lines.append(f"pairs in which a value is NaN or infinite, which count in no column: {lost}")
    if without := sum(final.without for final in chosen):
        lines.append(f"runs that never logged it: {without}")
    return (title, (*comparison.by, *headers), rows), lines


def _cells(final: Final) -> list[str]:
    n = len(final.differences)
    lower, higher = (sum(sign * d > 0 for d in final.differences) for sign in (-1, 1))
    return [
        str(len(final.values)),
        "-" if final.median is None else f"{final.median:.4g}{_interval(final.median_interval, '.4g')}",
        "-" if final.mean is None else f"{final.mean:+.3g}{_interval(final.mean_interval, '+.3g')}",
        "-" if final.baseline is None else str(n),
        f"{lower} / {higher}" if n else "-",
        _p(final.sign_p, final.sign_holm),
        _p(final.wilcoxon_p, final.wilcoxon_holm),
    ]


def _interval(ends: Interval, form: str) -> str:
    if ends is None or not all(map(math.isfinite, ends)):
        return ""
    return f" [{ends[0]:{form}}, {ends[1]:{form}}]"


def _p(value: float | None, adjusted: float | None) -> str:
    return "-" if value is None or adjusted is None else f"{value:.2g} ({adjusted:.2g})"
