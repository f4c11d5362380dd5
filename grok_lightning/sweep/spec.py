"""Reading a W&B sweep file, and refusing what cannot be run here."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grok_lightning import yaml_files
from grok_lightning.errors import ConfigError, require
from grok_lightning.records import read_text
from grok_lightning.sweep.command import COMMAND_EXAMPLE, Command, read_command

METHODS = ("grid", "random", "bayes")
FIELDS = (
    "program",
    "method",
    "metric",
    "command",
    "parameters",
    "run_cap",
    "name",
    "project",
    "entity",
    "description",
    "early_terminate",
)
RANGES = ("uniform", "int_uniform", "q_uniform", "log_uniform_values", "q_log_uniform_values")
"""Distributions over min … max, by their W&B names."""

_KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Parameter:
    """One entry of ``parameters``.

    Attributes:
        key: Flag without its dashes, such as ``model.c``.
        distribution: ``constant``, ``categorical`` or one of :data:`RANGES`.
        values: What is tried; a single value for a constant, none for a range.
        low: Lower end of a range, included.
        high: Upper end of a range, included.
        q: Distance between values of a quantised range.
    """

    key: str
    distribution: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    q: float | None = None

    @property
    def swept(self) -> bool:
        """Whether runs can differ in it."""
        return self.distribution in RANGES or len(self.values) > 1


@dataclass(frozen=True)
class Sweep:
    """A sweep file.

    Attributes:
        path: The file.
        text: Its content.
        method: grid, random or bayes.
        command: What every run has in common.
        parameters: What they differ in, in the order of the file.
        metric: Column of ``metrics.jsonl`` that bayes improves; ``None`` if the file names none.
        maximize: Whether more of it is better.
        run_cap: Most runs; ``None`` without a limit.
        early_terminate: Whether the file asks to stop bad runs early, which is left to W&B.
    """

    path: Path
    text: str
    method: str
    command: Command
    parameters: tuple[Parameter, ...]
    metric: str | None
    maximize: bool
    run_cap: int | None
    early_terminate: bool

    @property
    def swept(self) -> list[str]:
        """Keys in which runs can differ."""
        return [parameter.key for parameter in self.parameters if parameter.swept]


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Args:
        path: The file, YAML as W&B takes it.

    Raises:
        ConfigError: With the field and what is allowed.
    """
    text = read_text(path)
    content = _mapping(path, text)
    for name in content:
        require(name in FIELDS, f"{path}: field", name, f"must be one of {', '.join(FIELDS)}")
    method = content.get("method")
    require(method in METHODS, "method", method, f"must be one of {', '.join(METHODS)}")
    parameters = content.get("parameters")
    if not isinstance(parameters, dict) or not parameters:
        raise ConfigError(f"parameters = {parameters!r}: must map flags, such as model.c, to their values")
    metric, maximize = _metric(content.get("metric"), str(method))
    cap = content.get("run_cap")
    require(cap is None or (_is_int(cap) and cap > 0), "run_cap", cap, "must be a whole number from 1")
    if "command" not in content:
        raise ConfigError(f"command is missing: a block list such as\n{COMMAND_EXAMPLE}")
    return Sweep(
        path,
        text,
        str(method),
        read_command(content["command"], content.get("program")),
        tuple(_parameter(key, entry, method == "grid") for key, entry in parameters.items()),
        metric,
        maximize,
        cap,
        content.get("early_terminate") is not None,
    )


