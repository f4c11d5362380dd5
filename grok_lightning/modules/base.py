"""The training recipe that all models share."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor

from grok_lightning import __version__, metric_keys
from grok_lightning.data.batches import Batch
from grok_lightning.data.table import SIZES
from grok_lightning.errors import ConfigError
from grok_lightning.loggers.at_step import log_at_step
from grok_lightning.loggers.screen import print_safely
from grok_lightning.modules.compiling import compiled
from grok_lightning.modules.score import TableScore, chunks, gaps
from grok_lightning.modules.settings import flat, is_optimisers, plain
from grok_lightning.modules.sharding import shard
from grok_lightning.nets.base import Net
from grok_lightning.optim.filters import StepHooks
from grok_lightning.optim.losses import CROSS_ENTROPY, Loss
from grok_lightning.optim.recipe import (
    Recipe,
    build_hooks,
    build_optimizer,
    describe_groups,
    parameter_groups,
    warmup,
)

VERSION_KEY = "grok_lightning_version"
"""Where a checkpoint says which version wrote it."""


class GrokModule(LightningModule):
    """Training of a :class:`~grok_lightning.nets.base.Net`, with whole-table evaluation.

    Step convention: a value stamped with step t was measured on weights that had received t updates.

    Args:
        net: The network.
        recipe: The optimiser.
        loss: What is minimised, and what evaluations and measurements call the loss.
        compile: Whether training steps go through torch.compile; evaluations and measurements never do.
    """

    perplexity = False  # whether evaluations give the exponential of the loss too

    def __init__(self, net: Net, recipe: Recipe, loss: Loss = CROSS_ENTROPY, compile: bool = False) -> None:
        super().__init__()
        parameter_groups(net, recipe)  # refuses a recipe that does not fit the network before anything is written
        self.net = net
        self.recipe = recipe
        self.hooks: StepHooks | None = None
        self.loss, self._compile = loss, compile
        self._compiled: Callable[[Tensor], Tensor] | None = None
        self.scores = torch.nn.ModuleDict({part: TableScore(loss) for part in metric_keys.PARTS})

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits; see the network."""
        logits: Tensor = self.net(tokens)
        return logits

    def setup(self, stage: str) -> None:
        """Compile what training steps call, if asked.

        Raises:
            ConfigError: If torch.compile does not work here.
        """
        if stage == "fit" and self._compile:
            self._compiled = compiled(self.net)

    def configure_model(self) -> None:
        """Shard the parameters, under a strategy that asks for it."""
        if self._trainer is not None:  # there is none where a checkpoint is loaded
            shard(self.net, self.trainer, self.recipe, self._compile)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """One parameter group per block, the embedding at c times the learning rate of the rest."""
        # A fused optimiser unscales its gradients itself: too late for clipping, which Lightning then refuses, and
        # for filters.
        touched = bool(self.trainer.gradient_clip_val) or self.recipe.filters_gradients
        optimizer = build_optimizer(
            self.net, self.recipe, fused=not (touched and "mixed" in str(self.trainer.precision))
        )
        self.hooks = build_hooks(optimizer, self.recipe)
        if self.trainer.is_global_zero and self.trainer.state.fn == "fit":
            print_safely(f"parameter groups: {describe_groups(optimizer)}")
        if not self.recipe.warmup_steps:
            return optimizer
        steps = self.recipe.warmup_steps
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup(step, steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def batch_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What a training step minimises, and the logits it comes from."""
        logits: Tensor = (self._compiled or self.net)(batch.tokens)
        return self.loss(logits, batch.labels) * batch.weight, logits

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of the batch, weighted so that processes average to the global batch."""
        loss, logits = self.batch_loss(batch)
        steps_now = (batch_idx + 1) % self.trainer.accumulate_grad_batches == 0 or self.trainer.is_last_batch
        if steps_now and (self.global_step + 1) % self.log_every_n_steps == 0:
            acc = self.loss.correct(logits, batch.labels).float().mean() * batch.weight
            self._log_batch({metric_keys.TRAIN_LOSS: loss.detach(), metric_keys.TRAIN_ACC: acc})
        return loss

    def _log_batch(self, means: Mapping[str, Tensor]) -> None:
        """Log what a batch says, averaged over processes, and the learning rates.

        Lightning counts the steps of its own stamps anew where training goes on from a checkpoint of the end of a run.
        """
        reduced = [self.trainer.strategy.reduce(value, reduce_op="mean") for value in means.values()]
        values = dict(zip(means, map(torch.as_tensor, reduced), strict=True))
        groups = self.trainer.optimizers[0].param_groups
        self.trainer.callback_metrics.update(values)  # for callbacks that ask
        values |= {metric_keys.lr(group["name"]): torch.tensor(group["lr"]) for group in groups}
        memory = None if self.hooks is None else self.hooks.memory_norm()
        if memory is not None:
            values[metric_keys.GRADIENT_MEMORY] = memory
        log_at_step(self.trainer, values)

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Add a part of the table."""
        self._evaluate(batch)

    @property
    def log_every_n_steps(self) -> int:
        """Distance of batch metrics in optimiser steps; batches in between are not looked at."""
        every: int = getattr(self.trainer, "log_every_n_steps")  # noqa: B009 - lightning sets it untyped
        return every or 2**62

    def on_validation_epoch_end(self) -> None:
        """Log loss and accuracy of every part."""
        self._log_evaluation()

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add the test set."""
        self._evaluate(batch)

    def on_test_epoch_end(self) -> None:
        """Log loss and accuracy of the test set."""
        self._log_evaluation()

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Predicted labels, shape of the labels."""
        with self.net.still():
            parts = chunks(batch.tokens, batch.labels)
            return torch.cat([self.loss.predict(self.net(tokens)) for tokens in parts])

    def _score(self, part: str) -> TableScore:
        score = self.scores[part]
        assert isinstance(score, TableScore)  # what __init__ put there; ModuleDict does not keep the type
        return score

    def _evaluate(self, batch: Batch) -> None:
        score = self._score(batch.part)
        inputs = chunks(batch.tokens, batch.labels)
        with self.net.still():
            for tokens, labels in zip(inputs, chunks(batch.labels, batch.labels), strict=True):
                score.update(self.net.logits_of(tokens), labels)

    def _take_scores(self) -> dict[str, Tensor]:
        values: dict[str, Tensor] = {}
        for part in metric_keys.PARTS:
            score = self._score(part)
            if score.update_called:
                mean, values[metric_keys.acc(part)] = score.compute()
                values[metric_keys.loss(part)] = mean
                score.reset()
                values |= {metric_keys.perplexity(part): mean.exp()} if self.perplexity else {}
        return values | gaps(values)

    def _log_evaluation(self) -> None:
        values = self._take_scores()
        if self.trainer.state.fn != "fit":
            self.log_dict(values)
            return
        # Lightning stamps what self.log sees in an evaluation with the step before, and takes milliseconds for it.
        self.trainer.callback_metrics.update(values)
        if not self.trainer.sanity_checking:
            log_at_step(self.trainer, values)

    @torch.no_grad()
    def evaluate_tables(self, loaders: Iterable[Iterable[Batch]]) -> dict[str, Tensor]:
        """Loss and accuracy of every part of the table, as Lightning's validation loop gives them, outside of it.

        Args:
            loaders: One iterable of batches per part.
        """
        training = self.training
        self.eval()
        with self.trainer.precision_plugin.val_step_context():
            for loader in loaders:
                for batch in loader:
                    self._evaluate(batch)
        self.train(training)
        return self._take_scores()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Say which version wrote it, and keep settings as plain values, which load without executing anything."""
        checkpoint[VERSION_KEY] = __version__
        settings = checkpoint.get("hyper_parameters", {})
        # The command line links every size that data can have; those that the model does not take are null.
        own = {name: value for name, value in settings.items() if value is not None or name not in SIZES}
        checkpoint["hyper_parameters"] = {name: plain(value) for name, value in own.items()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of other settings when training goes on from it; take its weights in their precision."""
        if self._trainer is not None:  # Lightning does this after loading, when float64 weights have been rounded
            self.trainer.precision_plugin.convert_module(self)
        if self._trainer is not None and self.trainer.state.fn == "fit":
            self.refuse_other_settings(checkpoint.get("hyper_parameters", {}), also_optimiser=True)

    def refuse_other_settings(self, saved: Mapping[str, Any], also_optimiser: bool) -> None:
        """Refuse hyper-parameters that differ from this module's.

        The optimiser state of a checkpoint would bring its learning rates back without a word.

        Args:
            saved: Hyper-parameters of the checkpoint.
            also_optimiser: Whether the optimiser's settings count too.

        Raises:
            ConfigError: On the first setting that differs.
        """
        before, now = flat(saved), flat(self.hparams)
        for name in sorted(before.keys() & now.keys(), key=lambda name: (is_optimisers(name), name)):
            old, new = before[name], now[name]
            if old != new and (also_optimiser or not is_optimisers(name)):
                raise ConfigError(
                    f"model.{name} = {new}: the checkpoint was trained with {old}, which it would bring back; "
                    "give the same value, or start a new run"
                )
