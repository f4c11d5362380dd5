"""The hash that names a run, by the parser that the run itself uses."""

import hashlib
import json

import pytest
from tiny_sweep import make_sweep

from grok_lightning.cli import resolver
from grok_lightning.errors import ConfigError
from grok_lightning.sweep.configuration import Planner, config_hash

BASE = ["fit", "--model", "EmbeddingMLP", "--data.p", "11"]


@pytest.fixture(scope="module")
def hash_of():
    resolve = resolver()
    return lambda *flags, base=BASE: config_hash(resolve([*base, *flags]))


@pytest.mark.parametrize(
    "flags",
    [
        ["--model.c=10", "--data.batch_size=16"],
        ["--model.c=1e1", "--data.batch_size=16"],
        ["--model.c", "10.0", "--data.batch_size", "16"],
        ["--data.batch_size=16", "--model.init_args.c=10"],
        ["--data.batch_size=7", "--model.c=10", "--data.batch_size=16"],
        ["--model.c=10", "--data.batch_size=16", "--model.betas=[0.9, 0.999]"],  # a default, written out
        ["--model.c=10", "--data.batch_size=16", "--record.root=x", "--record.run_id=y", "--trainer.logger=false"],
        ["--model.c=10", "--data.batch_size=16", "--trainer.default_root_dir=x"],
        ["--model.c=10", "--data.batch_size=16", "--trainer.enable_progress_bar=false"],
    ],
)
def test_the_hash_does_not_depend_on_spelling_or_place(hash_of, flags):
    assert hash_of(*flags) == hash_of("--model.c=10", "--data.batch_size=16")


def test_the_hash_does_not_depend_on_where_a_value_is_written(hash_of, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("model: {class_path: EmbeddingMLP, init_args: {c: 3}}\ndata: {p: 11}\n")
    assert hash_of(base=["fit", "--config", str(path)]) == hash_of("--model.c=3")


def test_the_hash_does_not_depend_on_nested_files(hash_of, tmp_path):
    (tmp_path / "mlp.yaml").write_text("class_path: EmbeddingMLP\ninit_args: {c: 3}\n")
    path = tmp_path / "a.yaml"
    path.write_text("model: mlp.yaml\ndata: {p: 11}\n")
    assert hash_of(base=["fit", "--config", str(path)]) == hash_of("--model.c=3")


@pytest.mark.parametrize(
    "flag",
    ["--model.c=11", "--data.split_seed=1", "--seed_everything=1", "--trainer.max_steps=7", "--hessian.k=2"],
)
def test_the_hash_depends_on_every_setting(hash_of, flag):
    assert hash_of(flag) != hash_of()


def test_the_hash_is_sha256_of_canonical_json():
    resolved = {
        "trainer": {"max_steps": 5, "logger": None, "default_root_dir": "x", "enable_progress_bar": True},
        "config": ["a.yaml"],
        "record": {"root": "runs"},
        "model": {"c": 1.0, "betas": (0.9, 0.99)},
    }
    text = '{"model":{"betas":[0.9,0.99],"c":1.0},"trainer":{"max_steps":5}}'
    assert json.loads(text)  # written by hand, and JSON
    assert config_hash(resolved) == hashlib.sha256(text.encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model.cc": 3}, "'cc' is not accepted"),
        ({"model.c": "ten"}, "ten"),
        ({"modle.c": 1}, "modle.c"),
        ({"seed_everything": -1}, "seed_everything = -1"),
    ],
)
def test_what_fit_would_refuse_is_refused_with_its_values(values, words):
    planner = Planner(make_sweep("grid", [], command=BASE[1:]), [])
    with pytest.raises(ConfigError) as error:
        planner.plan(values)
    assert words in str(error.value)
    assert f"--{next(iter(values))}=" in str(error.value)


def test_a_mistake_does_not_stick_to_the_next_configuration():
    planner = Planner(make_sweep("grid", [], command=BASE[1:]), [])
    with pytest.raises(ConfigError, match="depth"):
        planner.plan({"model.depth": 6, "model": "Transformer"})  # a change of model that drops a setting
    assert planner.plan({"model.c": 1}).max_steps == 3000
