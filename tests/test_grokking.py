"""It groks: the main run, whole and seeded."""

import json
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def summary(cli, *flags):
    done = cli("fit", *flags, "--trainer.logger", "false")
    assert done.status == 0, done.err
    return json.loads(next(Path("runs").glob("*/*/summary.json")).read_text())


def test_the_main_run_groks(cli):
    found = summary(cli, "--config", ROOT / "configs" / "addition.yaml")
    clocks = found["clocks_steps"]
    assert 300 <= clocks["t_mem"] <= 600
    assert 450 <= clocks["t_grok"] <= 1000
    assert clocks["delay"] > 0
    assert found["final_acc"]["test"] >= 0.99
    assert found["evaluation_share"] < 0.1


def test_without_the_ratio_it_takes_longer(cli):
    found = summary(cli, "--config", ROOT / "configs" / "addition.yaml", "--model.c", 1)
    assert 900 <= found["clocks_steps"]["t_grok"] <= 1700


def test_too_few_pairs_never_generalise(cli):
    found = summary(cli, "--config", ROOT / "configs" / "addition.yaml", "--data.frac_train", 0.1, "--model.c", 1,
                    "--data.batch_size", 256, "--trainer.max_steps", 2000)  # fmt: skip
    assert found["clocks_steps"]["t_mem"] is not None
    assert found["clocks_steps"]["t_grok"] is None
    assert found["clocks_steps"]["delay"] is None
