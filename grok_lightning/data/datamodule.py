"""The one datamodule behind all models."""

from typing import Any, Literal, get_args

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from grok_lightning.data.batches import Batch, BatchLoader, BatchOrder, TableLoader, token_coverage
from grok_lightning.data.samplers import Balanced, Entropy, Replacement, Sampler, TokenBounds
from grok_lightning.data.splits import Split, Strategy, make_split, token_probabilities
from grok_lightning.data.tasks import Task, TaskName, build_table, get_task
from grok_lightning.errors import ConfigError, require


class ModularDataModule(LightningDataModule):
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
        skew: float = 4.0,
        split_seed: int = 0,
        order_seed: int = 0,
        batch_size: int | Literal["full"] = 512,
        sampler: Sampler = "shuffled",
        sampler_gamma: float | None = None,
        sampler_decay: float = 0.99,
    ) -> None:
        super().__init__()
        chosen = get_task(task, exclude_zero)
        self.task_name = task if isinstance(task, str) else type(chosen).__name__
        self.table = build_table(chosen, p)
        self.modulus = None if chosen.default_p is None else p or chosen.default_p
        self.strategy, self.split_seed, self.order_seed, self.sampler = split, split_seed, order_seed, sampler
        self.split: Split = make_split(self.table, split, frac_train, split_seed, skew)
        self.batch_size = len(self.split.train) if batch_size == "full" else batch_size
        self.bounds = self._bounds(sampler_gamma, sampler_decay)
        self.batch_order()  # refuses a bad batch size here and now

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
        place = (len(self.split.train), self.batch_size, self.order_seed, rank, world_size)
        if self.sampler == "replacement":
            return Replacement(*place)
        if self.sampler == "balanced":
            return Balanced(*place, self._operands())
        return BatchOrder(*place) if self.bounds is None else Entropy(*place, self.bounds)

    def _operands(self) -> Tensor:
        return self.table.tokens[self.split.train][:, [0, 2]]

    def _bounds(self, gamma: float | None, decay: float) -> TokenBounds | None:
        """The state of the entropy sampler; a γ that no sampler takes, or none where one does, is refused."""
        allowed = "must be shuffled, replacement, balanced or entropy"
        require(self.sampler in get_args(Sampler), "data.sampler", self.sampler, allowed)
        if self.sampler != "entropy":
            require(gamma is None, "data.sampler_gamma", gamma, f"data.sampler is {self.sampler!r}, not entropy")
            return None
        if gamma is None:
            raise ConfigError("data.sampler_gamma = None: data.sampler = 'entropy' needs one greater than 0")
        return TokenBounds(self._operands(), self.table.n_symbols, gamma, decay)

    def rows(self, part: str) -> Tensor:
        """Rows of the table in a part: ``train_full``, ``val`` or ``test``."""
        return {"train_full": self.split.train, "val": self.split.val, "test": self.split.test}[part]

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

    def train_dataloader(self) -> BatchLoader:
        """This process's shards of the batches."""
        assert self.trainer is not None
        tokens, labels = self._on_device(self.split.train)
        return BatchLoader(tokens, labels, self.batch_order(self.trainer.global_rank, self.trainer.world_size))

    def val_dataloader(self) -> list[TableLoader]:
        """The whole training, held-out and test sets, the last two where they are not empty."""
        parts = [part for part in ("train_full", "val", "test") if len(self.rows(part))]
        return [self._table_loader(self.rows(part), part) for part in parts]

    def test_dataloader(self) -> TableLoader:
        """The whole test set."""
        return self._table_loader(self.split.test, "test")

    def predict_dataloader(self) -> TableLoader:
        """The whole table, in lexicographic order of (a, b)."""
        return self._table_loader(torch.arange(len(self.table.labels)), "all")

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Batches are cut from tensors that already live on the device."""
        return batch

    def _table_loader(self, rows: Tensor, part: str) -> TableLoader:
        return TableLoader(*self._on_device(rows), part)

    def _on_device(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        return self.table.tokens[rows].to(device), self.table.labels[rows].to(device)
