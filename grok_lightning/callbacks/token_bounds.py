"""Feeds the entropy-regularised sampler (arXiv:2505.15624, eq. 19) with gradient norms."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch.optim import Optimizer

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import datamodule_of, net_of
from grok_lightning.errors import ConfigError
from grok_lightning.loggers.at_step import log_at_step
from grok_lightning.modules.base import GrokModule
from grok_lightning.numerics.balance import row_norms


class ObserveTokens(Callback):
    """Shows the gradient of every row of E, before clipping and filters, to the sampler, and logs its p_i."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a model whose tokens have no gradient of their own."""
        if stage == "fit" and "E" not in dict(net_of(pl_module).named_parameters()):
            kind = type(net_of(pl_module)).__name__
            raise ConfigError(f"data.sampler = 'entropy': needs one trained row per token, which this {kind} has not")

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Hand over the norms of this step."""
        bounds, gradient = datamodule_of(trainer).bounds, net_of(pl_module).get_parameter("E").grad
        if bounds is not None and gradient is not None:
            bounds.observe(row_norms(gradient[: len(bounds.bounds)]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: STEP_OUTPUT, batch: object, batch_idx: int
    ) -> None:
        """Log the probabilities of the next batch where batch metrics are logged."""
        assert isinstance(pl_module, GrokModule)
        bounds = datamodule_of(trainer).bounds
        if bounds is None or trainer.global_step % pl_module.log_every_n_steps:
            return
        p = bounds.probabilities
        shares: list[float] = p.tolist()
        entropy = float(torch.special.entr(p).sum())
        log_at_step(
            trainer, {metric_keys.sampler("entropy"): entropy, metric_keys.sampler("token_probability"): shares}
        )
