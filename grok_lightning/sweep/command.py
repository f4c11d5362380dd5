"""The ``command`` of a W&B sweep file: what all runs of a sweep have in common."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grok_lightning.errors import ConfigError, require

COMMAND_EXAMPLE = """\
command:
  - ${env}
  - ${interpreter}
  - -m
  - grok_lightning
  - fit
  - --config
  - configs/addition.yaml
  - ${args}"""

_MACRO = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True)
class Command:
    """Arguments of ``fit``, around those in which runs differ; what comes later on the line wins.

    Attributes:
        before: Arguments before ``${args}``.
        after: Arguments after it.
    """

    before: tuple[str, ...]
    after: tuple[str, ...] = ()

    def fit(self, arguments: Sequence[str], flags: Sequence[str]) -> list[str]:
        """``fit`` and its arguments, with those of one run in place of ``${args}`` and the user's flags last."""
        return ["fit", *self.before, *arguments, *self.after, *flags]


def read_command(command: Any, program: Any) -> Command:
    """Read the list; the interpreter in it is replaced by the one that runs the sweep.

    Args:
        command: As it stands in the file.
        program: What ``${program}`` stands for.

    Raises:
        ConfigError: If it does not start ``-m grok_lightning fit``, or holds a macro that cannot work.
    """
    if not isinstance(command, list) or not all(isinstance(word, str | int | float) for word in command):
        raise ConfigError(f"command = {command!r}: must be a block list such as\n{COMMAND_EXAMPLE}")
    words = [_expand(word if isinstance(word, str) else repr(word), program) for word in command]
    start = next((at for at in range(len(words)) if words[at : at + 3] == ["-m", "grok_lightning", "fit"]), None)
    if start is None:
        raise ConfigError(
            f"command = {' '.join(words)!r}: must contain -m grok_lightning fit, such as\n{COMMAND_EXAMPLE}"
        )
    for word in words[:start]:
        known = word in ("${env}", "${interpreter}") or re.fullmatch(r"(.*/)?python[0-9.]*", word)
        require(bool(known), "command", word, "only ${env} and ${interpreter} may come before -m grok_lightning fit")
    rest = words[start + 3 :]
    require(rest.count("${args}") == 1, "command", " ".join(words), "must contain ${args} once, after fit")
    at = rest.index("${args}")
    return Command(tuple(rest[:at]), tuple(rest[at + 1 :]))


def _expand(word: str, program: Any) -> str:
    if word in ("${env}", "${interpreter}", "${args}"):
        return word
    return _MACRO.sub(lambda found: _value(found[1], word, program), word)


def _value(macro: str, word: str, program: Any) -> str:
    if macro == "program":
        require(isinstance(program, str), "program", program, "the command names ${program}: must be grok_lightning")
        return str(program)
    if macro.startswith("envvar:"):
        name = macro.removeprefix("envvar:")
        if name not in os.environ:
            raise ConfigError(f"command: {word}: the environment variable {name} is not set")
        return os.environ[name]
    if macro == "args_no_boolean_flags":
        raise ConfigError(f"command: {word}: our flags are no switches, true and false need a value: write ${{args}}")
    if macro.startswith("args"):
        raise ConfigError(f"command: {word}: fit reads --key=value flags: write ${{args}} as a word of its own")
    allowed = "${env} ${interpreter} ${program} ${args} ${envvar:NAME}"
    raise ConfigError(f"command: {word}: is not known; there are {allowed}")
