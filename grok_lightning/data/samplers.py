"""Ways to fill batches other than shuffled epochs."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from grok_lightning.data.batches import BatchOrder
from grok_lightning.errors import ConfigError, require

Sampler = Literal["shuffled", "replacement", "balanced", "entropy"]


@dataclass(frozen=True)
class Replacement(BatchOrder):
    """Every row of every batch is drawn uniformly from the training set, whatever was drawn before."""

    def epoch(self, number: int) -> Tensor:
        """N independent draws: int64, shape (n,)."""
        return torch.randint(self.n, (self.n,), generator=self.generator(number))


@dataclass(frozen=True)
class Balanced(BatchOrder):
    """Every batch holds every operand token about equally often, in both slots.

    Pairs are looked at in a random order, again and again, and one is taken if each of its tokens stands in its slot
    less than m times in the batch, m = ⌊B/p⌋, ⌊B/p⌋ + 1, …, until the batch is full (B its size, p the number of
    tokens). No pair is in a batch twice; batches are independent of each other.

    Attributes:
        operands: int64, shape (n, 2), the tokens a and b of the training pairs.
    """

    operands: Tensor = field(default_factory=lambda: torch.empty(0, 2, dtype=torch.int64), compare=False)

    def epoch(self, number: int) -> Tensor:
        """The number of the epoch; its batches are drawn one by one."""
        return torch.tensor(number)

    def take(self, permutation: Tensor, position: int) -> tuple[Tensor, float]:
        """This process's rows of batch ``position`` of an epoch, and their weight."""
        size = min(self.batch_size, self.n - position * self.batch_size)
        generator = self.generator(int(permutation) * len(self) + position)
        batch = balanced_batch(self.operands, size, generator)
        mine = batch[self.rank :: self.world_size]
        return mine, self.world_size * len(mine) / size


def balanced_batch(operands: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """One batch of :class:`Balanced`, in random order: int64, shape (size,).

    Args:
        operands: int64, shape (n, 2), n ≥ size.
        size: Number of rows.
        generator: Source of the order.
    """
    waiting: list[int] = torch.randperm(len(operands), generator=generator).tolist()
    a_of, b_of = operands.T.tolist()
    n_tokens = int(operands.max()) + 1
    a_counts, b_counts = [0] * n_tokens, [0] * n_tokens
    taken: list[int] = []
    level = max(1, size // n_tokens)
    while len(taken) < size:
        left: list[int] = []
        for row in waiting:
            a, b = a_of[row], b_of[row]
            if a_counts[a] < level and b_counts[b] < level:
                a_counts[a] += 1
                b_counts[b] += 1
                taken.append(row)
                if len(taken) == size:
                    break
            else:
                left.append(row)
        waiting, level = left, level + 1
    return torch.tensor(taken)[torch.randperm(size, generator=generator)]


class TokenBounds:
    """``p_i ∝ exp(L_i² / γ)`` over the operand tokens of the training set (arXiv:2505.15624, App. A, eq. 19).

    L_i is a running bound on the norm of the loss gradient in row i of E, ``L_i ← max(β L_i, ‖∇_{e_i}‖)`` at every
    step whose batch holds the token, 0 before the first. The paper derives the rule and leaves the bound open. γ → ∞
    draws tokens uniformly, γ → 0 the token of the largest bound alone.

    Args:
        operands: int64, shape (n, 2), the tokens a and b of the training pairs.
        n_symbols: Number of operand tokens.
        gamma: γ > 0, in units of a squared gradient norm.
        decay: β in [0, 1]; 1 is the largest norm ever seen.
    """

    def __init__(self, operands: Tensor, n_symbols: int, gamma: float, decay: float) -> None:
        require(gamma > 0, "data.sampler_gamma", gamma, "must be greater than 0 (inf is uniform)")
        require(0 <= decay <= 1, "data.sampler_decay", decay, "must be from 0 to 1")
        self.gamma, self.decay = gamma, decay
        self.bounds = torch.zeros(n_symbols, dtype=torch.float64)
        rows = torch.arange(len(operands))
        second = operands[:, 0] != operands[:, 1]  # a pair (i, i) holds i once
        tokens = torch.cat([operands[:, 0], operands[second, 1]])
        self._rows = torch.cat([rows, rows[second]])[tokens.argsort(stable=True)]
        self._counts = torch.bincount(tokens, minlength=n_symbols)
        self._starts = self._counts.cumsum(0) - self._counts

    @property
    def probabilities(self) -> Tensor:
        """p_i: float64, shape (n_symbols,); 0 for tokens that are in no training pair."""
        scores = torch.where(self._counts > 0, (self.bounds - self.bounds.max()) * (self.bounds + self.bounds.max()), 0)
        scores = (scores / self.gamma).masked_fill(self._counts == 0, -math.inf)
        return scores.softmax(0)

    def observe(self, norms: Tensor) -> None:
        """Take the gradient norms of one step into the bounds.

        Args:
            norms: ``‖∇_{e_i}‖`` of the operand tokens, shape (n_symbols,); 0 says that a token was absent, and what
                is not finite is left out.
        """
        norms = norms.detach().to(self.bounds)
        present = norms.isfinite() & (norms > 0)
        self.bounds = torch.where(present, torch.maximum(self.decay * self.bounds, norms), self.bounds)

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Rows of a batch: a token by p, then one of the training pairs that hold it, in either slot, uniformly.

        Args:
            size: Number of rows, drawn with replacement.
            generator: Source of the draws.
        """
        tokens = torch.multinomial(self.probabilities, size, replacement=True, generator=generator)
        place = torch.rand(size, dtype=torch.float64, generator=generator) * self._counts[tokens]
        return self._rows[self._starts[tokens] + place.long()]


@dataclass(frozen=True)
class Entropy(BatchOrder):
    """Batches of :class:`TokenBounds`: a function of (order_seed, t) and of the bounds at step t, which are saved.

    Attributes:
        tokens: The bounds; whoever sees gradients updates them.
    """

    tokens: TokenBounds = field(default_factory=lambda: TokenBounds(torch.zeros(1, 2).long(), 1, 1, 1), compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.world_size > 1:
            raise ConfigError("data.sampler = 'entropy': draws in one process only; set trainer.devices to 1")

    def epoch(self, number: int) -> Tensor:
        """The number of the epoch; its batches are drawn one by one."""
        return torch.tensor(number)

    def take(self, permutation: Tensor, position: int) -> tuple[Tensor, float]:
        """Batch ``position`` of an epoch under the present bounds."""
        size = min(self.batch_size, self.n - position * self.batch_size)
        generator = self.generator(int(permutation) * len(self) + position)
        return self.tokens.draw(size, generator), 1.0

    def state_dict(self) -> dict[str, Any]:
        """The bounds."""
        return {"bounds": self.tokens.bounds.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from these bounds."""
        self.tokens.bounds = state["bounds"].clone()
