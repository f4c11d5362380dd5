"""A comparison as CSV and JSON, and files written whole or not at all."""

import csv
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grok_lightning.compare.cells import Cell, ClockStats
from grok_lightning.compare.comparison import Comparison
from grok_lightning.errors import ConfigError


def check_writable(option: str, path: Path) -> None:
    """Refuse a file that cannot be written, without touching it.

    Raises:
        ConfigError: With the reason.
    """
    if path.is_dir():
        raise ConfigError(f"{option} = {str(path)!r}: is a directory")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"{option} = {str(path)!r}: there is no directory {folder}")
    try:
        write_whole(folder / f".{path.name}.probe", Path.touch)
        (folder / f".{path.name}.probe").unlink()
    except OSError as error:
        raise ConfigError(f"{option} = {str(path)!r}: {folder} cannot be written to ({error.strerror})") from None


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name, and give it its own once it is complete.

    Args:
        path: The file.
        write: Writes to the path it is given.
    """
    partial = path.with_name(f".{os.getpid()}.partial.{path.name}")
    try:
        write(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(comparison: Comparison, path: Path) -> None:
    """Write everything: options, cells, contrasts, claims, single runs, and what was left out.

    ``null`` is "does not exist" (no interval below two runs, not reached in one run); ``"inf"`` is a median or an
    end of an interval that is not reached.
    """
    text = json.dumps(as_dict(comparison), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(path, lambda partial: partial.write_text(text + "\n", encoding="utf-8"))


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """Content of the JSON file."""
    every = [run.settings for run in comparison.runs]
    names = sorted({name for settings in every for name in settings})
    varying = [name for name in names if any(settings.get(name) != every[0].get(name) for settings in every)]
    content: dict[str, Any] = {
        "grok_lightning": comparison.version,
        "by": comparison.by,
        "pool": comparison.pool,
        "baseline": comparison.baseline,
        "alpha": comparison.alpha,
        "bootstrap": asdict(comparison.bootstrap),
        "partial": comparison.partial,
        "shared_settings": {name: every[0].get(name) for name in names if name not in varying},
        "cells": [_cell(cell, varying) for cell in comparison.cells],
        "contrasts": [asdict(contrast) | {"context": dict(contrast.context)} for contrast in comparison.contrasts],
        "claims": [asdict(claim) | {"context": dict(claim.context)} for claim in comparison.claims],
        "finals": [asdict(final) | {"cell": dict(final.cell)} for final in comparison.finals],
        "left_out": [asdict(run) for run in comparison.left_out],
        "notes": comparison.notes,
    }
    cleaned: dict[str, Any] = _clean(content)
    return cleaned


def _cell(cell: Cell, varying: Sequence[str]) -> dict[str, Any]:
    return {
        "settings": dict(cell.key),
        "n": len(cell.runs),
        "clocks": [asdict(stats) for stats in cell.clocks],
        "final_test_acc": cell.final_test_acc,
        "final_test_acc_interval": cell.final_test_acc_interval,
        "resolution": cell.resolution,
        "runs": [
            {
                "path": run.path,
                "status": run.status,
                "reason": run.reason,
                "settings": {name: run.settings.get(name) for name in varying},
                "definition": asdict(run.definition),
                "clocks": asdict(run.clocks),
                "final_acc": dict(run.final_acc),
                "started": run.started,
                "version": run.version,
                "environment": dict(run.environment),
            }
            for run in cell.runs
        ],
    }


def _clean(value: Any) -> Any:
    """JSON has neither infinity nor not-a-number."""
    if isinstance(value, dict):
        return {str(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else None if math.isnan(value) else "-inf"
    return value


COLUMNS = (
    "clock", "n", "grokked", "rate", "rate_low", "rate_high", "t_grok", "t_grok_low", "t_grok_high", "t_mem", "delay",
    "censored", "censored_steps", "resolution", "final_test_acc", "final_test_acc_low", "final_test_acc_high",
)  # fmt: skip


def write_csv(comparison: Comparison, path: Path) -> None:
    """Write one row per cell and clock; an empty field is "does not exist", ``inf`` is "not reached"."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*comparison.by, *COLUMNS])
    for cell in comparison.cells:
        for stats in cell.clocks:
            table.writerow(["" if field is None else field for field in _row(cell, stats)])
    write_whole(path, lambda partial: partial.write_text(text.getvalue(), encoding="utf-8"))


def _row(cell: Cell, stats: ClockStats) -> list[Any]:
    return [
        *(value for _, value in cell.key),
        stats.clock,
        len(cell.runs),
        stats.grokked,
        stats.rate,
        *stats.rate_interval,
        stats.t_grok,
        *(stats.t_grok_interval or (None, None)),
        stats.t_mem,
        stats.delay,
        len(stats.censored_steps),
        " ".join(map(str, stats.censored_steps)),
        cell.resolution,
        cell.final_test_acc,
        *(cell.final_test_acc_interval or (None, None)),
    ]
