"""Reading series of scalars and small arrays from JSON lines and CSV; standard library only.

A line is one moment: a step and some of the columns. Different lines carry different columns, so each column
comes back with steps of its own.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from grok_lightning.errors import ConfigError

T = TypeVar("T", float, list[float])

METRICS = "metrics.jsonl"
"""Name of the metrics file inside a run directory."""

Columns = dict[str, tuple[list[int], list[float]]]
"""Column → (steps, values), in the order of the file."""

Arrays = dict[str, tuple[list[int], list[list[float]]]]
"""Column → (steps, one array a step), in the order of the file."""

Lines = list[tuple[int, dict[str, Any]]]
"""(line number from 1, content) of every line that holds something."""


def read_metrics(path: Path | str, resumed: bool = False) -> Columns:
    """Read the scalars of a run.

    Booleans count as 0 and 1 and ``null`` as not-a-number; text and arrays are left out. Lines whose step is
    ``null`` belong to no moment and are left out. A last line that was cut off is left out.

    Args:
        path: Run directory or its metrics file.
        resumed: See :func:`columns`.

    Raises:
        ConfigError: If there is no such file, or a line before the last cannot be read (its number is named).
    """
    path = Path(path)
    file = path / METRICS if path.is_dir() else path
    return columns(read_jsonl(file), file, resumed=resumed)


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        ConfigError: If it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_jsonl(path: Path) -> Lines:
    """Read JSON lines; a last line that is no JSON was cut off by the end of the run and is left out.

    Raises:
        ConfigError: If the file cannot be read, or a line before the last is no JSON object.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    raw = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    lines: Lines = []
    for number, line in raw:
        try:
            value = json.loads(line)
        except ValueError as error:  # also UnicodeDecodeError: a character cut in two
            if number == raw[-1][0] and lines:
                break
            raise ConfigError(f"{path}: line {number} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: line {number} is not a JSON object")
        lines.append((number, value))
    return lines


def read_csv(path: Path) -> Lines:
    """Read a CSV with a header line; an empty cell is a column that this line does not carry.

    Raises:
        ConfigError: If the file cannot be read, names a column twice, or a line is longer than the header.
    """
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    lines: Lines = []
    try:
        header = [name for name in reader.fieldnames or [] if name]
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"{path}: column {twice!r} is there twice")
        for row in reader:
            if None in row:
                raise ConfigError(f"{path}: line {reader.line_num} has more cells than the header")
            cells = {name: _cell(cell) for name, cell in row.items() if cell and cell.strip()}
            lines.append((reader.line_num, cells))
    except csv.Error as error:
        raise ConfigError(f"{path}: line {reader.line_num} is not CSV: {error}") from None
    return lines


def _cell(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def names(lines: Lines) -> list[str]:
    """Every column that some line carries, in order of appearance."""
    return list(dict.fromkeys(name for _, line in lines for name in line))


def columns(
    lines: Lines, path: Path, step: str = "step", wanted: Sequence[str] | None = None, resumed: bool = False
) -> Columns:
    """Collect columns by step.

    A step written twice in a row with the same value counts once. Steps that go back are kept as they are, so
    that whoever reads them can object.

    Args:
        lines: From :func:`read_jsonl` or :func:`read_csv`.
        path: Named in errors.
        step: Column of the steps.
        wanted: Columns to collect, each value of which must be a number; ``None`` for all that hold numbers.
        resumed: The run was continued from a checkpoint into the same file: where steps go back, what the
            abandoned branch logged from that step on is dropped, column by column.

    Raises:
        ConfigError: If a line has no whole step, or a wanted value is no number.
    """
    found: Columns = {}
    for number, line in lines:
        if step in line and line[step] is None:
            continue
        present = [name for name in (line if wanted is None else wanted) if name in line and name != step]
        if wanted is not None and not present:
            continue
        at = _whole(line.get(step))
        if at is None:
            raise ConfigError(f"{path}: line {number} has no whole number in column {step!r}: {line.get(step)!r}")
        for name in present:
            value = _number(line[name])
            if value is not None:
                _append(found.setdefault(name, ([], [])), at, value, resumed)
            elif wanted is not None:
                raise ConfigError(f"{path}: line {number}, column {name!r}: {line[name]!r} is not a number")
    return found


def arrays(lines: Lines, step: str = "step") -> Arrays:
    """Collect the columns that hold arrays of numbers; ``null`` in one is not-a-number.

    Where steps go back, the run was continued from a checkpoint, and the later branch counts.

    Args:
        lines: From :func:`read_jsonl`.
        step: Column of the steps.
    """
    found: Arrays = {}
    for _, line in lines:
        at = _whole(line.get(step))
        for name, value in line.items() if at is not None else ():
            numbers = [_number(item) for item in value] if isinstance(value, list) else []
            kept = [number for number in numbers if number is not None]
            if at is not None and kept and len(kept) == len(numbers):
                _append(found.setdefault(name, ([], [])), at, kept, resumed=True)
    return found


def _append(series: tuple[list[int], list[T]], step: int, value: T, resumed: bool) -> None:
    steps, values = series
    if steps and (step, value) == (steps[-1], values[-1]):
        return
    while resumed and steps and steps[-1] >= step:
        steps.pop()
        values.pop()
    steps.append(step)
    values.append(value)


def _number(value: object) -> float | None:
    if value is None:
        return float("nan")
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _whole(value: object) -> int | None:
    number = _number(value)
    if number is None or isinstance(value, bool) or not number.is_integer():
        return None
    return int(number)


def groups(lines: Lines, column: str) -> Iterable[tuple[str, Lines]]:
    """Lines by the value of a column (a seed), in order of appearance; lines without it are left out."""
    found: dict[str, Lines] = {}
    for number, line in lines:
        if column in line:
            found.setdefault(str(line[column]), []).append((number, line))
    return found.items()
