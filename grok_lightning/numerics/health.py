"""Numerical health of a run: softmax collapse, norms, non-finite numbers and loss spikes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from grok_lightning.errors import require
from grok_lightning.numerics.balance import group_norm
from grok_lightning.numerics.shards import local


def softmax_collapse_fraction(logits: Tensor, labels: Tensor) -> Tensor:
    """Fraction of samples whose cross-entropy ``log Σ_c exp(z_c) − z_y`` is exactly 0 (arXiv:2501.04697).

    In exact arithmetic the loss is positive. It rounds to 0 when ``Σ_c exp(z_c − max z)`` rounds to 1 and the
    label has the largest logit; such a sample gives no gradient any more. The authors' code tests the first
    condition alone, which differs on samples that are classified wrongly.

    Args:
        logits: Shape (B, C), in the dtype in which the run computes its loss: the answer depends on it.
        labels: int64, shape (B,).

    Returns:
        float32 scalar in [0, 1]; a sample with a NaN loss counts as not collapsed.
    """
    return (cross_entropy(logits.detach(), labels, reduction="none") == 0).float().mean()


def logit_norm(logits: Tensor) -> Tensor:
    """Mean over samples of ``‖z‖₂``.

    Args:
        logits: Shape (B, C).

    Returns:
        Scalar, float32 or the wider dtype of the logits.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(logits.detach(), dim=1, dtype=wide)
    return norms.mean()


def block_norms(params: Mapping[str, Tensor], blocks: Mapping[str, Sequence[str]]) -> dict[str, Tensor]:
    """``‖θ_B‖₂ = √Σ_{θ ∈ B} ‖θ‖²`` of each block B of parameters.

    Args:
        params: Name → parameter (or anything of its kind, such as its gradient).
        blocks: Block name → parameter names, as :meth:`~grok_lightning.nets.base.Net.blocks` gives them.

    Returns:
        Block name → scalar on the device.

    Raises:
        KeyError: If a block names a parameter that ``params`` lacks.
    """
    return {block: group_norm(params[name] for name in names) for block, names in blocks.items()}


def nonfinite_count(tensors: Iterable[Tensor]) -> Tensor:
    """Number of NaN and infinite entries in what this process holds of the tensors: int64 scalar on their device."""
    counts = [(~torch.isfinite(local(t.detach()))).sum() for t in tensors]
    return torch.stack(counts).sum() if counts else torch.zeros((), dtype=torch.int64)


@dataclass
class LossSpikeDetector:
    """Says of each logged training loss whether it is a spike.

    A loss is a spike if it is not finite, or if ``loss > max(factor · median(last window losses), floor)``.
    The losses of the median are the finite ones logged before it, spikes included: a lasting rise stops being
    a spike once it fills half the window. While fewer than ``window`` of them have been seen, only a loss
    that is not finite is a spike. All three defaults are ours.

    Attributes:
        factor: How many times the running median.
        window: Number of logged losses (not steps) in the running median.
        floor: Losses up to this never count, so that rounding noise around a loss of 1e-7 raises no alarm.
        history: The last finite losses, oldest first.

    Raises:
        ConfigError: If a value is out of range.
    """

    factor: float = 10.0
    window: int = 10
    floor: float = 1e-3
    history: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        require(self.factor > 1, "health.factor", self.factor, "must be above 1")
        require(self.window >= 1, "health.window", self.window, "must be 1 or more (logged losses)")
        require(self.floor >= 0, "health.floor", self.floor, "must be 0 or more")

    def update(self, loss: float) -> bool:
        """Whether ``loss`` is a spike; it then joins the history if it is finite."""
        if not math.isfinite(loss):
            return True
        full = len(self.history) >= self.window
        spike = full and loss > max(self.factor * median(self.history), self.floor)
        self.history = [*self.history, loss][-self.window :]
        return spike

    def state_dict(self) -> dict[str, list[float]]:
        """The history, as plain numbers."""
        return {"history": list(self.history)}

    def load_state_dict(self, state: Mapping[str, Sequence[float]]) -> None:
        """Continue from a saved history; the oldest losses are dropped if this window is shorter."""
        self.history = list(state["history"])[-self.window :]
