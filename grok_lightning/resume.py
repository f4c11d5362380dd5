"""``fit --resume RUN``: go on with a run that was stopped, killed or is to be longer."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grok_lightning.arguments import MODULAR
from grok_lightning.errors import ConfigError

FREE = (
    "ckpt_path",
    "record",
    "checkpoint",
    "grokking.stop_after_steps",
    "numerics",
    "trainer.default_root_dir",
    "trainer.enable_progress_bar",
    "trainer.logger",
    "trainer.max_epochs",
    "trainer.max_steps",
    "trainer.max_time",
)
"""Settings in which a resumed run may differ from before: how long it goes on, what is shown and kept of it,
and what is done about a broken update."""


@dataclass(frozen=True)
class Resumed:
    """A run to go on with.

    Attributes:
        path: Its run directory, wherever it stands now.
        checkpoint: Its last checkpoint; ``None`` if it was stopped before the first, and starts over.
        config: Its ``config.yaml``.
        completed: Whether it came to its end.
    """

    path: Path
    checkpoint: Path | None
    config: Mapping[str, Any]
    completed: bool = False


def split(arguments: list[str]) -> tuple[list[str], Resumed | None]:
    """Replace ``--resume RUN`` by the configuration and checkpoint of the run.

    Args:
        arguments: Job and options.

    Returns:
        What the parser is to read, and the run; the arguments as they are and ``None`` without ``--resume``.

    Raises:
        ConfigError: If the run cannot be resumed.
    """
    at = [i for i, word in enumerate(arguments) if word == "--resume" or word.startswith("--resume=")]
    if not at:
        return arguments, None
    first = at[0]
    takes_next = arguments[first] == "--resume"
    if len(at) > 1 or arguments[0] != "fit" or (takes_next and first + 1 == len(arguments)):
        raise ConfigError("resume: is given once, to fit, with a run directory: fit --resume RUN")
    name = arguments[first + 1] if takes_next else arguments[first].removeprefix("--resume=")
    rest = arguments[1:first] + arguments[first + 1 + takes_next :]
    run = _read(Path(name), extended=bool(rest))
    where, here = run.path.resolve(), Path.cwd()
    where = where.relative_to(here) if where.parent.parent.is_relative_to(here) else where
    own = [
        f"--record.root={where.parent.parent}",
        f"--record.experiment={where.parent.name}",
        f"--record.run_id={where.name}",
    ]
    if run.checkpoint is not None:
        own.append(f"--ckpt_path={run.checkpoint}")
    return ["fit", "--config", str(run.path / "config.yaml"), *rest, *own], run


def _read(path: Path, extended: bool) -> Resumed:
    import yaml

    from grok_lightning import yaml_files

    config = path / "config.yaml"
    if not config.is_file():
        raise ConfigError(f"resume = {str(path)!r}: is no run directory, it holds no config.yaml")
    try:
        content = yaml_files.parse(config.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"resume = {str(path)!r}: config.yaml cannot be read: {error}") from None
    try:
        status = json.loads((path / "summary.json").read_text(encoding="utf-8")).get("status")
    except (OSError, ValueError, AttributeError):
        status = None  # killed, or still running: the lock on the directory tells the two apart
    if status == "completed" and not extended:
        raise ConfigError(f"resume = {str(path)!r}: is completed; give a larger --trainer.max_steps to go on")
    check_provenance(path)
    checkpoint = path / "checkpoints" / "last.ckpt"
    completed = status == "completed"
    if completed and not checkpoint.exists():
        raise ConfigError(f"resume = {str(path)!r}: is completed and has no {checkpoint.name} to go on from")
    return Resumed(path, checkpoint if checkpoint.exists() else None, content, completed)


def check_provenance(path: Path) -> None:
    """Refuse a run whose record of where it came from, to which resuming adds, is damaged.

    Args:
        path: The run directory.

    Raises:
        ConfigError: If ``provenance.json`` is there and is no JSON object with a list of what was resumed.
    """
    file = path / "provenance.json"
    if not file.exists():
        return
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        whole = isinstance(content, dict) and isinstance(content.get("resumed", []), list)
    except (OSError, ValueError):
        whole = False
    if not whole:
        raise ConfigError(f"resume = {str(path)!r}: {file.name} cannot be read; move it away, and a new one is written")


def check_same(run: Resumed, config: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings than the run was started with.

    Args:
        run: The run.
        config: The configuration that is asked for, resolved.

    Raises:
        ConfigError: On the first setting that differs and is not one of :data:`FREE`.
    """
    old, new = dict(_flat(with_class(run.config))), dict(_flat(config))
    for key in sorted(old.keys() | new.keys()):
        free = any(key == name or key.startswith(f"{name}.") for name in FREE)
        if not free and old.get(key) != new.get(key):
            field = key.replace(".init_args.", ".")
            raise ConfigError(
                f"{field} = {new.get(key)!r}: the run was started with {old.get(key)!r}, which resuming keeps"
            )


def with_class(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration whose data name their class; up to 0.1 there was one, which files leave out."""
    data = config.get("data")
    if not isinstance(data, Mapping) or "class_path" in data:
        return config
    return {**config, "data": {"class_path": MODULAR, "init_args": dict(data)}}


def check_longer(run: Resumed, step: int, max_steps: int) -> None:
    """Refuse to resume a run up to a step that it has passed.

    Args:
        run: The run.
        step: Updates that its checkpoint has received.
        max_steps: Where it is to end; -1 for no limit.

    Raises:
        ConfigError: If nothing is left to do, or less than nothing.
    """
    left = max_steps == -1 or max_steps > step or (max_steps == step and not run.completed)
    if not left:
        raise ConfigError(f"trainer.max_steps = {max_steps}: the run has made {step} steps already; give more")


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
