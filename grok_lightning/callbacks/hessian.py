"""Extreme eigenvalues of the Hessian of the training loss, block by block."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import datamodule_of, labelled_blocks, loss_of, net_of, pairs
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.errors import require
from grok_lightning.numerics.eigen import EigenResult
from grok_lightning.numerics.hvp import ALL, HessianOperator
from grok_lightning.numerics.lanczos import lanczos
from grok_lightning.numerics.power import power_iteration

Block = Literal["E", "W", "rest", "all"]


class Hessian(Periodic):
    """``λ_max(∂²L/∂θ_b²)``, L the mean loss of the training set without weight decay (arXiv:2505.15624, C.1).

    Blocks are those of ``Net.blocks``: E (embedding), W (the layer that reads it, bias included), rest, and all.
    λ_max is the algebraically largest eigenvalue; the smallest and the one of largest magnitude are given too.
    Under DDP each process takes every world_size-th pair, with one all-reduce per product.

    Args:
        every_n_steps: Distance of measurements in optimiser steps; 0 for none on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
        blocks: Which of E, W, rest, all; those that the network lacks are left out. all costs as much as E and W.
        k: Number of eigenvalues from the top.
        method: lanczos, or the paper's power, which finds the largest magnitude and in the paper's form is off by
            up to several per cent where eigenvalues lie close.
        tol: Residual ‖Hv − λv‖ / |λ| up to which an eigenvalue counts as converged. On the default network 1e-2 gave
            λ_max to 8e-4 from warm starts and mostly to 4e-3 from cold ones; but a residual says that there is an
            eigenvalue, not that it is the largest, and at 1e-2 and 3e-3 alike one start in about 30 settled on a
            neighbour 2 to 5 per cent below. Take 1e-3 or less where that matters.
        max_krylov: Largest basis of lanczos, which gives up after three times as many products; under power the
            number of iterations per eigenvalue (100 in the paper), all of them done.
        subset: Number of training pairs to use, drawn once; ``null`` for all. Small subsets overestimate λ_max.
        chunk_size: Pairs per graph; bounds the memory. ``null`` for all at once.
        dtype: Of the products: float32, or float64 to verify.
        warm_start: Start lanczos from the last eigenvectors; it takes half as many products.
        cold_every: Every so many measurements one starts cold all the same, so that a direction that has
            overtaken the old ones is not missed; trace, Frobenius norm and density come from cold starts.
        density: Keep nodes and weights of the spectral density.
        seed: Seed of the subset and of the start vectors alone.
    """

    group = "hessian"

    def __init__(
        self,
        every_n_steps: int = 0,
        log_points_per_decade: int = 1,
        blocks: tuple[Block, ...] = ("E", "W"),
        k: int = 1,
        method: Literal["lanczos", "power"] = "lanczos",
        tol: float = 1e-2,
        max_krylov: int = 100,
        subset: int | None = None,
        chunk_size: int | None = 1536,
        dtype: Literal["float32", "float64"] = "float32",
        warm_start: bool = True,
        cold_every: int = 10,
        density: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        require(
            len(blocks) > 0, "hessian.blocks", blocks, "must name one of E, W, rest, all; intervals of 0 switch it off"
        )
        require(k >= 1, "hessian.k", k, "must be 1 or more")
        require(0 < tol < 1, "hessian.tol", tol, "must be in (0, 1)")
        require(3 * max_krylov >= k, "hessian.max_krylov", max_krylov, f"must be at least a third of k = {k}")
        require(max_krylov >= 1, "hessian.max_krylov", max_krylov, "must be 1 or more")
        require(subset is None or subset >= 1, "hessian.subset", subset, "must be 1 or more (training pairs), or null")
        allowed = "must be 1 or more, or null"
        require(chunk_size is None or chunk_size >= 1, "hessian.chunk_size", chunk_size, allowed)
        require(cold_every >= 1, "hessian.cold_every", cold_every, "must be 1 or more (measurements)")
        require(seed >= 0, "hessian.seed", seed, "must be 0 or more")
        self.blocks, self.k, self.method, self.tol, self.max_krylov = blocks, k, method, tol, max_krylov
        self.subset, self.chunk_size, self.seed, self.density = subset, chunk_size, seed, density
        self.dtype = torch.float64 if dtype == "float64" else torch.float32
        self.warm_start, self.cold_every = warm_start, cold_every
        self.measurements = 0
        self._starts: dict[str, Tensor] = {}  # block → warm start of the next measurement
        self._warned = False

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """One graph for all blocks, one solve per block."""
        net, rows = net_of(pl_module), self._rows(datamodule_of(trainer).measured_rows())
        have = labelled_blocks(net)
        tokens, labels = pairs(trainer, rows[trainer.global_rank :: trainer.world_size])
        blocks = [block for block in dict.fromkeys(self.blocks) if block in have or block == ALL]
        if not blocks:
            return {}
        if self.measurements % self.cold_every == 0 or not self.warm_start:
            self._starts = {}
        self.measurements += 1
        several = trainer.world_size > 1
        with HessianOperator(
            net,
            tokens,
            labels,
            {block: have[block] for block in blocks if block != ALL},
            loss=loss_of(pl_module),
            dtype=self.dtype,
            chunk_size=self.chunk_size,
            n_total=len(rows),
            all_reduce=torch.distributed.all_reduce if several else None,
        ) as operator:
            results = {block: self._solve(operator, block, trainer.global_step, several) for block in blocks}
        n_train = len(datamodule_of(trainer).rows("train_full"))
        return self._values(operator, results, len(rows), n_train, trainer.global_step)

    def state_dict(self) -> dict[str, Any]:
        """The warm starts, so that a resumed run measures the same numbers."""
        starts = {block: start.cpu() for block, start in self._starts.items()}
        return super().state_dict() | {"starts": starts, "measurements": self.measurements}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue."""
        super().load_state_dict(state_dict)
        self._starts, self.measurements = dict(state_dict["starts"]), state_dict["measurements"]

    def _rows(self, train: Tensor) -> Tensor:
        if self.subset is None or self.subset >= len(train):
            return train
        chosen = torch.randperm(len(train), generator=torch.Generator().manual_seed(self.seed))
        return train[chosen[: self.subset]]

    def _solve(self, operator: HessianOperator, block: str, step: int, several: bool) -> EigenResult:
        product, n = operator.matvec(block), operator.sizes[block]
        seed = self.seed * 2**32 + step
        if self.method == "power":
            return power_iteration(
                product,
                n,
                self.k,
                n_iterations=self.max_krylov,
                tol=self.tol,
                seed=seed,
                dtype=self.dtype,
                device=operator.device,
            )
        start = self._starts.get(block)
        result = lanczos(
            product,
            n,
            self.k,
            tol=self.tol,
            max_krylov=self.max_krylov,
            max_matvec=3 * self.max_krylov,
            seed=seed,
            start=None if start is None or len(start) != n else start.to(operator.device),
            dtype=self.dtype,
            device=operator.device,
            reduce=_from_first_process if several else None,
        )
        following = result.next_start
        self._starts = {name: old for name, old in self._starts.items() if name != block}
        if following is not None:
            self._starts[block] = following
        return result

    def _values(
        self, operator: HessianOperator, results: Mapping[Block, EigenResult], n_samples: int, n_train: int, step: int
    ) -> dict[str, float | list[float]]:
        facts = {
            "loss": operator.loss_value,
            "n_samples": float(n_samples),
            "gradient_seconds": operator.gradient_seconds,
        }
        values: dict[str, float | list[float]] = {metric_keys.hessian(name): value for name, value in facts.items()}
        for block, result in results.items():
            numbers = _numbers(result, operator.gradient_seconds, self.density)
            numbers["grad_norm"] = operator.grad_norms[block]
            subset = n_samples if n_samples < n_train else None  # of Hessian.subset, or of the datamodule's own
            values |= {metric_keys.curvature(block, name, subset): number for name, number in numbers.items()}
        lost = [block for block, result in results.items() if not bool(result.eigenvalues.isfinite().all())]
        if lost and not self._warned:
            self._warned = True
            rank_zero_warn(
                f"hessian: curvature of {', '.join(lost)} is not finite at step {step} (loss {operator.loss_value:g}); "
                "recorded as not converged, and training goes on"
            )
        return values


