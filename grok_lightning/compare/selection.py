"""Which runs may be compared: one definition of the clocks, one value of every other setting, one run per replicate."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grok_lightning.compare.runs import LeftOut, Run
from grok_lightning.compare.settings import (
    CLOCKS,
    LENGTH,
    SEEDS,
    Value,
    differing,
    is_neutral,
    resolve,
    show,
    words,
)
from grok_lightning.errors import ConfigError, require

_OPTIONS = {"mem": "mem_threshold", "grok": "threshold", "part": "part", "sustain": "sustain_evaluations"}
_CLASSES = ("model", "data.task")
"""Settings that name a class: another class has other settings."""


@dataclass(frozen=True)
class Selection:
    """Runs that count.

    Attributes:
        by: Full names of the settings that make cells.
        pool: Full names of the settings that may differ inside a cell.
        runs: The runs.
        left_out: Runs that do not count, and why.
        notes: What a reader has to know about the runs that do.
    """

    by: tuple[str, ...]
    pool: tuple[str, ...]
    runs: tuple[Run, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]


def select(runs: Sequence[Run], by: Sequence[str], pool: Sequence[str]) -> Selection:
    """Settle keys, refuse what must not be mixed, and drop repetitions.

    Raises:
        ConfigError: If a key fits no setting or several, or runs differ in a setting that is not accounted for.
    """
    names = {name for run in runs for name in run.settings}
    keys = tuple(resolve(key, names | set(CLOCKS.values()) | set(LENGTH), "by") for key in by)
    require(len(set(keys)) == len(keys) > 0, "by", list(by), "must be one or more different settings")
    pooled = tuple(resolve(key, names, "pool") for key in pool)
    both = [key for key in pooled if key in keys]
    require(not both, "pool", both, "a setting is either in --by or pooled")
    kept, old = _without_old(runs, keys, pooled)
    _check_clocks(kept, keys)
    notes = _check_settings(kept, keys, pooled)
    kept, repeated = _without_repetitions(kept, keys, pooled)
    left_out = (*old, *repeated)
    mixed = differing([run.settings for run in kept], pooled)
    notes += [f"{words(name, values)} is pooled: cells mix its values" for name, values in mixed.items()]
    return Selection(keys, pooled, tuple(kept), left_out, (*notes, *_notes(kept, keys)))


def _counting(runs: Sequence[Run], keys: Iterable[str]) -> list[str]:
    """Settings that have to agree."""
    apart = {*keys, *SEEDS, *LENGTH, *CLOCKS.values()}
    return sorted({name for run in runs for name in run.settings if name not in apart and not is_neutral(name)})


def _without_old(runs: Sequence[Run], by: Sequence[str], pool: Sequence[str]) -> tuple[list[Run], list[LeftOut]]:
    """Leave out runs of older versions whose record lacks a setting that matters here."""
    newest = max((_release(run.version) for run in runs), default=())
    fresh = [run for run in runs if _release(run.version) == newest]
    kept, left_out = [], []
    for run in runs:
        candidates = {*by, *_counting(fresh, (*by, *pool))} if _release(run.version) < newest else set()
        lacking = sorted(
            name
            for name in candidates
            if name not in run.settings
            and any(name in other.settings and _same_classes(run, other) for other in fresh)
        )  # fmt: skip
        if lacking:
            how = "by an unknown version" if run.version is None else f"by version {run.version}"
            reason = f"recorded {how}, which does not say {', '.join(lacking)}"
            advice = "" if set(lacking) & set(by) else f" (--pool {' '.join(lacking)} takes it in)"
            left_out.append(LeftOut(run.path, reason + advice))
        else:
            kept.append(run)
    return kept, left_out


def _same_classes(one: Run, other: Run) -> bool:
    return all(one.settings.get(name) == other.settings.get(name) for name in _CLASSES)


def _release(version: str | None) -> tuple[int, ...]:
    return () if version is None else tuple(int(number) for number in re.findall(r"\d+", version.split("+")[0]))


def _check_clocks(runs: Sequence[Run], by: Sequence[str]) -> None:
    for field, option in _OPTIONS.items():
        if CLOCKS[field] in by:
            continue
        values = {getattr(run.definition, field) for run in runs}
        if len(values) > 1:
            shown = ", ".join(sorted(show(value) for value in values))
            raise ConfigError(
                f"{CLOCKS[field]} differs between the runs ({shown}): their clocks are not the same; "
                f"--{option} VALUE computes them again from the metrics"
            )


def _check_settings(runs: Sequence[Run], by: Sequence[str], pool: Sequence[str]) -> list[str]:
    classes = [name for name in _CLASSES if name in by]
    groups: dict[tuple[Value, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(run.settings.get(name) for name in classes), []).append(run)
    counting = _counting(runs, (*by, *pool))
    offending, notes = {}, []
    for name, values in differing([run.settings for run in runs], counting).items():
        inside = any(differing([run.settings for run in group], [name]) for group in groups.values())
        if not inside and len(values) == 2 and None in values:  # another class, without this argument
            notes.append(f"{words(name, values)}: not every {' and '.join(classes)} has it")
        else:
            offending[name] = values
    if offending:
        what = "; ".join(words(name, values) for name, values in offending.items())
        raise ConfigError(
            f"settings differ between the runs: {what}. Add them to --by, or mix them inside each cell with "
            f"--pool {' '.join(offending)}"
        )
    return notes


def _without_repetitions(
    runs: Sequence[Run], by: Sequence[str], pool: Sequence[str]
) -> tuple[list[Run], list[LeftOut]]:
    """Of runs with equal settings and seeds keep one: a complete one, then the longest, then the latest."""
    best: dict[tuple[object, ...], Run] = {}
    names = [*by, *_counting(runs, by)]

    def key(run: Run) -> tuple[object, ...]:
        seeds = run.replicate()
        return (run.path,) if seeds is None else (tuple(run.settings.get(name) for name in names), seeds)

    for run in sorted(runs, key=lambda run: (not run.partial, run.clocks.last_step or 0, run.started, run.path)):
        best[key(run)] = run
    kept, left_out = {id(run) for run in best.values()}, []
    for run in runs:
        if id(run) not in kept:
            other = best[key(run)].path
            left_out.append(
                LeftOut(run.path, f"{other} has the same settings and seeds, is longer or later, and is kept")
            )
    return [run for run in runs if id(run) in kept], left_out


def _notes(runs: Sequence[Run], by: Sequence[str]) -> list[str]:
    settings = [run.settings for run in runs]
    notes = [
        f"{words(name, values)} differs between the runs: this moves where they are censored"
        for name, values in differing(settings, [name for name in LENGTH if name not in by]).items()
        if name != "ckpt_path"
    ]
    if n := sum(run.settings.get("ckpt_path") is not None for run in runs):
        notes.append(f"{n} of the runs continued from a checkpoint")
    for name in ("torch", "device", "precision"):
        values = sorted({run.environment[name] for run in runs if name in run.environment})
        if len(values) > 1:
            notes.append(f"the runs come from more than one {name}: {', '.join(values)}")
    if n := sum(run.partial for run in runs):
        notes.append(f"{n} partial runs are counted: T_grok as far as observed, else censored at the last evaluation")
    if n := sum(run.replicate() is None for run in runs):
        notes.append(f"{n} runs record no seeds and are in no pair")
    again: dict[str, int] = {}
    for run in runs:
        if run.clocks.recomputed is not None:
            again[run.clocks.recomputed] = again.get(run.clocks.recomputed, 0) + 1
    notes += [f"clocks of {n} runs were computed from their metrics: {why}" for why, n in sorted(again.items())]
    return notes
