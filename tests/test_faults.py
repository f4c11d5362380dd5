"""A disk that takes no more: the run stops with the reason, and goes on where it can."""

import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import torch
from killed import PROGRAM, RUNS, assert_same, complete, start, words
from short_run import OFF, arguments, fit

from grok_lightning import __version__
from grok_lightning.modules.base import GrokModule


def run_with_limit(command, n_bytes):
    """As on a disk that is full once a file reaches so many bytes."""
    limit = (n_bytes, resource.RLIM_INFINITY)
    return subprocess.run(
        [*PROGRAM, *map(str, command)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("n_bytes", "file"), [(60_000, "metrics.jsonl"), pytest.param(6_000, "last.ckpt", marks=pytest.mark.slow)]
)
@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_loses_nothing_before(n_bytes, file):
    many = ["--trainer.log_every_n_steps=1"]
    complete(words("whole", *many, *OFF, steps=700))
    done = run_with_limit(words("full", *many, *OFF, steps=700), n_bytes)
    run = RUNS / "full"
    assert done.returncode == 1, done.stderr
    error = [line for line in done.stderr.splitlines() if line.startswith("grok_lightning: error:")]
    assert len(error) == 1
    assert file in error[0]
    assert "Traceback" not in done.stderr
    assert "fit --resume runs/x/full" in done.stdout
    assert not list((run / "checkpoints").glob(".*"))
    if file == "metrics.jsonl":
        step = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
        assert 0 < step < 700
        assert json.loads((run / "summary.json").read_text())["status"] == "failed"
    complete(["fit", "--resume", run])
    assert_same(RUNS / "whole", run)


def test_a_checkpoint_that_cannot_be_written_is_saved_elsewhere(cli, monkeypatch):
    whole = fit(run_id="whole")
    right, checkpoints = GrokModule.batch_loss, RUNS / "run" / "checkpoints"

    def taken_away(module, batch):
        if module.global_step == 11:
            checkpoints.rmdir()
            checkpoints.write_text("")
        return right(module, batch)

    Path("spare").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", "spare")
    with monkeypatch.context() as fault:
        fault.setattr(GrokModule, "batch_loss", taken_away)
        done = cli(*arguments("--checkpoint.every_n_steps=13"))
    assert (done.status, done.err.count("\n")) == (1, 1)
    spare = Path("spare/grok_lightning-run-step-13.ckpt")
    assert "last.ckpt: no checkpoint can be written: " in done.err
    assert f"the state of step 13 is in {spare}, and may be put in its place" in done.err
    checkpoints.unlink()
    checkpoints.mkdir()
    shutil.move(spare, checkpoints / "last.ckpt")
    assert cli("fit", "--resume", RUNS / "run").status == 0
    assert_same(whole.path, RUNS / "run")


def test_a_disk_that_is_full_from_the_start_leaves_nothing_behind(cli):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        done = cli(*arguments())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.status == 1
    assert done.err == "grok_lightning: error: runs/x/run/config.yaml: File too large\n"
    assert not Path("runs").exists()


def is_wandbs(process, pid):
    try:
        words_ = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"wandb-core" in words_[0] and str(pid).encode() in words_


@pytest.mark.slow
def test_a_killed_wandb_process_does_not_stop_training():
    process = start(words("run", "--trainer.log_every_n_steps=1", *OFF, steps=6000, logger=None))
    deadline = time.monotonic() + 60
    while not (RUNS / "run" / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    (core,) = [p for p in Path("/proc").glob("[0-9]*") if is_wandbs(p, process.pid)]
    os.kill(int(core.name), signal.SIGKILL)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    assert "W&B stopped and is left alone" in out
    assert "W&B: stopped" in out
    assert json.loads((RUNS / "run" / "summary.json").read_text())["steps"] == 6000
    steps = [json.loads(line)["step"] for line in (RUNS / "run" / "metrics.jsonl").read_text().splitlines()]
    assert set(steps) >= set(range(6000))


@pytest.mark.slow
def test_two_runs_with_one_directory():
    both = [start(words("run", *OFF, steps=2000)) for _ in range(2)]
    outs = [process.communicate(timeout=200)[0] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2], outs
    refused = outs[[process.returncode for process in both].index(2)]
    assert "runs/x/run exists and is not written over" in refused
    steps = [json.loads(line)["step"] for line in (RUNS / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)


def test_a_checkpoint_of_a_later_version_is_refused(cli):
    run = fit(steps=10)
    file = run.path / "checkpoints" / "last.ckpt"
    content = torch.load(file, weights_only=True)
    assert content["grok_lightning_version"] == __version__
    torch.save(content | {"grok_lightning_version": "99.1.0"}, file)
    done = cli("fit", "--resume", run.path, "--trainer.max_steps", 20)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert f"was written by grok_lightning 99.1.0; this is {__version__}" in done.err
