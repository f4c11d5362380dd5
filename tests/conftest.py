"""Every test runs in a directory of its own, offline, on one thread."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch  # noqa: F401 - its log handler keeps the stderr of its import, which must outlive a test
import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent

os.environ["OMP_NUM_THREADS"] = "1"  # inherited by the processes that tests start
os.environ["GROK_LIGHTNING_CACHE"] = tempfile.mkdtemp(prefix="grok-lightning-tests-")  # tokenised once a process
atexit.register(shutil.rmtree, os.environ["GROK_LIGHTNING_CACHE"], ignore_errors=True)
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("WANDB_", "SLURM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb-cache"))
    monkeypatch.setenv("WANDB_X_DISABLE_STATS", "true")
    yield
    if (wandb := __import__("sys").modules.get("wandb")) is not None:
        wandb.finish()  # a live run would silently be reused by the next test


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., SimpleNamespace]:
    """Run the command line in this process: ``cli("fit", "--config", …)`` → status, out, err."""

    def call(*arguments: object) -> SimpleNamespace:
        from grok_lightning.__main__ import run

        capsys.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return SimpleNamespace(status=status, out=captured.out, err=captured.err)

    return call


@pytest.fixture
def config() -> Callable[[str], str]:
    """Path of a file under configs/."""
    return lambda name: str(ROOT / "configs" / name)
