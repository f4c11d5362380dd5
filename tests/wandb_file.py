"""Reads what W&B keeps of an offline run: a LevelDB log of protobuf records in a ``.wandb`` file."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2 as pb

BLOCK = 32768
HEADER = 7
FULL, LAST = 1, 4


def records(path: Path) -> Iterator[Any]:
    """Every complete record of a run that has ended; W&B's own process writes the last ones on its own time."""
    deadline = time.monotonic() + 20
    while not (found := list(_records(path))) or found[-1].WhichOneof("record_type") not in ("exit", "footer"):
        assert time.monotonic() < deadline, f"{path} has no end"
        time.sleep(0.1)
    yield from found


def _records(path: Path) -> Iterator[Any]:
    data = Path(path).read_bytes()
    assert data[:4] == b":W&B", f"{path} is no W&B file"
    position, content = HEADER, b""
    while position + HEADER <= len(data):
        left = BLOCK - position % BLOCK
        _, length, kind = struct.unpack("<IHB", data[position : position + HEADER])
        if left < HEADER or kind == 0:  # padding up to the next block
            position += left
            continue
        end = position + HEADER + length
        if end > len(data):
            return
        content += data[position + HEADER : end]
        position = end
        if kind in (FULL, LAST):
            record = pb.Record()
            record.ParseFromString(content)
            content = b""
            yield record


def history(path: Path) -> list[dict[str, Any]]:
    """One dict per logged line, key → value; a histogram is a dict with ``_type``, ``bins`` and ``values``."""
    return [_nested(record.history.item) for record in records(path) if record.WhichOneof("record_type") == "history"]


def config(path: Path) -> dict[str, Any]:
    """The configuration of the run, later updates over earlier ones."""
    found: dict[str, Any] = {}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind in ("run", "config"):
            updates = record.run.config.update if kind == "run" else record.config.update
            found |= _nested(updates)
    return found


def _nested(items: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        *outer, last = list(item.nested_key) or [item.key]
        inner = found
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = json.loads(item.value_json)
    return found
