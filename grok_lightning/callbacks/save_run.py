"""Writes what defines a run before its first step: configuration and provenance."""

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback

import grok_lightning
from grok_lightning.callbacks.lookup import datamodule_of
from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.resume import Resumed


def git_commit() -> str | None:
    """Commit of the package's source tree, with ``-dirty`` if it was changed; ``None`` outside a repository."""
    command = [
        "git",
        "-C",
        str(Path(grok_lightning.__file__).parent),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def provenance(trainer: Trainer, seed: int | None) -> dict[str, Any]:
    """What produced a run and can change its numbers.

    Args:
        trainer: The trainer, set up.
        seed: Seed of the initialisation.
    """
    datamodule = datamodule_of(trainer)
    return {
        "grok_lightning": grok_lightning.__version__,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "platform": platform.platform(),
        "device": str(trainer.strategy.root_device),
        "precision": str(trainer.precision),
        "world_size": trainer.world_size,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "seeds": {
            "seed_everything": seed,
            "split_seed": datamodule.split_seed,
            "order_seed": datamodule.order_seed,
        },
        "command_line": sys.argv,
        "working_directory": str(Path.cwd()),
        "process": os.getpid(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "data": datamodule.describe(),
    }


class SaveRun(SaveConfigCallback):
    """Keeps the resolved configuration in the run directory and gives it to every other logger.

    The file names no value that follows from others (sizes that the data decides), so it can be run again as it is.

    Args:
        *args: See the parent.
        resumed: The run that is resumed, whose start stays on record.
        **kwargs: See the parent.
    """

    def __init__(self, *args: Any, resumed: Resumed | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.resumed = resumed

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write ``config.yaml`` and ``provenance.json`` (first process only)."""
        config = yaml.safe_load(self.parser.dump(self.config, skip_link_targets=False))
        for logger in trainer.loggers:
            if isinstance(logger, RunRecord):
                self._write(logger, provenance(trainer, config.get("seed_everything")))
                for folder in ("checkpoints", "figures"):
                    (logger.path / folder).mkdir(exist_ok=True)
            else:
                logger.log_hyperparams(config)

    def _write(self, record: RunRecord, facts: dict[str, Any]) -> None:
        config = self.config
        if self.resumed is not None:
            config = config.clone()
            config.ckpt_path = self.resumed.config.get("ckpt_path")  # where the run started, not where it was stopped
            before = record.path / "provenance.json"
            first = json.loads(before.read_text(encoding="utf-8")) if before.exists() else facts
            facts = first | {"resumed": [*first.get("resumed", []), facts]}
            (record.path / "summary.json").unlink(missing_ok=True)  # of how it ended before
        record.write("config.yaml", self.parser.dump(config))
        record.write_json("provenance.json", facts)
