"""Reads runs to be drawn."""

from collections.abc import Iterable
from pathlib import Path

from grok_lightning.compare.clocks import Definition
from grok_lightning.compare.runs import LeftOut, Run, find, read
from grok_lightning.errors import ConfigError, require
from grok_lightning.recorded import load_run
from grok_lightning.report.drawn import Subject


def read_subject(path: Path) -> Subject:
    """One run, whatever is left of it.

    Raises:
        ConfigError: If it is no run directory, or a file of it cannot be read.
    """
    recorded = load_run(path)
    judged = read(path, Definition(), partial=True)
    if isinstance(judged, Run):
        return Subject(recorded, judged)
    return Subject(recorded, None, judged.reason)


def read_subjects(paths: Iterable[Path | str]) -> tuple[list[Subject], list[LeftOut]]:
    """Every run among the paths and their children; of several, those that cannot be read are left out by name.

    Raises:
        ConfigError: If a path does not exist, no run is found, or the only one cannot be read.
    """
    paths = list(paths)
    found, left_out = find(paths)
    if not found and len(paths) == 1:
        raise ConfigError(f"runs = {str(paths[0])!r}: {left_out[0].reason}")
    reasons = "; ".join(f"{run.path}: {run.reason}" for run in left_out[:3])
    require(bool(found), "runs", [str(path) for path in paths], f"no run directory among them: {reasons}")
    if len(found) == 1:
        return [read_subject(found[0])], left_out
    subjects = []
    for path in found:
        try:
            subjects.append(read_subject(path))
        except ConfigError as error:
            left_out.append(LeftOut(str(path), str(error).removeprefix(f"{path}/")))
    reasons = "; ".join(f"{run.path}: {run.reason}" for run in left_out[:3])
    require(bool(subjects), "runs", [str(path) for path in paths], f"none can be read: {reasons}")
    return subjects, left_out
