"""Damaged files and odd configurations: one line and a status, never a traceback, never anything executed."""

import contextlib
import io
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from short_run import OFF, fit

from grok_lightning.__main__ import run
from grok_lightning.audit_sources import Source, read_series
from grok_lightning.errors import ConfigError
from grok_lightning.refusals import read_checkpoint
from grok_lightning.sweep.spec import read_sweep

FILES = ("metrics.jsonl", "summary.json", "config.yaml", "provenance.json")
ODD = [
    "", "null", "{}", "[]", "-1", "1e999", "NaN", '"x"', "a: [", "\x00", "\ud7ff", '{"step": null}', '{"step": "x"}',
    '{"step": -1, "val/acc": 2}', '{"step": 1e400}', "!!python/object/apply:os.system ['touch owned']", "&a [*a]",
    "&a {b: *a}",
]  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run directory and a copy of it that may be spoilt."""
    directory = tmp_path_factory.mktemp("fuzz")
    with contextlib.chdir(directory), contextlib.redirect_stdout(io.StringIO()):
        path = fit("--spectrum.every_n_steps=10", "--health.every_n_steps=10", run_id="run").path.resolve()
    shutil.copytree(path, directory / "spoilt")
    return path, directory / "spoilt"


@st.composite
def damage(draw):
    """A file, and what happens to its bytes: cut, flipped, something put in, a value replaced, or gone."""
    name, how = draw(st.sampled_from(FILES)), draw(st.sampled_from(["cut", "flip", "insert", "line", "value", "gone"]))
    return name, how, draw(st.floats(0, 1, exclude_max=True)), draw(st.sampled_from(ODD)), draw(st.integers(1, 255))


def spoil(content, how, at, text, mask):
    if how == "gone":
        return None
    i, word = int(at * len(content)), text.encode()
    if how == "cut":
        return content[:i]
    if how == "flip":
        return content[:i] + bytes([content[i] ^ mask]) + content[i + 1 :]
    if how == "insert":
        return content[:i] + word + content[i:]
    lines = content.split(b"\n")
    i = int(at * len(lines))
    if how == "value":
        key, colon, _ = lines[i].partition(b":")
        word = key + colon + b" " + word + (b"," if lines[i].endswith(b",") else b"")
    return b"\n".join([*lines[:i], word, *lines[i + 1 :]])


def told(*words):
    """Status, and what was said on stderr, of a job; whatever it raises is a failure of the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = run([str(word) for word in words])
    return status, err.getvalue()


def one_line(status, err):
    errors = [line for line in err.splitlines() if "error" in line]
    return "Traceback" not in err and (status == 0 or (status in (1, 2) and len(errors) == 1))


def fuzz(n):
    return settings(
        max_examples=n, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )


def some_and_many(few, many):
    return pytest.mark.parametrize("n", [few, pytest.param(many, marks=pytest.mark.slow)])


def with_spoilt(whole, n, check):
    original, spoilt = whole

    @fuzz(n)
    @given(damage())
    def property_(broken):
        name, *rest = broken
        content = spoil((original / name).read_bytes(), *rest)
        if content is None:
            (spoilt / name).unlink()
        else:
            (spoilt / name).write_bytes(content)
        try:
            check(spoilt)
            assert not Path("owned").exists()
        finally:
            (spoilt / name).write_bytes((original / name).read_bytes())

    property_()


@some_and_many(250, 10_000)
def test_audit_reads_any_file(whole, n):
    def check(spoilt):
        status, err = told("audit", spoilt)
        assert one_line(status, err), err

    with_spoilt(whole, n, check)


@some_and_many(10, 3000)
def test_compare_reads_any_file(whole, n):
    def check(spoilt):
        status, err = told("compare", whole[0], spoilt, "--by", "model.c", "--draws", 2000)
        assert one_line(status, err), err

    with_spoilt(whole, n, check)


@pytest.mark.slow
def test_report_reads_any_file(whole):
    def check(spoilt):
        status, err = told("report", spoilt, "--out", "page")
        assert one_line(status, err), err

    with_spoilt(whole, 60, check)


@some_and_many(8, 1000)
def test_resuming_reads_any_file(whole, n):
    def check(spoilt):
        kept = {path: path.read_bytes() for path in spoilt.rglob("*") if path.is_file()}
        status, err = told("fit", "--resume", spoilt)  # it is completed: nothing is left to do, whatever is wrong
        if status != 0:
            assert one_line(status, err), err
            assert {path: path.read_bytes() for path in spoilt.rglob("*") if path.is_file()} == kept

    with_spoilt(whole, n, check)


