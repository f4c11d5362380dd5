"""Where a step of ``fit`` goes: processor time of its parts, by timers around them; called by fit_speed.py."""

import contextlib
import functools
import time
from collections import Counter

import torch
from torch.nn import functional as F

from grok_lightning.callbacks.numerics import Numerics
from grok_lightning.callbacks.periodic import Periodic
from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.loggers.wandb_run import WandbRun
from grok_lightning.modules.base import GrokModule

TIMED = {
    "forward and loss": [(GrokModule, "batch_loss")],
    "backward": [(torch.Tensor, "backward")],
    "optimiser": [(torch.optim.Adam, "step"), (torch.optim.AdamW, "step")],
    "check": [(Numerics, "before_update")],
    "evaluation": [(GrokModule, "_evaluate")],
    "record and W&B": [(RunRecord, "log_metrics"), (WandbRun, "log_metrics")],
    "measurements": [(Periodic, "_run")],
}
HEADINGS = [*TIMED, "Lightning and the rest"]
WORK = ("forward and loss", "backward", "optimiser", "evaluation", "measurements")
"""What a loop without Lightning would have to do too."""


class Sections:
    """Adds up what is spent in the parts between ``begin`` and ``end``; what is nested in a part is taken off it."""

    def __init__(self):
        self.seconds, self._on, self._open, self._since = Counter(), False, [], 0.0

    def begin(self):
        self._on = True

    def end(self):
        self._on = False

    def per_step(self, steps, total_ms):
        """Milliseconds per step, under HEADINGS."""
        found = [1e3 * self.seconds[name] / steps for name in TIMED]
        return [*found, total_ms - sum(found)]

    @contextlib.contextmanager
    def installed(self):
        with contextlib.ExitStack() as stack:
            for name in TIMED:
                for owner, method in TIMED[name]:
                    original = getattr(owner, method)
                    setattr(owner, method, self._timed(name, original))
                    stack.callback(setattr, owner, method, original)
            yield self

    def _timed(self, name, call):
        @functools.wraps(call)
        def timed(*args, **kwargs):
            if not self._on:
                return call(*args, **kwargs)
            self._switch()
            self._open.append(name)
            try:
                return call(*args, **kwargs)
            finally:
                self._switch()
                self._open.pop()

        return timed

    def _switch(self):
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


def gemm_rate(shapes):
    """GFLOP/s of one thread over products (m, k) x (k, n), each weighed by its operations, best of 10."""
    operations = seconds = 0.0
    for m, k, n in shapes:
        x, weight = torch.randn(m, k), torch.randn(n, k)
        best = float("inf")
        for _ in range(10):
            start = time.process_time()
            for _ in range(5):
                F.linear(x, weight)
            best = min(best, (time.process_time() - start) / 5)
        operations, seconds = operations + 2 * m * k * n, seconds + best
    return operations / seconds / 1e9
