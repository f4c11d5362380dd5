"""Modular arithmetic as data: all pairs of a binary operation."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from grok_lightning.data.batches import BatchOrder, token_coverage
from grok_lightning.data.samplers import Balanced, Entropy, Replacement, Sampler, TokenBounds
from grok_lightning.data.splits import Strategy, make_split, token_probabilities
from grok_lightning.data.table import TableDataModule
from grok_lightning.data.tasks import Task, TaskName, build_table, get_task
from grok_lightning.errors import ConfigError, require

SKEW = 4.0
"""How much likelier a skewed split draws its favourites (ours)."""

SAMPLER_DECAY = 0.99
"""β of the entropy sampler (ours)."""


class ModularDataModule(TableDataModule):
    """All pairs of a binary operation, split into training, held-out and test pairs.

    The table and the split are made at once (milliseconds), so that bad values are refused before anything runs.

    Args:
        task: A built-in operation, or a class of your own by ``class_path``.
        p: Modulus; ``null`` for the task's own default (97).
        exclude_zero: Multiplication only: leave out the pairs with a zero.
        split: How training pairs are drawn: random, uniform or skewed.
        frac_train: Share of ALL pairs used for training, up to 0.8 (arXiv:2505.15624: 0.3).
        skew: Skewed split only: how much likelier the over-represented 20 % of the values of a are drawn.
        split_seed: Seed of the split alone; the 20 % test set depends on nothing else.
        order_seed: Seed of the order of batches alone.
        batch_size: Global batch size, summed over all processes; full for the whole training set.
        sampler: How batches are filled: shuffled (epochs), replacement (uniform draws), balanced (every operand token
            about equally often in every batch), or entropy (tokens by p_i ∝ exp(L_i² / γ), L_i a running bound on
            the gradient norm of row i of E; arXiv:2505.15624, eq. 19).
        sampler_gamma: γ of entropy, in units of a squared gradient norm; it has to be given there.
        sampler_decay: Share of the bound L_i that stays from step to step (entropy; ours).
    """

    def __init__(
        self,
        task: TaskName | Task = "addition",
        p: int | None = None,
        exclude_zero: bool = False,
        split: Strategy = "random",
        frac_train: float = 0.3,
        skew: float = SKEW,
        split_seed: int = 0,
        order_seed: int = 0,
        batch_size: int | Literal["full"] = 512,
        sampler: Sampler = "shuffled",
        sampler_gamma: float | None = None,
        sampler_decay: float = SAMPLER_DECAY,
    ) -> None:
        chosen = get_task(task, exclude_zero)
        name = task if isinstance(task, str) else type(chosen).__name__
        self.table = table = build_table(chosen, p)
        self.modulus = None if chosen.default_p is None else p or chosen.default_p
        self.strategy, self.sampler = split, sampler
        require(split == "skewed" or skew == SKEW, "data.skew", skew, f"data.split is {split!r}, not skewed")
        rows = make_split(table, split, frac_train, split_seed, skew)
        self._operands = table.tokens[rows.train][:, [0, 2]]
        self.bounds = self._bounds(sampler_gamma, sampler_decay)
        sizes = {"vocab_size": table.vocab_size, "n_classes": table.n_classes}
        super().__init__(
            table.tokens, table.labels, rows, sizes, batch_size, order_seed, split_seed, name, table.n_symbols
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens, operands and the two symbols."""
        return self.table.vocab_size

    @property
    def n_classes(self) -> int:
        """Number of labels."""
        return self.table.n_classes

    def batch_order(self, rank: int = 0, world_size: int = 1) -> BatchOrder:
        """The order of batches as one of several processes sees it."""
        place = self.place(rank, world_size)
        if self.sampler == "replacement":
            return Replacement(*place)
        if self.sampler == "balanced":
            return Balanced(*place, self._operands)
        return BatchOrder(*place) if self.bounds is None else Entropy(*place, self.bounds)

    def _bounds(self, gamma: float | None, decay: float) -> TokenBounds | None:
        """The state of the entropy sampler; a γ that no sampler takes, or none where one does, is refused."""
        allowed = "must be shuffled, replacement, balanced or entropy"
        require(self.sampler in get_args(Sampler), "data.sampler", self.sampler, allowed)
        if self.sampler != "entropy":
            require(gamma is None, "data.sampler_gamma", gamma, f"data.sampler is {self.sampler!r}, not entropy")
            idle = decay != SAMPLER_DECAY
            require(not idle, "data.sampler_decay", decay, f"data.sampler is {self.sampler!r}, not entropy")
            return None
        if gamma is None:
            raise ConfigError("data.sampler_gamma = None: data.sampler = 'entropy' needs one greater than 0")
        return TokenBounds(self._operands, self.table.n_symbols, gamma, decay)

    def describe(self) -> dict[str, Any]:
        """What the run record keeps of the data: sizes, split digest, token probabilities and batch coverage."""
        rows = {"train": self.split.train, "val": self.split.val, "test": self.split.test}
        order = self.batch_order()
        permutation = order.epoch(0)
        batches = [order.take(permutation, position)[0] for position in range(len(order))]
        first_epoch = [self.table.tokens[self.split.train[batch]] for batch in batches]
        coverage = [token_coverage(tokens, self.table.n_symbols) for tokens in first_epoch]
        return {
            "task": self.task_name,
            "n_symbols": self.table.n_symbols,
            "n_classes": self.n_classes,
            "n_pairs": {"all": len(self.table.labels)} | {part: len(row) for part, row in rows.items()},
            "split_sha256": self.split.digest(),
            "steps_per_epoch": len(order),
            "batch_token_coverage": sum(coverage) / len(coverage),
            "token_probabilities": {part: token_probabilities(self.table, row) for part, row in rows.items()},
        }

    def prediction_lines(self, predictions: Tensor) -> list[str]:
        """The predictions of all pairs as CSV, in lexicographic order of (a, b)."""
        columns = (self.table.tokens[:, 0], self.table.tokens[:, 2], self.table.labels, predictions)
        return ["a,b,label,prediction", *(",".join(map(str, row)) for row in torch.stack(columns, dim=1).tolist())]
