"""Synthetic regression: the problems on which arXiv:2505.20172 shows interpolation followed by norm minimisation.

Labels are real numbers without noise, in float64, and of unit size: ``E[y²] = 1`` over the distribution
(:class:`SparseRegression`) or over the rows at hand, so that a tolerance is relative to their spread. ``split_seed``
draws the problem, its inputs and their split; the initialisation has its own seed as everywhere. ``batch_size: full``
is gradient descent proper.
"""

from typing import Literal

import torch
from torch import Tensor

from grok_lightning.data.batches import BatchOrder, FullBatch
from grok_lightning.data.splits import FRAC_TEST, Split
from grok_lightning.data.table import TableDataModule
from grok_lightning.errors import require

BatchSize = int | Literal["full"]


class SparseRegression(TableDataModule):
    """``y = ⟨β*, x⟩`` with x ~ N(0, I_d) and k entries of β* equal to ±1/√k, the others 0; n < d rows to train on.

    Args:
        n_features: d.
        n_nonzero: k, at most d.
        n_train: Training rows; fewer than d leaves the interpolator open, which is what the problem is about.
        n_val: Held-out rows.
        n_test: Test rows.
        split_seed: Seed of β* and of all rows.
        order_seed: Seed of the order of batches alone; full batches have none.
        batch_size: Global batch size; full for the whole training set.
    """

    def __init__(
        self,
        n_features: int = 100,
        n_nonzero: int = 5,
        n_train: int = 50,
        n_val: int = 500,
        n_test: int = 500,
        split_seed: int = 0,
        order_seed: int = 0,
        batch_size: BatchSize = "full",
    ) -> None:
        require(n_features >= 1, "data.n_features", n_features, "must be 1 or more")
        require(1 <= n_nonzero <= n_features, "data.n_nonzero", n_nonzero, f"must be from 1 to {n_features} (features)")
        generator, split = _seeded(split_seed), _consecutive(n_train, n_val, n_test)
        self.truth = torch.zeros(n_features, dtype=torch.float64)
        places = torch.randperm(n_features, generator=generator)[:n_nonzero]
        signs = 2.0 * torch.randint(2, (n_nonzero,), generator=generator) - 1
        self.truth[places] = signs.double() / n_nonzero**0.5
        rows = n_train + n_val + n_test
        inputs = torch.randn(rows, n_features, generator=generator, dtype=torch.float64)
        sizes, name = {"n_features": n_features}, "sparse_regression"
        super().__init__(inputs, inputs @ self.truth, split, sizes, batch_size, order_seed, split_seed, name)

    def batch_order(self, rank: int = 0, world_size: int = 1) -> BatchOrder:
        """The order of batches as one of several processes sees it."""
        return _order(self.place(rank, world_size))


class MatrixCompletion(TableDataModule):
    """Entries of a square matrix M* of low rank: row (i, j) has label ``M*_ij``.

    ``M* = s·A Bᵀ`` with A, B of standard normal entries and s such that the mean of M*_ij² is 1. As elsewhere 20 % of
    the entries are the test set; the source takes 20 × 20 and rank 3.

    Args:
        size: Rows of M*, and columns.
        rank: Rank of M*, at most its size.
        frac_train: Share of ALL entries that is observed, up to 0.8; the rest is held out.
        split_seed: Seed of M* and of which entries are observed.
        order_seed: Seed of the order of batches alone; full batches have none.
        batch_size: Global batch size; full for all observed entries.
    """

    def __init__(
        self,
        size: int = 20,
        rank: int = 3,
        frac_train: float = 0.6,
        split_seed: int = 0,
        order_seed: int = 0,
        batch_size: BatchSize = "full",
    ) -> None:
        require(size >= 3, "data.size", size, "must be 3 or more")
        require(1 <= rank <= size, "data.rank", rank, f"must be from 1 to {size} (the size)")
        generator, n = _seeded(split_seed), size * size
        n_train, n_test = int(frac_train * n + 1e-9) if 0 < frac_train < 1 else 0, round(FRAC_TEST * n)
        fits = 1 <= n_train <= n - n_test
        require(
            fits, "data.frac_train", frac_train, f"must be in [{1 / n:.2g}, 0.8]: 20 % of the entries is the test set"
        )
        left, right = (torch.randn(size, rank, generator=generator, dtype=torch.float64) for _ in range(2))
        product = left @ right.T
        self.truth = product / product.square().mean().sqrt()
        order = torch.randperm(n, generator=generator)
        parts = torch.tensor_split(order, [n_test, n_test + n_train])
        test, train, val = (part.sort().values for part in parts)
        i, j = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        inputs = torch.stack([i.flatten(), j.flatten()], dim=1)
        split, sizes = Split(train, val, test), {"matrix_size": size}
        labels, name = self.truth.flatten(), "matrix_completion"
        super().__init__(inputs, labels, split, sizes, batch_size, order_seed, split_seed, name)

    def batch_order(self, rank: int = 0, world_size: int = 1) -> BatchOrder:
        """The order of batches as one of several processes sees it."""
        return _order(self.place(rank, world_size))


