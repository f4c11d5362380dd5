"""Cells against a baseline cell: log-rank over all runs, paired tests over shared seeds, Holm over the family."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grok_lightning.compare.cells import Bootstrap, Cell
from grok_lightning.compare.clocks import CLOCK_NAMES, ClockName
from grok_lightning.compare.runs import Run
from grok_lightning.compare.settings import SEEDS, Value, scalar, show, sort_key
from grok_lightning.errors import ConfigError
from grok_lightning.numerics.inference import holm
from grok_lightning.numerics.paired import Pair, PairedTest, paired_test
from grok_lightning.numerics.survival import logrank_p


@dataclass(frozen=True)
class Contrast:
    """One cell against the baseline, by one clock.

    p-values are two-sided. Those named ``…_holm`` are adjusted over the family: every contrast of the same test
    and the same clock.

    Attributes:
        clock: first or sustained.
        context: The settings in --by that the two cells share.
        value: Value of the compared setting.
        baseline: Its value in the baseline cell.
        n: Runs of the cell.
        n_baseline: Runs of the baseline cell.
        logrank_p: Log-rank test over all runs, pairing ignored; ``None`` if it says nothing.
        logrank_holm: The same, adjusted.
        paired: Over the runs that have a partner with the same seeds.
        sign_holm: Sign test, adjusted.
        wilcoxon_holm: Signed-rank test, adjusted.
        unpaired: Runs of the two cells without a partner.
    """

    clock: ClockName
    context: tuple[tuple[str, Value], ...]
    value: Value
    baseline: Value
    n: int
    n_baseline: int
    logrank_p: float | None
    logrank_holm: float | None
    paired: PairedTest
    sign_holm: float | None
    wilcoxon_holm: float | None
    unpaired: int


def choose_baseline(cells: Sequence[Cell], asked: str | None) -> Value:
    """Value of the first setting in --by that the others are compared with.

    Without a wish: 1 for ``model.c`` if a cell has it (one learning rate for all blocks), else the first in order.

    Raises:
        ConfigError: If no cell has the value asked for.
    """
    name = cells[0].key[0][0]
    values = sorted({cell.key[0][1] for cell in cells}, key=sort_key)
    if asked is None:
        return 1.0 if name == "model.c" and 1.0 in values else values[0]
    fitting = [value for value in values if asked in (show(value), str(value)) or _as_number(asked) == value]
    if not fitting:
        raise ConfigError(f"baseline = {asked!r}: {name} is one of {', '.join(map(show, values))}")
    return fitting[0]


def _as_number(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return scalar(text)


def contrasts(cells: Sequence[Cell], baseline: Value, pool: Sequence[str], bootstrap: Bootstrap) -> list[Contrast]:
    """Every cell against the baseline cell that shares the other settings in --by; none where there is no such cell."""
    bases = {cell.key[1:]: cell for cell in cells if cell.key[0][1] == baseline}
    found: list[Contrast] = []
    for clock in CLOCK_NAMES:
        family = [
            _contrast(cell, bases[cell.key[1:]], clock, pool, bootstrap)
            for cell in cells
            if cell.key[1:] in bases and cell.key[0][1] != baseline
        ]
        found += _adjusted(family)
    return found


def _contrast(cell: Cell, base: Cell, clock: ClockName, pool: Sequence[str], bootstrap: Bootstrap) -> Contrast:
    name = cell.key[0][0]
    partners = pair_up(cell.runs, base.runs, without=(name, *(key for key, _ in cell.key[1:])), pool=pool)
    pairs = [make_pair(run, other, clock) for run, other in partners]
    return Contrast(
        clock=clock,
        context=cell.key[1:],
        value=cell.key[0][1],
        baseline=base.key[0][1],
        n=len(cell.runs),
        n_baseline=len(base.runs),
        logrank_p=logrank_p(cell.times(clock), base.times(clock)),
        logrank_holm=None,
        paired=paired_test(pairs, bootstrap.n_draws, bootstrap.level, bootstrap.generator()),
        sign_holm=None,
        wilcoxon_holm=None,
        unpaired=len(cell.runs) + len(base.runs) - 2 * len(pairs),
    )


def _adjusted(family: Sequence[Contrast]) -> list[Contrast]:
    logrank = holm([contrast.logrank_p for contrast in family])
    sign = holm([contrast.paired.sign_p for contrast in family])
    wilcoxon = holm([contrast.paired.wilcoxon_p for contrast in family])
    return [
        replace(contrast, logrank_holm=a, sign_holm=b, wilcoxon_holm=c)
        for contrast, a, b, c in zip(family, logrank, sign, wilcoxon, strict=True)
    ]


def pair_up(
    runs: Sequence[Run], base: Sequence[Run], without: Sequence[str], pool: Sequence[str]
) -> list[tuple[Run, Run]]:
    """Runs and base runs that share every seed (but those in ``without``) and every pooled setting.

    Runs whose key is not unique on their side are in no pair: which partner is theirs would be a choice.
    """
    ours, theirs = by_replicate(runs, without, pool), by_replicate(base, without, pool)
    return [(ours[key], theirs[key]) for key in ours if key in theirs]


def by_replicate(runs: Sequence[Run], without: Sequence[str], pool: Sequence[str]) -> dict[tuple[object, ...], Run]:
    """Runs by seeds and pooled settings; keys that more than one run has are left out."""
    found: dict[tuple[object, ...], Run] = {}
    twice = set()
    pooled = [name for name in pool if name not in SEEDS]
    for run in runs:
        seeds = run.replicate(without)
        if seeds is None:
            continue
        key = (seeds, tuple(run.settings.get(name) for name in pooled))
        if key in found:
            twice.add(key)
        found[key] = run
    return {key: run for key, run in found.items() if key not in twice}


def make_pair(run: Run, base: Run, clock: ClockName) -> Pair:
    """The times of two runs of the same seeds."""
    ours, theirs = run.clocks.t_grok[clock], base.clocks.t_grok[clock]
    return Pair(
        run.clocks.last_step if ours is None else ours,
        ours is not None,
        base.clocks.last_step if theirs is None else theirs,
        theirs is not None,
    )
