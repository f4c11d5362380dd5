"""Small regression networks on which two phases of gradient flow with weight decay can be seen (arXiv:2505.20172).

Outputs are real numbers, shape (B,). Inputs are taken in the dtype of the parameters. What weight decay minimises at a
fixed function, ``min ½‖w‖²``, is a norm of that function: ½‖β‖₂² for β = w, ‖β‖₁ for β = u∘v (from
``min ½(u² + v²) = |uv|`` in each coordinate), ‖M‖_* for M = UVᵀ.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from grok_lightning.errors import require
from grok_lightning.nets.base import Net


class DiagonalLinearNet(Net):
    """``f(x) = ⟨β, x⟩`` with β = u∘v (depth 2), or β = w (depth 1: plain linear regression).

    The other common form β = (a² − b²)/2 is this one in rotated coordinates, u = (a + b)/√2 and v = (a − b)/√2: an
    orthogonal map, so that gradient descent with weight decay is the same.

    Initialisation: u ~ N(0, α²) and v = 0, so that f = 0 whatever α is; w ~ N(0, α²) at depth 1.

    Args:
        n_features: d.
        depth: 1 or 2.
        init_scale: α, 0 or more.
    """

    n_classes = 1

    def __init__(self, n_features: int, depth: Literal[1, 2] = 2, init_scale: float = 1.0) -> None:
        super().__init__()
        require(depth in (1, 2), "model.depth", depth, "must be 1 or 2")
        _check_scale(init_scale)
        if depth == 1:
            self.w = nn.Parameter(init_scale * torch.randn(n_features))
        else:
            self.u = nn.Parameter(init_scale * torch.randn(n_features))
            self.v = nn.Parameter(torch.zeros(n_features))
        self.depth = depth

    def linear_map(self) -> Tensor:
        """β, shape (d,)."""
        return self.w if self.depth == 1 else self.u * self.v

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, shape (B,), of float inputs, shape (B, d)."""
        beta = self.linear_map()
        return x.to(beta.dtype) @ beta


class MatrixFactorizationNet(Net):
    """``f(i, j) = M_ij`` with M = U Vᵀ, U and V of shape (n, r) and entries ~ N(0, α²).

    Args:
        matrix_size: n.
        width: r; ``None`` for n, which restricts nothing.
        init_scale: α, 0 or more.
    """

    n_classes = 1

    def __init__(self, matrix_size: int, width: int | None = None, init_scale: float = 1.0) -> None:
        super().__init__()
        require(width is None or width >= 1, "model.width", width, "must be 1 or more, or null")
        _check_scale(init_scale)
        shape = (matrix_size, width or matrix_size)
        self.U = nn.Parameter(init_scale * torch.randn(shape))
        self.V = nn.Parameter(init_scale * torch.randn(shape))

    def linear_map(self) -> Tensor:
        """M, shape (n, n)."""
        return self.U @ self.V.T

    def matrices(self) -> dict[str, Tensor]:
        """U, V and their product M, whose singular values the second phase is to make few."""
        return {"U": self.U, "V": self.V, "M": self.linear_map()}

    def forward(self, pairs: Tensor) -> Tensor:
        """Outputs, shape (B,), of int64 index pairs, shape (B, 2)."""
        return (self.U[pairs[:, 0]] * self.V[pairs[:, 1]]).sum(1)


class ReLUStudentNet(Net):
    """``f(x) = ⟨a, relu(W x + b)⟩``.

    Initialisation: entries of W and b ~ N(0, α²/(d + 1)), of a ~ N(0, α²/m): f scales as α².

    Args:
        n_features: d.
        hidden: m.
        init_scale: α, 0 or more.
    """

    n_classes = 1

    def __init__(self, n_features: int, hidden: int = 100, init_scale: float = 1.0) -> None:
        super().__init__()
        require(hidden >= 1, "model.hidden", hidden, "must be 1 or more (neurons)")
        _check_scale(init_scale)
        inner = init_scale / (n_features + 1) ** 0.5
        self.W = nn.Parameter(inner * torch.randn(hidden, n_features))
        self.b = nn.Parameter(inner * torch.randn(hidden))
        self.a = nn.Parameter(init_scale / hidden**0.5 * torch.randn(hidden))

    def first_layer_names(self) -> set[str]:
        """W and b."""
        return {"W", "b"}

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, shape (B,), of float inputs, shape (B, d)."""
        return torch.relu(torch.addmm(self.b, x.to(self.W.dtype), self.W.T)) @ self.a


def _check_scale(init_scale: float) -> None:
    require(0 <= init_scale < float("inf"), "model.init_scale", init_scale, "must be 0 or more and finite")
