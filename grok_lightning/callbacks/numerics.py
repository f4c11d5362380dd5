"""Broken updates: found before they reach the weights."""

import math
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.optim import Optimizer

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import labelled_blocks, net_of
from grok_lightning.callbacks.stepping import StepsOver
from grok_lightning.errors import NonFiniteError
from grok_lightning.loggers.at_step import log_at_step
from grok_lightning.nets.base import Net
from grok_lightning.numerics.health import block_norms, nonfinite_count
from grok_lightning.numerics.shards import local, whole

LONGEST = 100
"""Updates in a row that are left out before the run is given up (ours)."""


class Numerics(StepsOver, Callback):
    """Looks at loss and gradient before every update, so that a broken one never reaches the weights.

    An update is broken if the loss of its batch or an entry of its gradient, before clipping and filters, is NaN or
    infinite. A gradient that a loss scaler has scaled up is the scaler's business, which leaves such updates out
    itself, until its scale is below 1.

    Args:
        nonfinite: ``stop`` ends the run with step, loss and the gradient norms of its blocks; ``skip`` leaves the
            update out, weights and the optimiser's state as they were, counts it, and gives up after 100 in a row.
    """

    group = "numerics"

    def __init__(self, nonfinite: Literal["stop", "skip"] = "stop") -> None:
        self.nonfinite = nonfinite
        self.skipped = 0
        self._in_a_row = 0
        self._loss: Tensor | None = None

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Never: an update whose hooks are passed over is looked at all the same."""
        return False

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Keep the loss; the sum of several that make one update is finite only if all are."""
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Look at an update of Lightning's own."""
        loss, self._loss = self._loss, None
        if loss is not None:
            self.before_update(trainer, pl_module, optimizer, loss)

    def before_update(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, loss: Tensor) -> None:
        """Stop or skip a broken update.

        Raises:
            NonFiniteError: If it is broken and not to be skipped.
        """
        loss = loss.detach()
        moved = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        scaler: torch.amp.GradScaler | None = getattr(trainer.precision_plugin, "scaler", None)
        scale = 1.0 if scaler is None else scaler.get_scale()
        looked_at = [p.grad for p in moved] if scaler is None or scale < 1 else []
        # A sum is not finite if an entry is not; where only the sum overflows, the entries decide.
        total = torch.stack([loss, *(local(gradient).sum() for gradient in looked_at)]).sum()
        if math.isfinite(everywhere(trainer, total)) or not everywhere(trainer, nonfinite_count([loss, *looked_at])):
            self._in_a_row = 0
            return
        reason = f"update {trainer.global_step + 1} has {described(net_of(pl_module), float(loss) / scale)}"
        if self.nonfinite == "stop":
            raise NonFiniteError(f"numerics: {reason}; the run ends with the weights before it")
        for parameter in moved:  # without a gradient no optimiser moves it; a scaler has to see for itself
            parameter.grad = None if scaler is None else parameter.grad.fill_(math.inf)
        self._count(trainer, reason)

    def _count(self, trainer: Trainer, reason: str) -> None:
        self.skipped, self._in_a_row = self.skipped + 1, self._in_a_row + 1
        if self.skipped == 1:
            rank_zero_warn(f"numerics: {reason} and is left out; see health/skipped_steps")
        log_at_step(trainer, {metric_keys.health("skipped_steps"): float(self.skipped)})
        if self._in_a_row == LONGEST:
            raise NonFiniteError(f"numerics: {reason}, and {LONGEST} updates in a row were left out")

    def state_dict(self) -> dict[str, Any]:
        """The updates left out so far."""
        return {"skipped": self.skipped, "in_a_row": self._in_a_row}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue counting."""
        self.skipped, self._in_a_row = state_dict["skipped"], state_dict["in_a_row"]


def everywhere(trainer: Trainer, value: Tensor) -> float:
    """The sum of a scalar over all processes, so that all of them decide alike."""
    if trainer.world_size > 1:
        value = torch.as_tensor(trainer.strategy.reduce(value.float(), reduce_op="sum"))
    return float(value)


def described(net: Net, loss: float) -> str:
    """The loss and the gradient norm of every block, in words."""
    gradients = {name: whole(p.grad) for name, p in net.named_parameters() if p.grad is not None}
    blocks = {block: [n for n in names if n in gradients] for block, names in labelled_blocks(net).items()}
    norms = block_norms(gradients, {block: names for block, names in blocks.items() if names})
    return f"a loss of {loss:g} and gradient norms " + ", ".join(f"{block} {float(n):g}" for block, n in norms.items())
