"""Images with labels: scikit-learn's digits, CIFAR-10 and CIFAR-100."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from grok_lightning.data.archives import ARCHIVES, locate, read
from grok_lightning.data.batches import Batch, BatchLoader, BatchOrder, TableLoader
from grok_lightning.data.splits import Split
from grok_lightning.data.table import TableDataModule
from grok_lightning.errors import ConfigError, require

Source = Literal["digits", "cifar10", "cifar100"]

CHUNK = 2048
"""Images that are converted to floats at a time in evaluations."""

DIGITS = (597, 200)
"""Test and held-out rows of the 1 797 digits unless said otherwise (ours); 1 000 are left for training."""


class ImageDataModule(TableDataModule):
    """Images and their labels, kept as bytes and normalised when a batch is cut; no augmentation.

    Normalised is ``(x − mean) / std`` with one mean and one standard deviation per channel, over all pixels of the
    training set. The test set of CIFAR is the official one; that of the digits is drawn by split_seed, and held-out
    images are drawn from what is left.

    Args:
        source: digits (1 797 images of 8 × 8, in scikit-learn, extra ``vision``), cifar10 or cifar100.
        folder: CIFAR only: where the archive cifar-10-python.tar.gz or cifar-100-python.tar.gz is.
        download: CIFAR only: fetch the archive into folder if it is not there.
        verify: CIFAR only: take the official archive alone, by its checksum; off for files of that format of your own.
        n_train: Training images, drawn by split_seed; ``null`` for all that are left.
        n_val: Held-out images; ``null`` for 200 of the digits and none of CIFAR. With none the clocks read test.
        n_test: Digits only: test images; ``null`` for 597.
        n_measured: Training images, drawn by split_seed, that gradients, curvature, kernels and health are measured
            on; ``null`` for all.
        split_seed: Seed of all these draws.
        order_seed: Seed of the order of batches alone.
        batch_size: Global batch size, summed over all processes; full for the whole training set.
    """

    def __init__(
        self,
        source: Source = "digits",
        folder: str = "data",
        download: bool = False,
        verify: bool = True,
        n_train: int | None = None,
        n_val: int | None = None,
        n_test: int | None = None,
        n_measured: int | None = 2048,
        split_seed: int = 0,
        order_seed: int = 0,
        batch_size: int | Literal["full"] = 128,
    ) -> None:
        require(source in get_args(Source), "data.source", source, "must be digits, cifar10 or cifar100")
        require(0 <= split_seed < 2**63, "data.split_seed", split_seed, "must be from 0 to 2^63 - 1")
        generator = torch.Generator().manual_seed(split_seed)
        if source == "digits":
            require(not download, "data.download", download, "is for CIFAR; the digits come with scikit-learn")
            images, labels = _digits()
            order = torch.randperm(len(labels), generator=generator)
            n_test = DIGITS[0] if n_test is None else n_test
            require(1 <= n_test < len(labels), "data.n_test", n_test, f"must be from 1 to {len(labels) - 1}")
            test, left = order[:n_test], order[n_test:]
            n_classes = 10
        else:
            require(n_test is None, "data.n_test", n_test, "is for the digits; CIFAR has its own test set")
            archive = ARCHIVES[source]
            train_part, test_part = read(archive, locate(archive, Path(folder), download, verify))
            images, labels = (torch.cat(pair) for pair in zip(train_part, test_part, strict=True))
            n_classes, n = archive.n_classes, len(train_part[1])
            test, left = torch.arange(n, len(labels)), torch.randperm(n, generator=generator)
        split = _split(left, test, n_train, DIGITS[1] * (source == "digits") if n_val is None else n_val)
        sizes = {"n_classes": n_classes, "image_size": images.shape[-1], "channels": images.shape[1]}
        super().__init__(images, labels, split, sizes, batch_size, order_seed, split_seed, source)
        self.mean, self.std = channel_statistics(images[split.train])
        n, allowed = len(split.train), "must be 1 or more (training images), or null"
        require(n_measured is None or n_measured >= 1, "data.n_measured", n_measured, allowed)
        chosen = torch.randperm(n, generator=generator)[:n_measured].sort().values
        self._measured = split.train[chosen]

    def normalised(self, images: Tensor) -> Tensor:
        """``(x − mean) / std`` of the training set, channel by channel.

        Args:
            images: uint8, shape (n, C, H, W).

        Returns:
            float32, the same shape.
        """
        mean, std = (x.to(images.device, torch.float32).view(-1, 1, 1) for x in (self.mean, self.std))
        return (images.float() - mean) / std

    def measured_rows(self) -> Tensor:
        """Training rows of ``n_measured``."""
        return self._measured

    def on_device(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Normalised images and labels of rows, on the device of the run."""
        images, labels = super().on_device(rows)
        return self.normalised(images), labels

    def train_dataloader(self) -> BatchLoader:
        """This process's shards of the batches; the images are on the device as bytes."""
        assert self.trainer is not None
        order = self.batch_order(self.trainer.global_rank, self.trainer.world_size)
        return ImageLoader(*super().on_device(self.split.train), order, self.normalised)

    def predict_dataloader(self) -> TableLoader:
        """All images, in order."""
        return ImagePart(*super().on_device(torch.arange(len(self.labels))), "all", self.normalised)

    def describe(self) -> dict[str, Any]:
        """What the run record keeps of the data."""
        statistics = {"mean": self.mean.tolist(), "std": self.std.tolist(), "n_measured": len(self._measured)}
        return super().describe() | statistics

    def _part(self, part: str) -> TableLoader:
        return ImagePart(*super().on_device(self.evaluated_rows(part)), part, self.normalised)


