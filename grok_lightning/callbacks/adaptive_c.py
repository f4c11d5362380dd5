"""c from measured quantities (arXiv:2505.15624, eq. 24), while training goes on."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import datamodule_of
from grok_lightning.callbacks.stepping import StepsOver
from grok_lightning.callbacks.token_counter import TokenCounter
from grok_lightning.data.batches import Batch
from grok_lightning.errors import ConfigError, require
from grok_lightning.loggers.at_step import log_at_step
from grok_lightning.modules.base import GrokModule
from grok_lightning.nets.base import Net
from grok_lightning.numerics.balance import BalanceMeter, predicted_c
from grok_lightning.numerics.spectra import largest_singular_value
from grok_lightning.optim.adaptive_c import next_c, set_c


class AdaptiveC(StepsOver, Callback):
    """Every k steps ``c ← β c + (1 − β) clip(κ · (σ_max(E)/σ_max(W)) · (f_W/f_E), min_c, max_c)``.

    E is the embedding, W the weight of the layer that reads it (for the Transformer W_Q, W_K and W_V of layer 0,
    stacked), f_E the mean over tokens of the share of batches since the update before that contain them, f_W = 1. The
    tokens are the operands; of data without operands, those that occur in the training part, as batches read them
    (where E is the unembedding too, every row has a gradient at every step all the same). The first c is the model's.
    Eq. 24 states a proportionality only: κ is free. c stays where a singular value is not finite.

    Args:
        every_n_steps: k; 0 leaves c fixed.
        kappa: κ.
        min_c: Smallest c (0.5, the smallest in Fig. 5 of the paper).
        max_c: Largest c (32, the largest there).
        smoothing: β in [0, 1), share of the old c that stays.
        start_step: c is the model's up to here.
    """

    group = "adaptive_c"

    def __init__(
        self,
        every_n_steps: int = 0,
        kappa: float = 1.0,
        min_c: float = 0.5,
        max_c: float = 32.0,
        smoothing: float = 0.0,
        start_step: int = 0,
    ) -> None:
        infinite = float("inf")
        require(every_n_steps >= 0, "adaptive_c.every_n_steps", every_n_steps, "must be 0 or more (steps)")
        require(0 < kappa < infinite, "adaptive_c.kappa", kappa, "must be greater than 0 and finite")
        require(0 < min_c < infinite, "adaptive_c.min_c", min_c, "must be greater than 0 and finite")
        require(min_c <= max_c < infinite, "adaptive_c.max_c", max_c, f"must be min_c = {min_c} or more, and finite")
        require(0 <= smoothing < 1, "adaptive_c.smoothing", smoothing, "must be in [0, 1)")
        require(start_step >= 0, "adaptive_c.start_step", start_step, "must be 0 or more (steps)")
        self.every_n_steps, self.start_step = every_n_steps, start_step
        self.kappa, self.smoothing, self.min_c, self.max_c = kappa, smoothing, min_c, max_c
        self.c = 0.0
        self._counter: TokenCounter | None = None
        self._counted = torch.zeros(0, dtype=torch.int64)  # the tokens whose frequencies make up f_E

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the model's c, and refuse a model without an embedding."""
        if stage != "fit" or not self.every_n_steps:
            return
        assert isinstance(pl_module, GrokModule)
        if _matrices(pl_module.net) is None:
            kind = type(pl_module.net).__name__
            raise ConfigError(f"adaptive_c.every_n_steps = {self.every_n_steps}: {kind} has no trained embedding")
        data = datamodule_of(trainer)
        counts = data.token_counts()
        if counts is None:
            kind = type(data).__name__
            raise ConfigError(f"adaptive_c.every_n_steps = {self.every_n_steps}: the inputs of {kind} are no tokens")
        self.c = pl_module.recipe.c
        self._counter = TokenCounter(trainer, len(counts))
        self._counted = counts.nonzero().flatten() if data.n_symbols is None else torch.arange(data.n_symbols)

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether it sets c at a step."""
        return self._counter is not None and step % self.every_n_steps == 0 and step >= self.start_step

    def pass_over(self, trainer: Trainer, batch: Batch) -> None:
        """Count the tokens of the step."""
        if self._counter is not None:
            self._counter.add(batch.tokens)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Count the tokens of the step, and set c on the chosen steps."""
        if self._counter is not None and self._counter.add(batch.tokens) and self.acts_at(trainer, trainer.global_step):
            self._update(trainer, pl_module, self._counter.meter())

    def _update(self, trainer: Trainer, pl_module: LightningModule, meter: BalanceMeter) -> None:
        assert isinstance(pl_module, GrokModule)
        matrices = _matrices(pl_module.net)
        assert matrices is not None  # setup refuses a network without them
        frequency = float(meter.token_frequencies.cpu()[self._counted].mean())
        top_e, top_w = (largest_singular_value(matrix) for matrix in matrices)
        predicted = predicted_c(top_e, top_w, frequency)
        meter.reset()
        old, self.c = self.c, next_c(self.c, predicted, self.kappa, self.smoothing, self.min_c, self.max_c)
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        kept = [scheduler for scheduler in schedulers if isinstance(scheduler, LRScheduler)]
        recipe = pl_module.recipe
        set_c(trainer.optimizers[0], kept, recipe.lr, old, self.c, recipe.decay_scales_with_c)
        log_at_step(trainer, {metric_keys.adaptive_c("predicted"): predicted, metric_keys.adaptive_c("used"): self.c})

    def state_dict(self) -> dict[str, Any]:
        """C and the open window of tokens; the learning rate itself is in the optimiser's state."""
        if self._counter is None:
            return {}
        return {"c": self.c, "seen_step": self._counter.step, "meter": self._counter.meter().state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue."""
        self.c = state_dict["c"]
        if self._counter is not None:
            self._counter.step = state_dict["seen_step"]
            self._counter.meter().load_state_dict(state_dict["meter"])


def _matrices(net: Net) -> tuple[Tensor, Tensor] | None:
    """E and the weights that read it, stacked; ``None`` where one of the two is missing."""
    parameters, embedding = dict(net.named_parameters()), net.embedding()
    readers: list[Tensor] = [parameters[name] for name in sorted(net.first_layer_names()) if parameters[name].ndim == 2]
    if embedding is None or "embedding" not in net.blocks() or not readers:
        return None
    return embedding, torch.cat(readers)