def _numbers(result: EigenResult, gradient_seconds: float, density: bool) -> dict[str, float | list[float]]:
    """What is logged of one solve; key parts as documented in docs/measurements.md."""
    largest = int(result.eigenvalues.abs().argmax()) if result.method == "power" else 0
    numbers: dict[str, float | list[float]] = {
        "lambda_abs_max": result.lambda_abs_max,
        "residual": float(result.relative_residuals[largest]),
        "n_hvp": float(result.n_matvec),
        "cost_gradients": result.seconds / gradient_seconds if gradient_seconds > 0 else math.nan,
        "seconds": result.seconds,
        "converged": float(result.converged.all()),
        "warm_start": float(result.warm_start),
    }
    if result.method == "lanczos":  # power iteration knows magnitudes only
        numbers["lambda_max"] = float(result.eigenvalues[0])
        numbers["lambda_min"], numbers["lambda_min_residual"] = result.lambda_min, result.lambda_min_residual
    if len(result.eigenvalues) > 1:
        numbers["eigenvalues"] = result.eigenvalues.tolist()
        numbers["residuals"] = result.relative_residuals.tolist()
    if result.density is not None:
        numbers["trace"], numbers["frobenius_norm"] = result.density.trace, result.density.frobenius_norm
        if density:
            numbers["density_nodes"] = result.density.nodes.tolist()
            numbers["density_weights"] = result.density.weights.tolist()
    return numbers


def _from_first_process(numbers: Tensor) -> None:
    torch.distributed.broadcast(numbers, 0)
