"""The losses that a run can minimise."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from grok_lightning.errors import require

LossName = Literal["cross_entropy", "stablemax", "mse"]
LossDtype = Literal["float32", "float64"]
Reduction = Literal["mean", "sum", "none"]


def log_stablemax(logits: Tensor) -> Tensor:
    """``log s(x)``, ``s(x) = x + 1`` for x ≥ 0 and ``1 / (1 − x)`` below (arXiv:2501.04697).

    StableMax is ``s(x_i) / Σ_j s(x_j)``, the softmax of what this returns. It is computed without a quotient, and has
    the derivative ``1 / (1 + |x|)`` everywhere.

    Args:
        logits: Any shape and floating dtype.
    """
    # clamp has slope 1 at 0 and relu has 0, so that the two add up to 1 there.
    return torch.log1p(logits.clamp(min=0)) - torch.log1p(F.relu(-logits))


@dataclass(frozen=True)
class Loss:
    """A loss of logits and labels.

    ``cross_entropy``: ``−log softmax(x)_y``. ``stablemax``: the same with StableMax in place of softmax, which does
    not reach 0 by rounding (arXiv:2501.04697). ``mse``: ``(1/C) Σ_j (x_j − [j = y])²`` over the C classes
    (arXiv:2210.01117).

    Attributes:
        name: cross_entropy, stablemax or mse.
        dtype: float32 or float64: what logits are cast to first; ``None`` computes in theirs, in float32 at least.
    """

    classifies: ClassVar[bool] = True
    """Whether outputs are logits of classes; elsewhere softmax quantities mean nothing."""

    name: LossName = "cross_entropy"
    dtype: LossDtype | None = None

    def __post_init__(self) -> None:
        names = ("cross_entropy", "stablemax", "mse")
        require(self.name in names, "model.loss", self.name, "must be cross_entropy, stablemax or mse")
        allowed = "must be float32, float64 or null"
        require(self.dtype in ("float32", "float64", None), "model.loss_dtype", self.dtype, allowed)

    def __call__(self, logits: Tensor, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
        """The loss.

        Args:
            logits: Shape (B, C), or (B, C, T) for T predictions a row.
            labels: int64, shape (B,) or (B, T).
            reduction: mean or sum over all predictions, or none.

        Returns:
            A scalar, or the shape of the labels without reduction.
        """
        if logits.ndim > 2:  # one prediction a line: torch's kernels are made for that
            rows = self(logits.movedim(1, -1).flatten(0, -2), labels.flatten(), reduction)
            return rows.view_as(labels) if reduction == "none" else rows
        wider = torch.promote_types(logits.dtype, torch.float32)
        x = logits.to(wider if self.dtype is None else getattr(torch, self.dtype))
        if self.name != "mse":
            return F.cross_entropy(log_stablemax(x) if self.name == "stablemax" else x, labels, reduction=reduction)
        rows = (x - F.one_hot(labels, x.shape[1])).square().mean(1)
        return rows if reduction == "none" else rows.mean() if reduction == "mean" else rows.sum()

    def correct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Which predictions are right, ``argmax = label``: bool, shape of the labels."""
        return self.predict(logits) == labels

    def predict(self, logits: Tensor) -> Tensor:
        """The predicted labels, shape of the labels."""
        return logits.argmax(1)


@dataclass(frozen=True)
class SquaredError(Loss):
    """Half the mean squared error on real labels, ``F = (1/2N) Σ_i (f_i − y_i)²``.

    The half makes the gradient ``(1/N) Σ (f_i − y_i) ∇f_i`` and a decay of λ the penalty ``(λ/2)‖w‖²`` of the same
    scale, as in arXiv:2505.20172. "Accuracy" is the share of rows with ``|f_i − y_i| ≤ tolerance``, so that T_mem and
    T_grok are defined as elsewhere: they say when all but a few rows are predicted to within the tolerance.

    Attributes:
        tolerance: In units of the labels; the datamodules of :mod:`grok_lightning.data.regression` give labels of
            unit size, so that it is relative to their spread.
    """

    classifies: ClassVar[bool] = False

    name: LossName = "mse"
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.tolerance < math.inf, "model.tolerance", self.tolerance, "must be greater than 0 and finite")

    def __call__(self, logits: Tensor, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
        """The loss.

        Args:
            logits: What the network gives, shape of the labels.
            labels: Floats, shape (B,) or (B, T); taken in the dtype of the outputs.
            reduction: mean or sum over all predictions, or none.
        """
        return F.mse_loss(logits, labels.to(logits.dtype), reduction=reduction) / 2

    def correct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Which predictions are within the tolerance: bool, shape of the labels."""
        return (logits - labels.to(logits.dtype)).abs() <= self.tolerance

    def predict(self, logits: Tensor) -> Tensor:
        """The outputs themselves."""
        return logits


CROSS_ENTROPY = Loss()
"""The loss of a run unless told otherwise."""
