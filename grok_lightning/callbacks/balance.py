"""The two sides of eq. 22–24 of arXiv:2505.15624, measured together."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import Tensor
from torch.optim import Optimizer

from grok_lightning.callbacks.lookup import datamodule_of, net_of
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.data.batches import Batch
from grok_lightning.metric_keys import balance
from grok_lightning.nets.base import Net
from grok_lightning.numerics.balance import BalanceMeter
from grok_lightning.numerics.spectra import largest_singular_value

COUNT_EVERY = 100
"""Steps whose tokens are counted at once: each takes a tenth of the time it would take between training steps."""

_OF_TOKENS = ("f_E", "f_OP", "f_EQ", "f_W", "predicted_c")
_OF_UPDATES = ("grad_norm_E", "grad_norm_W", "grad_ratio", "update_norm_E", "update_norm_W", "update_ratio")


class Balance(Periodic):
    """``c = (σ_max(E)/σ_max(W)) · (f_W/f_E)`` (eq. 24) beside what gradients and updates really do.

    f_E counts, over all steps since the measurement before, the operand tokens that a global batch contains. W is the
    weight of the first layer without its bias; for the Transformer the stacked W_Q, W_K and W_V of layer 0.
    Nothing is logged of an embedding that is fixed or trained as two factors.

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
        self._meter: BalanceMeter | None = None
        self._counted_step = 0
        self._tokens: list[Tensor] = []  # of the micro-batches of one step
        self._steps: list[Tensor] = []  # tokens of whole steps, not yet counted
        self._before: list[tuple[Tensor, Tensor]] = []  # (weight, gradient) of E and the matrices of W

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Start counting, if there is an embedding to measure."""
        super().setup(trainer, pl_module, stage)
        if stage == "fit" and self.enabled and _matrices(net_of(pl_module)):
            n_symbols = datamodule_of(trainer).table.n_symbols
            self._meter = BalanceMeter(n_symbols, trainer.strategy.root_device)

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether it measures at a step."""
        return super().acts_at(trainer, step)

    def pass_over(self, trainer: Trainer, batch: Batch) -> None:
        """Count the tokens of the step."""
        if self._meter is not None:
            with self.timed():
                self._add_step(trainer, batch.tokens)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Copy weights and gradients before an update that will be measured."""
        following = trainer.global_step + 1
        if self._meter is not None and (self.is_due(following) or following == trainer.max_steps):
            with self.timed():
                weights = _matrices(net_of(pl_module))
                self._before = [(w.detach().clone(), _gradient(w).clone()) for w in weights]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Count the tokens of the step, and measure on the chosen steps."""
        if self._meter is not None:
            with self.timed():
                self._add_step(trainer, batch.tokens)
                if not self._tokens:
                    self._add_update(net_of(pl_module))
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """Read the meter, and start a new window."""
        meter, weights = self._meter, _matrices(net_of(pl_module))
        if meter is None:
            return {}
        self._count()
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
        self._count()
        meter = None if self._meter is None else self._meter.state_dict()
        return super().state_dict() | {"meter": meter, "counted_step": self._counted_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the window."""
        super().load_state_dict(state_dict)
        self._counted_step = state_dict["counted_step"]
        if self._meter is not None and state_dict["meter"] is not None:
            self._meter.load_state_dict(state_dict["meter"])

    def _add_step(self, trainer: Trainer, tokens: Tensor) -> None:
        self._tokens.append(global_tokens(trainer, tokens))
        if trainer.global_step > self._counted_step:
            self._counted_step = trainer.global_step
            self._steps.append(torch.cat(self._tokens) if len(self._tokens) > 1 else self._tokens[0])
            self._tokens = []
            if len(self._steps) >= COUNT_EVERY:
                self._count()

    def _count(self) -> None:
        for tokens in self._steps:
            assert self._meter is not None  # without one nothing is collected
            self._meter.count_tokens(tokens)
        self._steps = []

    def _add_update(self, net: Net) -> None:
        if self._meter is None or not self._before:
            return
        deltas = [now.detach() - old for now, (old, _) in zip(_matrices(net), self._before, strict=True)]
        gradients = [gradient for _, gradient in self._before]
        self._meter.add_norms(gradients[0], gradients[1:], deltas[0], deltas[1:])
        self._before = []


def _matrices(net: Net) -> list[Tensor]:
    """E, then the matrices that read it; nothing where one of the two is missing."""
    blocks, params = net.blocks(), dict(net.named_parameters())
    embedding: list[Tensor] = [params[name] for name in blocks.get("embedding", [])]
    first: list[Tensor] = [params[name] for name in blocks.get("first_layer", []) if params[name].ndim == 2]
    return embedding + first if len(embedding) == 1 and first else []


def _gradient(weight: Tensor) -> Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad.detach()


def global_tokens(trainer: Trainer, tokens: Tensor) -> Tensor:
    """Tokens of the batch over all processes; the order of batches says what the others have, so nobody asks."""
    if trainer.world_size == 1:
        return tokens
    data = datamodule_of(trainer)
    rows = data.batch_order().rows(trainer.fit_loop.total_batch_idx)
    return data.table.tokens[data.rows("train_full")[rows]].to(tokens.device)
