"""``fit --resume``: a run that was stopped ends as if it had not been."""

import fcntl
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml
from killed import RUNS, assert_same, complete, entries, seeded, stop, stop_often, words
from short_run import fit

STEPS = ["--trainer.val_check_interval", 10]


def resume(cli, run, *flags):
    return cli("fit", "--resume", run, *flags)


@pytest.mark.parametrize("last", [(signal.SIGTERM, 143), pytest.param((signal.SIGINT, 130), marks=pytest.mark.slow)])
def test_a_stopped_run_ends_as_if_it_had_not_been(last):
    complete(words("whole", steps=600))
    run, command = RUNS / "stopped", words("stopped", steps=600)
    for signum, status in ((signal.SIGKILL, -signal.SIGKILL), last):
        assert stop(command, run, signum, 0.3) == status
        command = ["fit", "--resume", run]
        if signum != signal.SIGKILL:
            summary = json.loads((run / "summary.json").read_text())
            checkpoint = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
            assert summary["status"] == "interrupted"
            assert summary["steps"] == checkpoint["global_step"] < 600
    complete(command)
    assert_same(RUNS / "whole", run)
    provenance = json.loads((run / "provenance.json").read_text())
    assert len({provenance["process"], *(later["process"] for later in provenance["resumed"])}) == 3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", ["EmbeddingMLP", "EmbeddingFreeMLP", "Transformer"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_run_stopped_at_ten_random_moments(model, optimizer):
    flags = [f"--model.optimizer={optimizer}", "--model.lr=0.003"]
    complete(words("whole", *flags, model=model, steps=3000))
    stop_often(words("often", *flags, model=model, steps=3000), RUNS / "often", 10, seeded(model + optimizer), 1.0)
    assert_same(RUNS / "whole", RUNS / "often")


@pytest.mark.ddp
@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_two_processes_stop_and_resume(signum):
    two = ["--trainer.strategy=ddp", "--trainer.devices=2", "--trainer.accelerator=cpu", "--data.batch_size=15"]
    complete(words("whole", *two, steps=400))
    status = stop(words("stopped", *two, steps=400), RUNS / "stopped", signum, 0.3)
    assert status == {signal.SIGTERM: 143, signal.SIGINT: 130}[signum]
    assert 0 < json.loads((RUNS / "stopped" / "summary.json").read_text())["steps"] < 400
    complete(["fit", "--resume", RUNS / "stopped"])
    assert_same(RUNS / "whole", RUNS / "stopped")


def test_a_run_stopped_before_its_first_checkpoint_starts_over(cli):
    whole = fit(run_id="whole")
    part = fit("--trainer.max_steps", 7, run_id="part")
    shutil.rmtree(part.path / "checkpoints")
    (part.path / "checkpoints").mkdir()
    (part.path / "summary.json").unlink()
    assert resume(cli, part.path, "--trainer.max_steps", 20).status == 0
    assert sorted(entries(part.path)) == sorted(entries(whole.path))


def test_a_completed_run_goes_on(cli):
    whole = fit(*STEPS, steps=60, run_id="whole")
    run = fit(*STEPS, steps=20, run_id="short")
    assert "is completed; give a larger --trainer.max_steps" in resume(cli, run.path).err
    done = resume(cli, run.path, "--trainer.max_steps", 60)
    assert done.status == 0, done.err
    assert_weights(whole.path, run.path)
    assert whole.series("val/acc") == {s: a for s, a in fit_series(run.path, "val/acc").items()}
    assert "max_steps: 60" in (run.path / "config.yaml").read_text()
    config = yaml.safe_load((run.path / "config.yaml").read_text())
    assert config.get("ckpt_path") is None
    assert config["record"]["root"] == "runs"


def assert_weights(one, other):
    states = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for run in (one, other)]
    assert all(torch.equal(w, states[1][name]) for name, w in states[0].items())


def fit_series(run, key):
    return {step: json.loads(value) for step, name, value in entries(run) if name == key}


def test_a_run_directory_may_be_moved(cli):
    run = fit(*STEPS, steps=20, run_id="short")
    Path("elsewhere").mkdir()
    moved = run.path.rename("elsewhere/other")
    assert resume(cli, moved, "--trainer.max_steps", 40).status == 0
    assert 40 in fit_series(moved, "val/acc")
    assert not run.path.exists()


