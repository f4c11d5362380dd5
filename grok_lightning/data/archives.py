"""CIFAR-10 and CIFAR-100 from their official archives, without executing or unpacking anything.

The archives are tar files of Python 2 pickles. A pickle can call whatever it names, so this reader lets it name three
things only, and stands its own classes in for them; nothing of a member is ever written to the disk.
"""

import hashlib
import io
import pickle
import tarfile
import tempfile
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from grok_lightning.errors import ConfigError

LARGEST_MEMBER = 512 * 1024**2
"""Bytes; the largest member of the official archives, CIFAR-100's training set, has 155 MB."""

PIXELS = 3 * 32 * 32
"""Bytes of an image: red, green and blue plane, each 32 rows of 32."""


@dataclass(frozen=True)
class Archive:
    """An official archive (https://www.cs.toronto.edu/~kriz/cifar.html).

    Attributes:
        name: File name.
        md5: Checksum of the file.
        train: Members with training images.
        test: Members with test images.
        labels: Key of the labels in a member.
        n_classes: Labels are from 0 to n_classes − 1.
        url: Where it comes from.
    """

    name: str
    md5: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    labels: bytes
    n_classes: int
    url: str


ARCHIVES = {
    "cifar10": Archive(
        name="cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        train=tuple(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
        test=("cifar-10-batches-py/test_batch",),
        labels=b"labels",
        n_classes=10,
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    ),
    "cifar100": Archive(
        name="cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        train=("cifar-100-python/train",),
        test=("cifar-100-python/test",),
        labels=b"fine_labels",
        n_classes=100,
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    ),
}
"""What ``data.source`` can name beside the digits."""


def locate(archive: Archive, folder: Path, download: bool, verify: bool) -> Path:
    """The archive in a folder, its checksum verified.

    Args:
        archive: Which.
        folder: Where it is.
        download: Whether to fetch it if it is not there.
        verify: Whether its checksum has to be the official one.

    Raises:
        ConfigError: If it is not there, cannot be fetched, or is another file than the official one.
    """
    path = folder / archive.name
    if not path.is_file():
        if not download:
            raise ConfigError(
                f"data.folder = {str(folder)!r}: has no file {archive.name}; get it from {archive.url}, or set "
                "data.download to true where there is a network"
            )
        _fetch(archive, path, verify)
    elif verify:
        with path.open("rb") as file:
            _check(archive, path, hashlib.file_digest(file, "md5").hexdigest())
    return path


def read(archive: Archive, path: Path) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test images of an archive.

    Returns:
        Twice images, uint8, shape (n, 3, 32, 32), and labels, int64, shape (n,).

    Raises:
        ConfigError: If the file is no such archive, or a member holds anything else than images and labels.
    """
    try:
        with tarfile.open(path, "r:gz") as tar:
            train = [_member(tar, name, archive) for name in archive.train]
            test = [_member(tar, name, archive) for name in archive.test]
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ConfigError(f"data.folder: {path} cannot be read as a tar.gz archive ({error})") from error
    return _joined(train), _joined(test)


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def _check(archive: Archive, path: Path, md5: str) -> None:
    if md5 != archive.md5:
        raise ConfigError(f"data.folder: {path} is not the official file (MD5 {md5}, which has {archive.md5})")


def _fetch(archive: Archive, path: Path, verify: bool) -> None:
    """Download under another name; it gets its own once it is whole."""
    md5, partial = hashlib.md5(usedforsecurity=False), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(archive.url, timeout=60) as source,
            tempfile.NamedTemporaryFile(dir=path.parent, prefix=".download-", delete=False) as file,
        ):
            partial = Path(file.name)
            while block := source.read(1024**2):
                md5.update(block)
                file.write(block)
        if verify:
            _check(archive, partial, md5.hexdigest())
        partial.replace(path)
    except (OSError, ValueError) as error:  # urllib's errors are of the first kind, but for those of a bad address
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"data.download = True: {archive.url} cannot be fetched ({error})") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _member(tar: tarfile.TarFile, name: str, archive: Archive) -> tuple[Tensor, Tensor]:
    """Images and labels of one member."""
    try:
        info = tar.getmember(name)
    except KeyError as error:
        raise ConfigError(f"data.folder: {archive.name} has no member {name}") from error
    if not info.isreg() or info.size > LARGEST_MEMBER:
        raise ConfigError(f"data.folder: {name} in {archive.name} is not a file of at most {LARGEST_MEMBER} bytes")
    file = tar.extractfile(info)
    assert file is not None  # a regular file
    try:
        content = _Reader(io.BytesIO(file.read()), encoding="bytes").load()
        return _images(content[b"data"]), _labels(content[archive.labels], archive.n_classes, content[b"data"])
    except Exception as error:  # a broken pickle fails in every way there is
        raise ConfigError(f"data.folder: {name} in {archive.name} does not hold what it should ({error})") from error


def _images(data: Any) -> Tensor:
    if not isinstance(data, _Array) or len(data.shape) != 2 or data.shape[1] != PIXELS:
        raise ValueError(f"data is no array of {PIXELS} columns")
    flat = np.frombuffer(data.raw, dtype=np.uint8).reshape(data.shape, order="F" if data.fortran else "C")
    return torch.from_numpy(np.array(flat, order="C")).view(-1, 3, 32, 32)


def _labels(labels: Any, n_classes: int, data: Any) -> Tensor:
    whole = isinstance(labels, list) and all(type(label) is int and 0 <= label < n_classes for label in labels)
    if not whole or len(labels) != data.shape[0]:
        raise ValueError(f"labels are no list of {data.shape[0]} numbers from 0 to {n_classes - 1}")
    return torch.tensor(labels)


class _Dtype:
    """Stands for ``numpy.dtype``, and admits single bytes only."""

    def __init__(self, name: object = b"", *_: object) -> None:
        if name not in (b"u1", "u1"):
            raise pickle.UnpicklingError(f"an array of {name!r}, not of bytes")

    def __setstate__(self, state: object) -> None:
        """Byte order and flags, which single bytes do not have."""


class _Array:
    """Stands for a numpy array: shape, order and bytes, and no code of numpy's."""

    shape: tuple[int, ...] = ()
    raw: bytes = b""
    fortran = False

    def __init__(self, *_: object) -> None:
        """Whatever ``_reconstruct`` is given; the state says the rest."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        sizes = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
        if not sizes or not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array of another form")
        self.shape, self.fortran, self.raw = shape, bool(fortran), raw


STAND_INS: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,  # the same since numpy 2
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}
"""All that a pickle may name."""


class _Reader(pickle.Unpickler):
    """Builds dictionaries, lists, numbers, byte strings and :data:`STAND_INS`; nothing else is looked up or called."""

    def find_class(self, module: str, name: str) -> type:
        return STAND_INS.get((module, name)) or self._refuse(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        self._refuse("an object stored elsewhere")

    def _refuse(self, what: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {what}, and is not executed")
