"""How far the empirical tangent kernel has moved."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from grok_lightning.callbacks.lookup import datamodule_of, labelled_blocks, net_of, pairs
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.errors import require
from grok_lightning.metric_keys import NTK_REFERENCE, ntk
from grok_lightning.numerics.ntk import ntk_gram, one_minus_cka, relative_drift


class NTK(Periodic):
    """``‖K_t − K_0‖_F / ‖K_0‖_F`` and 1 − CKA(K_t, K_0) per block of parameters: lazy (0) or rich.

    K_t is the class-summed empirical tangent kernel of the parameters of E, of W, of the rest and of all, on a fixed
    random subset of the training pairs; K_0 the one at the first measurement, which a checkpoint keeps. Off unless
    asked for: a measurement costs about n_probe single-sample gradients, unbatched, per block of 64.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
        n_probe: Number of training pairs in the kernel (fewer where the training set is smaller).
        seed: Seed of the choice of pairs alone.
    """

    group = "ntk"

    def __init__(
        self, every_n_steps: int = 0, log_points_per_decade: int = 0, n_probe: int = 64, seed: int = 0
    ) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        require(n_probe >= 2, "ntk.n_probe", n_probe, "must be 2 or more (training pairs)")
        require(seed >= 0, "ntk.seed", seed, "must be 0 or more")
        self.n_probe, self.seed = n_probe, seed
        self._reference: dict[str, Tensor] = {}
        self._reference_step = 0

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """One kernel per block."""
        net, train = net_of(pl_module), datamodule_of(trainer).measured_rows()
        chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(self.seed))[: self.n_probe]
        kernels = ntk_gram(net, pairs(trainer, train[chosen])[0], labelled_blocks(net))
        kernels["all"] = torch.stack(list(kernels.values())).sum(0)  # the kernels of disjoint blocks add up
        if not self._reference:
            self._reference, self._reference_step = kernels, trainer.global_step
        values: dict[str, float] = {NTK_REFERENCE: float(self._reference_step)}
        for block, kernel in kernels.items():
            values[ntk(block, "relative_drift")] = relative_drift(kernel, self._reference[block])
            values[ntk(block, "one_minus_cka")] = one_minus_cka(kernel, self._reference[block])
        return values

    def state_dict(self) -> dict[str, Any]:
        """The kernel that drifts are measured against."""
        return super().state_dict() | {"reference": self._reference, "reference_step": self._reference_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue against the same kernel."""
        super().load_state_dict(state_dict)
        self._reference, self._reference_step = dict(state_dict["reference"]), state_dict["reference_step"]
