"""The whole comparison as one call, ``compare(paths, by=…)``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grok_lightning import __version__
from grok_lightning.compare.cells import Bootstrap, Cell, make_cells
from grok_lightning.compare.claims import judge
from grok_lightning.compare.clocks import Definition
from grok_lightning.compare.evidence import Claim
from grok_lightning.compare.final import Final, finals
from grok_lightning.compare.pairs import Contrast, choose_baseline, contrasts
from grok_lightning.compare.runs import LeftOut, Run, find, read
from grok_lightning.compare.selection import select
from grok_lightning.compare.settings import Value
from grok_lightning.errors import ConfigError, require

MIN_DRAWS = 2000
"""Fewest resamples: below, the ends of a 95 % interval are noise."""


@dataclass(frozen=True)
class Comparison:
    """What runs say about the settings they differ in.

    Attributes:
        by: Full names of the settings that make cells; the first is compared, the others are its context.
        pool: Full names of the settings that cells mix.
        baseline: Value of the first setting that the others are compared with.
        alpha: Level of tests; intervals cover 1 − alpha.
        bootstrap: How intervals were made.
        partial: Whether runs count that did not come to their end.
        cells: The cells, in order.
        contrasts: Every cell against the baseline cell of the same context, by clock.
        claims: Verdicts on claims about c and weight decay; empty unless one of them is among the settings.
        left_out: Directories that do not count, and why.
        notes: What a reader has to know about the runs that do.
        finals: Last values of the series that were asked for, by cell.
        version: Version of this package.
    """

    by: tuple[str, ...]
    pool: tuple[str, ...]
    baseline: Value
    alpha: float
    bootstrap: Bootstrap
    partial: bool
    cells: tuple[Cell, ...]
    contrasts: tuple[Contrast, ...]
    claims: tuple[Claim, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]
    finals: tuple[Final, ...] = ()
    version: str = __version__

    @property
    def runs(self) -> list[Run]:
        """Every run that counts, by cell."""
        return [run for cell in self.cells for run in cell.runs]


class NoRunsError(Exception):
    """Nothing can be compared.

    Attributes:
        left_out: Directories that were looked at, and why they do not count.
    """

    def __init__(self, left_out: Sequence[LeftOut]) -> None:
        self.left_out = tuple(left_out)
        super().__init__(f"none of {len(left_out)} directories can be used")


def compare(
    paths: Iterable[Path | str],
    by: Sequence[str],
    *,
    pool: Sequence[str] = (),
    baseline: str | None = None,
    partial: bool = False,
    definition: Definition | None = None,
    alpha: float = 0.05,
    n_draws: int = 10_000,
    seed: int = 0,
    final: Sequence[str] = (),
) -> Comparison:
    """Compare runs.

    Args:
        paths: Run directories, and directories of run directories.
        by: Settings that make cells. The first is compared, inside equal values of the others.
        pool: Settings that may differ inside a cell.
        baseline: Value of the first setting to compare with; ``None`` for c = 1, or the first in order.
        partial: Count runs that failed, were interrupted or have no summary, as censored.
        definition: What of the clocks' definition to override; clocks are then computed from the metrics.
        alpha: Level of tests; intervals cover 1 − alpha.
        n_draws: Number of bootstrap resamples.
        seed: Seed of the resamples.
        final: Series whose last values to compare too.

    Raises:
        ConfigError: If an option cannot be used, or runs differ in a setting that is not accounted for.
        NoRunsError: If no run is left.
    """
    bootstrap = _bootstrap(alpha, n_draws, seed)
    usable, left_out = _gather(paths, definition or Definition(), partial)
    selection = select(usable, by, pool)
    cells = make_cells(selection.runs, selection.by, bootstrap)
    chosen = choose_baseline(cells, baseline)
    return Comparison(
        selection.by,
        selection.pool,
        chosen,
        alpha,
        bootstrap,
        partial,
        tuple(cells),
        tuple(contrasts(cells, chosen, selection.pool, bootstrap)),
        tuple(judge(selection.runs, selection.by, selection.pool, alpha, bootstrap)),
        (*left_out, *selection.left_out),
        selection.notes,
        tuple(finals(cells, chosen, selection.pool, final, bootstrap)),
    )


def _bootstrap(alpha: float, n_draws: int, seed: int) -> Bootstrap:
    require(0 < alpha < 1, "alpha", alpha, "must be in (0, 1)")
    require(n_draws >= MIN_DRAWS, "draws", n_draws, f"must be {MIN_DRAWS} or more")
    require(0 <= seed < 2**32, "seed", seed, "must be from 0 to 2^32 - 1")
    return Bootstrap(n_draws, 1 - alpha, seed)


def _gather(paths: Iterable[Path | str], wanted: Definition, partial: bool) -> tuple[list[Run], list[LeftOut]]:
    """Runs that can be read, and what cannot."""
    wanted.check()
    found, left_out = find(paths)
    runs = [read(path, wanted, partial) for path in found]
    left_out += [run for run in runs if isinstance(run, LeftOut)]
    usable = [run for run in runs if isinstance(run, Run)]
    if not usable:
        raise NoRunsError(left_out)
    return usable, left_out


def words_of(error: ConfigError | NoRunsError) -> str:
    """An error in one line; a comparison without runs names the first reasons."""
    if isinstance(error, NoRunsError):
        reasons = "; ".join(f"{run.path}: {run.reason}" for run in error.left_out[:3])
        more = f"; and {len(error.left_out) - 3} more" if len(error.left_out) > 3 else ""
        return f"no run can be compared: {reasons}{more}"
    return " ".join(str(error).split())
