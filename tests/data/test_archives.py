"""CIFAR archives: what they hold arrives, what they must not hold is refused and never executed."""

import pickle
import pickletools
import tarfile
from pathlib import Path

import cifar_files
import numpy as np
import pytest
import torch

from grok_lightning.data.archives import ARCHIVES, locate, read
from grok_lightning.errors import ConfigError

CIFAR10, CIFAR100 = ARCHIVES["cifar10"], ARCHIVES["cifar100"]


class Evil:
    """Creates a file as soon as an ordinary unpickler reads it."""

    def __reduce__(self):
        return Path.touch, (Path("executed"),)


@pytest.mark.parametrize(("source", "n_classes"), [("cifar10", 10), ("cifar100", 100)])
def test_images_and_labels_arrive_in_their_order(tmp_path, source, n_classes):
    archive, path = ARCHIVES[source], cifar_files.make(tmp_path, source)
    (train, labels), (test, test_labels) = read(archive, path)
    assert (train.shape, train.dtype, test.shape) == ((100, 3, 32, 32), torch.uint8, (30, 3, 32, 32))
    written = (
        [cifar_files.images(20, seed) for seed in range(5)] if source == "cifar10" else [cifar_files.images(100, 0)]
    )
    assert np.array_equal(train.numpy().reshape(100, 3072), np.concatenate(written))
    # the planes are red, green, blue, each row by row (the archives' page)
    assert train[7, 1, 2, 3] == np.concatenate(written)[7, 1024 + 2 * 32 + 3]
    first = cifar_files.member(20 if source == "cifar10" else 100, archive.labels, n_classes, 0)[archive.labels]
    assert labels[: len(first)].tolist() == first
    assert len(test_labels) == 30


def test_the_test_files_have_the_form_of_python_2():
    content = cifar_files.pickled(cifar_files.member(2, b"labels", 10, 0))
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(content)}
    assert {"PROTO", "SHORT_BINSTRING", "BINSTRING", "GLOBAL", "BUILD"} <= opcodes
    assert b"numpy.core.multiarray\n_reconstruct" in content
    assert not {"SHORT_BINBYTES", "BINBYTES", "STACK_GLOBAL"} & opcodes


def test_an_array_in_column_order(tmp_path):
    data = cifar_files.member(20, b"labels", 10, 0)
    data[b"data"] = np.asfortranarray(data[b"data"])
    (train, _), _ = read(CIFAR10, cifar_files.make(tmp_path, data_batch_1=cifar_files.pickled(data)))
    assert np.array_equal(train[:20].numpy().reshape(20, 3072), cifar_files.images(20, 0))


@pytest.mark.parametrize("where", ["top", "data", "label", "dtype"])
def test_a_malicious_pickle_is_refused_and_never_executed(tmp_path, where):
    content = cifar_files.member(20, b"labels", 10, 0)
    if where == "top":
        content[b"more"] = Evil()
    elif where == "data":
        content[b"data"] = Evil()
    elif where == "label":
        content[b"labels"][3] = Evil()
    else:
        content[b"data"] = np.full((20, 3072), Evil(), dtype=object)
    bad = pickle.dumps(content, protocol=2)
    path = cifar_files.make(tmp_path / "data", test_batch=bad)
    with pytest.raises(ConfigError, match=r"test_batch .*(asks for .*, and is not executed|not of bytes)"):
        read(CIFAR10, path)
    assert not Path("executed").exists()
    pickle.loads(bad)  # it would have been
    assert Path("executed").exists()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"", "does not hold what it should"),
        (b"\x80\x02]q\x00.", "does not hold what it should"),
        (cifar_files.pickled({b"data": b"", b"labels": []}), "no array of 3072 columns"),
        (cifar_files.pickled(cifar_files.member(20, b"labels", 11, 3) | {b"labels": [10] * 20}), "from 0 to 9"),
        (cifar_files.pickled(cifar_files.member(9, b"labels", 10, 3) | {b"labels": [1] * 8}), "no list of 9 numbers"),
        (cifar_files.pickled({b"data": np.zeros((2, 3072)), b"labels": [0, 0]}), "'f8', not of bytes"),
        (b"\x80\x02cos\nsystem\nq\x00U\x04trueq\x01\x85R.", "asks for os.system"),
        (b"\x80\x02U\x01aQ.", "stored elsewhere"),
    ],
)  # fmt: skip
def test_other_contents_are_one_line(tmp_path, bad, message):
    with pytest.raises(ConfigError, match=message) as error:
        read(CIFAR10, cifar_files.make(tmp_path, data_batch_2=bad))
    assert "cifar-10-batches-py/data_batch_2" in str(error.value)


def test_nothing_is_written_whatever_the_members_are_called(tmp_path):
    folder = tmp_path / "data"
    path = cifar_files.make(folder)
    with tarfile.open(path) as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar}
    cifar_files.write(path, {"../outside": b"x", f"{tmp_path}/absolute": b"x", **members})
    read(CIFAR10, path)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [path.name]
    link = tarfile.TarInfo("cifar-10-batches-py/test_batch")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    cifar_files.write(path, members | {link.name: link})
    with pytest.raises(ConfigError, match=r"test_batch in cifar-10-python.tar.gz is not a file"):
        read(CIFAR10, path)


def test_no_archive_or_half_of_one(tmp_path):
    path = cifar_files.make(tmp_path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ConfigError, match=r"cannot be read as a tar.gz"):
        read(CIFAR10, path)
    path.write_bytes(b"<html>")
    with pytest.raises(ConfigError, match=r"cannot be read as a tar.gz"):
        read(CIFAR10, path)
    cifar_files.write(path, {"cifar-10-batches-py/data_batch_1": b""})
    with pytest.raises(ConfigError, match=r"data_batch_1|data_batch_2"):
        read(CIFAR10, path)


def test_the_official_facts_and_what_is_said_where_the_file_is_missing(tmp_path):
    assert CIFAR10.md5 == "c58f30108f718f92721af3b95e74349a"  # both from the archives' page
    assert CIFAR100.md5 == "eb9058c3a382ffc7106e4002c42a8d85"
    with pytest.raises(ConfigError, match=r"has no file cifar-100-python.tar.gz; get it from https://www.cs.toronto"):
        locate(CIFAR100, tmp_path, download=False, verify=True)


def test_another_checksum_is_refused_unless_asked_for(tmp_path):
    path = cifar_files.make(tmp_path)
    with pytest.raises(ConfigError, match=r"is not the official file \(MD5 [0-9a-f]{32}, which has c58f"):
        locate(CIFAR10, tmp_path, download=False, verify=True)
    assert locate(CIFAR10, tmp_path, download=False, verify=False) == path


def test_download(tmp_path, monkeypatch):
    source, folder = cifar_files.make(tmp_path / "elsewhere"), tmp_path / "data"
    cifar_files.declare_official(monkeypatch, source, url=source.as_uri())
    good = ARCHIVES["cifar10"]
    path = locate(good, folder, download=True, verify=True)
    assert path.read_bytes() == source.read_bytes()
    assert [p.name for p in folder.iterdir()] == [good.name]
    path.unlink()
    with source.open("ab") as file:  # it comes damaged
        file.write(b"x")
    with pytest.raises(ConfigError, match=r"is not the official file"):
        locate(good, folder, download=True, verify=True)
    source.unlink()
    with pytest.raises(ConfigError, match=r"data.download = True: file:.* cannot be fetched"):
        locate(good, folder, download=True, verify=True)
    assert list(folder.iterdir()) == []