class ImageLoader(BatchLoader):
    """Batches of images that are converted when they are cut.

    Args:
        images: uint8, shape (n, C, H, W), the training images.
        labels: int64, shape (n,).
        order: The order of batches.
        convert: From bytes to what the network takes.
    """

    def __init__(self, images: Tensor, labels: Tensor, order: BatchOrder, convert: Callable[[Tensor], Tensor]) -> None:
        super().__init__(images, labels, order)
        self.convert = convert

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            yield batch._replace(tokens=self.convert(batch.tokens))


class ImagePart(TableLoader):
    """A part of the data as several batches, in order, so that few images are floats at a time.

    Args:
        images: uint8, shape (n, C, H, W).
        labels: int64, shape (n,).
        part: Name of the part, which the batches carry.
        convert: From bytes to what the network takes.
    """

    def __init__(self, images: Tensor, labels: Tensor, part: str, convert: Callable[[Tensor], Tensor]) -> None:
        super().__init__(images, labels, part)
        self.convert = convert

    def __len__(self) -> int:
        return -(-len(self.batch.labels) // CHUNK)

    def __iter__(self) -> Iterator[Batch]:
        images, labels, weight, part = self.batch
        for chunk, names in zip(torch.split(images, CHUNK), torch.split(labels, CHUNK), strict=True):
            yield Batch(self.convert(chunk), names, weight, part)


def channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (population) standard deviation of every channel over all images and pixels, exactly.

    Args:
        images: uint8, shape (n, C, H, W).

    Returns:
        float64, shape (C,), each; a standard deviation of 0 is given as 1.
    """
    values = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([torch.bincount(images[:, c].flatten(), minlength=256) for c in range(images.shape[1])])
    shares = counts.double() / counts.sum(1, keepdim=True)
    mean = shares @ values
    std = (shares * (values - mean[:, None]).square()).sum(1).sqrt()
    return mean, torch.where(std > 0, std, 1.0)


def _digits() -> tuple[Tensor, Tensor]:
    """The digits of scikit-learn: uint8, shape (1797, 1, 8, 8), values to 16; and int64, shape (1797,)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ConfigError(
            "data.source = 'digits': needs scikit-learn, which is not installed here; "
            "pip install 'grok_lightning[vision]' brings it"
        ) from error
    found = load_digits()
    return torch.from_numpy(found.images).to(torch.uint8)[:, None], torch.from_numpy(found.target).long()


def _split(left: Tensor, test: Tensor, n_train: int | None, n_val: int) -> Split:
    """Held-out rows from the front of what the test set leaves, then training rows."""
    allowed = f"must be from 0 to {len(left) - 1}: the test set leaves {len(left)} images"
    require(0 <= n_val < len(left), "data.n_val", n_val, allowed)
    most = len(left) - n_val
    n_train = most if n_train is None else n_train
    require(1 <= n_train <= most, "data.n_train", n_train, f"must be from 1 to {most}")
    train, val = left[n_val : n_val + n_train], left[:n_val]
    return Split(train.sort().values, val.sort().values, test.sort().values)
