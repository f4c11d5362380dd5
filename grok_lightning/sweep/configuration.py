"""One configuration of a sweep: its values, its flags, and the hash that names its run."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jsonargparse import ArgumentError

from grok_lightning.errors import ConfigError
from grok_lightning.sweep.spec import Sweep

UNHASHED = ("config", "record", "trainer.logger", "trainer.default_root_dir", "trainer.enable_progress_bar")
"""Settings that say where a run is written and shown, not what it computes."""


@dataclass(frozen=True)
class Configuration:
    """One configuration.

    Attributes:
        key: Hash of the resolved configuration, which is also the run's id.
        parameters: Swept key → value.
        arguments: ``fit`` and all its arguments, without those that say where the run goes.
        max_steps: How far it trains; ``None`` if that is not a number of steps.
    """

    key: str
    parameters: Mapping[str, Any]
    arguments: tuple[str, ...]
    max_steps: int | None


def as_flag(key: str, value: Any) -> str:
    """``--key=value`` as the command line reads it: null, true and false as YAML, lists as JSON."""
    return f"--{key}={value if isinstance(value, str) else json.dumps(value)}"


def config_hash(resolved: Mapping[str, Any]) -> str:
    """First 12 hex digits of SHA-256 over the resolved configuration as canonical JSON.

    The configuration is what the parser makes of it, so the hash does not depend on how a value was spelt, nor on
    whether a default was written out. :data:`UNHASHED` is left out.

    Args:
        resolved: Group → settings, as the parser returns them.
    """
    text = json.dumps(_hashed(resolved), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _hashed(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    kept = {}
    for name, value in tree.items():
        if prefix + name not in UNHASHED and name != "__path__":  # where the parser read a nested file
            kept[name] = _hashed(value, f"{prefix}{name}.") if isinstance(value, Mapping) else value
    return kept


class Planner:
    """Makes configurations of values, with the parser that the runs themselves use.

    Args:
        sweep: The sweep file.
        flags: Flags for every run.
    """

    def __init__(self, sweep: Sweep, flags: Sequence[str]) -> None:
        self.sweep, self.flags = sweep, tuple(flags)

    @cached_property
    def _resolve(self) -> Callable[[Sequence[str]], dict[str, Any]]:
        from grok_lightning.cli import resolver  # torch and lightning, some seconds

        return resolver()

    def plan(self, values: Mapping[str, Any]) -> Configuration:
        """Resolve one configuration.

        Args:
            values: Key → value.

        Raises:
            ConfigError: If ``fit`` would refuse the arguments.
        """
        own = [as_flag(key, value) for key, value in values.items()]
        arguments = self.sweep.command.fit(own, self.flags)
        try:
            resolved = self._resolve(arguments)
        except (ArgumentError, ConfigError) as error:
            raise ConfigError(f"with {' '.join(own)}: {error}") from error
        steps = resolved["trainer"]["max_steps"]
        return Configuration(config_hash(resolved), dict(values), tuple(arguments), steps if steps > 0 else None)
