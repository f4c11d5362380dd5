"""Images as data: splits, normalisation, batches, and what is refused."""

import sys
from types import SimpleNamespace

import cifar_files
import pytest
import torch
from sklearn.datasets import load_digits

from grok_lightning.data import images as module
from grok_lightning.data.images import ImageDataModule, channel_statistics
from grok_lightning.errors import ConfigError


def attached(data, rank=0, world_size=1):
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    data.trainer = SimpleNamespace(strategy=strategy, global_rank=rank, world_size=world_size)
    return data


def cifar(folder, source="cifar10", **settings):
    cifar_files.make(folder, source)
    return ImageDataModule(source, str(folder), verify=False, **{"batch_size": 16, **settings})


def test_the_digits_are_those_of_scikit_learn():
    data = ImageDataModule()
    true = load_digits()
    assert data.inputs.shape == (1797, 1, 8, 8)
    assert data.inputs.dtype == torch.uint8
    assert torch.equal(data.inputs[:, 0].double(), torch.from_numpy(true.images))
    assert data.labels.tolist() == true.target.tolist()
    assert data.sizes == {"n_classes": 10, "image_size": 8, "channels": 1}
    parts = [data.rows(part) for part in ("train_full", "val", "test")]
    assert [len(part) for part in parts] == [1000, 200, 597]
    assert sorted(torch.cat(parts).tolist()) == list(range(1797))


def test_splits_follow_their_seed_alone():
    one, two = ImageDataModule(order_seed=5).split, ImageDataModule(order_seed=6).split
    assert one.digest() == two.digest() != ImageDataModule(split_seed=1).split.digest()
    fewer = ImageDataModule(n_train=300, n_val=0)
    assert torch.equal(fewer.split.test, one.test)
    assert (len(fewer.split.train), len(fewer.split.val)) == (300, 0)
    assert not set(fewer.split.train.tolist()) & set(one.test.tolist())


@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
def test_the_test_set_of_cifar_is_the_official_one(tmp_path, source):
    data = cifar(tmp_path / "data", source)
    assert data.sizes == {"n_classes": 10 if source == "cifar10" else 100, "image_size": 32, "channels": 3}
    assert data.split.test.tolist() == list(range(100, 130))
    assert data.split.train.tolist() == list(range(100))
    assert len(data.split.val) == 0
    assert len(attached(data).val_dataloader()) == 2
    held = cifar(tmp_path / "data", source, n_val=30)
    assert (len(held.split.train), len(held.split.val)) == (70, 30)
    assert set(held.split.train.tolist()) | set(held.split.val.tolist()) == set(range(100))


def test_normalised_by_the_training_set_per_channel(tmp_path):
    data = attached(cifar(tmp_path / "data", n_val=10))
    train, _ = data.on_device(data.split.train)
    raw = data.inputs[data.split.train].double()
    assert torch.allclose(data.mean, raw.mean((0, 2, 3)), rtol=1e-12)
    assert torch.allclose(data.std, raw.std((0, 2, 3), correction=0), rtol=1e-12)
    assert train.dtype == torch.float32
    assert train.mean((0, 2, 3)).abs().max() < 1e-5
    assert (train.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-5
    test, _ = data.on_device(data.split.test)  # by the statistics of training, not its own
    assert torch.allclose(test[4, 1], (data.inputs[data.split.test][4, 1] - data.mean[1].float()) / data.std[1].float())


def test_a_constant_channel_becomes_zero():
    mean, std = channel_statistics(torch.full((3, 1, 2, 2), 7, dtype=torch.uint8))
    assert (float(mean), float(std)) == (7.0, 1.0)


def test_batches_are_converted_rows_of_the_training_set():
    data = attached(ImageDataModule(batch_size=300, order_seed=3))
    loader = data.train_dataloader()
    assert loader.tokens.dtype == torch.uint8  # floats are made when a batch is cut
    batches = list(loader)
    assert [len(batch.labels) for batch in batches] == [300, 300, 300, 100]
    rows = data.split.train[data.batch_order().epoch(0)]
    images, labels = data.on_device(rows)
    assert torch.equal(torch.cat([batch.tokens for batch in batches]), images)
    assert torch.equal(torch.cat([batch.labels for batch in batches]), labels)
    shards = [next(iter(attached(ImageDataModule(batch_size=300), r, 2).train_dataloader())) for r in (0, 1)]
    assert sum(len(shard.labels) for shard in shards) == 300
    again = data.train_dataloader()
    again.load_state_dict({"step": 2})
    assert torch.equal(next(iter(again)).tokens, batches[2].tokens)


def test_evaluations_go_through_a_part_piece_by_piece(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 250)
    data = attached(ImageDataModule())
    train, val, test = data.val_dataloader()
    assert ([len(loader) for loader in (train, val, test)]) == [4, 1, 3]
    batches = list(test)
    assert {batch.part for batch in batches} == {"test"}
    assert torch.equal(torch.cat([batch.tokens for batch in batches]), data.on_device(data.split.test)[0])
    assert sum(len(batch.labels) for batch in data.predict_dataloader()) == 1797


def test_measurements_see_a_subset_that_is_drawn_once():
    data = ImageDataModule(n_measured=64)
    assert len(data.measured_rows()) == 64
    assert set(data.measured_rows().tolist()) < set(data.split.train.tolist())
    assert torch.equal(data.measured_rows(), ImageDataModule(n_measured=64).measured_rows())
    assert torch.equal(ImageDataModule(n_measured=None).measured_rows(), data.split.train)
    assert data.describe()["n_measured"] == 64
    assert data.describe()["n_rows"] == {"all": 1797, "train": 1000, "val": 200, "test": 597}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "mnist"}, "data.source = 'mnist': must be digits, cifar10 or cifar100"),
        ({"download": True}, "data.download = True: is for CIFAR"),
        ({"n_test": 0}, "data.n_test = 0: must be from 1 to 1796"),
        ({"n_val": 1200}, "data.n_val = 1200: must be from 0 to 1199"),
        ({"n_train": 1001}, "data.n_train = 1001: must be from 1 to 1000"),
        ({"n_measured": 0}, "data.n_measured = 0: must be 1 or more"),
        ({"batch_size": 1001}, "data.batch_size = 1001: must be from 1 to 1000"),
        ({"split_seed": -1}, "data.split_seed = -1"),
        ({"source": "cifar10", "folder": "none"}, "data.folder = 'none': has no file cifar-10-python.tar.gz"),
        ({"source": "cifar10", "n_test": 9}, "data.n_test = 9: is for the digits"),
    ],
)  # fmt: skip
def test_what_is_refused(settings, message):
    with pytest.raises(ConfigError) as error:
        ImageDataModule(**settings)
    assert message in str(error.value)


def test_without_scikit_learn_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ConfigError, match=r"needs scikit-learn.*pip install 'grok_lightning\[vision\]'"):
        ImageDataModule()
