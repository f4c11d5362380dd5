"""Interpolators of least norm, and norms of linear functions.

The second phase of gradient flow with weight decay minimises ½‖w‖² among the weights that fit the data
(arXiv:2505.20172). At a fixed function that minimum is a norm of the function, so its end is known in closed form, or
from a linear program, where the network is linear in its input.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Floats = NDArray[np.float64]


def least_l2(X: Floats, y: Floats) -> Floats:
    """``X⁺ y``, the solution of ``X β = y`` with the least ‖β‖₂ (least squares where there is none).

    Args:
        X: Shape (n, d).
        y: Shape (n,).

    Returns:
        Shape (d,).
    """
    return np.asarray(np.linalg.lstsq(X, y, rcond=None)[0], dtype=np.float64)


def least_l1(X: Floats, y: Floats) -> Floats | None:
    """A solution of ``X β = y`` with the least ‖β‖₁, by a linear program in (β⁺, β⁻) ≥ 0 (basis pursuit).

    Args:
        X: Shape (n, d).
        y: Shape (n,).

    Returns:
        Shape (d,); ``None`` if no β interpolates.
    """
    d = X.shape[1]
    found = linprog(np.ones(2 * d), A_eq=np.hstack([X, -X]), b_eq=y, bounds=(0, None), method="highs")
    if not found.success:
        return None
    beta: Floats = found.x[:d] - found.x[d:]
    return beta


def distance(found: Floats, target: Floats) -> float:
    """``‖found − target‖_F / ‖target‖_F``; not a number where the target is 0."""
    size = float(np.linalg.norm(target))
    return float(np.linalg.norm(found - target)) / size if size > 0 else float("nan")


def nuclear_norm(M: Floats) -> float:
    """``‖M‖_* = Σ σ_i``."""
    return float(np.linalg.svd(M, compute_uv=False).sum())
