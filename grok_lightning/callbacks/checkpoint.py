"""Checkpoints of the run directory."""

import contextlib
import os
import tempfile
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.types import STEP_OUTPUT

from grok_lightning.callbacks.lookup import logger_of
from grok_lightning.callbacks.numerics import everywhere
from grok_lightning.callbacks.signals import StopSignals, stop
from grok_lightning.callbacks.stepping import StepsOver
from grok_lightning.errors import NonFiniteError, require
from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.numerics.health import nonfinite_count

LAST = Path("checkpoints") / "last.ckpt"
"""Where a run directory keeps its checkpoint."""


class LastCheckpoint(StepsOver, Checkpoint):
    """Keeps ``checkpoints/last.ckpt`` of the run directory up to date, and complete at any moment.

    It is written under another name at the end of a step, flushed to the disk, and renamed before the next step begins:
    by then the record holds everything that was logged up to the checkpoint, and ``fit --resume`` loses nothing.
    SIGTERM and Ctrl-C write one too. Weights that are not finite never take its place.

    Args:
        every_n_steps: Distance between checkpoints in optimiser steps; 0 writes one at the end only.
    """

    def __init__(self, every_n_steps: int = 1000) -> None:
        require(every_n_steps >= 0, "checkpoint.every_n_steps", every_n_steps, "must be 0 or more (steps)")
        self.every_n_steps = every_n_steps
        self.path: Path | None = None
        self._record: RunRecord | None = None
        self._partial: Path | None = None  # written, and not yet renamed
        self._saved_step = -1
        self._signals = StopSignals()
        self._stopping: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find the run directory; without a record there is nowhere to write."""
        self._record = logger_of(trainer, RunRecord)
        self.path = None if self._record is None else self._record.path / LAST

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether it writes at a step, or has something to finish before it."""
        return self._is_due(step) or self._partial is not None or bool(self._stopping)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """From here on a signal is answered at the end of a step."""
        self._signals.install()

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: STEP_OUTPUT,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Write on the chosen steps, and when the run is asked to stop."""
        self._stopping = self._signals.agreed(trainer)
        if self._is_due(trainer.global_step) or self._stopping:
            self._write(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        """Make the checkpoint of the step before the last one, and stop if asked to."""
        self._rename(trainer)
        if self._stopping:
            stop(self._stopping, trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the last weights."""
        self._write(trainer)
        self._rename(trainer)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the signals back."""
        self._signals.restore()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the checkpoint before: what was logged after this one may be missing from the record."""
        if self._partial is not None:
            with contextlib.suppress(OSError):  # the directory itself may be gone, or no directory any more
                self._partial.unlink(missing_ok=True)
            self._partial = None

    def state_dict(self) -> dict[str, int]:
        """How much the record holds, so that a record from which something is missing is not gone on with."""
        return {"record_lines": 0 if self._record is None else self._record.lines}

    def _is_due(self, step: int) -> bool:
        return self.every_n_steps > 0 and step % self.every_n_steps == 0

    def _write(self, trainer: Trainer) -> None:
        if self.path is None or trainer.global_step == self._saved_step:
            return
        step = self._saved_step = trainer.global_step
        if everywhere(trainer, nonfinite_count(trainer.lightning_module.parameters())):
            raise NonFiniteError(
                f"numerics: the weights of {step} updates are not finite; no checkpoint is made of them"
            )
        self._partial = self.path.with_name(".last.partial")
        try:
            # On every process: strategies collect state here.
            trainer.save_checkpoint(self._partial, weights_only=False)
        except (OSError, RuntimeError) as error:  # torch's writer says RuntimeError of a full disk
            raise OSError(
                getattr(error, "errno", None),
                f"no checkpoint can be written: {_first_line(error)}; {self._save_elsewhere(trainer)}",
                str(self.path),
            ) from error

    def _save_elsewhere(self, trainer: Trainer) -> str:
        """A last attempt, in the directory for temporary files; what became of it, in words."""
        step, run_id = trainer.global_step, None if self._record is None else self._record.run_id
        path = Path(tempfile.gettempdir()) / f"grok_lightning-{run_id}-step-{step}.ckpt"
        try:
            trainer.save_checkpoint(path, weights_only=False)
        except (OSError, RuntimeError) as error:
            path.unlink(missing_ok=True)
            return f"nor in {path.parent}: {_first_line(error)}"
        return f"the state of step {step} is in {path}, and may be put in its place"

    def _rename(self, trainer: Trainer) -> None:
        if self._partial is None or self.path is None:
            return
        if trainer.is_global_zero:
            with self._partial.open("rb") as file:
                os.fsync(file.fileno())
            self._partial.replace(self.path)
        self._partial = None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
