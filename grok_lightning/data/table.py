"""What every datamodule offers: rows of inputs and labels, split in three, and batches as a function of the step."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from grok_lightning.data.batches import Batch, BatchLoader, BatchOrder, Rows, TableLoader
from grok_lightning.data.samplers import TokenBounds
from grok_lightning.data.splits import Split
from grok_lightning.errors import ConfigError

SIZES = ("vocab_size", "n_classes", "context_length", "image_size", "channels", "n_features", "matrix_size")
"""Arguments of models that the data decide, where they have them."""


class TableDataModule(LightningDataModule):
    """Rows of inputs with labels, all of them at hand, split into training, held-out and test rows.

    A subclass makes the rows in its constructor, so that bad values are refused before anything runs, and hands them
    over. Clocks, curvature, spectra, the run record and resuming ask for nothing else.

    Args:
        inputs: What the network takes, row by row: shape (N, …); int64 tokens, or floats. A tensor, or what hands out
            rows as one does.
        labels: What it is to give: shape (N,), or (N, T) for T predictions a row.
        split: Which rows are for training, held out, and for the test.
        sizes: Values of those of :data:`SIZES` that the data have.
        batch_size: Global batch size in rows, summed over all processes; full for the whole training set.
        order_seed: Seed of the order of batches alone.
        split_seed: Seed of the split, for the record.
        name: Name of the task, and of the experiment unless ``record.experiment`` says otherwise.
        n_symbols: Number of tokens that count as operands (balance, eq. 24); ``None`` where inputs are no tokens.
    """

    modulus: int | None = None
    """p, where the labels are a function of residues mod p."""

    truth: Tensor | None = None
    """What labels are a linear function of, where one is known: β* of ``y = ⟨β*, x⟩``, or M* of ``y = M*_ij``."""

    bounds: TokenBounds | None = None
    """State of a sampler that looks at gradients."""

    def __init__(
        self,
        inputs: Rows,
        labels: Rows,
        split: Split,
        sizes: Mapping[str, int],
        batch_size: int | Literal["full"],
        order_seed: int = 0,
        split_seed: int = 0,
        name: str | None = None,
        n_symbols: int | None = None,
    ) -> None:
        super().__init__()
        self.inputs, self.labels, self.split, self.sizes = inputs, labels, split, dict(sizes)
        self.batch_size = len(split.train) if batch_size == "full" else batch_size
        self.order_seed, self.split_seed = order_seed, split_seed
        self.task_name, self.n_symbols = name or type(self).__name__, n_symbols
        self.batch_order()  # refuses a bad batch size here and now

    def size(self, name: str) -> int:
        """The value of an argument of the model that the data decide.

        Raises:
            ConfigError: If these data have no such size: model and data do not fit.
        """
        if name not in self.sizes:
            known = ", ".join(self.sizes) or "none"
            raise ConfigError(f"data = {type(self).__name__}: has no {name}, which the model needs (it has {known})")
        return self.sizes[name]

    def batch_order(self, rank: int = 0, world_size: int = 1) -> BatchOrder:
        """The order of batches as one of several processes sees it."""
        return BatchOrder(*self.place(rank, world_size))

    def place(self, rank: int, world_size: int) -> tuple[int, int, int, int, int]:
        """What every order of batches is told: rows, batch size, seed, process, processes."""
        return len(self.split.train), self.batch_size, self.order_seed, rank, world_size

    def rows(self, part: str) -> Tensor:
        """Rows in a part: ``train_full``, ``val`` or ``test``."""
        return {"train_full": self.split.train, "val": self.split.val, "test": self.split.test}[part]

    def measured_rows(self) -> Tensor:
        """Training rows that gradients, curvature, kernels and health are measured on: all of them."""
        return self.rows("train_full")

    def evaluated_rows(self, part: str) -> Tensor:
        """Rows of a part that evaluations go through: all of them."""
        return self.rows(part)

    def token_counts(self) -> Tensor | None:
        """Occurrences of every token in the training rows: int64, shape (V,); ``None`` where inputs are no tokens."""
        if self.n_symbols is None:
            return None
        return torch.bincount(self.inputs[self.split.train].flatten(), minlength=self.sizes["vocab_size"])

    def on_device(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels of rows, on the device of the run."""
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        return self.inputs[rows].to(device), self.labels[rows].to(device)

    def describe(self) -> dict[str, Any]:
        """What the run record keeps of the data."""
        rows = {"train": self.split.train, "val": self.split.val, "test": self.split.test}
        return {
            "task": self.task_name,
            "sizes": self.sizes,
            "n_rows": {"all": len(self.labels)} | {part: len(row) for part, row in rows.items()},
            "split_sha256": self.split.digest(),
            "steps_per_epoch": len(self.batch_order()),
        }

    def prediction_lines(self, predictions: Tensor) -> list[str]:
        """The predictions of all rows as CSV.

        Args:
            predictions: What :meth:`predict_dataloader` led to: shape of the labels.
        """
        labels = self.labels[torch.arange(len(self.labels))]
        columns = zip(labels.tolist(), predictions.tolist(), strict=True)
        return ["row,label,prediction", *(f"{row},{label},{found}" for row, (label, found) in enumerate(columns))]

    def train_dataloader(self) -> BatchLoader:
        """This process's shards of the batches."""
        assert self.trainer is not None
        order = self.batch_order(self.trainer.global_rank, self.trainer.world_size)
        return BatchLoader(*self.on_device(self.split.train), order)

    def val_dataloader(self) -> list[TableLoader]:
        """Training, held-out and test rows, the last two where they are not empty."""
        return [self._part(part) for part in ("train_full", "val", "test") if len(self.rows(part))]

    def test_dataloader(self) -> TableLoader:
        """The test set."""
        return self._part("test")

    def predict_dataloader(self) -> TableLoader:
        """All rows, in order."""
        return TableLoader(*self.on_device(torch.arange(len(self.labels))), "all")

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Batches are cut from tensors that already live on the device."""
        return batch

    def _part(self, part: str) -> TableLoader:
        return TableLoader(*self.on_device(self.evaluated_rows(part)), part)
