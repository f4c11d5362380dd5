"""The settings of a run under dotted names, and which of them differ between runs."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grok_lightning.arguments import MODULAR
from grok_lightning.errors import ConfigError

Value = bool | int | float | str | tuple[Any, ...] | None
Settings = Mapping[str, Value]
"""Dotted name → value; a name that is not there is ``null``, as the run record leaves nulls out."""

SEEDS = ("seed_everything", "data.split_seed", "data.order_seed")
"""What tells replicates of the same settings apart."""

CLOCKS = {
    "mem": "grokking.mem_threshold",
    "grok": "grokking.grok_threshold",
    "part": "grokking.part",
    "sustain": "grokking.sustain_evaluations",
}
"""Settings that define a clock; see :class:`grok_lightning.compare.clocks.Definition`."""

LENGTH = (
    "ckpt_path",
    "grokking.stop_after_steps",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.max_time",
    "trainer.min_epochs",
    "trainer.min_steps",
)
"""Settings that decide how long a run was watched, not when it groks."""

_NEUTRAL = (
    "balance.", "checkpoint.", "fourier.", "health.", "hessian.", "interpolator.", "ntk.", "numerics.", "record.",
    "spectrum.", "tokens.", "trainer.logger.", "two_phase.",
)  # fmt: skip
_NEUTRAL_NAMES = (
    "config",
    "trainer.default_root_dir",
    "trainer.enable_autolog_hparams",
    "trainer.enable_checkpointing",
    "trainer.enable_model_summary",
    "trainer.enable_progress_bar",
    "trainer.log_every_n_steps",
    "trainer.logger",
)
_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")


def flatten(config: Mapping[str, Any]) -> dict[str, Value]:
    """Dotted names of a configuration.

    A class with arguments, ``model: {class_path: X, init_args: {c: 10}}``, gives ``model: X`` and ``model.c: 10``.
    The class of data is left out where it is modular arithmetic. Nulls are left out; a list is one value.
    """
    found: dict[str, Value] = {}
    for key, value in config.items():
        _walk(str(key), value, found)
    if found.get("data") == MODULAR:  # which files leave out
        del found["data"]
    return found


def _walk(name: str, value: Any, found: dict[str, Value]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            outer = name if key in ("class_path", "init_args") else f"{name}.{key}"
            _walk(outer, inner, found)
    elif isinstance(value, list):
        plain = all(not isinstance(item, list | dict) for item in value)
        found[name] = tuple(value) if plain else json.dumps(value, sort_keys=True, default=str)
    elif value is not None:
        found[name] = scalar(value)


def scalar(value: Any) -> Value:
    """A value as YAML 1.2 has it: ``1e-3`` is a number, a date is text."""
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        return float(value)
    return value if isinstance(value, bool | int | float | str) else str(value)


def is_neutral(name: str) -> bool:
    """Whether a setting cannot change a clock: where records go, what is measured and printed."""
    return name in _NEUTRAL_NAMES or name.startswith(_NEUTRAL)


def resolve(key: str, names: Iterable[str], option: str) -> str:
    """The full name behind a key: itself, or the one name that ends in ``.key``.

    ``model.init_args.c``, ``model.c`` and ``c`` are the same key, and so are ``model.class_path`` and ``model``.

    Raises:
        ConfigError: If no setting or more than one fits; candidates are named.
    """
    known = sorted(set(names))
    short = key.replace(".init_args", "").removesuffix(".class_path")
    if short in known:
        return short
    fitting = [name for name in known if name.endswith(f".{short}")]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ConfigError(f"{option} = {key!r}: could be any of {', '.join(fitting)}")
    close = difflib.get_close_matches(short, known, 3, 0.5)
    hint = f"; close to it: {', '.join(close)}" if close else ""
    raise ConfigError(f"{option} = {key!r}: no run has such a setting{hint}")


def sort_key(value: Value) -> tuple[int, float, str]:
    """Numbers first and in order, then text, then null."""
    if value is None:
        return 2, 0.0, ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def show(value: Value) -> str:
    """A value as a person writes it; classes of this package by their bare name."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str) and value.startswith("grok_lightning."):
        return value.rsplit(".", 1)[-1]
    return str(value)


def differing(all_settings: Sequence[Settings], names: Iterable[str]) -> dict[str, list[Value]]:
    """Those of the names that have more than one value, and their values in order."""
    found: dict[str, list[Value]] = {}
    for name in sorted(set(names)):
        values = {settings.get(name) for settings in all_settings}
        if len(values) > 1:
            found[name] = sorted(values, key=sort_key)
    return found


def words(name: str, values: Sequence[Value]) -> str:
    """``name (1, 2, null)``, shortened."""
    shown = [show(value) for value in values[:6]] + (["…"] if len(values) > 6 else [])
    return f"{name} ({', '.join(shown)})"
