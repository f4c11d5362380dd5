"""A disk that takes no more: the run stops with the reason, and goes on where it can."""

import json
import os
import resource
import subprocess

import pytest
import torch
from killed import PROGRAM, RUNS, assert_same, complete, words
from short_run import OFF, fit

from grok_lightning import __version__


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


def test_a_checkpoint_of_a_later_version_is_refused(cli):
    run = fit(steps=10)
    file = run.path / "checkpoints" / "last.ckpt"
    content = torch.load(file, weights_only=True)
    assert content["grok_lightning_version"] == __version__
    torch.save(content | {"grok_lightning_version": "99.1.0"}, file)
    done = cli("fit", "--resume", run.path, "--trainer.max_steps", 20)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert f"was written by grok_lightning 99.1.0; this is {__version__}" in done.err
