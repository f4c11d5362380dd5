"""Every file under configs/ runs for a few steps: whole runs on their own table, what varies them on a small one."""

from pathlib import Path

import cifar_files
import pytest
import yaml
from conftest import ROOT
from text_files import write_tokens

CONFIGS = ROOT / "configs"
FULL = sorted(path for path in CONFIGS.rglob("*.yaml") if "model" in (yaml.safe_load(path.read_text()) or {}))
OVERLAYS = sorted(
    path
    for path in CONFIGS.rglob("*.yaml")
    if path not in FULL and path.parent.name != "model" and path.stem not in ("ddp", "fsdp")
)
MODELS = sorted((CONFIGS / "model").glob("*.yaml"))
OFF = ["--config", CONFIGS / "diagnostics" / "off.yaml"]
SMALL = ["--data.p", 11, "--data.batch_size", 16]
FEW = ["--trainer.max_steps", 4, "--trainer.val_check_interval", 4, "--trainer.log_every_n_steps", 2]
QUIET = ["--trainer.logger", "false"]


def name(path):
    return str(path.relative_to(CONFIGS))


def check(done):
    assert done.status == 0, done.err
    assert "T_grok" in done.out


@pytest.mark.parametrize("path", FULL, ids=name)
def test_config(cli, path):
    if path.stem == "embedding_transfer":  # the smaller run that its comment asks for
        check(cli(*first_command(path), *OFF, *SMALL, *FEW, *QUIET))
    if path.stem == "wikitext103":  # nothing is downloaded: the file names the folder in which it expects the text
        write_tokens(Path("data/wikitext-103"))
        size = ["--data.context_length=16", "--data.batch_size=4", "--model.n_layers=1", "--hessian.subset=2"]
    elif path.stem == "text_small":
        size = ["--data.vocab_size=300", "--model.d_model=16"]
    elif path.stem.startswith("cifar"):
        cifar_files.make(Path("data"), path.stem)
        size = ["--data.verify=false", "--data.batch_size=16", "--model.d_model=16", "--model.n_layers=1"]
    else:
        size = [] if path.parent.name in ("configs", "two_phase") else SMALL  # those bring data of their own
    check(cli("fit", *OFF, "--config", path, *size, *FEW, *QUIET))  # measurements that a file sets stay on
    assert len(list(Path("runs").glob("*/*/summary.json"))) == 1 + (path.stem == "embedding_transfer")


def first_command(path):
    line = next(line for line in path.read_text().splitlines() if line.startswith("# fit "))
    return line.replace("configs/", f"{CONFIGS}/").split()[1:]


@pytest.mark.parametrize("path", OVERLAYS, ids=name)
def test_overlay(cli, path):
    quiet = [] if path.parent.name == "logger" else QUIET
    check(cli("fit", "--config", CONFIGS / "addition.yaml", *OFF, *SMALL, *FEW, *quiet, "--config", path))


@pytest.mark.parametrize("path", MODELS, ids=name)
def test_model_file(cli, path):
    base = CONFIGS / ("embedding_free.yaml" if "free" in path.name else "addition.yaml")
    check(cli("fit", "--config", base, "--model", path, *OFF, *SMALL, *FEW, *QUIET))


def test_nothing_is_left_out():
    left = {path for path in CONFIGS.rglob("*.yaml")} - {*FULL, *OVERLAYS, *MODELS}
    assert {path.name for path in left} == {"ddp.yaml", "fsdp.yaml"}  # test_ddp.py and test_vision.py run them


@pytest.mark.parametrize("folder", ["interventions", "paper", "published", "two_phase"])
def test_every_file_is_short_and_says_what_it_is(folder):
    for path in (CONFIGS / folder).glob("*.yaml"):
        lines = path.read_text().splitlines()
        assert len(lines) <= (20 if folder == "two_phase" else 12), path
        assert lines[0].startswith("# "), path


def test_every_claim_has_a_file_that_names_it_and_its_paper():
    claims = [*(f"C{i}" for i in [*range(1, 10), 12]), *(f"J{i}" for i in [1, 3, 4, 5, 6])]
    files = sorted((CONFIGS / "paper").glob("*.yaml"))
    assert {path.stem.split("_")[0].upper() for path in files} == set(claims)
    for path in files:
        comment = "".join(line for line in path.read_text().splitlines() if line.startswith("# "))
        claim = path.stem.split("_")[0]
        assert comment.startswith(f"# {claim.upper()}: "), path
        assert "arXiv:2505.15624" in comment, path
        assert yaml.safe_load(path.read_text())["record"]["experiment"].split("_")[0] == claim, path


@pytest.mark.parametrize("task", ["subtraction", "multiplication", "division", "sum_of_squares"])
def test_task_files_are_short(task):
    assert len((CONFIGS / f"{task}.yaml").read_text().splitlines()) <= 12
