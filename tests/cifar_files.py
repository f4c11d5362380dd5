"""Archives in the form of the official ones: tar.gz of protocol 2 pickles as Python 2 wrote them."""

import hashlib
import io
import pickle
import struct
import tarfile
from dataclasses import replace

import numpy as np

from grok_lightning.data import archives


class Python2Pickler(pickle._Pickler):
    """Byte strings as Python 2's str, and numpy's array maker by the name that it had."""

    dispatch = dict(pickle._Pickler.dispatch)  # noqa: RUF012 - pickle's own class has it so

    def save_bytes(self, value):
        short = len(value) < 256
        head = (
            pickle.SHORT_BINSTRING + bytes([len(value)]) if short else pickle.BINSTRING + struct.pack("<i", len(value))
        )
        self.write(head + value)
        self.memoize(value)

    def save_global(self, obj, name=None):
        if getattr(obj, "__name__", "") == "_reconstruct":
            self.write(pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n")
            self.memoize(obj)
        else:
            super().save_global(obj, name)

    dispatch[bytes] = save_bytes
    dispatch[type(lambda: 0)] = save_global
    dispatch[type(len)] = save_global


def pickled(content):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(content)
    return file.getvalue()


def images(n, seed):
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def member(n, labels_key, n_classes, seed):
    labels = [int(label) for label in np.random.default_rng(seed + 100).integers(0, n_classes, n)]
    return {b"batch_label": b"batch", labels_key: labels, b"data": images(n, seed), b"filenames": [b"a.png"] * n}


def write(path, members):
    """A tar.gz of members: name → bytes, or a finished TarInfo."""
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            data = b"" if isinstance(content, tarfile.TarInfo) else content
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def make(folder, source="cifar10", n_train=(20, 20, 20, 20, 20), n_test=30, **replaced):
    """An archive of random images; members can be replaced by other bytes."""
    archive = archives.ARCHIVES[source]
    sizes = dict(zip(archive.train, n_train, strict=False)) | dict.fromkeys(archive.test, n_test)
    if source == "cifar100":
        sizes[archive.train[0]] = sum(n_train)
    members = {
        name: pickled(member(n, archive.labels, archive.n_classes, seed))
        for seed, (name, n) in enumerate(sizes.items())
    }
    members |= {next(name for name in members if name.endswith(short)): new for short, new in replaced.items()}
    folder.mkdir(exist_ok=True)
    path = folder / archive.name
    write(path, members)
    return path


def declare_official(monkeypatch, path, source="cifar10", **changes):
    """Let the checksum of a file be the official one."""
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setitem(archives.ARCHIVES, source, replace(archives.ARCHIVES[source], md5=md5, **changes))
