"""The built wheel, installed into an environment without the source tree, runs the main job from another folder."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml
from conftest import ROOT


def call(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def installed(tmp_path):
    """Python of a new environment that has the wheel, and of this one only what the wheel depends on."""
    source = tmp_path / "source"
    for folder in ("grok_lightning", "configs"):
        shutil.copytree(ROOT / folder, source / folder)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    call(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, source)
    shutil.rmtree(source / "grok_lightning")
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    wheel = next(tmp_path.glob("grok_lightning-*.whl"))
    call(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", packages, wheel)
    # A line in a .pth file adds a folder, not what that folder's own .pth files would: no editable source tree.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_runs_the_main_job(installed, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    where = call(installed, "-c", "import grok_lightning; print(grok_lightning.__file__)").strip()
    assert Path(where).is_relative_to(tmp_path / "clean")
    source = tmp_path / "source" / "configs"
    off = source / "diagnostics" / "off.yaml"
    flags = ["--config", off, "--trainer.max_steps", 3, "--trainer.val_check_interval", 2]
    assert "completed after 3 steps" in call(
        installed, "-m", "grok_lightning", "fit", "--config", source / "addition.yaml", *flags
    )
    run = next(iter((tmp_path / "runs" / "addition").iterdir()))
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["init_args"]["p"] == 97
    template = (
        "from importlib.resources import files; print((files('grok_lightning.report') / 'page.html').read_text())"
    )
    assert "{{" in call(installed, "-c", template)
