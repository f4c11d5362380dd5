"""Every file under configs/ runs for a few steps."""

from pathlib import Path

import pytest
import yaml
from conftest import ROOT

CONFIGS = ROOT / "configs"
FULL = sorted(path for path in CONFIGS.rglob("*.yaml") if "model" in (yaml.safe_load(path.read_text()) or {}))
OVERLAYS = sorted(
    path for path in CONFIGS.rglob("*.yaml") if path not in FULL and path.parent.name != "model" and path.stem != "ddp"
)
MODELS = sorted((CONFIGS / "model").glob("*.yaml"))
OFF = ["--config", CONFIGS / "diagnostics" / "off.yaml"]
FEW = ["--trainer.max_steps", 4, "--trainer.val_check_interval", 2, "--trainer.log_every_n_steps", 2]


def name(path):
    return str(path.relative_to(CONFIGS))


def check(done):
    assert done.status == 0, done.err
    assert "T_grok" in done.out


@pytest.mark.parametrize("path", FULL, ids=name)
def test_config(cli, path):
    check(cli("fit", "--config", path, *OFF, *FEW))
    assert len(list(Path("runs").glob("*/*/summary.json"))) == 1


@pytest.mark.parametrize("path", OVERLAYS, ids=name)
def test_overlay(cli, path):
    check(cli("fit", "--config", CONFIGS / "addition.yaml", "--config", path, *FEW))


@pytest.mark.parametrize("path", MODELS, ids=name)
def test_model_file(cli, path):
    base = CONFIGS / ("embedding_free.yaml" if "free" in path.name else "addition.yaml")
    check(cli("fit", "--config", base, "--model", path, *OFF, *FEW))


def test_nothing_is_left_out():
    left = {path for path in CONFIGS.rglob("*.yaml")} - {*FULL, *OVERLAYS, *MODELS}
    assert {path.name for path in left} == {"ddp.yaml"}  # test_ddp.py runs it


def test_every_intervention_is_short_and_says_what_it_is():
    for path in (CONFIGS / "interventions").glob("*.yaml"):
        lines = path.read_text().splitlines()
        assert len(lines) <= 12, path
        assert lines[0].startswith("# "), path


@pytest.mark.parametrize("task", ["subtraction", "multiplication", "division", "sum_of_squares"])
def test_task_files_are_short(task):
    assert len((CONFIGS / f"{task}.yaml").read_text().splitlines()) <= 12
