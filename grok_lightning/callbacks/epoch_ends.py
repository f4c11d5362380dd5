"""Ends of epochs at which nobody has anything to do, without what Lightning does there."""

from typing import Any

from lightning.fabric.utilities.data import _set_sampler_epoch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint, Timer
from lightning.pytorch.callbacks.timer import Interval
from lightning.pytorch.loops.fetchers import _DataFetcher
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

HOOKS = ("on_train_epoch_start", "on_train_epoch_end")
"""What Lightning calls between two epochs."""

FAR = 1000
"""Steps looked ahead where no end of an epoch stops the view."""


def defines(thing: object, name: str) -> type:
    """The class in which a method of ``thing`` is written."""
    return next(base for base in type(thing).__mro__ if name in base.__dict__)


def steps_ahead(loop: _TrainingEpochLoop) -> int:
    """Number of updates up to the next end of an epoch at which something is due; at most :data:`FAR`."""
    trainer: Any = loop.trainer  # lightning sets some of what follows untyped
    length = int(trainer.num_training_batches)
    left = length - loop.batch_progress.current.ready
    if not _nothing_is_due(loop):
        return left
    if trainer.max_epochs in (None, -1):
        return FAR
    epochs: int = trainer.max_epochs - trainer.fit_loop.epoch_progress.current.processed - 1
    return min(FAR, left + length * epochs)


def turn(loop: _TrainingEpochLoop, data_fetcher: _DataFetcher) -> None:
    """Advance Lightning's counters from the last step of an epoch to the first batch of the next one."""
    trainer: Any = loop.trainer
    connector, epochs = trainer._logger_connector, trainer.fit_loop.epoch_progress
    connector.epoch_end_reached()
    connector.reset_results()
    epochs.increment_processed()
    epochs.increment_completed()
    for loader in trainer.fit_loop._combined_loader.flattened:
        _set_sampler_epoch(loader, epochs.current.processed)
    epochs.increment_ready()
    epochs.increment_started()
    loop.batch_progress.reset_on_run()
    loop.scheduler_progress.reset_on_run()
    loop.automatic_optimization.optim_progress.reset_on_run()
    loop.val_loop.batch_progress.total.reset()
    iter(data_fetcher)


def _nothing_is_due(loop: _TrainingEpochLoop) -> bool:
    trainer: Any = loop.trainer
    return (
        trainer.check_val_every_n_epoch is None  # evaluations are counted in steps
        and not trainer.reload_dataloaders_every_n_epochs
        and not loop._results  # what self.log keeps for the end of an epoch
        and all(schedule.interval == "step" for schedule in trainer.lr_scheduler_configs)
        and all(defines(trainer.lightning_module, hook).__module__.startswith("lightning.") for hook in HOOKS)
        and all(map(_is_idle, trainer.callbacks))
    )


def _is_idle(callback: Callback) -> bool:
    """Whether a callback has nothing to do between two epochs."""
    own = {defines(callback, hook) for hook in HOOKS} - {Callback}
    if not own:
        return True
    if own == {ModelCheckpoint}:
        return isinstance(callback, ModelCheckpoint) and callback._every_n_epochs == 0
    return own == {Timer} and isinstance(callback, Timer) and callback._interval != Interval.epoch
