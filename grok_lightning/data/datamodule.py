"""The one datamodule behind all models."""

from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from grok_lightning.data.batches import Batch, BatchLoader, BatchOrder, TableLoader, token_coverage
from grok_lightning.data.splits import Split, Strategy, make_split, token_probabilities
from grok_lightning.data.tasks import Task, TaskName, build_table, get_task


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
        batch_size: Global batch size, summed over all processes.
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
        batch_size: int = 512,
    ) -> None:
        super().__init__()
        chosen = get_task(task, exclude_zero)
        self.task_name = task if isinstance(task, str) else type(chosen).__name__
        self.table = build_table(chosen, p)
        self.modulus = None if chosen.default_p is None else p or chosen.default_p
        self.strategy, self.split_seed, self.order_seed, self.batch_size = (
            split,
            split_seed,
            order_seed,
            batch_size,
        )
        self.split: Split = make_split(self.table, split, frac_train, split_seed, skew)
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
        return BatchOrder(len(self.split.train), self.batch_size, self.order_seed, rank, world_size)

    def rows(self, part: str) -> Tensor:
        """Rows of the table in a part: ``train_full``, ``val`` or ``test``."""
        return {"train_full": self.split.train, "val": self.split.val, "test": self.split.test}[part]

    def describe(self) -> dict[str, Any]:
        """What the run record keeps of the data: sizes, split digest, token probabilities and batch coverage."""
        rows = {"train": self.split.train, "val": self.split.val, "test": self.split.test}
        order = self.batch_order()
        first_epoch = [self.table.tokens[self.split.train[order.rows(step)]] for step in range(len(order))]
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
        """Shuffled epochs of this process's shards."""
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
        tokens, labels = self._on_device(rows)
        return TableLoader(tokens, labels, part, chunk=2048 if tokens.device.type == "cpu" else 65536)

    def _on_device(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        return self.table.tokens[rows].to(device), self.table.labels[rows].to(device)
