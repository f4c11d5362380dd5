"""``python -m grok_lightning audit RUN_OR_FILE…``: compression clocks of runs that have already happened.

T_grok is the first evaluation at or above the threshold, on the steps of the evaluations; the rank is taken
on the steps where it was logged, from the first at or after T_grok on. The two columns need not share steps.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from jsonargparse import ArgumentError, ArgumentParser

from grok_lightning.audit_sources import RUN_ACC, RUN_RANK, Series, Source, read_series, read_two_phase
from grok_lightning.errors import ConfigError, require
from grok_lightning.numerics.compression import CompressionClock, CompressionRule, compression_clock
from grok_lightning.numerics.two_phase import TwoPhaseClock

MIN_GROUP = 3
"""Fewest plateaus from which the median floor of a group is taken."""


@dataclass(frozen=True)
class Audited:
    """One run or one seed of a file.

    Attributes:
        source: Run directory or file as it was given.
        seed: Which seed of it; ``None`` if it holds one run.
        clock: What it says.
        two_phase: Its two-phase clock; ``None`` unless it is a run that logged the norms from step 0 on.
    """

    source: str
    seed: str | None
    clock: CompressionClock
    two_phase: TwoPhaseClock | None = None


def audit(
    paths: Iterable[Path | str],
    source: Source | None = None,
    rule: CompressionRule | None = None,
    group: bool = True,
    phase_epsilon: float = 0.01,
) -> list[Audited]:
    """Read the compression clock of every run and seed, and the two-phase clock of runs that logged it.

    Args:
        paths: Run directories (or their ``metrics.jsonl``), CSV, JSONL and NPZ files. Arrays of an NPZ have
            the shape (steps,) or (seeds, steps).
        source: Names of the columns; the defaults of :class:`Source` if ``None``.
        rule: Thresholds; the defaults of the clock if ``None``.
        group: Whether everything given is one group of comparable runs: the boundary gate then also asks for
            a floor within 3 times the group's median, if at least 3 of them reach a plateau.
        phase_epsilon: ε of t_GF.

    Raises:
        ConfigError: If a file or column is missing, cannot be read or has the wrong shape.
    """
    source, rule = source or Source(), rule or CompressionRule()
    found = [series for path in paths for series in read_series(Path(path), source)]
    alone = [_clock(series, rule) for series in found]
    floors = [clock.floor for clock in alone if clock.plateau and clock.floor is not None]
    if group and len(floors) >= MIN_GROUP:
        alone = [_clock(series, rule, median(floors)) for series in found]
    phases = {name: read_two_phase(Path(name), phase_epsilon, source.resumed) for name in {s.source for s in found}}
    return [
        Audited(series.source, series.seed, clock, phases[series.source])
        for series, clock in zip(found, alone, strict=True)
    ]


def _clock(series: Series, rule: CompressionRule, group_floor: float | None = None) -> CompressionClock:
    return compression_clock(
        series.steps,
        series.acc,
        series.rank,
        accuracy_steps=series.acc_steps,
        rule=rule,
        group_floor=group_floor,
    )


def main(argv: list[str]) -> int:
    """Run the job; prints a table or JSON.

    Args:
        argv: Arguments after ``audit``.

    Returns:
        0 once every run was read, whatever the verdicts; 2 on a value or file that cannot be used.
    """
    try:
        options = _parser().parse_args(argv)
        require(len(options.paths) > 0, "paths", options.paths, "at least one run or file is needed")
        source = Source(options.step, options.acc, options.rank, options.seed, options.resumed)
        rule = CompressionRule(threshold=options.threshold, epsilon=options.epsilon)
        require(0 < options.phase_epsilon < 1, "phase_epsilon", options.phase_epsilon, "must be in (0, 1)")
        audited = audit(options.paths, source, rule, not options.no_group, options.phase_epsilon)
    except (ArgumentError, ConfigError) as error:
        print(f"grok_lightning: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    if options.json:
        rows = [
            {"source": row.source, "seed": row.seed, **asdict(row.clock)}
            | {"two_phase": asdict(row.two_phase) if row.two_phase else None}
            for row in audited
        ]
        print(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print_table(audited)
    return 0


def _parser() -> ArgumentParser:
    text = (
        "Compression clocks (arXiv:2607.06639) of runs, two-phase clocks (arXiv:2505.20172) of those that logged them."
    )
    parser = ArgumentParser(prog="grok_lightning audit", description=text, exit_on_error=False)
    add = parser.add_argument
    add("paths", nargs="+", type=str, help="run directories, metrics.jsonl, CSV, JSONL or NPZ files")
    add("--step", type=str, default="step", help="column of the steps")
    add(
        "--acc",
        type=str | None,
        default=None,
        help=f"accuracy column (default: {RUN_ACC} in a run, else acc)",
    )
    add("--rank", type=str | None, default=None, help=f"rank column (default: {RUN_RANK} in a run, else rank)")
    add("--seed", type=str | None, default=None, help="column that names the seeds")
    add(
        "--threshold",
        type=float,
        default=0.95,
        help="accuracy that counts as grokked (arXiv:2607.06639: 0.9)",
    )
    add("--epsilon", type=float, default=0.10, help="share of the drop that may be left at T_compress")
    add("--phase_epsilon", type=float, default=0.01, help="share of the first gradient norm left at t_GF")
    add("--resumed", action="store_true", help="where steps go back, keep the later branch")
    add("--no_group", action="store_true", help="leave the median floor of all runs out of the boundary gate")
    add("--json", action="store_true", help="print JSON instead of a table")
    return parser


def print_table(audited: Sequence[Audited]) -> None:
    """Print a table, and below it why verdicts were refused."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    phases = _PHASES if any(row.two_phase for row in audited) else ()
    table = Table("run", "seed", *(name for name, _ in (*phases, *_CELLS)), "censored", "verdict")
    for row in audited:
        cells = [_show(getattr(row.two_phase, field, None)) for _, field in phases]
        cells += [_show(getattr(row.clock, field)) for _, field in _CELLS]
        table.add_row(escape(row.source), escape(row.seed or "-"), *cells, _censored(row.clock), row.clock.verdict)
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 200))
    console.print(table)
    for row in audited:
        for reason in row.clock.reasons:
            name = row.source + (f" seed {row.seed}" if row.seed is not None else "")
            console.print(f"{name}: refused: {reason}", markup=False, highlight=False, soft_wrap=True)


_CELLS = (
    ("T_grok", "t_grok"),
    ("T_compress", "t_compress"),
    ("lag", "lag"),
    ("frac_pre", "frac_pre"),
    ("rank at T_grok", "r_grok"),
    ("floor", "floor"),
    ("plateau", "plateau"),
    ("boundary", "boundary"),
)

_PHASES = (("t_GF", "t_gf"), ("t_WD", "t_wd"))


def _censored(clock: CompressionClock) -> str:
    if clock.censored_grok:
        return "T_grok"
    return "T_compress" if clock.censored_compress else _show(clock.censored_compress)


def _show(value: bool | int | float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
