"""The run directory: what every other part of the project reads.

``<root>/<experiment>/<run-id>/`` holds ``config.yaml`` (re-runs to the same numbers), ``metrics.jsonl`` (one JSON
object a line), ``provenance.json`` (what produced the run), ``summary.json`` (how it ended), ``checkpoints/`` and
``figures/``.
"""

import contextlib
import json
import os
import re
import shutil
import time
import uuid
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from grok_lightning.errors import ConfigError, require
from grok_lightning.loggers.continuation import Lock, count, cut, write_durably

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def new_run_id() -> str:
    """A fresh id that sorts by time: ``20261201-093000-1a2b3c`` (UTC).

    An agent that starts runs says its own id in ``WANDB_RUN_ID``, and the record follows it.
    """
    return os.environ.get("WANDB_RUN_ID") or f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"


class RunRecord(Logger):
    """Keeps the record of one run on disk; nothing is created before the run starts.

    Args:
        root: Directory of all experiments.
        experiment: Name of the experiment; ``null`` for the name of the task.
        run_id: Name of this run; ``null`` for a fresh one. A run that exists is never written over.
    """

    def __init__(self, root: str = "runs", experiment: str | None = None, run_id: str | None = None) -> None:
        super().__init__()
        for field, value in (("experiment", experiment), ("run_id", run_id)):
            valid = value is None or bool(_NAME.fullmatch(value))
            require(valid, f"record.{field}", value, "must be letters, digits, '.', '_' and '-'")
        self.root, self.experiment_name = Path(root), experiment
        self.run_id = run_id or new_run_id()
        valid = bool(_NAME.fullmatch(self.run_id))  # the environment may have said it
        require(valid, "WANDB_RUN_ID", self.run_id, "must be letters, digits, '.', '_' and '-'")
        self._file: TextIO | None = None
        self._lock: Lock | None = None
        self._resumed_step: int | None = None
        self.lines = 0
        self._lines_needed = 0
        self._held: set[str] = set()  # keys that the record has at the step it is resumed from

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment_name or "experiment"

    @property
    def version(self) -> str:
        """Id of the run."""
        return self.run_id

    @property
    def save_dir(self) -> str:
        """Root directory."""
        return str(self.root)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.root / self.name / self.run_id

    @property
    def _metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    def check(self) -> None:
        """Refuse a run directory that exists or cannot be made, without making it.

        Raises:
            ConfigError: With the directory and the reason.
        """
        if self._resumed_step is not None:
            self._claim()
            found = count(self._metrics, self._resumed_step)
            if found < self._lines_needed:
                raise ConfigError(
                    f"{self._metrics}: {found} lines up to step {self._resumed_step}, where the checkpoint knows of "
                    f"{self._lines_needed}: some are missing, and the run cannot be resumed"
                )
            return
        if self.path.exists():
            raise ConfigError(f"record.run_id = {self.run_id!r}: {self.path} exists and is not written over")
        parent = next(p for p in [self.path.absolute(), *self.path.absolute().parents] if p.exists())
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            raise ConfigError(f"record.root = {str(self.root)!r}: {parent} is not a directory that can be written to")

    def resume_from(self, step: int, lines: int) -> None:
        """Go on with a run that exists, from the weights after ``step`` updates; -1 starts it over.

        What the record has beyond that step is dropped when the first line is written: it is logged again.

        Args:
            step: Step of the checkpoint.
            lines: Lines that the record had when the checkpoint was written.
        """
        self._resumed_step, self._lines_needed = step, lines

    def _claim(self) -> None:
        """Make the run directory, or take over the one to be resumed; no second process can.

        Raises:
            ConfigError: If it has a writer already.
        """
        if self._lock is not None:
            return
        if self._resumed_step is None:
            try:
                self.path.mkdir(parents=True)
            except FileExistsError:
                raise ConfigError(
                    f"record.run_id = {self.run_id!r}: {self.path} exists and is not written over"
                ) from None
        self._lock = Lock(self.path / ".lock")

    @rank_zero_only
    def write(self, name: str, text: str) -> None:
        """Write a file of the record, complete or not at all.

        Args:
            name: File name inside the run directory.
            text: Its content.
        """
        self._claim()
        write_durably(self.path / name, text.encode())

    @rank_zero_only
    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the record."""
        self.write(name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Append one line: ``step``, the metrics, and ``_timestamp`` (seconds since the epoch).

        It reaches the operating system before this returns, so a killed run loses at most the line being written.
        """
        if self._file is None:
            self._claim()
            if self._resumed_step is not None and self._metrics.exists():
                self.lines, self._held = cut(self._metrics, self._resumed_step)
            self._file = self._metrics.open("a", encoding="utf-8")
        if self._held and step == self._resumed_step:
            metrics = {key: value for key, value in metrics.items() if key not in self._held}
            if not metrics:
                return
        self.lines += 1
        line = {"step": step, **metrics, "_timestamp": round(time.time(), 3)}
        try:
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
        except OSError as error:  # a full disk, which says nothing about where
            raise OSError(error.errno, error.strerror, str(self._metrics)) from error

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """The whole configuration is kept in ``config.yaml`` instead."""

    @rank_zero_only
    def discard(self) -> None:
        """Take back what was written of a run that never made a step; one that is resumed, or another's, stays."""
        self.finalize("failed")
        if self._resumed_step is not None or self._lock is None:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        remove_if_empty(self.path.parent, self.root)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the metrics file, and let go of the run directory."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what it still held back was refused before
                self._file.close()
            self._file = None
        if self._lock is not None:
            self._lock.release()


def remove_if_empty(*directories: Path) -> None:
    """Remove those of the directories that hold nothing, innermost first."""
    for directory in directories:
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
