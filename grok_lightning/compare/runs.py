"""Finds run directories and reads what a comparison needs; what cannot be used is named with the reason."""

import contextlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grok_lightning import yaml_files
from grok_lightning.compare.clocks import Clocks, Definition, UnusableError, read_clocks, recorded_definition
from grok_lightning.compare.settings import SEEDS, Settings, Value, flatten
from grok_lightning.errors import ConfigError
from grok_lightning.metric_keys import PARTS, acc, two_phase
from grok_lightning.records import METRICS, Columns, read_metrics

FILES = ("config.yaml", "summary.json", METRICS)
"""A directory with one of them is a run."""


@dataclass(frozen=True)
class LeftOut:
    """A directory that does not count, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        path: Its directory, as found.
        status: completed, failed, interrupted, or unfinished (no summary: still running, or killed).
        reason: Why it failed or was interrupted.
        settings: Its configuration under dotted names.
        definition: What its clocks mean.
        clocks: Its clocks.
        final_acc: Part of the table → last accuracy.
        test_acc: Steps of the evaluations, and the test accuracy at each; empty if the record has none.
        decay_bound: ‖∇F(w_0)‖/‖w_GF‖, which weight decay has to be small against; ``None`` if not recorded.
        started: When it started, as the record has it (sorts by time); empty if unknown.
        version: Version of the package that made it; ``None`` if unknown.
        environment: Versions and hardware that can move numbers by rounding.
    """

    path: str
    status: str
    reason: str
    settings: Settings
    definition: Definition
    clocks: Clocks
    final_acc: Mapping[str, float | None]
    test_acc: tuple[Sequence[int], Sequence[float]]
    decay_bound: float | None
    started: str
    version: str | None
    environment: Mapping[str, str]

    @property
    def partial(self) -> bool:
        """Whether the run did not come to its own end."""
        return self.status != "completed"

    def test_acc_at(self, step: int) -> float | None:
        """Test accuracy at the last evaluation up to a step; ``None`` if there is none."""
        steps, values = self.test_acc
        at = bisect_right(steps, step)
        return values[at - 1] if at else None

    def replicate(self, without: Iterable[str] = ()) -> tuple[Value, ...] | None:
        """The seeds that tell this run from its replicates; ``None`` if one is not recorded.

        Args:
            without: Seeds that are settings of the comparison themselves.
        """
        other_data = "data" in self.settings  # which may lack a seed that modular arithmetic has, and then record none
        names = [name for name in SEEDS if name in self.settings or name == SEEDS[0] or not other_data]
        seeds = tuple(self.settings.get(name) for name in names if name not in without)
        drawn = any(seed is None or isinstance(seed, bool) for seed in seeds)  # true asks for any seed
        return None if drawn else seeds


def find(paths: Iterable[Path | str]) -> tuple[list[Path], list[LeftOut]]:
    """Run directories among the paths and among their children.

    Directories whose name begins with a dot are passed over in silence: sweeps keep their state there, which says what
    failed before it had a run directory.

    Raises:
        ConfigError: If a path does not exist.
    """
    found: dict[Path, Path] = {}
    left_out: list[LeftOut] = []
    for path in map(Path, paths):
        if not path.exists():
            raise ConfigError(f"paths = {str(path)!r}: there is no such file or directory")
        top = path.parent if path.name in FILES and path.is_file() else path
        if _is_run(top):
            found.setdefault(top.resolve(), top)
            continue
        inside = sorted(p for p in top.iterdir() if p.is_dir() and p.name[0] != ".") if top.is_dir() else []
        for child in inside:
            if _is_run(child):
                found.setdefault(child.resolve(), child)
        if not any(map(_is_run, inside)):
            deeper = any(_is_run(p) for child in inside for p in child.iterdir())
            hint = "; the directories in it do, name those" if deeper else ""
            left_out.append(LeftOut(str(path), f"is no run directory and holds none{hint}"))
        else:
            left_out += [LeftOut(str(p), "is no run directory") for p in inside if not _is_run(p)]
        left_out += _never_begun(top)
    return list(found.values()), left_out


