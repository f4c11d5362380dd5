"""The record of a run as one object: configuration, provenance, summary and every series."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from grok_lightning import yaml_files
from grok_lightning.compare.settings import Settings, flatten
from grok_lightning.errors import ConfigError
from grok_lightning.records import METRICS, Arrays, Columns, arrays, columns, read_jsonl, read_text

if TYPE_CHECKING:
    import pandas

FILES = ("config.yaml", "provenance.json", "summary.json", METRICS)
"""Files of a record."""


@dataclass(frozen=True)
class RecordedRun:
    """What a run directory holds; what is not there is empty and named in ``absent``.

    Attributes:
        path: The run directory.
        config: Content of ``config.yaml``.
        provenance: Content of ``provenance.json``.
        summary: Content of ``summary.json``.
        scalars: Key → (steps, values); a value stamped with step t belongs to weights after t updates.
        arrays: Key → (steps, arrays), for spectra and values per token.
        absent: Files of a record that are not there.
    """

    path: Path
    config: Mapping[str, Any]
    provenance: Mapping[str, Any]
    summary: Mapping[str, Any]
    scalars: Columns
    arrays: Arrays
    absent: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        """The configuration under dotted names: ``model.c``, ``data.p``."""
        return flatten(self.config)

    @property
    def status(self) -> str:
        """completed, failed, interrupted, or unfinished (no summary: still running, or killed)."""
        return str(self.summary.get("status", "unfinished"))

    @property
    def last_step(self) -> int | None:
        """Last step with anything on record; ``None`` if there is none."""
        ends = [steps[-1] for steps, _ in [*self.scalars.values(), *self.arrays.values()] if steps]
        return max(ends, default=None)

    def frame(self) -> "pandas.DataFrame":
        """Every scalar as a table: one row a step, one column a key, not-a-number where nothing was logged.

        Returns:
            float64, index ``step`` in rising order.

        Raises:
            ConfigError: If pandas is not installed; the message names the extra that brings it.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ConfigError(
                "frame: pandas is not installed; it comes with the extra: pip install 'grok_lightning[notebook]'"
            ) from None
        table = {key: pd.Series(values, index=steps, dtype="float64") for key, (steps, values) in self.scalars.items()}
        frame = pd.DataFrame(table).sort_index()
        return frame.rename_axis("step")


def load_run(path: Path | str) -> RecordedRun:
    """Read a run directory.

    Where a run was continued from a checkpoint, the later branch counts. A last line that was cut off is left out.

    Args:
        path: The run directory.

    Raises:
        ConfigError: If it is no run directory, or one of its files cannot be read.
    """
    path = Path(path)
    if not path.is_dir():
        why = "is no directory" if path.exists() else "there is no such directory"
        raise ConfigError(f"run = {str(path)!r}: {why}")
    absent = tuple(name for name in FILES if not (path / name).is_file())
    if len(absent) == len(FILES):
        raise ConfigError(f"run = {str(path)!r}: is no run directory, it holds none of {', '.join(FILES)}")
    lines = [] if METRICS in absent else read_jsonl(path / METRICS)
    return RecordedRun(
        path,
        _mapping(path / "config.yaml"),
        _mapping(path / "provenance.json"),
        _mapping(path / "summary.json"),
        columns(lines, path / METRICS, resumed=True),
        arrays(lines),
        absent,
    )


def _mapping(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    text = read_text(path)
    try:
        content = yaml_files.parse(text) if path.suffix == ".yaml" else json.loads(text)
    except (yaml.YAMLError, ValueError) as error:
        kind = "YAML" if path.suffix == ".yaml" else "JSON"
        raise ConfigError(f"{path}: is not {kind}: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold a mapping of names to values")
    return content