@some_and_many(1000, 10_000)
def test_a_spoilt_checkpoint_is_refused_or_whole(whole, n):
    content = (whole[0] / "checkpoints" / "last.ckpt").read_bytes()
    weights = torch.load(io.BytesIO(content), weights_only=True, map_location="meta")["state_dict"].keys()

    @fuzz(n)
    @given(st.sampled_from(["cut", "flip", "insert"]), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
    def property_(how, at, mask):
        Path("spoilt.ckpt").write_bytes(spoil(content, how, at, "x", mask))
        with contextlib.suppress(ConfigError):
            assert read_checkpoint("spoilt.ckpt")["state_dict"].keys() == weights

    property_()


def csv_file():
    lines = [f"{10 * i},{i % 3},{i / 30},{50 - i}" for i in range(30)]
    return "\n".join(["step,seed,acc,rank", *lines]).encode()


def npz_file():
    steps = np.arange(0, 300, 10)
    np.savez("whole.npz", step=steps, acc=steps / 300 + np.zeros((2, 1)), rank=50 - steps / 10 + np.zeros((2, 1)))
    return Path("whole.npz").read_bytes()


READERS = {
    "csv": (csv_file, lambda path: read_series(path, Source(seed="seed"))),
    "npz": (npz_file, lambda path: read_series(path, Source())),
    "yaml": (lambda: (ROOT / "sweeps" / "c_random.yaml").read_bytes(), read_sweep),
}


@some_and_many(500, 20_000)
@pytest.mark.parametrize("kind", READERS)
def test_readers_refuse_or_read(kind, n):
    make, read = READERS[kind]
    content, path = make(), Path(f"spoilt.{kind}")
    read_whole = path.write_bytes(content) and read(path)
    assert read_whole

    @fuzz(n)
    @given(damage())
    def property_(broken):
        _, how, at, text, mask = broken
        path.write_bytes(spoil(content, how, at, text, mask) or b"")
        with contextlib.suppress(ConfigError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
        assert not Path("owned").exists()

    property_()


NUMBERS = st.one_of(
    st.integers(-2, 12), st.sampled_from([0.0, 0.5, 1e-3, -1.0, 1e30, 1e-30, float("nan"), float("inf")]),
    st.sampled_from(["", "null", "x", "true", "[]", "{}", "../up", "é", "-", "1e3"]),
)  # fmt: skip
FLAGS = (
    "data.p", "data.batch_size", "data.frac_train", "data.split", "data.sampler", "data.task", "data.order_seed",
    "model.lr", "model.c", "model.weight_decay", "model.optimizer", "model.momentum", "model.d_model", "model.depth",
    "model.warmup_steps", "model.gradient.grokfast", "model.gradient.window", "model.clamp.norm", "model.loss",
    "trainer.val_check_interval", "trainer.log_every_n_steps", "trainer.precision", "trainer.gradient_clip_val",
    "trainer.accumulate_grad_batches", "grokking.grok_threshold", "spectrum.every_n_steps", "hessian.every_n_steps",
    "checkpoint.every_n_steps", "numerics.nonfinite", "record.run_id", "record.experiment", "seed_everything",
)  # fmt: skip
WORDS = ["adamw", "sgd", "muon", "ema", "ma", "mse", "stablemax", "balanced", "replacement", "uniform", "full", "skip",
         "subtraction", "multiplication", "64-true", "bf16-mixed"]  # fmt: skip


@some_and_many(10, 1500)
def test_a_configuration_trains_three_steps_or_is_refused_in_one_line(n):
    @fuzz(n)
    @given(st.dictionaries(st.sampled_from(FLAGS), NUMBERS | st.sampled_from(WORDS), max_size=3))
    def property_(changed):
        flags = [f"--{name}={value}" for name, value in changed.items()]
        small = ["--data.p=5", "--data.batch_size=4", "--model.d_model=4", "--trainer.max_steps=3", *OFF]
        quiet = ["--trainer.logger=false", "--trainer.enable_progress_bar=false", "--record.root=made"]
        status, err = told("fit", "--model", "EmbeddingMLP", *small, *quiet, *flags)
        made = list(Path("made").glob("*/*/summary.json"))
        assert one_line(status, err), err
        assert (len(made) == 1) == (status == 0 or "numerics: " in err), err
        if status == 0:
            assert json.loads(made[0].read_text())["steps"] == 3
        assert {path.name for path in Path().iterdir()} <= {"made"}
        shutil.rmtree("made", ignore_errors=True)

    property_()
