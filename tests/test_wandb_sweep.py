"""The real ``wandb sweep`` and ``wandb agent`` commands run a shipped sweep file against a server on loopback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from conftest import ROOT
from wandb_stub import WandbStub

BIN = Path(sys.executable).parent
TINY = {
    "data.p": 11, "data.batch_size": 16, "model.d_model": 4, "trainer.max_steps": 6, "trainer.val_check_interval": 2,
    "trainer.log_every_n_steps": 2, "trainer.enable_progress_bar": False,
}  # fmt: skip


@pytest.fixture
def stub() -> Iterator[WandbStub]:
    with WandbStub() as server:
        yield server


@pytest.fixture
def wandb(stub, tmp_path):
    """Run W&B's own executable, logged in to the stub: ``wandb("sweep", FILE)`` → status, output."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment = {key: value for key, value in kept.items() if not key.startswith("WANDB_")} | {
        "PATH": f"{BIN}{os.pathsep}{kept['PATH']}",  # the agent starts whatever `python` comes first
        "HOME": str(tmp_path / "home"),
        "WANDB_BASE_URL": stub.url,
        "WANDB_API_KEY": "0" * 40,
        "WANDB_DIR": str(tmp_path),
        "WANDB_CACHE_DIR": str(tmp_path / "wandb-cache"),
        "WANDB_CONFIG_DIR": str(tmp_path / "wandb-config"),
        "WANDB_DATA_DIR": str(tmp_path / "wandb-data"),
        "WANDB_X_DISABLE_STATS": "true",
        "WANDB_ERROR_REPORTING": "false",
        "NO_COLOR": "1",
    }
    (tmp_path / "home").mkdir()
    (tmp_path / "configs").symlink_to(ROOT / "configs")  # the sweep files name them from the root of the project

    def call(*arguments, timeout=200):
        command = [str(BIN / "wandb"), *map(str, arguments)]
        log = tmp_path / f"{arguments[0]}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                end(process)
                pytest.fail(f"wandb {arguments[0]} did not end: {log.read_text()[-2000:]}")
        return SimpleNamespace(status=status, out=log.read_text())

    return call


def end(process):
    """Stop an agent: it waits for its run at the first signal, ends the run at the second, kills it at the third."""
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
            return
        except subprocess.TimeoutExpired:
            continue
    process.kill()


def start(wandb, stub, sweep):
    """Register a sweep and let an agent work it off."""
    Path("tiny.yaml").write_text(yaml.safe_dump(sweep))
    created = wandb("sweep", "tiny.yaml")
    assert created.status == 0, created.out
    (name,) = stub.sweeps
    assert f"wandb agent local/grok_lightning/{name}" in created.out
    return wandb("agent", f"local/grok_lightning/{name}"), stub.sweeps[name]


def shipped(name, **changes):
    """A sweep file of the project with its parameters cut down to a tiny network and the given values."""
    sweep = yaml.safe_load((ROOT / "sweeps" / f"{name}.yaml").read_text())
    sweep["parameters"] |= {key: {"value": value} for key, value in TINY.items()}
    sweep["parameters"] |= changes["parameters"]
    return sweep


@pytest.mark.slow
def test_two_runs(wandb, stub):
    varied = {"model.c": {"values": [1, 10]}, "seed_everything": {"values": [3]}}
    done, sweep = start(wandb, stub, shipped("c", parameters=varied))
    assert done.status == 0, done.out
    assert stub.unknown == []
    assert [point["model.c"] for point in sweep.assigned.values()] == [1, 10]
    assert sorted(stub.runs) == sorted(sweep.assigned) == sorted(path.name for path in Path("runs/c").iterdir())
    for name, point in sweep.assigned.items():
        config = yaml.safe_load((Path("runs/c") / name / "config.yaml").read_text())
        assert config["model"]["init_args"]["c"] == point["model.c"]
        assert config["seed_everything"] == 3
        assert config["trainer"]["max_steps"] == 6
        summary = json.loads((Path("runs/c") / name / "summary.json").read_text())
        assert (summary["status"], summary["steps"]) == ("completed", 6)
        run = stub.runs[name]
        assert (run.sweep, run.exitcode) == (stub.agents["agent0"], 0)
        assert run.config["model.c"] == point["model.c"]  # what W&B plots against
        assert run.config["model"]["init_args"]["c"] == point["model.c"]
        # hyperband counts these rows: one an evaluation, from step 0 on
        assert [row["trainer/global_step"] for row in run.history if "val/acc" in row] == [0, 2, 4, 6]
        lines = [json.loads(line) for line in (Path("runs/c") / name / "metrics.jsonl").read_text().splitlines()]
        assert [row["val/acc"] for row in run.history if "val/acc" in row] == pytest.approx(
            [line["val/acc"] for line in lines if "val/acc" in line]
        )
        assert run.summary["test/acc"] == pytest.approx(summary["final_acc"]["test"])


@pytest.mark.slow
def test_a_refused_configuration_shows_in_the_output_alone(wandb, stub):
    varied = {"model.c": {"values": [-1]}, "seed_everything": {"value": 0}}
    done, sweep = start(wandb, stub, shipped("c", parameters=varied))
    assert "grok_lightning: error: model.c = -1" in done.out, done.out
    assert len(sweep.assigned) == 1
    assert stub.runs == {}  # the server never hears of it
    assert not Path("runs").exists()
    assert done.status == 0  # an agent's exit status says nothing about its runs
