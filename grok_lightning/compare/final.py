"""The last value of a series in every run, cell by cell and paired by seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from grok_lightning.compare.cells import Bootstrap, Cell, Interval
from grok_lightning.compare.pairs import pair_up
from grok_lightning.compare.runs import Run
from grok_lightning.compare.settings import Value
from grok_lightning.errors import ConfigError
from grok_lightning.numerics.inference import holm, median_of_values, sign_test, signed_rank
from grok_lightning.numerics.paired import mean_interval
from grok_lightning.records import METRICS, Columns, read_metrics


@dataclass(frozen=True)
class Final:
    """Last values of one series in one cell.

    Attributes:
        key: The series.
        cell: The settings of the cell.
        values: Last value of every run that has one, NaN and infinity included.
        without: Runs that never logged it.
        median: Of the finite values; ``None`` if there are none.
        median_interval: Bootstrap percentile interval; ``None`` for fewer than two.
        baseline: Value of the first setting in the cell that this one is compared with; ``None`` for that cell itself,
            or where there is no such cell.
        differences: Value minus that of the baseline's run of the same seeds, in pairs where both are finite.
        lost: Pairs in which one of the two is not finite.
        mean: Mean difference; ``None`` without a pair.
        mean_interval: Student's t interval of the mean, which takes differences to be normal; ``None`` for fewer than
            two pairs.
        sign_p: Exact two-sided sign test of the differences.
        sign_holm: The same, adjusted over all cells.
        wilcoxon_p: Exact signed-rank test of the differences.
        wilcoxon_holm: The same, adjusted over all cells.
    """

    key: str
    cell: tuple[tuple[str, Value], ...]
    values: tuple[float, ...]
    without: int
    median: float | None
    median_interval: Interval
    baseline: Value
    differences: tuple[float, ...]
    lost: int
    mean: float | None
    mean_interval: Interval
    sign_p: float | None
    sign_holm: float | None
    wilcoxon_p: float | None
    wilcoxon_holm: float | None


def finals(
    cells: Sequence[Cell], baseline: Value, pool: Sequence[str], keys: Sequence[str], bootstrap: Bootstrap
) -> list[Final]:
    """Last values of series, every cell beside the baseline cell that shares the other settings in --by.

    Args:
        cells: The cells.
        baseline: Value of the first setting in --by.
        pool: Settings that cells mix.
        keys: Names of series.
        bootstrap: How intervals are made.

    Raises:
        ConfigError: If no run has such a series.
    """
    series = {run.path: _series(run.path) for cell in cells for run in cell.runs} if keys else {}
    found: list[Final] = []
    for key in keys:
        if not any(key in columns for columns in series.values()):
            close = sorted(
                {name for columns in series.values() for name in columns if name.endswith(key.split("/")[-1])}
            )
            hint = f"; they have {', '.join(close[:6])}" if close else ""
            raise ConfigError(f"final = {key!r}: no run has logged it{hint}")
        last = {path: last_value(columns, key) for path, columns in series.items()}
        bases = {cell.key[1:]: cell for cell in cells if cell.key[0][1] == baseline}
        family = [_final(key, cell, bases.get(cell.key[1:]), last, pool, bootstrap) for cell in cells]
        sign, wilcoxon = holm([f.sign_p for f in family]), holm([f.wilcoxon_p for f in family])
        found += [
            replace(final, sign_holm=a, wilcoxon_holm=b) for final, a, b in zip(family, sign, wilcoxon, strict=True)
        ]
    return found


def _series(path: str) -> Columns:
    return read_metrics(path, resumed=True) if (Path(path) / METRICS).exists() else {}


def last_value(columns: Columns, key: str) -> float | None:
    """The last value of a series; ``None`` if it was never logged."""
    values = columns.get(key, ([], []))[1]
    return values[-1] if values else None


def _final(
    key: str,
    cell: Cell,
    base: Cell | None,
    last: dict[str, float | None],
    pool: Sequence[str],
    bootstrap: Bootstrap,
) -> Final:
    values = [value for run in cell.runs if (value := last[run.path]) is not None]
    finite = [value for value in values if math.isfinite(value)]
    compared = base is not None and base is not cell
    partners: list[tuple[Run, Run]] = []
    if base is not None and compared:
        partners = pair_up(cell.runs, base.runs, without=[name for name, _ in cell.key], pool=pool)
    both = [(last[run.path], last[other.path]) for run, other in partners]
    known = [(a, b) for a, b in both if a is not None and b is not None]
    differences = [a - b for a, b in known if math.isfinite(a) and math.isfinite(b)]
    apart = [d for d in differences if d != 0]
    ranks = signed_rank(differences)
    return Final(
        key,
        cell.key,
        tuple(values),
        len(cell.runs) - len(values),
        float(np.median(finite)) if finite else None,
        median_of_values(finite, bootstrap.n_draws, bootstrap.level, bootstrap.generator()),
        base.key[0][1] if base is not None and compared else None,
        tuple(differences),
        len(known) - len(differences),
        float(np.mean(differences)) if differences else None,
        mean_interval(differences, bootstrap.level),
        sign_test(sum(d < 0 for d in apart), len(apart)),
        None,
        None if ranks is None else ranks.p_value,
        None,
    )
