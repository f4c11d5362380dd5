"""Singular values and ranks of the weight matrices."""

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from grok_lightning.callbacks.lookup import net_of
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.metric_keys import spectrum
from grok_lightning.numerics.spectra import rank_summary, singular_values


class Spectrum(Periodic):
    """All singular values σ₁ ≥ σ₂ ≥ … of every matrix of the network, and every rank notion under its own name.

    The matrices are those of ``Net.matrices``: for the MLP E, W (first layer), EW_a and EW_b (E times the columns
    of W that read the operand's slot) and the later layers; for the Transformer E, W_Q, W_K, W_V, W_O, W_in and
    W_out of every layer, and W_U. Computed in float64; a 512 × 512 matrix takes some 30 ms.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
        matrices: Names of the matrices to measure; ``null`` for all.
    """

    group = "spectrum"

    def __init__(
        self, every_n_steps: int = 100, log_points_per_decade: int = 2, matrices: list[str] | None = None
    ) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        self.matrices = matrices

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """One decomposition per matrix."""
        values: dict[str, float | list[float]] = {}
        for name, matrix in net_of(pl_module).matrices().items():
            if self.matrices is None or name in self.matrices:
                values |= {spectrum(name, quantity): value for quantity, value in _summary(matrix).items()}
        return values


def _summary(matrix: Tensor) -> dict[str, float | list[float]]:
    sigma = singular_values(matrix)
    m, n = matrix.shape
    listed: list[float] = sigma.tolist()
    ends = {"sigma_max": listed[0], "sigma_min": listed[-1], "frobenius_norm": float(sigma.square().sum().sqrt())}
    return {"sigma": listed} | ends | rank_summary(sigma, (m, n))
