"""Going on with a run directory: one writer at a time, and every step in the record once."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from grok_lightning.errors import ConfigError


class Lock:
    """The right to write a run directory, held until it is released or the process ends, however it ends.

    Args:
        path: Lock file; made if it does not exist.

    Raises:
        ConfigError: If another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise ConfigError(f"{path.parent}: another process is writing this run") from None

    def release(self) -> None:
        """Let go."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def count(file: Path, step: int) -> int:
    """Number of lines of a metrics file up to a step; 0 if there is no file.

    Raises:
        ConfigError: If a line before the last is no JSON object.
    """
    return len(_up_to(file, step)) if file.exists() else 0


def cut(file: Path, step: int) -> tuple[int, set[str]]:
    """Drop what a metrics file holds beyond a step, and a last line that was cut off.

    A checkpoint holds the state after ``step`` updates; the resumed run logs again all that comes later. What the file
    has at ``step`` itself stays, and is not to be logged twice.

    Args:
        file: JSON lines, each with a ``step``.
        step: Updates that the weights have received; -1 drops everything.

    Returns:
        Number of lines that stay, and the keys that they hold at ``step``.

    Raises:
        ConfigError: If a line before the last is no JSON object.
    """
    kept = _up_to(file, step)
    held = {key for _, content in kept if content["step"] == step for key in content} - {"step", "_timestamp"}
    write_durably(file, b"".join(line + b"\n" for line, _ in kept))
    return len(kept), held


def write_durably(path: Path, content: bytes) -> None:
    """Write a file, complete or not at all; it is on the disk before it has its name.

    Raises:
        OSError: With the file's name, which a full disk does not say.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


def _up_to(file: Path, step: int) -> list[tuple[bytes, dict[str, Any]]]:
    raw = [line for line in file.read_bytes().split(b"\n") if line.strip()]
    found = []
    for number, line in enumerate(raw, 1):
        try:
            content = json.loads(line)
            at = content["step"]
        except (ValueError, KeyError, TypeError) as error:
            if number == len(raw):
                break
            raise ConfigError(f"{file}: line {number} cannot be read ({error}); the run cannot be resumed") from None
        if at is not None and at <= step:
            found.append((line, content))
    return found
