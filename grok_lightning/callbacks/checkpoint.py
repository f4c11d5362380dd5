"""Checkpoints of the run directory."""

import os
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.types import STEP_OUTPUT

from grok_lightning.errors import require
from grok_lightning.loggers.run_record import RunRecord


class LastCheckpoint(Checkpoint):
    """Keeps ``checkpoints/last.ckpt`` of the run directory up to date, and complete at any moment.

    It is written under another name, flushed to the disk and renamed, so that a killed run leaves the one before.

    Args:
        every_n_steps: Distance between checkpoints in optimiser steps; 0 writes one at the end only.
    """

    def __init__(self, every_n_steps: int = 1000) -> None:
        require(every_n_steps >= 0, "checkpoint.every_n_steps", every_n_steps, "must be 0 or more (steps)")
        self.every_n_steps = every_n_steps
        self.directory: Path | None = None
        self._saved_step = -1

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find the run directory; without a record there is nowhere to write."""
        record = next((logger for logger in trainer.loggers if isinstance(logger, RunRecord)), None)
        self.directory = None if record is None else record.path / "checkpoints"

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: STEP_OUTPUT,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Write on the chosen steps."""
        if self.every_n_steps and trainer.global_step % self.every_n_steps == 0:
            self._save(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the last weights."""
        self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        if self.directory is None or trainer.global_step == self._saved_step:
            return
        self._saved_step = trainer.global_step
        partial = self.directory / ".last.partial"
        trainer.save_checkpoint(partial, weights_only=False)  # on every process: strategies collect state here
        if trainer.is_global_zero:
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(self.directory / "last.ckpt")
