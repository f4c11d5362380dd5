"""A progress bar over optimiser steps; epochs of a few steps say nothing in a grokking run."""

import sys
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.utilities.types import STEP_OUTPUT
from tqdm import tqdm

from grok_lightning import metric_keys
from grok_lightning.callbacks.stepping import StepsOver


class StepProgress(StepsOver, ProgressBar):
    """One line: step, rate, and what the last evaluation found.

    That is training, validation and test accuracy, and of a language model the validation perplexity.

    A terminal is refreshed five times a second; a log file gets a line every ten seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None
        self._enabled = True

    def disable(self) -> None:
        """Show nothing (Lightning calls this on all processes but the first)."""
        self._enabled = False

    def enable(self) -> None:
        """Show the bar."""
        self._enabled = True

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether a step has to be shown at once: never, the bar catches up."""
        return False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar at the step training starts from."""
        total = trainer.max_steps if trainer.max_steps > 0 else None
        self._bar = tqdm(
            total=total,
            initial=trainer.global_step,
            desc="step",
            unit=" steps",
            disable=not self._enabled,
            mininterval=0.2 if sys.stderr.isatty() else 10.0,
            dynamic_ncols=True,
        )

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: STEP_OUTPUT,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Advance by the updates that were made."""
        self._bar.update(trainer.global_step - self._bar.n)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the accuracies of this evaluation."""
        if self._bar is not None:
            shown = {"train": "train_full", "val": "val", "test": "test"}
            values = {name: trainer.callback_metrics.get(metric_keys.acc(part)) for name, part in shown.items()}
            known = [f"{name}_acc={float(value):.3f}" for name, value in values.items() if value is not None]
            perplexity = trainer.callback_metrics.get(metric_keys.perplexity("val"))
            text = ", ".join(known if perplexity is None else [*known, f"val_ppl={float(perplexity):.1f}"])
            self._bar.set_postfix_str(text, refresh=False)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Close the bar, so that a message starts on a line of its own."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
