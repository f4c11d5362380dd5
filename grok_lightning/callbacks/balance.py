"""The two sides of eq. 22–24 of arXiv:2505.15624, measured together."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import Tensor
from torch.optim import Optimizer

from grok_lightning.callbacks.lookup import datamodule_of, net_of
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.callbacks.token_counter import TokenCounter
from grok_lightning.data.batches import Batch
from grok_lightning.metric_keys import balance
from grok_lightning.nets.base import Net
from grok_lightning.numerics.balance import BalanceMeter
from grok_lightning.numerics.spectra import largest_singular_value

_OF_TOKENS = ("f_E", "f_OP", "f_EQ", "f_W", "predicted_c")
_OF_UPDATES = ("grad_norm_E", "grad_norm_W", "grad_ratio", "update_norm_E", "update_norm_W", "update_ratio")


class Balance(Periodic):
    """``c = (σ_max(E)/σ_max(W)) · (f_W/f_E)`` (eq. 24) beside what gradients and updates really do.

    f_E counts, over all steps since the measurement before, the operand tokens that a global batch contains. W is the
    weight of the first layer without its bias; for the Transformer the stacked W_Q, W_K and W_V of layer 0.
    Nothing is logged of an embedding that is fixed or trained as two factors, nor where inputs are anything else than
    operand tokens and the two symbols beside them.

    Steps: a line stamped t has σ of the weights after t updates, and the update that led to them, t−1 → t:
    ``ΔE = E_t − E_{t−1}`` and ``∇_E`` of its batch at E_{t−1}, before any clipping, averaged over processes. There is
    none at step 0, nor at the end of a run that stopped between two measured steps.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
    """

    group = "balance"

    def __init__(self, every_n_steps: int = 500, log_points_per_decade: int = 0) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        self._counter: TokenCounter | None = None
        self._before: list[tuple[Tensor, Tensor]] = []  # (weight, gradient) of E and the matrices of W

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Start counting, if there is an embedding to measure."""
        super().setup(trainer, pl_module, stage)
        n_symbols, weights = datamodule_of(trainer).n_symbols, embedding_and_first_layer(net_of(pl_module))
        if stage == "fit" and self.enabled and n_symbols is not None and weights and len(weights[0]) == n_symbols + 2:
            self._counter = TokenCounter(trainer)

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether it measures at a step."""
        return super().acts_at(trainer, step)

    def pass_over(self, trainer: Trainer, batch: Batch) -> None:
        """Count the tokens of the step."""
        if self._counter is not None:
            with self.timed():
                self._counter.add(batch.tokens)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Copy weights and gradients before an update that will be measured."""
        following = trainer.global_step + 1
        if self._counter is not None and (self.is_due(following) or following == trainer.max_steps):
            with self.timed():
                weights = embedding_and_first_layer(net_of(pl_module))
                self._before = [(w.detach().clone(), _gradient(w).clone()) for w in weights]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Count the tokens of the step, and measure on the chosen steps."""
        if self._counter is not None:
            with self.timed():
                if self._counter.add(batch.tokens) and self._before:
                    self._add_update(self._counter.meter(), net_of(pl_module))
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """Read the meter, and start a new window."""
        if self._counter is None:
            return {}
        meter, weights = self._counter.meter(), embedding_and_first_layer(net_of(pl_module))
        top_e, top_w = largest_singular_value(weights[0]), largest_singular_value(torch.cat(weights[1:]))
        missing = (() if meter.steps else _OF_TOKENS) + (() if meter.measured else _OF_UPDATES)
        summary = meter.summary(top_e, top_w)
        values: dict[str, float | list[float]] = {
            balance(quantity): number for quantity, number in summary.items() if quantity not in missing
        }
        if meter.steps:
            values[balance("token_count")] = meter.token_counts.double().tolist()
            values[balance("token_frequency")] = meter.token_frequencies.tolist()
        if meter.measured:
            values[balance("token_grad_norm")] = meter.token_grad_norms.tolist()
            values[balance("token_update_norm")] = meter.token_update_norms.tolist()
        meter.reset()
        return values

    def state_dict(self) -> dict[str, Any]:
        """The open window."""
        counter = self._counter
        meter, step = (None, 0) if counter is None else (counter.meter().state_dict(), counter.step)
        return super().state_dict() | {"meter": meter, "counted_step": step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the window."""
        super().load_state_dict(state_dict)
        if self._counter is not None and state_dict["meter"] is not None:
            self._counter.step = state_dict["counted_step"]
            self._counter.meter().load_state_dict(state_dict["meter"])

    def _add_update(self, meter: BalanceMeter, net: Net) -> None:
        deltas = [
            now.detach() - old for now, (old, _) in zip(embedding_and_first_layer(net), self._before, strict=True)
        ]
        gradients = [gradient for _, gradient in self._before]
        meter.add_norms(gradients[0], gradients[1:], deltas[0], deltas[1:])
        self._before = []


def embedding_and_first_layer(net: Net) -> list[Tensor]:
    """E, then the matrices that read it; nothing where one of the two is missing."""
    blocks, params = net.blocks(), dict(net.named_parameters())
    embedding: list[Tensor] = [params[name] for name in blocks.get("embedding", [])]
    first: list[Tensor] = [params[name] for name in blocks.get("first_layer", []) if params[name].ndim == 2]
    return embedding + first if len(embedding) == 1 and first else []


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad.detach()
