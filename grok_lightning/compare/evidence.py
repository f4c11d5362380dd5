"""What claims are judged from: runs that differ in c alone, and what a verdict consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from grok_lightning.compare.cells import Bootstrap
from grok_lightning.compare.pairs import by_replicate
from grok_lightning.compare.runs import Run
from grok_lightning.compare.settings import SEEDS, Value, sort_key

Verdict = Literal["supported", "contradicted", "undetermined"]
C = "model.c"
GROUPING = ("data.task", "model", "model.optimizer", "model.lr", "data.batch_size")
"""Settings that the claims speak of: runs that differ in them are judged apart, pooled or not."""

Group = tuple[tuple[tuple[str, Value], ...], dict[Value, list[Run]]]
"""Settings that the runs share, and their runs by c, or by another setting that a claim is about."""

Draws = Mapping[float, NDArray[np.int64]]
"""Value of that setting → which of its runs each resample holds, shape (n_draws, n)."""


@dataclass(frozen=True)
class Claim:
    """A verdict on a claim in one setting.

    Attributes:
        name: C3 or C4.
        text: The claim.
        context: The settings it was judged in.
        verdict: What the runs say.
        n: Runs by value of c.
        estimate: What was measured, in words, with its interval.
        why: One sentence on how the verdict follows.
        numbers: The measured numbers.
        setting: What n counts runs by, in words.
    """

    name: str
    text: str
    context: tuple[tuple[str, Value], ...]
    verdict: Verdict
    n: Mapping[str, int]
    estimate: str
    why: str
    numbers: Mapping[str, float | int | None]
    setting: str = "c"


def group_runs(
    runs: Sequence[Run], by: Sequence[str], varied: str = C, grouping: Sequence[str] = GROUPING
) -> list[Group]:
    """Runs that differ in one setting alone (and seeds, and pooled settings that no claim speaks of).

    Args:
        runs: Runs that count.
        by: Full names of the settings that make cells.
        varied: The setting that claims are about.
        grouping: Settings that they speak of.
    """
    keys = tuple(dict.fromkeys((*grouping, *(name for name in by if name not in (varied, *SEEDS)))))
    groups: dict[tuple[Value, ...], dict[Value, list[Run]]] = {}
    for run in runs:
        context = tuple(run.settings.get(name) for name in keys)
        groups.setdefault(context, {}).setdefault(run.settings.get(varied), []).append(run)
    ordered = sorted(groups.items(), key=lambda item: [sort_key(value) for value in item[0]])
    return [
        (tuple(zip(keys, values, strict=True)), dict(sorted(cells.items(), key=lambda item: sort_key(item[0]))))
        for values, cells in ordered
    ]


def rates_by(one: Sequence[Run], other: Sequence[Run]) -> tuple[int, int, int]:
    """How many of each group grok by a step up to which all of them are known; and that step.

    The step is the last evaluated one of the run that was given up soonest without grokking: a run watched for
    longer must not count as better.
    """
    everyone = [*one, *other]
    given_up = [run.clocks.last_step for run in everyone if run.clocks.t_grok["first"] is None]
    horizon = min(given_up, default=max(run.clocks.last_step for run in everyone))
    counts = [
        sum((t := run.clocks.t_grok["first"]) is not None and t <= horizon for run in group) for group in (one, other)
    ]
    return counts[0], counts[1], horizon


def resamples(
    cells: Mapping[float, list[Run]], pool: Sequence[str], bootstrap: Bootstrap
) -> tuple[dict[float, list[Run]], Draws]:
    """Runs by value, and which of them each resample holds; where all have the same seeds, one draw of seeds for all.

    Args:
        cells: Runs by value of a setting.
        pool: Pooled settings that tell runs of equal seeds apart.
        bootstrap: Number and seed of the resamples.
    """
    generator = bootstrap.generator()
    keyed = {value: by_replicate(runs, (), pool) for value, runs in cells.items()}
    first = next(iter(keyed.values()))
    if all(runs.keys() == first.keys() and len(runs) == len(cells[value]) for value, runs in keyed.items()):
        shared = generator.integers(len(first), size=(bootstrap.n_draws, len(first)))
        return {value: [runs[key] for key in first] for value, runs in keyed.items()}, dict.fromkeys(cells, shared)
    own = {value: generator.integers(len(runs), size=(bootstrap.n_draws, len(runs))) for value, runs in cells.items()}
    return dict(cells), own
