"""Singular values and ranks of the weight matrices."""

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from grok_lightning.callbacks.lookup import net_of
from grok_lightning.callbacks.periodic import Periodic, Values, is_log_spaced
from grok_lightning.errors import require
from grok_lightning.metric_keys import spectrum
from grok_lightning.numerics.spectra import rank_summary, singular_values

LARGE = 256
"""Matrices with more rows and columns than this are measured more rarely."""


class Spectrum(Periodic):
    """All singular values σ₁ ≥ σ₂ ≥ … of every matrix of the network, and every rank notion under its own name.

    The matrices are those of ``Net.matrices``: for the MLP E, W (first layer), EW_a and EW_b (E times the columns
    of W that read the operand's slot) and the later layers; for the Transformer E, W_Q, W_K, W_V, W_O, W_in and
    W_out of every layer, and W_U. Computed in float64.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
        large_every_n_steps: Distance for matrices with more than 256 rows and columns, like W of the default run: one
            takes some 30 ms, all others of that run 8 ms. They are measured on log-spaced steps too.
        matrices: Names of the matrices to measure; ``null`` for all.
    """

    group = "spectrum"

    def __init__(
        self,
        every_n_steps: int = 100,
        log_points_per_decade: int = 0,
        large_every_n_steps: int = 1000,
        matrices: list[str] | None = None,
    ) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        field, allowed = "spectrum.large_every_n_steps", "must be 1 or more (steps)"
        require(large_every_n_steps >= 1, field, large_every_n_steps, allowed)
        self.large_every_n_steps = large_every_n_steps
        self.matrices = matrices

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse names that the network does not have."""
        super().setup(trainer, pl_module, stage)
        names = net_of(pl_module).matrices()
        unknown = [name for name in self.matrices or [] if name not in names]
        require(not unknown, "spectrum.matrices", self.matrices, f"must be among {', '.join(names)}")

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """One decomposition per matrix."""
        step, values = trainer.global_step, dict[str, float | list[float]]()
        on_linear_grid = self.is_due(step) and not is_log_spaced(step, self.log_points_per_decade)
        large_too = not on_linear_grid or step % self.large_every_n_steps == 0  # the last step is on no grid
        for name, matrix in net_of(pl_module).matrices().items():
            wanted = self.matrices is None or name in self.matrices
            if wanted and (large_too or min(matrix.shape) <= LARGE):
                values |= {spectrum(name, quantity): value for quantity, value in _summary(matrix).items()}
        return values


def _summary(matrix: Tensor) -> dict[str, float | list[float]]:
    sigma = singular_values(matrix)
    m, n = matrix.shape
    listed: list[float] = sigma.tolist()
    ends = {"sigma_max": listed[0], "sigma_min": listed[-1], "frobenius_norm": float(sigma.square().sum().sqrt())}
    return {"sigma": listed} | ends | rank_summary(sigma, (m, n))
