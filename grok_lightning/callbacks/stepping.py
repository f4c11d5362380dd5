"""Lightning's loop over batches, quick over the steps at which nobody has anything to do."""

import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, ProgressBar, Timer
from lightning.pytorch.loops.fetchers import _DataFetcher, _PrefetchDataFetcher
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.plugins.precision import DoublePrecision, MixedPrecision, Precision
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.optim import Optimizer

from grok_lightning.callbacks.epoch_ends import defines, steps_ahead, turn
from grok_lightning.data.batches import Batch
from grok_lightning.data.table import TableDataModule
from grok_lightning.modules.base import GrokModule

QUICK_SECONDS = 0.2
"""Longest stretch without a look at signals, clocks and the progress bar."""

HOOKS = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)
"""What Lightning calls on callbacks and the module at every step."""

MODULE_HOOKS = (
    *(hook for hook in HOOKS if hook != "on_before_optimizer_step"),  # the quick steps call this one too
    "training_step",
    "backward",
    "optimizer_step",
    "optimizer_zero_grad",
    "configure_gradient_clipping",
    "on_before_batch_transfer",
    "on_after_batch_transfer",
    "transfer_batch_to_device",
)
"""What a subclass of the module may override to see every step."""


DATA_HOOKS = ("on_before_batch_transfer", "on_after_batch_transfer", "transfer_batch_to_device")
"""What a subclass of the datamodule may override to see every batch."""