def _never_begun(top: Path) -> list[LeftOut]:
    """What a sweep in this directory could not start, or was refused, so that no run directory tells of it."""
    found = []
    for file in sorted((top / ".sweep" / "trials").glob("*.json")):
        run = top / file.stem
        with contextlib.suppress(UnusableError):
            trial = _json(file)
            if trial.get("status") == "failed" and not run.exists():
                found.append(LeftOut(str(run), f"failed before it wrote anything: {trial.get('error')}"))
    return found


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in FILES)


def read(path: Path, wanted: Definition, partial: bool) -> Run | LeftOut:
    """Read one run directory.

    Args:
        path: The directory.
        wanted: What of the clocks' definition to override; where it says anything, clocks are computed again.
        partial: Whether runs count that did not come to their end.
    """
    try:
        return _read(path, wanted, partial)
    except UnusableError as error:
        return LeftOut(str(path), str(error))
    except ConfigError as error:
        return LeftOut(str(path), str(error).removeprefix(f"{path}/"))


def _read(path: Path, wanted: Definition, partial: bool) -> Run:
    settings = _settings(path / "config.yaml")
    summary = _json(path / "summary.json") if (path / "summary.json").exists() else {}
    status, reason = _status(summary, partial)
    series = read_metrics(path, resumed=True) if (path / METRICS).exists() else {}
    recorded = recorded_definition(summary, settings, series)
    definition = recorded.overridden(wanted)
    overridden = wanted != Definition() and definition != recorded
    clocks = read_clocks(summary, series, definition, settings.get("trainer.val_check_interval"), overridden)
    provenance = _json(path / "provenance.json") if (path / "provenance.json").exists() else {}
    environment = {name: str(provenance[name]) for name in ("torch", "device", "precision") if name in provenance}
    version = provenance.get("grok_lightning")
    return Run(
        str(path),
        status,
        reason,
        settings,
        definition,
        clocks,
        {part: _final(part, summary, series) for part in PARTS},
        series.get(acc("test"), ([], [])),
        next(iter(series.get(two_phase("bound"), ([], []))[1][-1:]), None),
        str(provenance.get("started", "")),
        None if version is None else str(version),
        environment,
    )


def _status(summary: Mapping[str, Any], partial: bool) -> tuple[str, str]:
    status = summary.get("status") if summary else "unfinished"
    reason = " ".join(str(summary.get("reason", "")).split())
    if status == "completed" or (partial and status in ("failed", "interrupted", "unfinished")):
        return str(status), reason
    if status == "unfinished":
        raise UnusableError("no summary.json: still running, or killed (--partial counts it, as censored)")
    if status in ("failed", "interrupted"):
        raise UnusableError(f"{status}{f': {reason}' if reason else ''} (--partial counts it, as censored)")
    raise UnusableError(f"summary.json: status = {status!r} is none of completed, failed, interrupted")


def _final(part: str, summary: Mapping[str, Any], series: Columns) -> float | None:
    stated = summary.get("final_acc")
    value = stated.get(part) if isinstance(stated, dict) else None
    if value is None and (values := series.get(acc(part), ([], []))[1]):
        value = values[-1]
    return float(value) if isinstance(value, int | float) else None


def _settings(path: Path) -> Settings:
    if not path.exists():
        raise UnusableError("no config.yaml: its settings are unknown")
    try:
        content = yaml_files.parse(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise UnusableError(f"config.yaml cannot be read ({type(error).__name__})") from None
    if not isinstance(content, dict) or not ({"model", "data"} & content.keys()):
        raise UnusableError("config.yaml is no configuration of a fit: it has neither model nor data")
    return flatten(content)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UnusableError(f"{path.name} cannot be read ({type(error).__name__})") from None
    if not isinstance(content, dict) or not content:
        raise UnusableError(f"{path.name} is no JSON object with content")
    return content
