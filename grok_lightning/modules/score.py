"""Loss and accuracy over a part of the table."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torchmetrics import Metric

from grok_lightning import metric_keys
from grok_lightning.optim.losses import CROSS_ENTROPY, Loss

CHUNK = 2048
"""Predictions per forward; on a CPU their activations stay in the cache."""


class TableScore(Metric):
    """Mean loss and accuracy, ``Σ loss_i / n`` and ``#{argmax = label} / n``, over all predictions seen.

    A row of the table is one prediction, or T of them where its label has T entries.

    Sums are kept on the device in float64 (float32 on devices without it), so the result does not depend on how the
    table was cut into chunks beyond rounding. Every process sees the whole table: nothing is reduced over processes.

    Args:
        loss: The loss that is averaged.
    """

    full_state_update = False
    loss_sum: Tensor
    correct: Tensor
    count: Tensor

    def __init__(self, loss: Loss = CROSS_ENTROPY) -> None:
        super().__init__(sync_on_compute=False)
        self.loss = loss
        self.add_state("loss_sum", torch.zeros((), dtype=torch.float64), dist_reduce_fx=None)
        self.add_state("correct", torch.zeros((), dtype=torch.int64), dist_reduce_fx=None)
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx=None)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add rows: logits float, shape (B, n_classes) or (B, n_classes, T); labels int64, shape (B,) or (B, T).

        Where labels are real numbers, outputs have their shape.
        """
        self.loss_sum += self.loss(logits, labels, "sum").to(self.loss_sum.dtype)
        self.correct += self.loss.correct(logits, labels).sum()
        self.count += labels.numel()

    def compute(self) -> tuple[Tensor, Tensor]:
        """Mean loss and accuracy, scalars."""
        return self.loss_sum / self.count, self.correct / self.count


def chunk_rows(labels: Tensor, predictions: int = CHUNK) -> int:
    """Rows that have so many predictions, at least one row, where ``labels`` are of shape (N, …)."""
    return max(1, predictions // max(1, labels[:1].numel()))


def chunks(rows: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    """A few thousand predictions at a time: activations stay in the cache of a CPU, and in the memory of a GPU."""
    return torch.split(rows, chunk_rows(labels, CHUNK if rows.is_cpu else 65536))


def gaps(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How much worse the test set fares than the training set, where both were evaluated.

    Args:
        values: Full key → loss or accuracy.

    Returns:
        ``gap/acc`` (train − test) and ``gap/loss`` (test − train).
    """
    found: dict[str, Tensor] = {}
    for quantity, key, sign in (("acc", metric_keys.acc, 1), ("loss", metric_keys.loss, -1)):
        train, test = values.get(key("train_full")), values.get(key("test"))
        if train is not None and test is not None:
            found[metric_keys.gap(quantity)] = sign * (train - test)
    return found
