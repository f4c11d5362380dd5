"""When a measurement runs, and the promise that it changes nothing."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.types import STEP_OUTPUT

from grok_lightning import metric_keys
from grok_lightning.callbacks.stepping import StepsOver
from grok_lightning.errors import ConfigError, require
from grok_lightning.loggers.at_step import log_at_step
from grok_lightning.numerics.quiet import kept

Values = Mapping[str, float | list[float]]
"""Key → scalar, or a small array."""


class Periodic(StepsOver, Callback):
    """A measurement of the weights after chosen numbers of updates.

    It runs at step t if ``every_n_steps`` divides t, or if t is one of the log-spaced steps
    ``round(10^(k / log_points_per_decade))``, k = 1, 2, …; and, unless both are 0 (which switches it off), on the
    weights before the first and after the last update. Subclasses give :attr:`group` and :meth:`measure`.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
    """

    group = "periodic"
    """First part of the keys, and name of the group of flags."""

    def __init__(self, every_n_steps: int, log_points_per_decade: int) -> None:
        require(every_n_steps >= 0, f"{self.group}.every_n_steps", every_n_steps, "must be 0 or more (steps)")
        field, allowed = f"{self.group}.log_points_per_decade", "must be 0 or more"
        require(log_points_per_decade >= 0, field, log_points_per_decade, allowed)
        self.every_n_steps, self.log_points_per_decade = every_n_steps, log_points_per_decade
        self.seconds = 0.0
        self._measured_step = -1
        self.latest: Values = {}  # of the last measurement in this process

    @property
    def enabled(self) -> bool:
        """Whether it measures at all."""
        return self.every_n_steps > 0 or self.log_points_per_decade > 0

    def is_due(self, step: int) -> bool:
        """Whether step is on one of the two grids."""
        if self.every_n_steps and step % self.every_n_steps == 0:
            return True
        return is_log_spaced(step, self.log_points_per_decade)

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether it measures at a step."""
        return self.enabled and self.is_due(step)

    def check(self, trainer: Trainer) -> None:
        """Refuse strategies under which a process does not hold every parameter.

        Raises:
            ConfigError: Unless the strategy is one device, or DistributedDataParallel.
        """
        strategy = trainer.strategy
        whole = isinstance(strategy, SingleDeviceStrategy | DDPStrategy) and not isinstance(strategy, DeepSpeedStrategy)
        if self.enabled and not whole:
            raise ConfigError(
                f"trainer.strategy = {type(strategy).__name__}: may shard the parameters, which {self.group} needs "
                f"whole; use ddp, or set {self.group}.every_n_steps and {self.group}.log_points_per_decade to 0"
            )

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """Measure the current weights.

        Args:
            trainer: The trainer; ``trainer.global_step`` updates have been made.
            pl_module: The module, unwrapped.

        Returns:
            Full key → value.
        """
        return {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """See :meth:`check`."""
        if stage == "fit":
            self.check(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the weights that training starts from; those of a resumed run only on the chosen steps."""
        if self.enabled and (trainer.global_step == 0 or self.is_due(trainer.global_step)):
            self._run(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Measure on the chosen steps."""
        if self.enabled and self.is_due(trainer.global_step):
            self._run(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the last weights."""
        if self.enabled:
            self._run(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """The last measured step, so that a resumed run does not measure it again."""
        return {"measured_step": self._measured_step, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue."""
        self._measured_step, self.seconds = state_dict["measured_step"], state_dict["seconds"]

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the wall time of what happens inside to :attr:`seconds`."""
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start

    def _run(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step == self._measured_step:
            return
        self._measured_step = trainer.global_step
        with self.timed(), kept(pl_module, pl_module.device), torch.inference_mode(False), torch.enable_grad():
            values = self.latest = dict(self.measure(trainer, pl_module))
        if not values:
            return
        log_at_step(trainer, values | {metric_keys.seconds(self.group): self.seconds})


def is_log_spaced(step: int, points_per_decade: int) -> bool:
    """Whether step is ``round(10^(k / points_per_decade))`` for some whole k ≥ 1."""
    if step < 2 or points_per_decade < 1:
        return False
    k = round(points_per_decade * math.log10(step))
    return any(round(10 ** (near / points_per_decade)) == step for near in (k - 1, k, k + 1) if near >= 1)
