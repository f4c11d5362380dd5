"""Fourier spectrum of the embedding, and the progress measures for addition."""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import datamodule_of, logits_by_chunk, net_of, pairs
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.data.tasks import is_prime
from grok_lightning.numerics.fourier import (
    KEY_THRESHOLD,
    discrete_log_spectrum,
    fourier_summary,
    key_frequencies,
    natural_spectrum,
    progress_losses,
)

PROGRESS_MAX_P = 257
"""Largest p at which the progress losses are measured unasked: they hold p³ float64 numbers, 136 MB here."""


class Fourier(Periodic):
    """``F_k = ‖p^{-1/2} Σ_a e_a exp(−2πi k a/p)‖₂``, k = 0 … ⌊p/2⌋, and how sparse it is (arXiv:2505.15624, C.3).

    For multiplication and division modulo a prime also with the units in discrete-log order, whose components belong
    to the characters of their group. For addition, restricted and excluded loss of arXiv:2301.05217 over the key
    frequencies of E. Nothing is measured on a network without E, or a task without a modulus.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
        threshold: A frequency is key from this fraction of the largest F_k, k ≥ 1, on (our choice).
        progress_losses: Whether to measure the progress losses of addition (one forward over all p² pairs);
            ``null`` for yes if p ≤ 257.
    """

    group = "fourier"

    def __init__(
        self,
        every_n_steps: int = 0,
        log_points_per_decade: int = 1,
        threshold: float = KEY_THRESHOLD,
        progress_losses: bool | None = None,
    ) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        key_frequencies(torch.zeros(2), threshold)  # refuses a bad threshold here and now
        self.threshold, self.progress_losses = threshold, progress_losses

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """Spectra of E, and one forward over the table for addition."""
        data, embedding = datamodule_of(trainer), net_of(pl_module).matrices().get("E")
        p = data.modulus
        if embedding is None or p is None:
            return {}
        spectra = {"natural": natural_spectrum(embedding, p)}
        if data.task_name in ("multiplication", "division") and is_prime(p) and p > 2:
            spectra["discrete_log"] = discrete_log_spectrum(embedding, p)
        values: dict[str, float | list[float]] = {}
        for order, norms in spectra.items():
            values[metric_keys.fourier(order, "spectrum")] = norms.tolist()
            summary = fourier_summary(norms, self.threshold)
            values |= {metric_keys.fourier(order, quantity): value for quantity, value in summary.items()}
        wanted = p <= PROGRESS_MAX_P if self.progress_losses is None else self.progress_losses
        if data.task_name == "addition" and wanted:
            losses = self._progress(trainer, pl_module, spectra["natural"])
            values |= {metric_keys.progress(quantity): value for quantity, value in losses.items()}
        return values

    def _progress(self, trainer: Trainer, pl_module: LightningModule, norms: Tensor) -> dict[str, float]:
        data, net = datamodule_of(trainer), net_of(pl_module)
        tokens, labels = pairs(trainer, torch.arange(len(data.labels)))
        train = torch.zeros(len(labels), dtype=torch.bool)
        train[data.rows("train_full")] = True
        logits = torch.cat(list(logits_by_chunk(trainer, net, tokens)))
        return progress_losses(logits, labels, train, key_frequencies(norms, self.threshold).tolist())
