"""Checkpoint files that can be read, and are yet no checkpoints to go on from: one line, and they stay."""

import shutil
from pathlib import Path

import pytest
import torch
from killed import RUNS
from short_run import fit

from grok_lightning import saved
from grok_lightning.errors import ConfigError

WHOLE = {
    "global_step": 4,
    "pytorch-lightning_version": "2.6.6",
    "optimizer_states": [{"state": {}, "param_groups": []}],
    "lr_schedulers": [],
    "callbacks": {"Grokking": {}},
    "loops": {"fit_loop": {}},
}


def test_what_training_writes_can_be_gone_on_from():
    saved.check_resumable(WHOLE, "here:")
    saved.check_resumable(fit(steps=2).checkpoint, "here:")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *((part, None) for part in WHOLE),
        ("global_step", -1),
        ("global_step", True),
        ("global_step", torch.tensor(4)),
        ("optimizer_states", []),
        ("optimizer_states", [{"state": {}}]),
        ("callbacks", {"Grokking": 3}),
        ("loops", {}),
    ],
)
def test_what_is_missing_or_odd_is_named(part, value):
    with pytest.raises(ConfigError, match=f"here: training cannot go on from it: its {part} is"):
        saved.check_resumable({**WHOLE, part: value}, "here:")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "E is not in it"),
        ({"E": torch.zeros(2, 3), "F": torch.zeros(1)}, "F is unknown to this model"),
        ({"E": torch.zeros(6)}, r"E has shape \(6,\), this model's \(2, 3\)"),
        ({"E": torch.zeros(2, 3, dtype=torch.int64)}, "E is torch.int64, this model's torch.float32"),
    ],
)
def test_weights_of_another_model(weights, message):
    saved.check_fits({"E": torch.ones(2, 3, dtype=torch.float64)}, {"E": torch.zeros(2, 3)}, "here:")
    with pytest.raises(ConfigError, match=message):
        saved.check_fits(weights, {"E": torch.zeros(2, 3)}, "here:")


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("grok_lightning_version", "soon", "its version is 'soon'"),
        ("hyper_parameters", [1], "is no checkpoint of this program"),
        ("state_dict", [1], "has no state_dict of tensors"),
        ("state_dict", {"net.E": "E"}, "has no state_dict of tensors"),
        ("state_dict", {}, "does not fit the model"),
        ("optimizer_states", [], "its optimizer_states is missing or damaged"),
    ],
)
def test_such_a_file_is_refused_by_every_job_and_stays(cli, part, value, message):
    run = fit(steps=4)
    file = run.path / "checkpoints" / "last.ckpt"
    torch.save({**run.checkpoint, part: value}, file)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    jobs = [("fit", "--resume", run.path, "--trainer.max_steps", 6)]
    if part != "optimizer_states":
        jobs += [("validate", "--config", run.path / "config.yaml", "--ckpt_path", file)]
    for job in jobs:
        done = cli(*job)
        assert (done.status, done.err.count("\n")) == (2, 1), done.err
        assert message in done.err
        assert "last.ckpt" in done.err
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def spoilt(file, name):
    """A copy whose weight of this name has one bit that is not what it was."""
    content = bytearray(file.read_bytes())
    at = content.find(torch.load(file, weights_only=True)["state_dict"][name].numpy().tobytes()[:16])
    assert at > 0
    content[at] ^= 1
    Path("spoilt.ckpt").write_bytes(content)
    return Path("spoilt.ckpt")


def test_a_transferred_embedding_is_whole(cli):
    run = fit(steps=2)
    file = run.path / "checkpoints" / "last.ckpt"
    flags = ["fit", "--model", "EmbeddingMLP", "--model.d_model=4", "--data.p=11", "--data.batch_size=9"]
    state = run.checkpoint["state_dict"]
    for E, message in (
        (None, "is damaged (checksum of"),
        (torch.zeros(13 * 4), "its embedding is no matrix of real numbers"),
        (state["net.E"].long(), "its embedding is no matrix of real numbers"),
        (state["net.E"] * float("nan"), "its embedding is not finite"),
        ("E", "is no checkpoint, it has no state_dict of tensors"),
    ):
        if E is None:
            source = spoilt(file, "net.E")
        else:
            source = Path("odd.ckpt")
            torch.save({"state_dict": {**state, "net.E": E}}, source)
        done = cli(*flags, f"--model.embedding.source={source}", "--record.root=other")
        assert (done.status, done.err.count("\n")) == (2, 1), done.err
        assert f"model.embedding.source = '{source}': {message}" in done.err
    factors = {"net.E_left": torch.zeros(13, 2), "net.E_right": torch.zeros(3, 4)}
    torch.save({"state_dict": factors}, "odd.ckpt")
    assert "do not fit each other" in cli(*flags, "--model.embedding.source=odd.ckpt", "--record.root=other").err
    assert not Path("other").exists()


@pytest.mark.parametrize("content", ['{"torch": ', "[1]", '{"resumed": 3}'])
def test_a_damaged_provenance_is_named_and_stays(cli, content):
    run = fit(steps=2)
    (RUNS / "run" / "provenance.json").write_text(content)
    done = cli("fit", "--resume", run.path, "--trainer.max_steps", 4)
    assert (done.status, done.err.count("\n")) == (2, 1), done.err
    assert "provenance.json cannot be read" in done.err
    assert (run.path / "provenance.json").read_text() == content
    shutil.move(run.path / "provenance.json", "aside.json")
    assert cli("fit", "--resume", run.path, "--trainer.max_steps", 4).status == 0
    assert (run.path / "provenance.json").exists()
