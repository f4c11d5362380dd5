"""Extreme eigenvalues of a symmetric operator from products with it: Lanczos, fully reorthogonalised."""

import math
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from grok_lightning.errors import require
from grok_lightning.numerics import eigen
from grok_lightning.numerics.eigen import EigenResult, MatVec, norm

Which = Literal["LA", "SA", "LM"]
"""Largest algebraic, smallest algebraic, largest magnitude (scipy's names)."""

Reduce = Callable[[Tensor], None]
"""Makes a small float64 tensor the same on all processes, in place."""

_DROP = 0.7071
"""A second Gram-Schmidt pass is due when the first shortens the vector below this (Daniel et al. 1976)."""


class _Basis:
    """Rows V[:m], orthonormal, with ``A Vᵀ = Vᵀ T + β v_m e_{m-1}ᵀ``.

    T (float64, CPU) is kept whole: a thick restart makes it an arrow, a breakdown makes it fall into blocks.
    """

    def __init__(self, matvec: MatVec, start: Tensor, size: int, reduce: Reduce | None) -> None:
        self._matvec, self._reduce = matvec, reduce
        self.V = torch.empty(size + 1, len(start), dtype=start.dtype, device=start.device)
        self.V[0] = start
        self.T = torch.zeros(size + 1, size + 1, dtype=torch.float64)
        self.m = self.n_matvec = 0
        self.block = 0  # first row of the invariant block being explored
        self.coupled = 0  # rows before V[m] to which T couples it
        self.beta = self.dropped = self.scale = self.eps = 0.0  # scale: largest |entry| of T, near ‖A‖
        self.finite, self.broken = True, False
        self.density: eigen.Density | None = None

    @property
    def noise(self) -> float:
        """What rounding, amplified over some steps, makes of an exact zero: eps^¾ ‖T‖."""
        return float(self.eps**0.75 * self.scale)

    def expand(self) -> None:
        """One product: V[m] joins T, the remainder of A V[m] becomes V[m + 1]."""
        m, first = self.m, self.m - self.coupled
        w = self._matvec(self.V[m])
        self.eps = max(torch.finfo(w.dtype).eps, torch.finfo(self.V.dtype).eps)
        w = w.to(self.V.dtype)
        alpha = torch.dot(self.V[m].double(), w.double())
        w = w - alpha.to(w.dtype) * self.V[m]
        if self.coupled:
            w -= self.T[first:m, m].to(w) @ self.V[first:m]
        before = norm(w)
        w -= (self.V[: m + 1] @ w) @ self.V[: m + 1]
        a, b, beta = self._agree(alpha, before, norm(w))  # the one synchronisation of a step
        if beta < _DROP * b:
            w -= (self.V[: m + 1] @ w) @ self.V[: m + 1]
            (beta,) = self._agree(norm(w))
        self.finite = math.isfinite(a) and math.isfinite(beta)
        self.m, self.n_matvec, self.coupled = m + 1, self.n_matvec + 1, 1
        self.T[m, m], self.beta, self.scale = a, beta, max(self.scale, abs(a), beta)
        self.broken = False
        if self.finite and beta > 0:
            self.V[m + 1] = w / beta
            self.T[m, m + 1] = self.T[m + 1, m] = beta

    def break_off(self) -> None:
        """Drop the remainder: the rows span an invariant subspace, up to a residual that is kept in mind."""
        self.T[self.m, self.m - 1] = self.T[self.m - 1, self.m] = 0.0
        self.dropped, self.beta, self.broken = max(self.dropped, self.beta), 0.0, True

    def _agree(self, *values: Tensor) -> list[float]:
        numbers = torch.stack(values)
        if self._reduce is not None:
            self._reduce(numbers)
        return [float(x) for x in numbers.tolist()]

    def ritz(self, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values (m,), vectors (m, m), residual bounds (m,) of the rows from ``first`` on."""
        theta, S = torch.linalg.eigh(self.T[first : self.m, first : self.m])
        return theta, S, (self.beta * S[-1]).abs().clamp(min=self.dropped)

    def measure_density(self) -> None:
        """Take the quadrature of the start vector, the first time only: later T is no longer its own."""
        if self.density is None:
            theta, S, _ = self.ritz()
            n, w = self.V.shape[1], S[0].square()
            trace, square = float(n * (w @ theta)), float(n * (w @ theta.square()))
            self.density = eigen.Density(theta, w, trace, math.sqrt(square))

    def restart_fresh(self, generator: torch.Generator) -> None:
        """Continue in the complement of an invariant subspace from a random vector."""
        w = eigen.random_direction(self.V.shape[1], generator, self.V)
        for _ in range(3):
            w -= (self.V[: self.m] @ w) @ self.V[: self.m]
            w /= norm(w)
        self.V[self.m] = w
        self.block, self.coupled = self.m, 0

    def restart_thick(self, keep: Tensor) -> None:
        """Shrink the basis to the Ritz vectors ``keep`` and the remainder (Wu & Simon 2000)."""
        theta, S, _ = self.ritz()
        old = S[: self.block, keep].square().sum(0) > 0.5  # those of earlier blocks go first
        keep, p = torch.cat([keep[old], keep[~old]]), len(keep)
        self.V[:p] = S[:, keep].T.to(self.V) @ self.V[: self.m]
        self.V[p] = self.V[self.m]
        self.T.zero_()
        self.T.diagonal()[:p] = theta[keep]
        self.T[p, :p] = self.T[:p, p] = self.beta * S[-1, keep]
        self.m = self.coupled = p
        self.block = int(old.sum())


def lanczos(
    matvec: MatVec,
    n: int,
    k: int = 1,
    *,
    which: Which = "LA",
    tol: float = 1e-3,
    max_krylov: int = 100,
    max_matvec: int = 300,
    seed: int = 0,
    start: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    reduce: Reduce | None = None,
) -> EigenResult:
    """The k extreme eigenpairs ``A v_i = λ_i v_i``, ‖v_i‖ = 1, of a symmetric A.

    A pair has converged when its residual ``‖A v − θ v‖ = β|s_mi| ≤ tol·max(|θ|, tiny)``, where ``tol·tiny``
    is what rounding makes of a zero (eps^¾ ‖A‖); θ is then off by residual²/gap at most. The basis is fully
    reorthogonalised, so there are no ghost copies. On a breakdown (an invariant subspace, also an exactly zero
    A) it continues from a fresh orthogonal vector as long as further copies of a wanted eigenvalue may exist.
    A multiple eigenvalue of an operator that does not break down may be found once only.

    Args:
        matvec: ``v ↦ A v``; its float32 products are enough.
        n: Size of A.
        k: Number of pairs; reduced to n.
        which: ``LA`` the largest, ``SA`` the smallest, ``LM`` the largest in magnitude. Both ends are
            reported in any case, though not waited for.
        tol: Relative residual. Measured on a grokking MLP: 1e-3 gives five values to 1e-5, 3e-3 the top one
            to 1e-4; at 1e-2 a second eigenvalue 1 % below was once taken for the top one.
        max_krylov: Rows of the basis, memory ``(max_krylov + 1)·n``; beyond it comes a thick restart.
        max_matvec: Products after which it gives up, with ``converged`` false.
        seed: Seed of an own CPU generator for the start vector, the same on every device.
        start: Warm start, shape (n,), e.g. ``EigenResult.next_start`` of the previous probe. Cheaper, but a
            direction that has overtaken the old ones since may be missed: start cold now and then.
        dtype: Of the basis; dots and norms that enter T are accumulated in float64.
        device: Of the basis.
        reduce: For data parallelism. T and every decision derive from the products, so if ``matvec`` returns
            the same bits on all ranks they stop together; a hook that overwrites a small float64 tensor with
            that of rank 0 makes sure of it on unlike machines.

    Raises:
        ValueError: If ``start`` is not a finite nonzero vector of shape (n,).
    """
    require(k >= 1, "hessian.k", k, "must be 1 or more")
    require(which in ("LA", "SA", "LM"), "hessian.which", which, "must be LA, SA or LM")
    require(max_matvec >= k, "hessian.max_matvec", max_matvec, f"must be k = {k} or more")
    begin, k = time.perf_counter(), min(k, n)
    generator = eigen.own_generator(seed)
    like = torch.empty(0, dtype=dtype, device=device)
    warm = start is not None
    first = eigen.random_direction(n, generator, like) if start is None else eigen.given_direction(start, n, like)
    basis = _Basis(matvec, first, min(n, max(max_krylov, k + 6)), reduce)
    basis.expand()
    while not _finished(basis, k, which, tol) and basis.n_matvec < max_matvec:
        full = basis.m == len(basis.V) - 1
        if basis.broken or full:
            basis.measure_density()
        if basis.broken:
            basis.restart_fresh(generator)
        if full:
            basis.restart_thick(_kept(basis, k, which))
        basis.expand()
    return _result(basis, k, which, tol, time.perf_counter() - begin, warm)


def _order(theta: Tensor, which: Which) -> Tensor:
    """Indices of the ascending Ritz values, the most wanted first."""
    key = theta.abs() if which == "LM" else theta
    return key.argsort(descending=which != "SA")


def _kept(basis: _Basis, k: int, which: Which) -> Tensor:
    """The more wanted half, and both ends, so that no end that is reported gets lost."""
    wanted = _order(basis.ritz()[0], which)[: max(k + 1, basis.m // 2)]
    return torch.tensor(sorted({*wanted.tolist(), 0, basis.m - 1}))


def _within(basis: _Basis, theta: Tensor, bounds: Tensor, tol: float) -> Tensor:
    return bounds <= (tol * theta.abs()).clamp(min=basis.noise)


def _finished(basis: _Basis, k: int, which: Which, tol: float) -> bool:
    """Whether to stop; breaks the basis off if it is invariant as far as the wanted values can tell."""
    if not basis.finite:
        return True
    theta, _, bounds = basis.ritz()
    wanted = _order(theta, which)[:k]
    smallest = float(theta[wanted].abs().min()) if basis.m >= k else 0.0
    if basis.m == basis.V.shape[1] or basis.beta <= max(0.1 * tol * smallest, basis.noise):
        basis.break_off()
    if basis.m < k or basis.m == basis.V.shape[1]:
        return basis.m >= k
    if not bool(_within(basis, theta[wanted], bounds[wanted], tol).all()):
        return False
    if basis.block == 0 and not basis.broken:
        return True
    # Every block holds each eigenvalue once at most. Further copies that matter are ruled out only when the
    # best value of the latest block is known and no better than the last one wanted.
    latest, _, latest_bounds = basis.ritz(basis.block)
    best = _order(latest, which)[:1]
    rival = torch.cat([latest[best], theta[wanted[-1:]]])
    key = rival.abs() if which == "LM" else rival if which == "LA" else -rival
    no_better = bool(key[0] <= key[1] + basis.noise)
    return no_better and bool(_within(basis, latest[best], latest_bounds[best], tol).all())


def _result(basis: _Basis, k: int, which: Which, tol: float, seconds: float, warm: bool) -> EigenResult:
    if not basis.finite:
        return eigen.failed("lanczos", k, basis.V, basis.n_matvec, seconds, warm)
    if not warm:
        basis.measure_density()
    theta, S, bounds = basis.ritz()
    chosen = _order(theta, which)[:k].sort(descending=True).values  # theta ascends
    vectors = S[:, chosen].T.to(basis.V) @ basis.V[: basis.m]
    return EigenResult(
        method="lanczos",
        eigenvalues=theta[chosen],
        eigenvectors=vectors,
        residuals=bounds[chosen],
        converged=_within(basis, theta[chosen], bounds[chosen], tol),
        n_matvec=basis.n_matvec,
        lambda_min=float(theta[0]),
        lambda_min_residual=float(bounds[0]),
        lambda_abs_max=float(theta[_order(theta, "LM")[0]]),
        seconds=seconds,
        warm_start=warm,
        density=None if warm else basis.density,
    )