def _mapping(path: Path, text: str) -> dict[str, Any]:
    try:
        content = yaml_files.parse(text)
        _refuse_twice(yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be a mapping with method, command and parameters")
    return content


def _refuse_twice(node: yaml.Node | None) -> None:
    """A key written twice would silently lose its first values."""
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ConfigError(f"{twice}: is there twice (line {node.start_mark.line + 1} and after)")
        for _, value in node.value:
            _refuse_twice(value)


def _metric(metric: Any, method: str) -> tuple[str | None, bool]:
    if metric is None:
        require(method != "bayes", "metric", metric, "bayes needs {name: val/acc, goal: maximize} or the like")
        return None, False
    if not isinstance(metric, dict) or not isinstance(metric.get("name"), str):
        raise ConfigError(f"metric = {metric!r}: must be like {{name: val/acc, goal: maximize}}")
    for field in metric:
        require(field in ("name", "goal"), "metric: field", field, "must be one of name, goal")
    goal = metric.get("goal", "minimize")  # W&B's default
    require(goal in ("minimize", "maximize"), "metric.goal", goal, "must be minimize or maximize")
    return metric["name"], goal == "maximize"


def _parameter(key: Any, entry: Any, grid: bool) -> Parameter:
    valid = isinstance(key, str) and bool(_KEY.fullmatch(key))
    require(valid, "parameters: key", key, "must be a flag without its dashes, such as model.c")
    if key.startswith("record.") or key in ("config", "trainer.default_root_dir"):
        raise ConfigError(f"parameters: {key}: is decided by the sweep; --root and --name say where runs go")
    if not isinstance(entry, dict):
        raise ConfigError(f"parameters: {key} = {entry!r}: must be like {{value: 1}} or {{values: [1, 10]}}")
    if "parameters" in entry:
        raise ConfigError(f"parameters: {key}: nested parameters are not read: flat dotted keys, such as model.c")
    for field in entry:
        allowed = ("value", "values", "min", "max", "q", "distribution")
        require(field in allowed, f"parameters: {key}: field", field, f"must be one of {', '.join(allowed)}")
    distribution = entry.get("distribution")
    known = (None, "constant", "categorical", *RANGES)
    require(
        distribution in known,
        f"parameters: {key}.distribution",
        distribution,
        f"must be one of {', '.join(known[1:])}",
    )
    given = [field for field in ("value", "values", "min", "max", "q") if field in entry]
    if given == ["value"] and distribution in (None, "constant"):
        return Parameter(key, "constant", (entry["value"],))
    if given == ["values"] and distribution in (None, "categorical"):
        values = entry["values"]
        require(
            isinstance(values, list) and len(values) > 0,
            f"parameters: {key}.values",
            values,
            "must be a list of values",
        )
        return Parameter(key, "categorical", tuple(values))
    if given in (["min", "max"], ["min", "max", "q"]) and distribution not in ("constant", "categorical"):
        if grid:
            raise ConfigError(f"parameters: {key}: a grid needs values, not min and max")
        return _range(key, entry, distribution)
    wanted = {"constant": "value", "categorical": "values", None: "value, or values, or min and max"}
    raise ConfigError(
        f"parameters: {key} has {', '.join(given) or 'nothing'}: "
        f"{distribution or 'it'} needs {wanted.get(distribution, 'min and max')}"
    )


def _range(key: str, entry: dict[str, Any], distribution: str | None) -> Parameter:
    low, high, q = entry["min"], entry["max"], entry.get("q")
    for field, value in (("min", low), ("max", high), *([("q", q)] if "q" in entry else [])):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        require(number, f"parameters: {key}.{field}", value, "must be a number (YAML reads 1e-4 as text: 1.0e-4)")
    whole = _is_int(low) and _is_int(high)
    distribution = distribution or ("int_uniform" if whole else "uniform")
    require(low < high, f"parameters: {key}.min", low, f"must be below max = {high}")
    if distribution == "int_uniform":
        require(whole, f"parameters: {key}.min, max", (low, high), "int_uniform needs whole numbers")
    if "log" in distribution:
        require(low > 0, f"parameters: {key}.min", low, f"must be above 0 for {distribution}")
    if not distribution.startswith("q_"):
        require("q" not in entry, f"parameters: {key}.q", q, f"only q_{distribution.removeprefix('int_')} takes it")
        return Parameter(key, distribution, (), low, high)
    q = 1 if q is None else q  # W&B's default
    require(0 < q <= high - low, f"parameters: {key}.q", q, "must be above 0 and at most max - min")
    return Parameter(key, distribution, (), low, high, q)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
