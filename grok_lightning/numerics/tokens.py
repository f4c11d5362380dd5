"""Gradients and updates of token rows by how often the tokens occur, beside eq. 24 of arXiv:2505.15624."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from grok_lightning.numerics.balance import predicted_c

DECILES = 10
"""Groups of tokens."""


def frequency_deciles(counts: Tensor) -> list[Tensor]:
    """Tokens in ten groups of equal size (to within one) by how often they occur, the rarest first.

    Tokens that never occur are in none; among equal counts the lower number comes first.

    Args:
        counts: int64, shape (V,).

    Returns:
        Ten tensors of token numbers; empty ones where fewer than ten tokens occur.
    """
    order = torch.sort(counts, stable=True).indices
    seen = order[counts[order] > 0]
    ends = [len(seen) * k // DECILES for k in range(DECILES + 1)]
    return [seen[low:high] for low, high in pairwise(ends)]


def log_log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Least-squares slope of ln y on ln x; NaN with fewer than three points at which both are finite and positive."""
    points = [(math.log(a), math.log(b)) for a, b in zip(x, y, strict=True) if 0 < a < math.inf and 0 < b < math.inf]
    if len(points) < 3:
        return math.nan
    mean_x, mean_y = (sum(column) / len(points) for column in zip(*points, strict=True))
    spread = sum((a - mean_x) ** 2 for a, _ in points)
    return sum((a - mean_x) * (b - mean_y) for a, b in points) / spread if spread else math.nan


class TokenMeter:
    """Accumulates ``‖∇_{E_i}‖²`` of every row of E and ``‖∇_W‖²``, step by step, on the device.

    Args:
        n_tokens: V, rows of E.
        device: Where gradients live.
    """

    def __init__(self, n_tokens: int, device: torch.device) -> None:
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self._rows = torch.zeros(n_tokens, dtype=dtype, device=device)
        self._first = torch.zeros((), dtype=dtype, device=device)
        self.steps = 0

    def add(self, grad_E: Tensor, grad_W: Iterable[Tensor]) -> None:
        """Add one step.

        Args:
            grad_E: ∇_E, shape (V, d).
            grad_W: Gradients of the matrices that make up W.
        """
        self._rows += grad_E.square().sum(1)
        self._first += sum(gradient.square().sum() for gradient in grad_W)
        self.steps += 1

    def reset(self) -> None:
        """Open a new window."""
        self._rows.zero_()
        self._first.zero_()
        self.steps = 0

    @property
    def rows(self) -> Tensor:
        """Mean over steps of ``‖∇_{E_i}‖²``: shape (V,); NaN before the first step."""
        return self._rows / (self.steps or math.nan)

    @property
    def first(self) -> float:
        """Mean over steps of ``‖∇_W‖²``."""
        return float(self._first) / (self.steps or math.nan)

    def state_dict(self) -> dict[str, Any]:
        """The open window."""
        return {"rows": self._rows.clone(), "first": self._first.clone(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue a window."""
        self._rows.copy_(state["rows"])
        self._first.copy_(state["first"])
        self.steps = state["steps"]


def rms_by_group(squares: Tensor, groups: Sequence[Tensor]) -> list[float]:
    """Root of the mean of ``squares`` over each group of tokens; NaN for an empty one.

    Args:
        squares: Squared norms, shape (V,).
        groups: Token numbers.
    """
    return [float(squares[group].mean().sqrt()) for group in (g.to(squares.device) for g in groups)]


def required_ratio(rows: float, width: int, first: float, first_size: int) -> float:
    """RMS entry of W's gradient over RMS entry of some rows of E's: the η_E/η_W at which SGD moves both alike.

    ``(‖∇_W‖/√n_W) / (‖∇_{E_i}‖/√d)``. Eq. 24 of arXiv:2505.15624 says what it should be from σ and f alone.

    Args:
        rows: Norm of a row, ``‖∇_{E_i}‖`` (RMS over rows and steps).
        width: d.
        first: ``‖∇_W‖``.
        first_size: n_W, entries of W.

    Returns:
        The ratio; NaN where the rows have no gradient.
    """
    below = rows / width**0.5
    return first / first_size**0.5 / below if below > 0 else math.nan


def predicted_by_group(sigma_E: float, sigma_W: float, frequencies: Sequence[float]) -> list[float]:
    """``σ_max(E)/σ_max(W) · 1/f`` for the mean f of each group (arXiv:2505.15624, eq. 24); NaN where f is 0."""
    return [predicted_c(sigma_E, sigma_W, f) for f in frequencies]
