"""T_mem and T_grok of a recorded run: from its summary, or again from its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from grok_lightning.compare.settings import CLOCKS, Settings
from grok_lightning.errors import require
from grok_lightning.metric_keys import acc
from grok_lightning.numerics.clocks import GrokClocks, check_threshold, crossing
from grok_lightning.records import Columns

ClockName = Literal["first", "sustained"]
CLOCK_NAMES: tuple[ClockName, ...] = get_args(ClockName)
KEYS = ("t_mem", "t_mem_sustained", "t_grok", "t_grok_sustained")
"""Keys of ``clocks_steps`` in a summary."""


class UnusableError(Exception):
    """A run cannot be used; the message says why."""


@dataclass(frozen=True)
class Definition:
    """What the clocks of a run mean.

    Attributes:
        mem: Training accuracy that counts as memorised; ``None`` if the record does not say.
        grok: Accuracy on unseen pairs that counts as generalised; ``None`` if the record does not say.
        part: Which unseen pairs: val or test; ``None`` if the record does not say.
        sustain: Evaluations in a row that count as sustained; ``None`` for the rest of the run.
    """

    mem: float | None = None
    grok: float | None = None
    part: str | None = None
    sustain: int | None = None

    def check(self) -> None:
        """Refuse thresholds that are no accuracy, and parts that are not unseen.

        Raises:
            ConfigError: Naming the option.
        """
        for option, value in (("mem_threshold", self.mem), ("threshold", self.grok)):
            require(value is None or check_threshold(value), option, value, "must be in (0, 1]")
        require(self.part in (None, "val", "test"), "part", self.part, "must be val or test")
        require(self.sustain is None or self.sustain >= 1, "sustain_evaluations", self.sustain, "must be 1 or more")

    def overridden(self, by: "Definition") -> "Definition":
        """This definition with what the other one states."""
        return replace(self, **{name: value for name, value in vars(by).items() if value is not None})


def recorded_definition(summary: Mapping[str, Any], settings: Settings, series: Columns) -> Definition:
    """What a record says of its clocks, in the summary or else in the configuration."""
    thresholds = summary.get("thresholds")
    stated = dict(thresholds) if isinstance(thresholds, dict) else {}
    found = {
        name: stated[name] if name in stated else settings.get(key)
        for name, key in (("mem", CLOCKS["mem"]), ("grok", CLOCKS["grok"]), ("part", CLOCKS["part"]))
    }
    if found["part"] is None and series:
        found["part"] = "val" if acc("val") in series else "test"
    sustain = stated.get("sustain_evaluations", settings.get(CLOCKS["sustain"]))
    return Definition(_number(found["mem"]), _number(found["grok"]), _text(found["part"]), _whole(sustain))


@dataclass(frozen=True)
class Clocks:
    """Clocks of a run, in steps; ``None`` where not reached.

    Attributes:
        t_mem: By clock: first, sustained.
        t_grok: By clock: first, sustained.
        resolution: T_grok lies within so many steps before the first crossing; ``None`` if not reached or unknown.
        last_step: Last evaluated step: where T_grok is censored.
        recomputed: Why the summary's clocks were not taken; ``None`` if they were.
    """

    t_mem: Mapping[ClockName, int | None]
    t_grok: Mapping[ClockName, int | None]
    resolution: int | None
    last_step: int
    recomputed: str | None


def read_clocks(
    summary: Mapping[str, Any], series: Columns, definition: Definition, interval: object, overridden: bool
) -> Clocks:
    """Clocks of one run.

    Args:
        summary: Content of ``summary.json``; empty if there is none.
        series: Metrics of the run; empty if there are none.
        definition: What the clocks mean.
        interval: ``trainer.val_check_interval``.
        overridden: Whether the definition is another than the one the summary was made with.

    Raises:
        UnusableError: If neither summary nor metrics carry what is needed.
    """
    stated = summary.get("clocks_steps")
    known = dict(stated) if isinstance(stated, dict) else {}
    missing = [key for key in KEYS if key not in known]
    for key in KEYS:
        if known.get(key) is not None and _whole(known[key]) is None:
            raise UnusableError(f"summary.json: clocks_steps.{key} = {known[key]!r} is no step")
    why = "as asked" if overridden else "no summary" if not summary else None
    if why is None and missing:
        why = f"the summary has no {', '.join(missing)}"
    last = _last_step(summary, series, definition.part)
    if why is not None:
        clocks = _compute(series, definition, interval)
        known, resolution = clocks.as_dict(), clocks.t_grok.resolution
    else:
        resolution = _resolution(known["t_grok"], series, definition.part, interval)
    late = [key for key in KEYS if known[key] is not None and known[key] > last]
    if late:
        raise UnusableError(f"{late[0]} = {known[late[0]]} lies after the last evaluated step {last}")
    return Clocks(
        {"first": known["t_mem"], "sustained": known["t_mem_sustained"]},
        {"first": known["t_grok"], "sustained": known["t_grok_sustained"]},
        resolution,
        last,
        why,
    )


def _compute(series: Columns, definition: Definition, interval: object) -> GrokClocks:
    if not series:
        raise UnusableError("the clocks have to be computed, and there are no metrics to compute them from")
    if definition.grok is None or definition.mem is None or definition.part is None:
        raise UnusableError(
            "the record does not say which thresholds its clocks have: give --threshold, --mem_threshold"
        )
    parts = []
    for part, threshold in (("train_full", definition.mem), (definition.part, definition.grok)):
        steps, values = series.get(acc(part), ([], []))
        if not steps:
            raise UnusableError(f"metrics.jsonl has no {acc(part)}")
        if isinstance(interval, int) and steps[0] > interval:
            raise UnusableError(
                f"{acc(part)} begins at step {steps[0]} only (continued run): what came before is unknown"
            )
        try:
            parts.append(crossing(steps, values, threshold, definition.sustain))
        except ValueError as error:
            raise UnusableError(f"metrics.jsonl, {acc(part)}: {error}") from None
    return GrokClocks(*parts)


def _last_step(summary: Mapping[str, Any], series: Columns, part: str | None) -> int:
    steps = series.get(acc(part or "val"), ([], []))[0]
    found = max(steps) if steps else _whole(summary.get("steps"))
    if found is None:
        raise UnusableError("no evaluation was recorded")
    return found


def _resolution(t_grok: int | None, series: Columns, part: str | None, interval: object) -> int | None:
    if t_grok is None:
        return None
    steps = series.get(acc(part or "val"), ([], []))[0]
    if t_grok in steps:
        place = steps.index(t_grok)
        return t_grok - (steps[place - 1] if place else 0)
    return interval if isinstance(interval, int) else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None
