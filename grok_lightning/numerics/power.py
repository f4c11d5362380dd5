"""The plain power iteration with deflation of arXiv:2505.15624 (C.1), to show its error beside Lanczos."""

import math
import time

import torch
from torch import Tensor

from grok_lightning.errors import require
from grok_lightning.numerics.eigen import EigenResult, MatVec, failed, norm, own_generator, random_direction


def power_iteration(
    matvec: MatVec,
    n: int,
    k: int = 1,
    *,
    n_iterations: int = 100,
    tol: float = 1e-3,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> EigenResult:
    """The k eigenpairs of largest MAGNITUDE of a symmetric A, one after the other.

    ``v ← A v / ‖A v‖``, after projecting out the vectors found before; λ is the Rayleigh quotient ``vᵀ A v``
    of the last v. Its error falls like ``(λ_{i+1}/λ_i)^(2·n_iterations)``, so clustered eigenvalues come out
    too small and too late, and a negative one of large magnitude hides the largest. Costs k·n_iterations
    products; :func:`~grok_lightning.numerics.lanczos.lanczos` needs a tenth.

    Args:
        matvec: ``v ↦ A v``.
        n: Size of A.
        k: Number of pairs; reduced to n.
        n_iterations: Iterations per pair, all of them done (100 in the paper).
        tol: Relative residual up to which a pair is reported as converged; it does not stop the iteration.
        seed: Seed of an own CPU generator for the start vectors.
        dtype: Of the vectors; dots and norms are accumulated in float64.
        device: Of the vectors.

    Returns:
        Pairs sorted by value, descending. ``lambda_min`` is not looked for (NaN) and there is no density.
    """
    require(k >= 1, "hessian.k", k, "must be 1 or more")
    require(n_iterations >= 1, "hessian.n_iterations", n_iterations, "must be 1 or more")
    begin, k = time.perf_counter(), min(k, n)
    generator = own_generator(seed)
    found = torch.empty(0, n, dtype=dtype, device=device)
    pairs: list[tuple[float, float]] = []
    n_matvec = 0
    for _ in range(k):
        v, value, residual, used = _top(matvec, random_direction(n, generator, found), found, n_iterations)
        n_matvec += used
        if not math.isfinite(value):
            return failed("power", k, found, n_matvec, time.perf_counter() - begin, warm_start=False)
        pairs.append((value, residual))
        found = torch.cat([found, v[None]])
    values, residuals = torch.tensor(pairs, dtype=torch.float64).T
    order = values.argsort(descending=True)
    return EigenResult(
        method="power",
        eigenvalues=values[order],
        eigenvectors=found[order.to(found.device)],
        residuals=residuals[order],
        converged=(residuals <= tol * values.abs())[order],
        n_matvec=n_matvec,
        lambda_min=math.nan,
        lambda_min_residual=math.nan,
        lambda_abs_max=float(values[values.abs().argmax()]),
        seconds=time.perf_counter() - begin,
        warm_start=False,
        density=None,
    )


def _top(matvec: MatVec, v: Tensor, found: Tensor, n_iterations: int) -> tuple[Tensor, float, float, int]:
    """Vector, Rayleigh quotient, residual and products of one pair in the complement of ``found``."""
    value, w = math.nan, v
    for used in range(1, n_iterations + 1):
        whole = float(norm(w))
        w = w - (found @ w) @ found
        size = float(norm(w))
        if size <= torch.finfo(w.dtype).eps * whole:  # A v lies in what was found before: v belongs to 0
            return v, 0.0, whole, used - 1
        v = (w / size).to(v.dtype)
        w = matvec(v).to(v.dtype)
        value = float(torch.dot(v.double(), w.double()))
        if not math.isfinite(value):
            break
    return v, value, float(norm(w.double() - value * v.double())), used
