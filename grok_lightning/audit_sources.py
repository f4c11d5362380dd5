"""Where an audit finds its series: run directories, CSV, JSON lines, NPZ."""

import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grok_lightning.errors import ConfigError
from grok_lightning.metric_keys import acc as acc_key
from grok_lightning.metric_keys import grad_norm, two_phase
from grok_lightning.metric_keys import spectrum as spectrum_key
from grok_lightning.numerics.two_phase import TwoPhaseClock, two_phase_clock
from grok_lightning.records import METRICS, Lines, columns, groups, names, read_csv, read_jsonl

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUN_ACC = acc_key("val")
"""Accuracy column of a run unless another is asked for."""

RUN_RANK = spectrum_key("E", "erank_sq")
"""Rank column of a run unless another is asked for: the notion of arXiv:2607.06639, on the embedding."""


@dataclass(frozen=True)
class Source:
    """Where to find the series in a file.

    Attributes:
        step: Column of the steps.
        acc: Column of the accuracy; ``None`` for ``val/acc`` in a run and ``acc`` elsewhere.
        rank: Column of the rank; ``None`` for ``spectrum/E/erank_sq`` in a run and ``rank`` elsewhere.
        seed: Column (CSV, JSON lines) or array (NPZ) that names the seeds; ``None`` if there is none.
        resumed: The runs were continued from a checkpoint into the same file; see ``records.columns``.
    """

    step: str = "step"
    acc: str | None = None
    rank: str | None = None
    seed: str | None = None
    resumed: bool = False


@dataclass(frozen=True)
class Series:
    """One run: two columns, each with steps of its own.

    Attributes:
        source: Run directory or file as it was given.
        seed: Which seed of it; ``None`` if it holds one run.
        steps: Steps at which the rank was logged.
        rank: One rank per step.
        acc_steps: Steps of the evaluations.
        acc: One accuracy per evaluation.
    """

    source: str
    seed: str | None
    steps: Sequence[int]
    rank: Sequence[float]
    acc_steps: Sequence[int]
    acc: Sequence[float]


def read_series(path: Path, source: Source) -> list[Series]:
    """Read every run or seed of a run directory or file.

    Raises:
        ConfigError: If the file or a column is missing, cannot be read or has the wrong shape.
    """
    if not path.exists():
        raise ConfigError(f"{path}: there is no such file or run directory")
    file = path / METRICS if path.is_dir() else path
    if not file.exists():
        runs = sorted(str(inner.parent) for inner in path.glob(f"*/{METRICS}"))
        hint = f"; below it: {', '.join(runs[:5])}" if runs else ""
        raise ConfigError(f"{path}: no run directory, it holds no {METRICS}{hint}")
    is_run = file.name == METRICS
    acc = source.acc or (RUN_ACC if is_run else "acc")
    rank = source.rank or (RUN_RANK if is_run else "rank")
    readers = {".jsonl": read_jsonl, ".csv": read_csv}
    if file.suffix.lower() == ".npz":
        return _read_npz(path, source, acc, rank)
    if file.suffix.lower() not in readers:
        raise ConfigError(f"{path}: must be a run directory or end in .csv, .jsonl or .npz")
    lines = readers[file.suffix.lower()](file)
    needed = [source.step, acc, rank] + ([source.seed] if source.seed else [])
    _check_names(file, needed, names(lines))
    runs_by_seed: Iterable[tuple[str | None, Lines]] = groups(lines, source.seed) if source.seed else [(None, lines)]
    series = []
    for seed, part in runs_by_seed:
        found = columns(part, file, source.step, (acc, rank), source.resumed)
        (acc_steps, accs), (steps, ranks) = (found.get(name, ([], [])) for name in (acc, rank))
        series.append(Series(str(path), seed, steps, ranks, acc_steps, accs))
    return series


