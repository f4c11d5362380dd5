"""Logging under the project's step convention."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer
from torch import Tensor

from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.loggers.wandb_run import WandbRun


def log_at_step(trainer: Trainer, values: Mapping[str, float | list[float] | Tensor]) -> None:
    """Send values to every logger, stamped with the number of updates the weights have received.

    ``self.log`` would stamp the step before, and would drop what does not fall on ``log_every_n_steps``.

    Args:
        trainer: The running trainer.
        values: Key (from :mod:`grok_lightning.metric_keys`) → scalar, or a small array: the run record keeps arrays
            as they are, W&B as histograms, and other loggers get the scalars only.
    """
    if not values:
        return
    plain: dict[str, Any] = {key: value.item() if isinstance(value, Tensor) else value for key, value in values.items()}
    scalars = {key: value for key, value in plain.items() if not isinstance(value, list)}
    for logger in trainer.loggers:
        takes_arrays = isinstance(logger, (RunRecord, WandbRun))
        logger.log_metrics(plain if takes_arrays else scalars, step=trainer.global_step)
