"""A sweep from its file to its last line."""

import os
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import closing, nullcontext
from math import prod

from rich.console import Console

from grok_lightning import slurm
from grok_lightning.errors import ConfigError
from grok_lightning.loggers.continuation import write_durably
from grok_lightning.loggers.screen import print_safely
from grok_lightning.sweep.configuration import Configuration, Planner
from grok_lightning.sweep.engine import Engine, Source
from grok_lightning.sweep.grid import GridSource, plan_grid
from grok_lightning.sweep.job import Options
from grok_lightning.sweep.spec import Sweep, read_sweep
from grok_lightning.sweep.table import Progress
from grok_lightning.sweep.trials import Trials
from grok_lightning.sweep.warm_worker import WarmWorker
from grok_lightning.sweep.worker import SubprocessWorker, run_arguments

FIRST_DRAWS = 10
"""How many draws of a bayes sweep are made at random, by Optuna's default."""

MANY = 50
"""From how many configurations on to say that resolving them takes a while."""

SEEDS = ("seed_everything", "data.split_seed", "data.order_seed")
"""Keys that make replicates of a setting, not settings."""

PARSE_SECONDS = 0.1
"""Roughly how long one takes."""


def conduct(options: Options, again: str) -> int:
    """Run the sweep.

    Args:
        options: The command line.
        again: The command line as it was typed.

    Returns:
        0 if every run completed, 1 if one failed, 128 + the number of a signal that stopped the sweep.
    """
    sweep = read_sweep(options.file)
    trials = Trials(options.root, options.name)
    total = _total(sweep, options)
    planner = Planner(sweep, options.flags)
    planned = _plan(planner, options, total)  # every mistake that the parser can find, before anything is written
    trials.create()
    source = _source(planner, planned, trials, options, total)
    _keep_file(sweep, trials)
    ended = Counter(source.settled.values())
    print_safely(
        f"sweep {trials.directory}: {source.total} in all, {options.workers} at a time; "
        f"{ended['completed']} completed and {ended['failed']} failed before"
    )
    fresh = SubprocessWorker(trials, options.threads, _gpus(options.gpus))
    warm = None if options.cold or sys.platform != "linux" else WarmWorker(fresh)
    console = Console(highlight=False)
    with (
        nullcontext() if warm is None else closing(warm),
        Progress(sweep, source, trials, options.workers, console) as progress,
    ):
        stopped = Engine(source, trials, warm or fresh, options.workers, progress).run()
    print_safely(progress.counts(0), *_report(source, trials, sweep))
    if stopped is not None:
        print_safely(f"stopped by {signal.Signals(stopped).name}; to go on: {again}")
        if stopped == signal.SIGUSR1 and slurm.job_id() is not None:
            print_safely(slurm.requeue())
        return 128 + stopped
    return 1 if "failed" in source.settled.values() else 0


def show(options: Options) -> int:
    """Print what would be run, and whether it has been run; writes nothing.

    Args:
        options: The command line.
    """
    sweep = read_sweep(options.file)
    total = _total(sweep, options)
    planned = _plan(Planner(sweep, options.flags), options, total)
    trials = Trials(options.root, options.name)
    for configuration in planned:
        command = shlex.join(["python", "-m", "grok_lightning", *run_arguments(trials, configuration)])
        print_safely(f"{configuration.key} {trials.status(configuration.key):9s} {command}")
    if sweep.method == "bayes":
        print_safely("bayes: the first draws, which are random; what follows depends on the results")
    return 0


def _total(sweep: Sweep, options: Options) -> int:
    """How many configurations or draws are asked for."""
    limits = [limit for limit in (sweep.run_cap, options.max_runs) if limit is not None]
    if sweep.method == "grid":
        limits.append(prod(len(parameter.values) for parameter in sweep.parameters))
    if not limits:
        raise ConfigError(f"max_runs is missing: {sweep.method} goes on for ever without it, or a run_cap in the file")
    return min(limits)


def _plan(planner: Planner, options: Options, total: int) -> list[Configuration]:
    """Resolve everything that can be known beforehand, and say what is worth knowing."""
    sweep = planner.sweep
    if sweep.early_terminate:
        print_safely("early_terminate: runs are not stopped early here; only W&B does that")
    count = min(total, FIRST_DRAWS) if sweep.method == "bayes" else total
    if count >= MANY:
        print(f"checking {count} configurations, about {count * PARSE_SECONDS:.0f} s", file=sys.stderr, flush=True)
    if sweep.method == "grid":
        found, same = plan_grid(planner, count)
        for first, later in same:
            print_safely(f"the same configuration, run once: {first} and {later}")
        return found
    from grok_lightning.sweep.sampling import draws

    return list({each.key: each for each in map(planner.plan, draws(sweep, options.seed, count))}.values())


def _source(planner: Planner, planned: list[Configuration], trials: Trials, options: Options, total: int) -> Source:
    if planner.sweep.method == "grid":
        for configuration in planned:
            trials.list_queued(configuration)
        return GridSource(planned, trials, options.retry_failed)
    from grok_lightning.sweep.search import SearchSource

    return SearchSource(planner, trials, total, options.seed, options.retry_failed)


def _keep_file(sweep: Sweep, trials: Trials) -> None:
    kept = trials.state / "sweep.yaml"
    if kept.exists() and kept.read_text(encoding="utf-8") != sweep.text:
        print_safely(f"{sweep.path} has changed since {kept} was kept; runs of configurations that it still has count")
    write_durably(kept, sweep.text.encode())


def _gpus(count: int) -> list[str]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    devices = [str(n) for n in range(count)] if visible is None else visible.split(",")
    return devices[:count]


def _report(source: Source, trials: Trials, sweep: Sweep) -> Iterable[str]:
    yield from source.notes
    ended = Counter(source.settled.values())
    for key, status in source.settled.items():
        if status == "failed":
            yield f"failed {key}: {trials.error(key)}; log: {trials.log(key)}"
    if ended["failed"]:
        yield "failed runs are run again with --retry_failed"
    if ended["completed"]:
        compared = [key for key in sweep.swept if key not in SEEDS]
        by = f" --by {' '.join(compared)}" if compared else " --by KEY"
        yield f"next: python -m grok_lightning compare {shlex.quote(str(trials.directory))}{by}"
