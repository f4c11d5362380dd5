"""``tiny_sweep.py METHOD WORKERS COUNT WORD…``: engine, locks, launcher and journal as they are, over tiny_fit.py."""

import json
import sys
from pathlib import Path

from grok_lightning.sweep.command import Command
from grok_lightning.sweep.configuration import Configuration, as_flag, config_hash
from grok_lightning.sweep.engine import Engine
from grok_lightning.sweep.grid import GridSource, grid
from grok_lightning.sweep.spec import Parameter, Sweep
from grok_lightning.sweep.trials import Trials
from grok_lightning.sweep.worker import SubprocessWorker

TINY_FIT = Path(__file__).with_name("tiny_fit.py")


class TinyPlanner:
    """Resolves without the parser of fit, which takes seconds to load."""

    def __init__(self, sweep):
        self.sweep = sweep

    def plan(self, values):
        flags = tuple(as_flag(key, value) for key, value in values.items())
        return Configuration(config_hash({"model": values}), values, ("fit", *flags), 4)


class Quiet:
    def ended(self, running, outcome):
        print(outcome.status, running.claim.configuration.key, outcome.error, flush=True)

    def update(self, running, waiting):
        pass


def make_sweep(method, parameters, metric="val/acc", command=()):
    return Sweep(Path("x.yaml"), "", method, Command(tuple(command)), tuple(parameters), metric, True, None, False)


def parameters_of(method, count):
    values = (Parameter("model.c", "categorical", tuple(range(count))),)
    ranges = (Parameter("model.c", "uniform", (), 0.0, 1.0), Parameter("model.d", "int_uniform", (), 1, 1000))
    return values if method == "grid" else ranges


def make_source(method, count, trials, retry=False):
    planner = TinyPlanner(make_sweep(method, parameters_of(method, count)))
    if method == "grid":
        return GridSource([planner.plan(values) for values in grid(planner.sweep)], trials, retry)
    from grok_lightning.sweep.search import SearchSource

    return SearchSource(planner, trials, count, seed=0, retry_failed=retry)


def main(method, workers, count, *words):
    trials = Trials(Path("runs"), "tiny")
    trials.create()
    source = make_source(method, int(count), trials)
    worker = SubprocessWorker(trials, 1, program=(sys.executable, "-S", str(TINY_FIT), *words))
    stopped = Engine(source, trials, worker, int(workers), Quiet()).run()
    print(json.dumps(source.settled))
    return 1 if "failed" in source.settled.values() else 128 + stopped if stopped else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
