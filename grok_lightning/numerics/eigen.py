"""What an eigenvalue solver takes and returns."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

MatVec = Callable[[Tensor], Tensor]
"""``v ↦ A v`` for a symmetric A of size n; takes and returns shape (n,)."""


@dataclass(frozen=True)
class Density:
    """Spectral density from one random vector: ``(1/n) Σ_i f(λ_i) ≈ Σ_j w_j f(θ_j)``.

    Stochastic Lanczos quadrature with a single probe (arXiv:1901.10159); average several for smaller error.

    Attributes:
        nodes: float64, CPU, shape (m,), ascending Ritz values θ_j.
        weights: float64, CPU, shape (m,), squared first components of the Ritz vectors; they sum to 1.
        trace: ``n Σ w_j θ_j``, an unbiased estimate of tr A.
        frobenius_norm: ``√(n Σ w_j θ_j²)``; its square is an unbiased estimate of ‖A‖_F².
    """

    nodes: Tensor
    weights: Tensor
    trace: float
    frobenius_norm: float


@dataclass(frozen=True)
class EigenResult:
    """Eigenpairs and what is needed to judge them; NaN and not converged where A gave NaN or infinity.

    Attributes:
        method: ``lanczos`` or ``power``.
        eigenvalues: float64, CPU, shape (k,), descending; k is reduced to n where it was larger.
        eigenvectors: dtype and device of the iteration, shape (k, n), rows of norm 1.
        residuals: float64, CPU, shape (k,), ‖A v − λ v‖ (Lanczos: β|s_mi|, equal to it up to rounding).
        converged: bool, CPU, shape (k,), whether each residual met the tolerance.
        n_matvec: Products with A.
        lambda_min: Smallest Ritz value, an upper bound of the smallest eigenvalue; NaN if not looked for.
        lambda_min_residual: Its residual.
        lambda_abs_max: The value of largest magnitude, with its sign.
        seconds: Wall time, products included.
        warm_start: Whether a start vector was given.
        density: By-product of a cold Lanczos run; ``None`` after a warm start, which is no random probe.
    """

    method: Literal["lanczos", "power"]
    eigenvalues: Tensor
    eigenvectors: Tensor
    residuals: Tensor
    converged: Tensor
    n_matvec: int
    lambda_min: float
    lambda_min_residual: float
    lambda_abs_max: float
    seconds: float
    warm_start: bool
    density: Density | None

    @property
    def relative_residuals(self) -> Tensor:
        """float64, CPU, shape (k,), ‖A v − λ v‖ / |λ|; 0 where both are 0."""
        return torch.where(self.residuals == 0, 0.0, self.residuals / self.eigenvalues.abs())

    @property
    def next_start(self) -> Tensor | None:
        """Warm start for the next probe, shape (n,): the sum of the eigenvectors; ``None`` after a NaN."""
        return self.eigenvectors.sum(0) if bool(self.eigenvalues.isfinite().all()) else None


def failed(
    method: Literal["lanczos", "power"],
    k: int,
    vectors: Tensor,
    n_matvec: int,
    seconds: float,
    warm_start: bool,
) -> EigenResult:
    """The result where A gave NaN or infinity; ``vectors`` lends shape (·, n), dtype and device."""
    nan = torch.full((k,), math.nan, dtype=torch.float64)
    blank = torch.full((k, vectors.shape[-1]), math.nan, dtype=vectors.dtype, device=vectors.device)
    no = torch.zeros(k, dtype=torch.bool)
    lost = math.nan
    return EigenResult(method, nan, blank, nan, no, n_matvec, lost, lost, lost, seconds, warm_start, None)


def norm(v: Tensor) -> Tensor:
    """Euclidean norm, accumulated in float64 (0-dimensional, on the device of v)."""
    length: Tensor = torch.linalg.vector_norm(v, dtype=torch.float64)
    return length


def random_direction(n: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Uniformly distributed unit vector, shape (n,), drawn on the CPU: the same on every device."""
    v = torch.randn(n, generator=generator, dtype=torch.float64)
    return (v / norm(v)).to(like)


def given_direction(start: Tensor, n: int, like: Tensor) -> Tensor:
    """A caller's start vector of shape (n,), normalised, with dtype and device of ``like``.

    Raises:
        ValueError: If it is not a finite nonzero vector of that shape.
    """
    length = norm(start)
    if start.shape != (n,) or not 0 < float(length) < math.inf:
        raise ValueError(f"start: needs a finite nonzero vector of shape ({n},), got {tuple(start.shape)}")
    return (start.double() / length).to(like)


def own_generator(seed: int) -> torch.Generator:
    """CPU generator for start vectors, on another stream than ``torch.manual_seed(seed)``.

    The same stream would start from (a multiple of) the very numbers that the network was initialised with.
    """
    return torch.Generator().manual_seed(seed ^ 0x9E3779B97F4A7C15)
