"""Singular values and the rank notions in use for grokking, each under its own name.

The field calls at least five different numbers "effective rank". Here every notion has a name of its own, and
all of them are functions of the singular values σ₁ ≥ σ₂ ≥ … ≥ 0 that do not change when the matrix is scaled.
A zero (or empty) matrix has rank 0 under all of them; NaN anywhere gives NaN.
"""

import torch
from torch import Tensor


def as_float64(x: Tensor) -> Tensor:
    """``x`` without its graph, in float64; on the CPU where the device has no float64 (MPS)."""
    x = x.detach()
    return (x.cpu() if x.device.type == "mps" else x).to(torch.float64)


def singular_values(matrix: Tensor) -> Tensor:
    """All singular values of ``matrix``, computed in float64 with no truncation.

    Args:
        matrix: Real, shape (m, n), any dtype; it is copied, not changed.

    Returns:
        float64, shape (min(m, n),), descending. All NaN if the matrix has a NaN or an infinity, so that a run
        that blew up is recorded as such instead of being ended by its own diagnostics.

    Raises:
        ValueError: If ``matrix`` is not 2-D.
    """
    if matrix.ndim != 2:
        raise ValueError(f"singular values need a 2-D matrix, got shape {tuple(matrix.shape)}")
    M = as_float64(matrix)
    if not bool(torch.isfinite(M).all()):
        return torch.full((min(M.shape),), torch.nan, dtype=torch.float64, device=M.device)
    sigma: Tensor = torch.linalg.svdvals(M)
    return sigma


def largest_singular_value(matrix: Tensor) -> float:
    """``σ_max = √λ_max(M Mᵀ)`` in float64, of the smaller of the two Gram matrices; cheaper than all values.

    Args:
        matrix: Real, shape (m, n), m, n ≥ 1.

    Returns:
        σ_max; NaN if the matrix has a NaN or an infinity.
    """
    M = as_float64(matrix)
    M = M if len(M) <= M.shape[1] else M.T
    if not bool(torch.isfinite(M).all()):
        return float("nan")
    peak = M.abs().max().clamp(min=torch.finfo(torch.float64).tiny)  # so that no square over- or underflows
    M = M / peak
    return float(peak * torch.linalg.eigvalsh(M @ M.T)[-1].clamp(min=0).sqrt())


def _scaled(sigma: Tensor) -> tuple[Tensor, Tensor]:
    """σ/σ_max (so that no square over- or underflows) and σ_max, which is 0 for an empty spectrum."""
    sigma = as_float64(sigma)
    peak = sigma.max() if sigma.numel() else sigma.new_zeros(())
    return sigma / torch.where(peak == 0, 1.0, peak), peak


def _zero_or(value: Tensor, peak: Tensor) -> Tensor:
    return torch.where(peak == 0, torch.zeros_like(value), value)


def _exp_entropy(weights: Tensor) -> Tensor:
    q = weights / weights.sum()
    entropy: Tensor = torch.special.entr(q).sum()  # entr(0) = 0
    return entropy.exp()


def erank(sigma: Tensor) -> Tensor:
    """``exp(−Σ qᵢ ln qᵢ)`` with ``qᵢ = σᵢ / Σσ``: the effective rank of Roy & Vetterli (EUSIPCO 2007).

    Args:
        sigma: Singular values, shape (r,), at least 0.

    Returns:
        float64 scalar, 0 or in [1, r].
    """
    s, peak = _scaled(sigma)
    return _zero_or(_exp_entropy(s), peak)


def erank_sq(sigma: Tensor) -> Tensor:
    """``exp(−Σ qᵢ ln qᵢ)`` with ``qᵢ = σᵢ² / Σσ²``: the squared-spectrum form (arXiv:2607.06639, sec. 3.3).

    Args:
        sigma: Singular values, shape (r,), at least 0.

    Returns:
        float64 scalar, 0 or in [1, r]; never larger than :func:`erank`.
    """
    s, peak = _scaled(sigma)
    return _zero_or(_exp_entropy(s.square()), peak)


def stable_rank(sigma: Tensor) -> Tensor:
    """``‖M‖_F² / σ_max² = Σσ² / σ_max²`` (the field ``srank`` of arXiv:2607.06639).

    Args:
        sigma: Singular values, shape (r,), at least 0.

    Returns:
        float64 scalar, 0 or in [1, r].
    """
    s, peak = _scaled(sigma)
    return _zero_or(s.square().sum(), peak)


def participation_ratio(sigma: Tensor) -> Tensor:
    """``(Σσ²)² / Σσ⁴`` (the field ``pr`` in the logs behind arXiv:2607.06639).

    Args:
        sigma: Singular values, shape (r,), at least 0.

    Returns:
        float64 scalar, 0 or in [1, r].
    """
    s, peak = _scaled(sigma)
    return _zero_or(s.square().sum().square() / s.pow(4).sum(), peak)


def numerical_rank(sigma: Tensor, shape: tuple[int, int], tol: float | None = None) -> Tensor:
    """``#{i : σᵢ > tol}``, by default with ``tol = σ_max · max(m, n) · ε`` and ε = 2⁻²³ of float32.

    The default is the rule of ``numpy.linalg.matrix_rank`` for a float32 matrix. Weights are trained in
    float32, so what lies below it cannot be told from rounding, although σ itself is computed in float64.

    Args:
        sigma: Singular values, shape (r,), at least 0.
        shape: (m, n), the shape of the matrix.
        tol: Absolute tolerance, in the unit of σ; ``None`` takes the default.

    Returns:
        float64 scalar (not an integer, so that it can be NaN), from 0 to r.
    """
    sigma = as_float64(sigma)
    _, peak = _scaled(sigma)
    bound = peak * max(shape) * torch.finfo(torch.float32).eps if tol is None else tol
    rank = (sigma > bound).sum().to(torch.float64)
    return torch.where(torch.isnan(peak), peak, rank)


def rank_summary(sigma: Tensor, shape: tuple[int, int]) -> dict[str, float]:
    """Every rank notion of this module at its default, by name, with one transfer from the device.

    Args:
        sigma: All singular values of the matrix, shape (min(m, n),).
        shape: (m, n), the shape of the matrix.

    Returns:
        ``erank``, ``erank_sq``, ``stable_rank``, ``participation_ratio`` and ``numerical_rank``.
    """
    ranks = {f.__name__: f(sigma) for f in (erank, erank_sq, stable_rank, participation_ratio)}
    ranks["numerical_rank"] = numerical_rank(sigma, shape)
    return dict(zip(ranks, torch.stack(list(ranks.values())).tolist(), strict=True))
