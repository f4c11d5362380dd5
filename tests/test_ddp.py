"""Two processes on this machine against one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT

pytestmark = pytest.mark.ddp
FLAGS = [
    "fit", "--config", f"{ROOT}/configs/addition.yaml", "--config", f"{ROOT}/configs/diagnostics/off.yaml",
    "--trainer.max_steps", "30", "--trainer.val_check_interval", "10", "--trainer.log_every_n_steps", "1",
    "--trainer.logger", "false", "--data.batch_size", "511",
]  # fmt: skip


INTERVENTIONS = {
    "filters": [
        "--data.sampler=balanced", "--model.gradient.grokfast=ma", "--model.gradient.window=10",
        "--model.gradient.orthogonal=true", "--model.clamp.norm=90", "--adaptive_c.every_n_steps=10",
    ],
    "frozen": ["--data.sampler=replacement", "--model.gradient.grokfast=ema", "--model.freeze_embedding_at=15"],
    "muon": ["--model.optimizer=muon", "--model.muon_lr=0.02"],
}  # fmt: skip


def fit(run_id, *flags):
    command = [sys.executable, "-m", "grok_lightning", *FLAGS, "--record.run_id", run_id, *flags]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return Path("runs/addition") / run_id, done


def series(run, key):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line[key] for line in lines if key in line}


def test_two_processes_are_one(tmp_path):
    one, _ = fit("one")
    two, done = fit("two", "--config", f"{ROOT}/configs/trainer/ddp.yaml")
    for key in ("train/loss", "train/acc", "train_full/loss", "val/loss", "test/loss"):
        alone, shared = series(one, key), series(two, key)
        assert len(alone) >= 4
        assert shared == pytest.approx(alone, rel=1e-5, abs=1e-5), key
    states = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (one, two)]
    assert states[0]["global_step"] == states[1]["global_step"] == 30
    assert done.stdout.count("T_grok") == 1  # one table, one record
    assert len(list(Path("runs/addition").iterdir())) == 2
    source = json.loads((two / "provenance.json").read_text())
    assert source["world_size"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERVENTIONS)
def test_interventions_of_two_processes_are_those_of_one(name):
    one, _ = fit("one", *INTERVENTIONS[name])
    two, _ = fit("two", *INTERVENTIONS[name], "--config", f"{ROOT}/configs/trainer/ddp.yaml")
    rounding = 1e-2 if name == "muon" else 1e-4  # Muon orthogonalises in bfloat16
    for key in ("train/loss", "train_full/loss", "val/loss", "test/loss", "lr/embedding"):
        assert series(two, key) == pytest.approx(series(one, key), rel=rounding), key
    assert series(two, "adaptive_c/used") == pytest.approx(series(one, "adaptive_c/used"), rel=1e-5)
    assert len(series(two, "adaptive_c/used")) == (3 if name == "filters" else 0)


def test_a_sampler_that_knows_one_process_only_is_refused(cli):
    flags = ["--data.sampler=entropy", "--data.sampler_gamma=0.001"]
    done = cli(*FLAGS, *flags, "--config", f"{ROOT}/configs/trainer/ddp.yaml")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "data.sampler = 'entropy': draws in one process only; set trainer.devices to 1" in done.err
    assert not Path("runs").exists()
