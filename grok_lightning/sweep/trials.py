"""What a sweep keeps on disk, and who may run what: one lock and one JSON file per configuration.

A configuration is run by whoever holds the lock on its file. The lock is the kernel's (``flock``) and is shared with
the process of the run, so it lasts until both the sweep and the run have ended, however they ended. Everything else is
read from the run directory while the lock is held: a completed run is never run again, an unfinished one always is.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grok_lightning.errors import ConfigError
from grok_lightning.loggers.continuation import write_durably
from grok_lightning.sweep.configuration import Configuration


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        status: completed, failed, or interrupted (by the end of the sweep, and to be run again).
        returncode: Of the process; minus the number of the signal that ended it.
        error: One line; ``None`` for a completed run.
        seconds: Wall time.
    """

    status: str
    returncode: int | None
    error: str | None
    seconds: float


@dataclass
class Claim:
    """The right to run a configuration.

    Attributes:
        configuration: What is to be run.
        lock: Open file that holds the lock; the process of the run inherits it.
    """

    configuration: Configuration
    lock: int

    def release(self) -> None:
        """Give the right back; a process that inherited the lock still holds it until it ends."""
        os.close(self.lock)


class Trials:
    """The directory ``<root>/<name>`` of a sweep.

    Args:
        root: Directory of all experiments.
        name: Name of the sweep, which is the experiment of its runs.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.directory = root / name
        self.state = self.directory / ".sweep"

    def create(self) -> None:
        """Make the directories.

        Raises:
            ConfigError: If that cannot be done.
        """
        for folder in ("trials", "locks", "logs", "abandoned"):
            try:
                (self.state / folder).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"root = {str(self.root)!r}: {error.filename}: {error.strerror}") from error

    def run_dir(self, key: str) -> Path:
        """Where the run is written."""
        return self.directory / key

    def log(self, key: str) -> Path:
        """What the run prints."""
        return self.state / "logs" / f"{key}.log"

    def claim(self, configuration: Configuration) -> Claim | None:
        """Take the right to run a configuration; ``None`` if another process has it."""
        file = os.open(self.state / "locks" / configuration.key, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return Claim(configuration, file)

    def status(self, key: str) -> str:
        """completed, failed or queued, by what is on disk; anything that did not end is queued."""
        if self.read(key).get("status") == "failed":
            return "failed"
        return "completed" if self.summary(key).get("status") == "completed" else "queued"

    def found(self, claim: Claim) -> str:
        """:meth:`status` of what has been claimed. The record catches up with a run that completed unnoticed."""
        key = claim.configuration.key
        status, recorded = self.status(key), self.read(key)
        if status == "completed" != recorded.get("status"):
            about = {field: recorded.get(field) for field in ("attempts", "host", "started")}
            seconds = self.summary(key).get("seconds")
            self._write(claim.configuration, {"status": status, **about, "error": None, "seconds": seconds})
        return status

    def read(self, key: str) -> dict[str, Any]:
        """What is recorded of a configuration; empty if nothing is."""
        return _read(self.state / "trials" / f"{key}.json")

    def summary(self, key: str) -> dict[str, Any]:
        """``summary.json`` of the run; empty if there is none."""
        return _read(self.run_dir(key) / "summary.json")

    def error(self, key: str) -> str:
        """Why a run failed, by what is recorded."""
        return str(self.read(key).get("error") or "unknown")

    def list_queued(self, configuration: Configuration) -> None:
        """Record a configuration that nothing is recorded of yet."""
        if not (self.state / "trials" / f"{configuration.key}.json").exists():
            claim = self.claim(configuration)
            if claim is not None:
                if not self.read(configuration.key):
                    self._write(configuration, {"status": "queued", "attempts": 0})
                claim.release()

    def start(self, claim: Claim) -> bool:
        """Record that a run starts, and clear the way for it unless it goes on where it was stopped.

        Returns:
            Whether its run directory holds an earlier attempt that can be resumed.
        """
        recorded = self.read(claim.configuration.key)
        goes_on = recorded.get("status") != "failed" and self._can_go_on(claim.configuration.key)
        if not goes_on:
            self._move_aside(claim.configuration.key)
        attempts = int(recorded.get("attempts", 0)) + 1
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        about = {"status": "running", "attempts": attempts, "host": socket.gethostname(), "started": started}
        self._write(claim.configuration, about)
        return goes_on

    def _can_go_on(self, key: str) -> bool:
        """Whether the run was stopped or killed after it had begun; one that failed by itself would fail again."""
        begun = (self.run_dir(key) / "config.yaml").exists()
        return begun and self.summary(key).get("status") in (None, "interrupted")

    def _move_aside(self, key: str) -> None:
        left = self.run_dir(key)
        if left.exists():
            attempts = (self.state / "abandoned" / f"{key}-{n}" for n in range(1, 10**6))
            left.rename(next(path for path in attempts if not path.exists()))

    def end(self, claim: Claim, outcome: Outcome) -> None:
        """Record how a run ended."""
        about = {field: self.read(claim.configuration.key).get(field) for field in ("attempts", "host", "started")}
        ended = {"returncode": outcome.returncode, "error": outcome.error, "seconds": round(outcome.seconds, 3)}
        self._write(claim.configuration, {"status": outcome.status, **about, **ended})

    def _write(self, configuration: Configuration, about: Mapping[str, Any]) -> None:
        content = {
            "hash": configuration.key,
            "parameters": configuration.parameters,
            "arguments": configuration.arguments,
            "run_dir": str(self.run_dir(configuration.key)),
            **about,
        }
        path = self.state / "trials" / f"{configuration.key}.json"
        write_durably(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # written whole or not at all; what cannot be read was not written here
        return {}
    return content if isinstance(content, dict) else {}
