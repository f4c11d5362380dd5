"""Whether the numbers of a run can still be trusted."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from lightning.pytorch.utilities.types import STEP_OUTPUT

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import (
    datamodule_of,
    labelled_blocks,
    logits_by_chunk,
    loss_of,
    net_of,
    pairs,
)
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.modules.base import GrokModule
from grok_lightning.modules.score import chunk_rows
from grok_lightning.numerics.health import (
    LossSpikeDetector,
    block_norms,
    logit_norm,
    nonfinite_count,
    softmax_collapse_fraction,
)


class Health(Periodic):
    """Softmax collapse, logit and parameter norms, non-finite numbers, and loss spikes.

    Collapse is the fraction of training pairs whose loss rounds to exactly 0 in the run's precision
    (arXiv:2501.04697). A logged batch loss is a spike if it is not finite or
    ``> max(factor · median of the last window logged losses, floor)``; the first one is also said aloud.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
        factor: How many times the running median makes a spike (ours).
        window: Logged losses in the running median (ours).
        floor: Losses up to this are never spikes (ours).
    """

    group = "health"

    def __init__(
        self,
        every_n_steps: int = 500,
        log_points_per_decade: int = 0,
        factor: float = 10.0,
        window: int = 10,
        floor: float = 1e-3,
    ) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        self.detector = LossSpikeDetector(factor, window, floor)
        self.spikes = 0
        self._seen_step = 0

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether it measures at a step; those that log the batch loss run whole anyway."""
        return super().acts_at(trainer, step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: STEP_OUTPUT, batch: Any, batch_idx: int
    ) -> None:
        """Look at the batch loss on the steps that log it, then measure on the chosen steps."""
        assert isinstance(pl_module, GrokModule)
        step = trainer.global_step
        if self.enabled and step > self._seen_step and step % pl_module.log_every_n_steps == 0:
            self._seen_step = step
            with self.timed():
                self._look_at(float(trainer.callback_metrics[metric_keys.TRAIN_LOSS]), step)
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """One forward over the training set."""
        net = net_of(pl_module)
        tokens, labels = pairs(trainer, datamodule_of(trainer).measured_rows())
        sums, rows, classifies = torch.zeros(3, device=tokens.device), chunk_rows(labels), loss_of(pl_module).classifies
        chunks = torch.split(labels, rows)
        for logits, chunk in zip(logits_by_chunk(trainer, net, tokens, rows), chunks, strict=True):
            if classifies:
                means = torch.stack([softmax_collapse_fraction(logits, chunk), logit_norm(logits)])
                sums[:2] += means * len(chunk)
            sums[2] += nonfinite_count([logits])
        collapse, norm, bad = (sums / torch.tensor([len(labels), len(labels), 1], device=sums.device)).tolist()
        params = dict(net.named_parameters())
        norms = block_norms(params, labelled_blocks(net) | {"all": list(params)})
        # real outputs have neither a softmax nor a norm per row
        numbers = {"softmax_collapse": collapse, "logit_norm": norm} if classifies else {}
        numbers |= {
            "nonfinite_logits": bad,
            "nonfinite_params": float(nonfinite_count(params.values())),
            "loss_spikes": float(self.spikes),
        }
        values = {metric_keys.health(quantity): number for quantity, number in numbers.items()}
        return values | {metric_keys.param_norm(block): float(norm) for block, norm in norms.items()}

    def state_dict(self) -> dict[str, Any]:
        """The losses and spikes seen so far."""
        seen = {"detector": self.detector.state_dict(), "spikes": self.spikes, "seen_step": self._seen_step}
        return super().state_dict() | seen

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue counting."""
        super().load_state_dict(state_dict)
        self.detector.load_state_dict(state_dict["detector"])
        self.spikes, self._seen_step = state_dict["spikes"], state_dict["seen_step"]

    def _look_at(self, loss: float, step: int) -> None:
        if not self.detector.update(loss):
            return
        self.spikes += 1
        if self.spikes == 1:
            rank_zero_warn(f"health: the training loss spiked to {loss:g} before step {step}; see health/loss_spikes")
