"""Going on with a run directory: one writer at a time, and every step in the record once."""

import fcntl
import json
import os
from pathlib import Path

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


def cut(file: Path, step: int) -> set[str]:
    """Drop what a metrics file holds beyond a step, and a last line that was cut off.

    A checkpoint holds the state after ``step`` updates; the resumed run logs again all that comes later. What the file
    has at ``step`` itself stays, and is not to be logged twice.

    Args:
        file: JSON lines, each with a ``step``.
        step: Updates that the weights have received; -1 drops everything.

    Returns:
        Keys that the file holds at ``step``.

    Raises:
        ConfigError: If a line before the last is no JSON object.
    """
    kept, held = [], set[str]()
    raw = [line for line in file.read_bytes().split(b"\n") if line.strip()]
    for number, line in enumerate(raw, 1):
        try:
            content = json.loads(line)
            at = content["step"]
        except (ValueError, KeyError, TypeError) as error:
            if number == len(raw):
                break
            raise ConfigError(f"{file}: line {number} cannot be read ({error}); the run cannot be resumed") from None
        if at is None or at > step:
            continue
        kept.append(line)
        if at == step:
            held |= content.keys() - {"step", "_timestamp"}
    partial = file.with_name(f".{file.name}.partial")
    with partial.open("wb") as out:
        out.write(b"".join(line + b"\n" for line in kept))
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)
    return held
