"""How far a learned linear function is from the interpolator of least norm, and from the truth."""

from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from numpy.typing import NDArray

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import datamodule_of, net_of, pairs
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.numerics.interpolators import distance, least_l1, least_l2, nuclear_norm


class Interpolator(Periodic):
    """Distances ``‖β − β_min‖/‖β_min‖`` to the interpolators of least ℓ2 and ℓ1 norm, and to the truth; and norms.

    For networks that are linear in their input (``Net.linear_map``): a vector β has both interpolators of the training
    rows, a matrix M its nuclear norm. What there is no such thing for is left out, and nothing is measured on other
    networks. Off unless asked for.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
    """

    group = "interpolator"

    def __init__(self, every_n_steps: int = 0, log_points_per_decade: int = 0) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        self._targets: dict[str, NDArray[np.float64]] | None = None

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """Norms and distances of the function as it is."""
        live = net_of(pl_module).linear_map()
        if live is None:
            return {}
        found = _array(live)
        if self._targets is None:
            self._targets = self._solve(trainer, found.ndim == 1)
        numbers = {f"distance_to_{name}": distance(found, target) for name, target in self._targets.items()}
        if found.ndim == 1:
            numbers |= {"l1_norm": float(np.abs(found).sum()), "l2_norm": float(np.linalg.norm(found))}
        else:
            numbers |= {"nuclear_norm": nuclear_norm(found), "frobenius_norm": float(np.linalg.norm(found))}
        return {metric_keys.interpolator(quantity): number for quantity, number in numbers.items()}

    def _solve(self, trainer: Trainer, is_vector: bool) -> dict[str, NDArray[np.float64]]:
        """What the function is compared with; the same throughout a run."""
        data, targets = datamodule_of(trainer), dict[str, NDArray[np.float64]]()
        if data.truth is not None:
            targets["truth"] = _array(data.truth)
        if is_vector:
            inputs, labels = map(_array, pairs(trainer, data.rows("train_full")))
            targets["least_l2"] = least_l2(inputs, labels)
            if (sparse := least_l1(inputs, labels)) is not None:
                targets["least_l1"] = sparse
        return targets


def _array(tensor: Any) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.detach().to("cpu", torch.float64).numpy()
    return array
