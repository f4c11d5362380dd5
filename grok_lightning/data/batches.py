"""Which training pairs make up step t: a pure function of (order_seed, rank, t).

Every epoch is a fresh permutation of the training set, cut into consecutive global batches; the last one of an
epoch may be shorter. With several processes each global batch is dealt out like cards, so that the shards are
disjoint, exhaustive and differ in size by at most one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from grok_lightning.errors import require


class Rows(Protocol):
    """A tensor, or what hands out rows as one does."""

    @property
    def device(self) -> torch.device:
        """Where row numbers are taken."""

    def __getitem__(self, rows: Tensor, /) -> Tensor:
        """Some of the rows."""

    def __len__(self) -> int:
        """Number of rows."""


class Batch(NamedTuple):
    """One process's share of a global batch.

    Attributes:
        tokens: int64, shape (B, 4).
        labels: int64, shape (B,).
        weight: ``world_size · B / B_global``: the factor that makes the mean over processes of the local mean
            losses equal the mean over the global batch. 1.0 with one process.
        part: Which part of the table the rows come from: ``train``, or one of the evaluated parts.
    """

    tokens: Tensor
    labels: Tensor
    weight: float
    part: str = "train"


@dataclass(frozen=True)
class BatchOrder:
    """Shuffled epochs.

    Attributes:
        n: Size of the training set.
        batch_size: Global batch size, 1 ≤ batch_size ≤ n.
        order_seed: Seed of the permutations.
        rank: This process, 0 ≤ rank < world_size.
        world_size: Number of processes; at most the size of the smallest global batch.
    """

    n: int
    batch_size: int
    order_seed: int = 0
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        allowed = f"must be from 1 to {self.n}, the size of the training set"
        require(1 <= self.batch_size <= self.n, "data.batch_size", self.batch_size, allowed)
        require(0 <= self.order_seed < 2**31, "data.order_seed", self.order_seed, "must be from 0 to 2^31 - 1")
        smallest = self.n % self.batch_size or self.batch_size
        allowed = f"the last batch of an epoch has {smallest} pairs, which is less than {self.world_size} processes"
        require(self.world_size <= smallest, "data.batch_size", self.batch_size, allowed)

    def __len__(self) -> int:
        """Steps per epoch."""
        return -(-self.n // self.batch_size)

    def generator(self, number: int) -> torch.Generator:
        """Source of randomness number ``number``, the same on every process."""
        # One seed per (order_seed, number): the two never collide below 2^31 of each.
        return torch.Generator().manual_seed(self.order_seed * 2**31 + number)

    def epoch(self, number: int) -> Tensor:
        """Permutation of the training set in epoch ``number``: int64, shape (n,)."""
        return torch.randperm(self.n, generator=self.generator(number))

    def take(self, permutation: Tensor, position: int) -> tuple[Tensor, float]:
        """This process's rows of batch ``position`` of an epoch, and their :attr:`Batch.weight`."""
        batch = permutation[position * self.batch_size : (position + 1) * self.batch_size]
        mine = batch[self.rank :: self.world_size]
        return mine, self.world_size * len(mine) / len(batch)

    def rows(self, step: int) -> Tensor:
        """Rows of the training set that this process sees at optimiser step ``step`` (from 0)."""
        return self.take(self.epoch(step // len(self)), step % len(self))[0]

    def state_dict(self) -> dict[str, Any]:
        """What the order depends on beside its attributes: nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""


FULL_BATCH_EPOCH = 10_000
"""Steps that count as an epoch where every batch is the whole training set: what Lightning does at the end of one is
not done at every step."""


@dataclass(frozen=True)
class FullBatch(BatchOrder):
    """Every batch is the whole training set, in order: plain gradient descent, without a seed."""

    def __len__(self) -> int:
        """Steps per epoch, a number without a meaning here."""
        return FULL_BATCH_EPOCH

    def epoch(self, number: int) -> Tensor:
        """Rows in order: int64, shape (n,)."""
        return torch.arange(self.n)

    def take(self, permutation: Tensor, position: int) -> tuple[Tensor, float]:
        """This process's rows, the same at every position, and their :attr:`Batch.weight`."""
        mine = permutation[self.rank :: self.world_size]
        return mine, self.world_size * len(mine) / self.n


AT_ONCE = 2**24
"""Bytes of inputs that are put into the order of an epoch in one go, which costs a copy of them."""


class BatchLoader:
    """Endless supply of batches, one epoch per iteration, from tensors that already live on the device.

    It has the two methods through which Lightning saves and restores a loader, so a run resumes in the middle
    of an epoch with the batches it would have seen.

    Args:
        tokens: int64, shape (n, 4), the training pairs.
        labels: int64, shape (n,).
        order: The order of batches; ``order.n`` is n.
    """

    def __init__(self, tokens: Rows, labels: Rows, order: BatchOrder) -> None:
        self.tokens, self.labels, self.order = tokens, labels, order
        self._step = 0

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Batch]:
        epoch, start = divmod(self._step, len(self.order))
        permutation = self.order.epoch(epoch)
        at_once = self._in_order_of(permutation)
        for position in range(start, len(self.order)):
            if at_once is not None:
                self._step += 1
                tokens, labels = at_once
                yield Batch(tokens[position % len(tokens)], labels[position % len(labels)], 1.0)
                continue
            rows, weight = self.order.take(permutation, position)
            rows = rows.to(self.tokens.device)
            self._step += 1
            yield Batch(self.tokens[rows], self.labels[rows], weight)

    def _in_order_of(self, permutation: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor]] | None:
        """The batches of an epoch, gathered at once where that is small; nothing to gather where each is the whole."""
        tokens, labels, order = self.tokens, self.labels, self.order
        if order.world_size > 1 or not isinstance(tokens, Tensor) or not isinstance(labels, Tensor):
            return None
        if isinstance(order, FullBatch):
            return [tokens], [labels]
        if type(order) is not BatchOrder or tokens.nbytes > AT_ONCE:
            return None
        rows = permutation.to(tokens.device)
        return torch.split(tokens[rows], order.batch_size), torch.split(labels[rows], order.batch_size)

    def state_dict(self) -> dict[str, Any]:
        """Number of batches handed out since the start of training, and the state of the order."""
        return {"step": self._step, **self.order.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after ``state["step"]`` batches."""
        self._step = state["step"]
        self.order.load_state_dict(state)


class TableLoader:
    """A part of the table as one batch, in order, for evaluation on every process.

    Args:
        tokens: int64, shape (n, 4).
        labels: int64, shape (n,).
        part: Name of the part, which the batch carries.
    """

    def __init__(self, tokens: Tensor, labels: Tensor, part: str) -> None:
        self.batch = Batch(tokens, labels, 1.0, part)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Batch]:
        return iter([self.batch])


def token_coverage(tokens: Tensor, n_symbols: int) -> float:
    """Fraction of the operand tokens present in a batch, ``#{i : i in a or b} / n_symbols``.

    Its mean over steps is the update frequency f_E of arXiv:2505.15624, eq. 24, averaged over tokens.

    Args:
        tokens: int64, shape (B, 4).
        n_symbols: Number of operand tokens.
    """
    return len(torch.unique(tokens[:, [0, 2]])) / n_symbols
