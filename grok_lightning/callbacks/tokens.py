"""Frequent and rare tokens: who gets which gradient and which update."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import Tensor
from torch.optim import Optimizer

from grok_lightning.callbacks.balance import embedding_and_first_layer
from grok_lightning.callbacks.lookup import datamodule_of, net_of
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.callbacks.token_counter import TokenCounter
from grok_lightning.data.batches import Batch
from grok_lightning.metric_keys import tokens
from grok_lightning.numerics.spectra import largest_singular_value
from grok_lightning.numerics.tokens import (
    TokenMeter,
    frequency_deciles,
    log_log_slope,
    predicted_by_group,
    required_ratio,
    rms_by_group,
)


class Tokens(Periodic):
    """Frequency, gradient and update of token rows by frequency decile, and eq. 24 for each (arXiv:2505.15624).

    Deciles are of the tokens that occur in the training part, ten groups of as many tokens each, the rarest first.
    Frequencies and gradients are of all steps since the measurement before; updates of the one that led to the
    measured weights. Gradients are those of the batch, over all processes, before clipping; in 16-bit mixed precision
    with a fused optimiser they carry its loss scale. f counts the tokens that batches read; where E is the unembedding
    too, every row has a gradient at every step. Nothing is logged of an embedding that is fixed or trained as two
    factors, nor where inputs are no tokens.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
        per_token: Keep p, f and the norms of every token too, V numbers each.
    """

    group = "tokens"

    def __init__(self, every_n_steps: int = 0, log_points_per_decade: int = 0, per_token: bool = False) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        self.per_token = per_token
        self._counter: TokenCounter | None = None
        self._meter: TokenMeter | None = None
        self._counts = torch.zeros(0)
        self._before: list[Tensor] = []
        self._update: tuple[Tensor, float] | None = None  # ‖ΔE_i‖² of every row, ‖ΔW‖²

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Start counting, if there are tokens and one row for each."""
        super().setup(trainer, pl_module, stage)
        if stage != "fit" or not self.enabled:
            return
        weights, counts = embedding_and_first_layer(net_of(pl_module)), datamodule_of(trainer).token_counts()
        if weights and counts is not None and len(counts) == len(weights[0]):
            self._counts = counts
            self._counter = TokenCounter(trainer, len(counts))
            self._meter = TokenMeter(len(counts), trainer.strategy.root_device)

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether it measures at a step."""
        return super().acts_at(trainer, step)

    def pass_over(self, trainer: Trainer, batch: Batch) -> None:
        """Count the tokens of the step."""
        if self._counter is not None:
            with self.timed():
                self._counter.add(batch.tokens)

    def before_update(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, loss: Tensor) -> None:
        """Add the gradients of a step whose hooks are not called."""
        self._add_gradients(pl_module)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Add the gradients, and copy the weights before an update that will be measured."""
        self._add_gradients(pl_module)
        following = trainer.global_step + 1
        if self._counter is not None and (self.is_due(following) or following == trainer.max_steps):
            self._before = [w.detach().clone() for w in embedding_and_first_layer(net_of(pl_module))]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Count the tokens of the step, and measure on the chosen steps."""
        if self._counter is not None:
            with self.timed():
                if self._counter.add(batch.tokens) and self._before:
                    now = embedding_and_first_layer(net_of(pl_module))
                    deltas = [new.detach() - old for new, old in zip(now, self._before, strict=True)]
                    first = float(sum(delta.square().sum() for delta in deltas[1:]))
                    self._update, self._before = (deltas[0].square().sum(1), first), []
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """Read the meters, and start a new window."""
        if self._counter is None or self._meter is None:
            return {}
        weights = embedding_and_first_layer(net_of(pl_module))
        sigma_e, sigma_w = largest_singular_value(weights[0]), largest_singular_value(torch.cat(weights[1:]))
        width, size = weights[0].shape[1], sum(w.numel() for w in weights[1:])
        deciles = frequency_deciles(self._counts)
        p = self._counts.double() / self._counts.sum()
        found: dict[str, float | list[float]] = {"sigma_E": sigma_e, "sigma_W": sigma_w}
        found["decile_share"] = [float(p[decile].sum()) for decile in deciles]
        found |= {"token_p": p.tolist()} if self.per_token else {}
        if self._meter.steps:
            f = self._counter.meter().token_frequencies.cpu()
            found |= self._gradients(deciles, f, sigma_e, sigma_w, width, size)
        if self._update is not None:
            rows, first = self._update
            norms = rms_by_group(rows, deciles)
            ratios = [norm / width**0.5 / (first / size) ** 0.5 for norm in norms] if first else []
            found |= {"decile_update_norm": norms, "decile_update_ratio": ratios} if first else {}
            found |= {"token_update_norm": rows.sqrt().tolist()} if self.per_token else {}
        self._update = None
        self._meter.reset()
        self._counter.meter().reset()
        return {tokens(quantity): value for quantity, value in found.items()}

    def _gradients(
        self, deciles: list[Tensor], f: Tensor, sigma_e: float, sigma_w: float, width: int, size: int
    ) -> dict[str, float | list[float]]:
        assert self._meter is not None
        frequencies = [float(f[decile].mean()) for decile in deciles]
        norms, first = rms_by_group(self._meter.rows, deciles), self._meter.first**0.5
        seen = torch.cat(deciles)
        everywhere = rms_by_group(self._meter.rows, [seen])[0]
        predicted = predicted_by_group(sigma_e, sigma_w, [*frequencies, float(f[seen].mean())])
        required = [required_ratio(norm, width, first, size) for norm in [*norms, everywhere]]
        found: dict[str, float | list[float]] = {
            "f_E": float(f[seen].mean()),
            "predicted_c": predicted[-1],
            "gradient_c": required[-1],
            "slope": log_log_slope(predicted[:-1], required[:-1]),
            "decile_f": frequencies,
            "decile_grad_norm": norms,
            "decile_predicted_c": predicted[:-1],
            "decile_gradient_c": required[:-1],
        }
        every = {"token_f": f.tolist(), "token_grad_norm": self._meter.rows.sqrt().tolist()}
        return found | (every if self.per_token else {})

    def state_dict(self) -> dict[str, Any]:
        """The open window."""
        if self._counter is None or self._meter is None:
            return super().state_dict() | {"meter": None}
        window = {"meter": self._meter.state_dict(), "counter": self._counter.meter().state_dict()}
        return super().state_dict() | window | {"counted_step": self._counter.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the window."""
        super().load_state_dict(state_dict)
        if self._counter is not None and self._meter is not None and state_dict["meter"] is not None:
            self._counter.step = state_dict["counted_step"]
            self._counter.meter().load_state_dict(state_dict["counter"])
            self._meter.load_state_dict(state_dict["meter"])

    def _add_gradients(self, pl_module: LightningModule) -> None:
        if self._meter is None:
            return
        with self.timed():
            weights = embedding_and_first_layer(net_of(pl_module))
            gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in weights]
            self._meter.add(gradients[0].detach(), [gradient.detach() for gradient in gradients[1:]])
