"""Loss and accuracy over a part of the table."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric


class TableScore(Metric):
    """Mean cross-entropy and accuracy, ``Σ loss_i / n`` and ``#{argmax = label} / n``, over all rows seen.

    Sums are kept on the device in float64 (float32 on devices without it), so the result does not depend on how the
    table was cut into chunks beyond rounding. Every process sees the whole table: nothing is reduced over processes.
    """

    full_state_update = False
    loss_sum: Tensor
    correct: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__(sync_on_compute=False)
        self.add_state("loss_sum", torch.zeros((), dtype=torch.float64), dist_reduce_fx=None)
        self.add_state("correct", torch.zeros((), dtype=torch.int64), dist_reduce_fx=None)
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx=None)

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Add rows: logits float, shape (B, n_classes); labels int64, shape (B,)."""
        self.loss_sum += F.cross_entropy(logits, labels, reduction="sum").to(self.loss_sum.dtype)
        self.correct += (logits.argmax(1) == labels).sum()
        self.count += len(labels)

    def compute(self) -> tuple[Tensor, Tensor]:
        """Mean loss and accuracy, scalars."""
        return self.loss_sum / self.count, self.correct / self.count
