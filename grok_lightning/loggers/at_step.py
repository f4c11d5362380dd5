"""Logging under the project's step convention."""

from collections.abc import Mapping

from lightning.pytorch import Trainer
from torch import Tensor


def log_at_step(trainer: Trainer, values: Mapping[str, float | int | Tensor]) -> None:
    """Send values to every logger, stamped with the number of updates the weights have received.

    ``self.log`` would stamp the step before, and would drop what does not fall on ``log_every_n_steps``.

    Args:
        trainer: The running trainer.
        values: Key (from :mod:`grok_lightning.metric_keys`) → scalar.
    """
    plain = {key: value.item() if isinstance(value, Tensor) else value for key, value in values.items()}
    for logger in trainer.loggers:
        logger.log_metrics(plain, step=trainer.global_step)
