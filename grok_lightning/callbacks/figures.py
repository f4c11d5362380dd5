"""The figures of ``report``, sent to W&B when a run has come to its end."""

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from grok_lightning.callbacks.lookup import logger_of
from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.loggers.wandb_run import WandbRun

FEWEST_STEPS = 100
"""A shorter run has no figures: drawing takes seconds, and there would be next to nothing to see."""


class SendFigures(Callback):
    """Draws the record of a completed run, and logs each figure as an image of the W&B run.

    It has to come after the summary, which writes the status that figures show, and before the loggers are closed:
    hence on teardown, which comes after the end of the fit and which Lightning does not call for a run that failed or
    was interrupted. Nothing that goes wrong here fails the run.
    """

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Draw and send, on the first process."""
        if stage != "fit" or not trainer.is_global_zero or trainer.global_step < FEWEST_STEPS:
            return
        record = logger_of(trainer, RunRecord)
        receivers = [logger for logger in trainer.loggers if isinstance(logger, WandbRun) and logger.takes_figures]
        if record is None or not receivers:
            return
        try:
            from grok_lightning.report.make import pictures  # loads matplotlib and scipy

            images = pictures(record.path)
        except Exception as error:  # whatever cannot be drawn, the run is complete
            rank_zero_warn(f"no figures go to W&B: {type(error).__name__}: {error}")
            return
        for receiver in receivers:
            receiver.log_figures(images, trainer.global_step)