def test_what_a_torn_record_holds_beyond_the_checkpoint_is_logged_once(cli):
    whole = fit(*STEPS, "--trainer.log_every_n_steps", 1, steps=40, run_id="whole")
    run = fit(*STEPS, "--trainer.log_every_n_steps", 1, steps=20, run_id="torn")
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "train/loss": 9.0}\n{"step": 22, "train/lo')
    assert resume(cli, run.path, "--trainer.max_steps", 40).status == 0
    assert fit_series(run.path, "train/loss") == fit_series(whole.path, "train/loss")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model.c", 4], "model.c = 4.0: the run was started with 1.0, which resuming keeps"),
        (["--model.lr", 0.5], "model.lr = 0.5: the run was started with 0.01"),
        (["--data.p", 13], "data.p = 13: the run was started with 11"),
        (["--data.task", "subtraction"], "data.task = 'subtraction': the run was started with 'addition'"),
        (["--data.order_seed", 3], "data.order_seed = 3: the run was started with 0"),
        (["--spectrum.every_n_steps", 3], "spectrum.every_n_steps = 3: the run was started with 0"),
    ],
)
def test_other_settings_are_refused(cli, flags, message):
    run = fit(steps=10)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    done = resume(cli, run.path, "--trainer.max_steps", 20, *flags)
    assert done.status == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_what_cannot_be_resumed_is_refused(cli):
    run = fit(steps=10)
    for words_, message in (
        (["fit", "--resume", "runs/nowhere"], "is no run directory, it holds no config.yaml"),
        (["fit", "--resume"], "resume: is given once, to fit, with a run directory"),
        (["test", "--resume", run.path], "resume: is given once, to fit, with a run directory"),
        (["fit", f"--resume={run.path}", "--resume", run.path], "resume: is given once"),
    ):
        done = cli(*words_)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert message in done.err
    (run.path / "config.yaml").write_text("a: [")
    assert "config.yaml cannot be read" in resume(cli, run.path, "--trainer.max_steps", 20).err


def test_a_run_has_one_writer(cli):
    run = fit(steps=10)
    lock = os.open(run.path / ".lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    done = resume(cli, run.path, "--trainer.max_steps", 20)
    assert done.status == 2
    assert "another process is writing this run" in done.err
    os.close(lock)
    assert resume(cli, run.path, "--trainer.max_steps", 20).status == 0


@pytest.mark.parametrize("damage", ["truncated", "flipped", "foreign", "pickle"])
def test_a_damaged_checkpoint_is_refused_and_stays(cli, damage):
    run = fit(steps=10)
    file = run.path / "checkpoints" / "last.ckpt"
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "flipped":
        at = content.find(torch.load(file, weights_only=True)["state_dict"]["net.E"].numpy().tobytes()[:16])
        assert at > 0
        content[at] ^= 1
    elif damage == "foreign":
        content = bytearray(b"not a checkpoint")
    else:
        content = bytearray(b"cos\nsystem\n(S'touch owned'\ntR.")
    file.write_bytes(content)
    record = (run.path / "metrics.jsonl").read_bytes()
    done = resume(cli, run.path, "--trainer.max_steps", 20)
    assert (done.status, done.err.count("\n")) == (2, 1), done.err
    assert "last.ckpt" in done.err
    assert file.read_bytes() == bytes(content)
    assert (run.path / "metrics.jsonl").read_bytes() == record
    assert not Path("owned").exists()


def test_a_run_is_not_resumed_up_to_where_it_is(cli):
    run = fit(*STEPS, steps=20)
    config = (run.path / "config.yaml").read_bytes()
    for steps in (10, 20):
        done = resume(cli, run.path, "--trainer.max_steps", steps)
        assert (done.status, done.err.count("\n")) == (2, 1)
        assert f"trainer.max_steps = {steps}: the run has made 20 steps already" in done.err
    assert (run.path / "config.yaml").read_bytes() == config


def test_a_record_with_a_corrupt_line_is_not_gone_on_with(cli):
    run = fit(*STEPS, steps=20)
    file = run.path / "metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    spoilt = b"".join([lines[0], lines[1][:-9] + b"\n", *lines[2:]])
    file.write_bytes(spoilt)
    done = resume(cli, run.path, "--trainer.max_steps", 40)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "metrics.jsonl: line 2 cannot be read" in done.err
    assert file.read_bytes() == spoilt


@pytest.mark.parametrize("kept", [0, 2])
def test_a_record_with_missing_lines_is_not_gone_on_with(cli, kept):
    run = fit(*STEPS, steps=20)
    file = run.path / "metrics.jsonl"
    cut = b"".join(file.read_bytes().splitlines(keepends=True)[:kept])
    file.write_bytes(cut)
    done = resume(cli, run.path, "--trainer.max_steps", 40)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert f"metrics.jsonl: {kept} lines up to step 20, where the checkpoint knows of" in done.err
    assert file.read_bytes() == cut


def test_a_completed_run_without_its_checkpoint_is_refused(cli):
    run = fit(steps=10)
    (run.path / "checkpoints" / "last.ckpt").unlink()
    assert "is completed and has no last.ckpt to go on from" in resume(cli, run.path, "--trainer.max_steps", 20).err