class StepsOver:
    """A callback that says at which steps it has something to do, so that the others can be passed over."""

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether the hooks of the update that leads to ``step`` updates have to be called."""
        return False

    def pass_over(self, trainer: Trainer, batch: Batch) -> None:
        """See the batch of an update whose hooks are not called; ``trainer.global_step`` counts it already."""

    def before_update(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, loss: Tensor) -> None:
        """See loss and gradients of an update whose hooks are not called, before clipping; may take them away."""


class QuickEpochLoop(_TrainingEpochLoop):
    """Lightning's loop over the batches of an epoch, without its cost at steps where nothing is due.

    A step at which a callback, a logger, an evaluation or a checkpoint is due, or something at the end of the epoch,
    and the last step of the run are Lightning's own. The updates before it are made here, in the same order and by
    the same operations, so that the weights are the same bit for bit; Lightning's counters advance with each of them.
    Where anything unknown could want to see every step (a callback or a subclass with hooks of its own, several
    processes, gradient accumulation, a loss scaler, a profiler), every step is Lightning's own.
    """

    def advance(self, data_fetcher: _DataFetcher) -> None:
        """Pass over the steps before the next one that matters, then run that one."""
        if not self.restarting and self._can_be_quick(data_fetcher):
            self._pass_over(data_fetcher)
        super().advance(data_fetcher)

    def _can_be_quick(self, data_fetcher: _DataFetcher) -> bool:
        trainer: Any = self.trainer  # lightning sets some of what follows untyped
        return (
            trainer.num_training_batches != float("inf")
            and isinstance(data_fetcher, _PrefetchDataFetcher)
            and type(trainer.strategy) is SingleDeviceStrategy
            and isinstance(trainer.datamodule, TableDataModule)
            and not _overrides(trainer.datamodule, TableDataModule, DATA_HOOKS)
            and trainer.accumulate_grad_batches == 1
            and not trainer.should_stop
            and isinstance(trainer.profiler, PassThroughProfiler)
            and _without_scaler(trainer.precision_plugin)
            and not _overrides(trainer.lightning_module, GrokModule, MODULE_HOOKS)
            and all(map(_is_known, trainer.callbacks))
        )

    def _pass_over(self, data_fetcher: _DataFetcher) -> None:
        trainer: Any = self.trainer
        module = trainer.lightning_module
        steppers = [callback for callback in trainer.callbacks if isinstance(callback, StepsOver)]
        watching = [callback for callback in steppers if defines(callback, "pass_over") is not StepsOver]
        guards = [callback for callback in steppers if defines(callback, "before_update") is not StepsOver]
        until = time.monotonic() + QUICK_SECONDS
        for _ in range(self._steps_before_the_next() - 1):
            batch = next(data_fetcher)[0]
            with trainer.precision_plugin.train_step_context():
                loss = module.batch_loss(batch)[0]
            self._update(module, loss, guards)
            self._count()
            for callback in watching:
                callback.pass_over(trainer, batch)
            if data_fetcher.done:
                turn(self, data_fetcher)
            if time.monotonic() > until:
                break

    def _update(self, module: GrokModule, loss: Tensor, guards: list[StepsOver]) -> None:
        trainer, optimizer = self.trainer, self.trainer.optimizers[0]
        if type(optimizer).zero_grad is Optimizer.zero_grad:  # what it does, without its dozen microseconds
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        else:
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        for guard in guards:
            guard.before_update(trainer, module, optimizer, loss)
        module.on_before_optimizer_step(optimizer)
        if trainer.gradient_clip_val:
            module.configure_gradient_clipping(
                optimizer,
                trainer.gradient_clip_val,
                trainer.gradient_clip_algorithm,
            )
        optimizer.step()

    def _count(self) -> None:
        progress = self.automatic_optimization.optim_progress.optimizer
        progress.zero_grad.increment_by(1)
        progress.step.increment_by(1)
        self.batch_progress.increment_by(1)
        if self.trainer.lr_scheduler_configs:
            self.update_lr_schedulers("step", update_plateau_schedulers=False)
        self._batches_that_stepped += 1

    def _steps_before_the_next(self) -> int:
        """Number of updates up to the next one at which something is due, itself included; at least 1."""
        trainer: Any = self.trainer
        step, module = self.global_step, trainer.lightning_module
        distance = steps_ahead(self)
        if trainer.max_steps > 0:
            distance = min(distance, trainer.max_steps - step)
        distance = min(distance, _to_multiple(step, module.log_every_n_steps))
        interval = trainer.val_check_batch
        if interval is not None and interval != float("inf"):
            made = self.total_batch_idx if trainer.check_val_every_n_epoch is None else self.batch_idx
            distance = min(distance, _to_multiple(made + 1, int(interval)))
        for callback in trainer.callbacks:
            if isinstance(callback, StepsOver):
                steps = range(step + 1, step + distance)
                distance = next((s - step for s in steps if callback.acts_at(trainer, s)), distance)
            elif isinstance(callback, ModelCheckpoint) and callback._every_n_train_steps > 0:
                distance = min(distance, _to_multiple(step, callback._every_n_train_steps))
        return max(distance, 1)


def use_quick_steps(trainer: Trainer) -> None:
    """Give a trainer that has not started the :class:`QuickEpochLoop`."""
    old = trainer.fit_loop.epoch_loop
    trainer.fit_loop.epoch_loop = QuickEpochLoop(trainer, min_steps=old.min_steps, max_steps=old.max_steps)


def _to_multiple(made: int, every: int) -> int:
    return every - made % every


def _overrides(thing: object, base: type, names: tuple[str, ...]) -> bool:
    return any(getattr(type(thing), name, None) is not getattr(base, name, None) for name in names)


def _is_known(callback: Callback) -> bool:
    """Whether the hooks of a callback may be left out: it has none, or says when it needs them, or only looks on."""
    own = [hook for hook in HOOKS if defines(callback, hook) is not Callback]
    if isinstance(callback, StepsOver):  # what a subclass adds, acts_at of its parent knows nothing of
        return all(issubclass(defines(callback, "acts_at"), defines(callback, hook)) for hook in own)
    onlooker = isinstance(callback, ModelCheckpoint | Timer | ProgressBar)
    return not own or (onlooker and all(defines(callback, hook).__module__.startswith("lightning.") for hook in own))


def _without_scaler(plugin: Precision) -> bool:
    return type(plugin) in (Precision, DoublePrecision) or (type(plugin) is MixedPrecision and plugin.scaler is None)
