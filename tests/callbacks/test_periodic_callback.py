"""Diagnostics as a whole: when they run, what they leave, and that they change nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from short_run import OFF, arguments, fit
from wandb_file import history

from grok_lightning.callbacks.hessian import Hessian
from grok_lightning.callbacks.periodic import is_log_spaced
from grok_lightning.callbacks.spectrum import Spectrum
from grok_lightning.errors import ConfigError

DENSE = ["--config", ROOT / "configs" / "diagnostics" / "dense.yaml"]
GROUPS = ("hessian", "spectrum", "balance", "fourier", "health", "two_phase")
"""Those that are on by default."""


def test_the_grids():
    assert [step for step in range(2000) if is_log_spaced(step, 1)] == [10, 100, 1000]
    assert [step for step in range(1001) if is_log_spaced(step, 2)] == [3, 10, 32, 100, 316, 1000]
    assert not any(is_log_spaced(step, 0) for step in range(100))
    both = Spectrum(every_n_steps=40, log_points_per_decade=1)
    assert [step for step in range(1, 130) if both.is_due(step)] == [10, 40, 80, 100, 120]
    assert not Spectrum(every_n_steps=0, log_points_per_decade=0).enabled


@pytest.mark.parametrize(("field", "value"), [("every_n_steps", -1), ("log_points_per_decade", -2)])
def test_bad_grids_are_refused(field, value):
    with pytest.raises(ConfigError, match=f"hessian.{field} = {value}"):
        Hessian(**{field: value})


@pytest.mark.parametrize("model", ["EmbeddingMLP", "EmbeddingFreeMLP", "Transformer"])
def test_training_is_the_same_bit_for_bit(model):
    kwargs = {"model": model, "logger": "false"}
    plain = fit(*DENSE, *OFF, run_id="plain", **kwargs)
    dense = fit(*DENSE, "--hessian.every_n_steps", 5, "--ntk.every_n_steps", 5, off=False, run_id="dense", **kwargs)
    assert len(dense.group("hessian")) >= 5
    assert not plain.group("hessian")
    for name, weight in plain.weights.items():
        assert torch.equal(weight, dense.weights[name]), name
    states = [run.checkpoint["optimizer_states"][0]["state"] for run in (plain, dense)]
    for index, state in states[0].items():
        for name, value in state.items():
            assert torch.equal(value, states[1][index][name])
    for key in ("train/loss", "val/loss", "test/acc"):
        assert plain.series(key) == dense.series(key)


def test_a_default_fit_leaves_every_group_in_the_record_and_in_wandb():
    run = fit(off=False, logger=None)
    (file,) = Path("runs/wandb").glob("offline-run-*/*.wandb")
    kept = [line for line in history(file) if "trainer/global_step" in line]
    for group, key in {
        "hessian": "hessian/E/lambda_max", "spectrum": "spectrum/E/erank_sq", "balance": "balance/predicted_c",
        "fourier": "fourier/natural/gini", "health": "health/softmax_collapse",
        "two_phase": "two_phase/all/grad_norm",
    }.items():  # fmt: skip
        recorded = run.series(key)
        assert 20 in recorded, key
        sent = {line["trainer/global_step"]: line[key] for line in kept if key in line}
        assert sent == pytest.approx(recorded), key
        assert f"time/{group}_seconds" in run.lines[-1] or run.series(f"time/{group}_seconds")
    arrays = {key for line in run.lines for key, value in line.items() if isinstance(value, list)}
    assert {"spectrum/E/sigma", "balance/token_grad_norm", "fourier/natural/spectrum"} <= arrays
    sigma = next(line["spectrum/E/sigma"] for line in kept if "spectrum/E/sigma" in line)
    assert sigma["_type"] == "histogram"
    assert sum(sigma["values"]) == 4  # a 13 × 4 matrix has four


def test_the_summary_tells_what_diagnostics_took(cli):
    done = cli(*arguments(off=False))
    shares = json.loads(Path("runs/x/run/summary.json").read_text())["diagnostics_share"]
    assert list(shares) == list(GROUPS)
    assert all(0 < share < 1 for share in shares.values())
    assert sum(shares.values()) < 1
    (row,) = (line for line in done.out.splitlines() if "diagnostics" in line)
    assert f"{sum(shares.values()):.1%} of the time" in row
    off = cli(*arguments(run_id="off"))
    assert json.loads(Path("runs/x/off/summary.json").read_text())["diagnostics_share"] == {}
    assert "off" in next(line for line in off.out.splitlines() if "diagnostics" in line)


def test_the_written_defaults_are_the_defaults():
    plain = fit(off=False, run_id="plain")
    written = fit("--config", ROOT / "configs" / "diagnostics" / "default.yaml", off=False, run_id="written")
    for group in GROUPS:
        assert plain.group(group) == written.group(group), group


@pytest.mark.ddp
@pytest.mark.slow  # test_hvp.py has the sum over processes among the fast ones
def test_two_processes_measure_what_one_does():
    flags = [
        "--hessian.every_n_steps=2", "--hessian.blocks=[E,W,rest,all]", "--hessian.dtype=float64", "--hessian.tol=1e-8",
        "--balance.every_n_steps=2", "--health.every_n_steps=2", "--data.batch_size=15", "--trainer.accelerator=cpu",
        "--model.optimizer=sgd",
    ]  # fmt: skip
    runs = {}
    for devices in (1, 2):
        command = arguments(*flags, f"--trainer.devices={devices}", steps=4, run_id=f"on-{devices}")
        if devices == 2:
            command += ["--trainer.strategy=ddp"]
        environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        program = [sys.executable, "-m", "grok_lightning", *command]
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        metrics = Path(f"runs/x/on-{devices}/metrics.jsonl").read_text()
        runs[devices] = [json.loads(line) for line in metrics.splitlines()]
    one, two = (
        {(line["step"], key): value for line in lines for key, value in line.items() if not isinstance(value, list)}
        for lines in (runs[1], runs[2])
    )
    assert one.keys() == two.keys()
    same = ("lambda_max", "lambda_abs_max", "grad_norm", "hessian/loss", "trace", "f_E", "_E", "_W", "logit_norm")
    compared = [(at, key) for at, key in one if key.endswith(same) and key.startswith(("hessian", "balance", "health"))]
    assert len(compared) > 40
    for at in compared:
        assert two[at] == pytest.approx(one[at], rel=1e-6, abs=1e-9), at
