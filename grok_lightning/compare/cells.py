"""Cells: runs of equal settings, and how soon and how often they grok."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grok_lightning.compare.clocks import CLOCK_NAMES, ClockName
from grok_lightning.compare.runs import Run
from grok_lightning.compare.settings import Value, show, sort_key
from grok_lightning.numerics.inference import median_of_values, wilson
from grok_lightning.numerics.survival import Times, median_interval, median_time

Interval = tuple[float, float] | None
"""Lower and upper end, infinite where not reached; ``None`` for fewer than two runs."""


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made.

    Attributes:
        n_draws: Number of resamples.
        level: Coverage of every interval.
        seed: Seed of the resamples.
    """

    n_draws: int = 10_000
    level: float = 0.95
    seed: int = 0

    def generator(self) -> np.random.Generator:
        """A fresh generator, so that no interval depends on what was computed before it."""
        return np.random.default_rng(self.seed)


@dataclass(frozen=True)
class ClockStats:
    """How soon and how often the runs of a cell grok, by one clock.

    Attributes:
        clock: first (first evaluation above the threshold) or sustained (from there on never below).
        grokked: Runs that reached T_grok.
        rate: Their share.
        rate_interval: Wilson interval of the share.
        t_grok: Kaplan–Meier median in steps over ALL runs; infinite if half of them never get there.
        t_grok_interval: Bootstrap percentile interval.
        t_mem: The same of T_mem.
        delay: Kaplan–Meier median of T_grok − T_mem over the runs that memorised; ``None`` if none did.
        censored_steps: Last evaluated steps of the runs that did not reach T_grok.
    """

    clock: ClockName
    grokked: int
    rate: float
    rate_interval: tuple[float, float]
    t_grok: float
    t_grok_interval: Interval
    t_mem: float
    delay: float | None
    censored_steps: tuple[int, ...]


@dataclass(frozen=True)
class Cell:
    """Runs of equal settings.

    Attributes:
        key: Setting → value, of every setting in --by.
        runs: Its runs.
        clocks: One entry per clock.
        final_test_acc: Median of the last test accuracy, over the runs that have one; ``None`` if none has.
        final_test_acc_interval: Bootstrap percentile interval.
        resolution: Each T_grok lies within so many steps before its value (the largest of the runs).
    """

    key: tuple[tuple[str, Value], ...]
    runs: tuple[Run, ...]
    clocks: tuple[ClockStats, ...]
    final_test_acc: float | None
    final_test_acc_interval: Interval
    resolution: int | None

    @property
    def label(self) -> str:
        """``model.c = 10, data.batch_size = 512``."""
        return ", ".join(f"{name} = {show(value)}" for name, value in self.key)

    def times(self, clock: ClockName) -> Times:
        """T_grok of the runs, censored at the last evaluated step."""
        return grok_times(self.runs, clock)


def grok_times(runs: Sequence[Run], clock: ClockName) -> Times:
    """T_grok of runs, censored at the last evaluated step."""
    return Times.of([run.clocks.t_grok[clock] for run in runs], [run.clocks.last_step for run in runs])


def make_cells(runs: Sequence[Run], by: Sequence[str], bootstrap: Bootstrap) -> list[Cell]:
    """Group runs by their settings, in order: numbers, text, null."""
    groups: dict[tuple[Value, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(run.settings.get(name) for name in by), []).append(run)
    ordered = sorted(groups.items(), key=lambda item: [sort_key(value) for value in item[0]])
    return [_cell(tuple(zip(by, values, strict=True)), members, bootstrap) for values, members in ordered]


def _cell(key: tuple[tuple[str, Value], ...], runs: Sequence[Run], bootstrap: Bootstrap) -> Cell:
    accuracies = [acc for run in runs if (acc := run.final_acc["test"]) is not None]
    resolutions = [run.clocks.resolution for run in runs if run.clocks.resolution is not None]
    return Cell(
        key,
        tuple(runs),
        tuple(_clock_stats(runs, clock, bootstrap) for clock in CLOCK_NAMES),
        float(np.median(accuracies)) if accuracies else None,
        median_of_values(accuracies, bootstrap.n_draws, bootstrap.level, bootstrap.generator()),
        max(resolutions, default=None),
    )


def _clock_stats(runs: Sequence[Run], clock: ClockName, bootstrap: Bootstrap) -> ClockStats:
    ends = [run.clocks.last_step for run in runs]
    grok = grok_times(runs, clock)
    memorised = [(run, mem) for run in runs if (mem := run.clocks.t_mem[clock]) is not None]
    delays = Times.of(
        [None if (t := run.clocks.t_grok[clock]) is None else t - mem for run, mem in memorised],
        [run.clocks.last_step - mem for run, mem in memorised],
    )
    return ClockStats(
        clock=clock,
        grokked=grok.n_events,
        rate=grok.n_events / len(grok),
        rate_interval=wilson(grok.n_events, len(grok), bootstrap.level),
        t_grok=median_time(grok),
        t_grok_interval=median_interval(grok, bootstrap.n_draws, bootstrap.level, bootstrap.generator()),
        t_mem=median_time(Times.of([run.clocks.t_mem[clock] for run in runs], ends)),
        delay=median_time(delays) if memorised else None,
        censored_steps=tuple(int(step) for step in grok.censored),
    )