class TeacherStudent(TableDataModule):
    """``y = s·Σ_k a_k relu(⟨w_k, x⟩ + b_k)``: a two-layer ReLU teacher with few neurons, x ~ N(0, I_d).

    ``a_k = ±1``, w_k uniform on the sphere, b_k standard normal, and s such that the mean of y² over all rows is 1.

    Args:
        n_features: d.
        n_teacher: Neurons of the teacher.
        n_train: Training rows.
        n_val: Held-out rows.
        n_test: Test rows.
        split_seed: Seed of the teacher and of all rows.
        order_seed: Seed of the order of batches alone; full batches have none.
        batch_size: Global batch size; full for the whole training set.
    """

    def __init__(
        self,
        n_features: int = 5,
        n_teacher: int = 2,
        n_train: int = 40,
        n_val: int = 500,
        n_test: int = 500,
        split_seed: int = 0,
        order_seed: int = 0,
        batch_size: BatchSize = "full",
    ) -> None:
        require(n_features >= 1, "data.n_features", n_features, "must be 1 or more")
        require(n_teacher >= 1, "data.n_teacher", n_teacher, "must be 1 or more (neurons)")
        generator, split = _seeded(split_seed), _consecutive(n_train, n_val, n_test)
        weights = torch.randn(n_teacher, n_features, generator=generator, dtype=torch.float64)
        weights = weights / weights.norm(dim=1, keepdim=True)
        biases = torch.randn(n_teacher, generator=generator, dtype=torch.float64)
        signs = 2.0 * torch.randint(2, (n_teacher,), generator=generator) - 1
        inputs = torch.randn(n_train + n_val + n_test, n_features, generator=generator, dtype=torch.float64)
        raw = torch.relu(inputs @ weights.T + biases) @ signs.double()
        labels = raw / raw.square().mean().sqrt()
        sizes, name = {"n_features": n_features}, "teacher_student"
        super().__init__(inputs, labels, split, sizes, batch_size, order_seed, split_seed, name)

    def batch_order(self, rank: int = 0, world_size: int = 1) -> BatchOrder:
        """The order of batches as one of several processes sees it."""
        return _order(self.place(rank, world_size))


def _order(place: tuple[int, int, int, int, int]) -> BatchOrder:
    """Plain gradient descent where a batch is the whole training set."""
    n, batch_size, *_ = place
    return FullBatch(*place) if batch_size == n else BatchOrder(*place)


def _seeded(split_seed: int) -> torch.Generator:
    require(0 <= split_seed < 2**63, "data.split_seed", split_seed, "must be 0 or more")
    return torch.Generator().manual_seed(split_seed)


def _consecutive(n_train: int, n_val: int, n_test: int) -> Split:
    """Rows are drawn alike, so that the first may be for training."""
    for name, n in (("n_train", n_train), ("n_test", n_test)):
        require(n >= 1, f"data.{name}", n, "must be 1 or more (rows)")
    require(n_val >= 0, "data.n_val", n_val, "must be 0 or more (rows)")
    rows: tuple[Tensor, ...] = torch.arange(n_train + n_val + n_test).tensor_split([n_train, n_train + n_val])
    return Split(*rows)