def read_two_phase(path: Path, epsilon: float, resumed: bool = False) -> TwoPhaseClock | None:
    """The two-phase clock of a run directory that logged gradient and weight norms from step 0 on.

    Args:
        path: Run directory, or its metrics file.
        epsilon: Share of the first gradient norm that ends the fast phase.
        resumed: See ``records.columns``.

    Returns:
        ``None`` for other files, and for runs without these norms, with a first measurement after step 0, or with
        norms that are not finite.
    """
    file = path / METRICS if path.is_dir() else path
    if file.name != METRICS:
        return None
    keys = (grad_norm("all"), two_phase("weight_norm"), two_phase("decay_over_gradient"))
    found = columns(read_jsonl(file), file, resumed=resumed)
    if any(key not in found for key in keys):
        return None
    (steps, grads), (weight_steps, weights), (_, shares) = (found[key] for key in keys)
    usable = steps == weight_steps and steps[0] == 0 and all(map(isfinite, [*grads, *weights, shares[0]]))
    if not usable or not all(a < b for a, b in pairwise(steps)) or weights[0] == 0:
        return None
    return two_phase_clock(steps, grads, weights, shares[0] * grads[0] / weights[0], epsilon=epsilon)


def _check_names(path: Path, needed: Iterable[str], available: Sequence[str]) -> None:
    for name in needed:
        if name not in available:
            raise ConfigError(f"{path}: no column {name!r}; available: {', '.join(available) or 'none'}")


def _read_npz(path: Path, source: Source, acc: str, rank: str) -> list[Series]:
    arrays = _load_npz(path, [source.step, acc, rank] + ([source.seed] if source.seed else []))
    shape = arrays[rank].shape
    for name, allowed in ((rank, {shape}), (acc, {shape}), (source.step, {shape, shape[-1:]})):
        array = arrays[name]
        if array.dtype.kind not in "iuf" or array.ndim not in (1, 2) or array.size == 0:
            needed = "numbers of shape (steps,) or (seeds, steps) are needed"
            raise ConfigError(f"{path}: {name!r} is {array.dtype} of shape {array.shape}; {needed}")
        if array.shape not in allowed:
            raise ConfigError(f"{path}: {name!r} has shape {array.shape}, {rank!r} has shape {shape}")
    steps = arrays[source.step]
    if not bool((steps == steps.round()).all()) or not bool((abs(steps) < 2**53).all()):
        raise ConfigError(f"{path}: {source.step!r} holds values that are not whole numbers")
    shape = shape if len(shape) == 2 else (1, *shape)
    at = steps.astype(int).reshape(-1, shape[1]).tolist()
    at = at * shape[0] if len(at) == 1 else at  # one row of steps for all seeds
    accs, ranks = (arrays[name].astype(float).reshape(shape).tolist() for name in (acc, rank))
    labels: list[str | None] = [None] if arrays[rank].ndim == 1 else [str(i) for i in range(shape[0])]
    if source.seed:
        labels = [str(label) for label in arrays[source.seed].ravel()]
        if len(labels) != shape[0]:
            raise ConfigError(f"{path}: {source.seed!r} names {len(labels)} seeds, {rank!r} holds {shape[0]}")
    rows = zip(labels, at, ranks, accs, strict=True)
    return [Series(str(path), label, step, rk, step, ac) for label, step, rk, ac in rows]


def _load_npz(path: Path, needed: list[str]) -> dict[str, "NDArray[Any]"]:
    import numpy as np  # only this format needs it

    try:
        if not zipfile.is_zipfile(path):  # np.load would also take a single array, or try a pickle
            raise ConfigError(f"{path}: cannot be read as NPZ: it is no archive of arrays")
        # Opened here: numpy leaves a file open whose archive turns out to be broken.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            _check_names(path, needed, file.files)
            return {name: file[name] for name in needed}
    except ConfigError:
        raise
    except Exception as error:  # damaged archives raise whatever zipfile, zlib and numpy come across
        raise ConfigError(f"{path}: cannot be read as NPZ: {error}") from None
