"""What is done to a command line before it is parsed."""

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from grok_lightning import yaml_files
from grok_lightning.errors import ConfigError

MODULAR = "grok_lightning.data.datamodule.ModularDataModule"
"""What ``--data`` is unless said otherwise."""

BASES = (".GrokModule", ".TableDataModule")
"""Where jsonargparse starts from; nobody set arguments of these."""

CONFIG_FLAGS = ("--config", "-c")


class Discards(logging.Handler):
    """Hears jsonargparse say, at debug level only, that a change of class made it drop arguments."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what says that arguments of ours were dropped."""
        message = record.getMessage()
        ours = re.search(r"class_path change from '(grok_lightning\.(?:modules|data)\.[\w.]+)' to", message)
        if "discarding init_args" in message and ours and not ours[1].endswith(BASES):
            self.messages.append(message)

    def refuse(self) -> None:
        """Refuse what was dropped.

        Raises:
            ConfigError: If anything was.
        """
        if self.messages:
            group = "data" if "'grok_lightning.data." in self.messages[0] else "model"
            raise ConfigError(f"{group}: {self.messages[0]} Give a config that sets only what this {group} takes")


def with_data(arguments: Sequence[str]) -> list[str]:
    """Name the datamodule before everything else, unless the command line or one of its files names another.

    It cannot be the parser's default: other datamodules would take over that default's batch size and seeds.

    Args:
        arguments: Job and options.
    """
    words, stated = list(arguments), list(_stated(arguments))
    others = [name for name, _ in stated if name.rpartition(".")[2] not in ("", MODULAR.rpartition(".")[2])]
    if not others:
        return [*words[:1], f"--data={MODULAR}", *words[1:]]
    if not stated[0][0]:
        raise ConfigError(
            f"data = {others[0]!r}: {stated[0][1]} sets data of {MODULAR.rpartition('.')[2]}, which is another class; "
            "give a config without a data group, or one that names this class"
        )
    return words


def config_files(arguments: Sequence[str]) -> Iterator[str]:
    """The values of ``--config``, in order."""
    for flag, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if flag in CONFIG_FLAGS:
            yield value
        elif flag.startswith("--config="):
            yield flag.removeprefix("--config=")


def _stated(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(class, where) of everything that names a class of data, in order; no class where a file sets data without."""
    for flag, value in zip(arguments, [*arguments[1:], ""], strict=True):
        name, given, inline = flag.partition("=")
        if name in ("--data", "--data.class_path"):
            yield inline if given else value, name
        for file in config_files([flag, value] if flag in CONFIG_FLAGS else [flag]):
            content = yaml_files.parse(Path(file).read_text(encoding="utf-8"))
            data = content.get("data") if isinstance(content, dict) else None
            if isinstance(data, str):
                yield data, file
            elif isinstance(data, dict):
                yield str(data.get("class_path", "")), file
