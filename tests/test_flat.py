"""A long run needs no more memory, and no more time per line of its record, than a short one."""

import gc
import json
import statistics
import time
import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from short_run import COMMON, SIZES

from grok_lightning import metric_keys
from grok_lightning.cli import GrokCLI
from grok_lightning.loggers.run_record import RunRecord

MEGABYTE = 2**20


class Watch(Callback):
    """Notes, at chosen steps, resident memory in MB and the number of live tensors."""

    def __init__(self, steps):
        self.steps, self.megabytes, self.tensors = steps, [], []

    def on_validation_end(self, trainer, pl_module):
        if trainer.global_step in self.steps:
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.megabytes.append(pages * 4096 / MEGABYTE)
            self.tensors.append(sum(1 for thing in gc.get_objects() if type(thing) is torch.Tensor))


def fit(watch, *flags):
    class Watched(GrokCLI):
        def _instantiate_trainer(self, config, callbacks):
            return super()._instantiate_trainer(config, [*callbacks, watch])

    head = ["fit", "--model", "EmbeddingMLP", *SIZES["EmbeddingMLP"], *COMMON]
    with warnings.catch_warnings():  # lightning's, of runs without a logger
        warnings.simplefilter("ignore")
        Watched([*head, "--record.run_id", "run", "--record.experiment", "x", *map(str, flags)])
    return [json.loads(line) for line in Path("runs/x/run/metrics.jsonl").read_text().splitlines()]


EVERY = {"spectrum": 20, "balance": 20, "health": 20, "two_phase": 20, "hessian": 0, "fourier": 20, "ntk": 0}
OFTEN = [f"--{group}.every_n_steps={n}" for group, n in EVERY.items()]
OFTEN += [f"--{group}.log_points_per_decade=0" for group in EVERY]


def test_no_tensor_is_kept_of_the_steps_that_are_past():
    watch = Watch([100, 200, 300])
    lines = fit(watch, "--trainer.max_steps=300", "--trainer.logger=false", *OFTEN)
    assert Counter(metric_keys.spectrum("E", "sigma_max") in line for line in lines)[True] >= 15
    assert watch.tensors[2] == watch.tensors[1], watch.tensors


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_and_the_time_of_a_line_stay_flat(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    took, write = [], RunRecord.log_metrics

    def timed(self, metrics, step=None):
        start = time.process_time()
        write(self, metrics, step)
        took.append(time.process_time() - start)

    monkeypatch.setattr(RunRecord, "log_metrics", timed)
    watch = Watch([2000, 11000, 20000])
    lines = fit(watch, "--trainer.max_steps=20000", *OFTEN)
    print("MB", watch.megabytes, "tensors", watch.tensors, "lines", len(lines))
    n = len(took) // 10
    early, late = statistics.median(took[n : 2 * n]), statistics.median(took[-n:])
    print(f"ms a line: {1e3 * early:.4f}, {1e3 * late:.4f}")
    assert len(lines) > 5000
    assert watch.megabytes[2] - watch.megabytes[0] < 8
    assert watch.tensors[2] == watch.tensors[0]
    assert late < 3 * early  # one that grew with the file would be some six times as much; load makes it two
