"""Write docs/options.md, every option of every job, from the parsers themselves: ``python docs/make_options.py``."""

import argparse
import collections.abc
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

PAGE = Path(__file__).with_name("options.md")
sys.path.insert(0, str(PAGE.parent))

from option_origins import LEGEND, ORIGINS, SPECIAL  # noqa: E402 - beside this file

HEAD = """# Options

Every option, its default, and where the default comes from. `python docs/make_options.py` writes this page from the
parsers; a test fails when it is out of date. `fit --help`, `fit --model.help CLASS` and `fit --data.help CLASS`
print the same.

Lists in YAML, `[E, W]`; nothing is `null`. On the command line `--group.name value`; in a file

```yaml
model:
  class_path: EmbeddingMLP
  init_args: {lr: 0.01, c: 10.0}
data: {p: 97, batch_size: 512}
hessian: {every_n_steps: 100}
```
"""


def kind(hint: Any) -> str:
    """A type as a person writes it in YAML."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (typing.Union, types.UnionType):
        words = [kind(one) for one in inner if one is not type(None)]
        return " or ".join([*dict.fromkeys(words), *(["null"] if type(None) in inner else [])])
    if origin is typing.Annotated:
        return kind(inner[0])
    if origin in (tuple, list, collections.abc.Iterable, collections.abc.Sequence):
        return "list of " + ", ".join(dict.fromkeys(kind(one) for one in inner if one is not Ellipsis))
    if origin is dict:
        return "mapping"
    names = {"str": "text", "bool": "true or false", "int": "whole number", "float": "number"}
    name = str(getattr(hint, "__name__", hint)).rpartition(".")[2]
    return names.get(name, name)


def default(value: Any) -> str:
    """A default as it stands in YAML."""
    if hasattr(value, "class_path"):
        return f"`{value.class_path.rpartition('.')[2]}`"
    if value is None or isinstance(value, bool):
        return f"`{str(value).lower() if value is not None else 'null'}`"
    if isinstance(value, list | tuple):
        return f"`[{', '.join(map(str, value))}]`"
    known = isinstance(value, int | float | str)
    return f"`{value}`" if known else f"`{type(value).__name__}`"


def meaning(text: str) -> str:
    """A help text in a table's cell, without the default that stands in the cell beside it."""
    text = re.sub(r"\s*(Default|Defaults to):?\s*``[^`]*``\.?|\(type: .*\)", "", text or "")
    text = re.sub(r":\w+:`~?([^`]*)`", r"\1", " ".join(text.split())).replace("|", "\\|")
    return text.replace("``", "`").strip()


def options(parser: ArgumentParser, prefix: str) -> list[tuple[str, Any]]:
    """(dotted name, action) of the options of a parser under a prefix."""
    found = []
    for action in parser._actions:
        plain = type(action).__name__ in ("ActionTypeHint", "_StoreAction", "_StoreTrueAction", "ActionYesNo")
        if plain and (not prefix or action.dest == prefix or action.dest.startswith(f"{prefix}.")):
            found.append((action.dest, action))
    return found


def table(title: str, text: str, rows: list[tuple[str, Any]], group: str, flags: bool = True) -> list[str]:
    """A section with one table."""
    lines = [f"## {title}", "", *([text, ""] if text else [])]
    lines += ["| option | value | default | meaning | origin |", "|---|---|---|---|---|"]
    for name, action in rows:
        hint = getattr(action, "_typehint", None) or action.type or bool
        shown = (f"--{group}.{name}" if group else f"--{name}") if flags else _own(action)
        known = SPECIAL.get(f"{title.rpartition(' ')[2]}.{name}"), ORIGINS.get(f"{group}.{name}" if group else name)
        origin = next((origin for origin in known if origin is not None), None)
        if origin is None:
            raise SystemExit(f"{group}.{name}: has no origin in docs/option_origins.py")
        values = default(action.default) if action.option_strings else "required"
        lines.append(f"| `{shown}` | {kind(hint)} | {values} | {meaning(action.help)} | {origin} |")
    return [*lines, ""]


def _own(action: Any) -> str:
    words: list[str] = action.option_strings
    return words[0] if words else str(action.dest)


def of_class(cls: type, group: str, skip: collections.abc.Collection[str] = ()) -> list[tuple[str, Any]]:
    """The options of a class."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(cls, fail_untyped=False)
    return [(name, action) for name, action in options(parser, "") if name.split(".")[0] not in skip]


def summary(cls: type) -> str:
    """The first line of a docstring."""
    return (cls.__doc__ or "").strip().splitlines()[0]


def page() -> str:
    """The whole page."""
    from grok_lightning import cli
    from grok_lightning.compare.job import _parser as compare
    from grok_lightning.data.table import SIZES, TableDataModule
    from grok_lightning.loggers.wandb_run import WandbRun
    from grok_lightning.modules.base import GrokModule

    run = cli.GrokCLI(["fit", "--model", "EmbeddingMLP"], parse_only=True)
    fit = run._subcommand_parsers["fit"]
    lines = [HEAD, "| origin | meaning |", "|---|---|", *(f"| {key} | {text} |" for key, text in LEGEND.items()), ""]
    classes = [value for value in map(vars(cli).get, cli.__all__) if isinstance(value, type)]
    for base, group in ((GrokModule, "model"), (TableDataModule, "data")):
        for cls in (cls for cls in classes if issubclass(cls, base)):
            lines += table(
                f"{group}: {cls.__name__}", summary(cls), of_class(cls, group, SIZES if group == "model" else ()), group
            )
    lines += table("trainer.logger: WandbRun", summary(WandbRun), of_class(WandbRun, "logger"), "trainer.logger")
    groups = dict.fromkeys(name.split(".")[0] for name, _ in options(fit, "") if "." in name)
    for group in (group for group in groups if group not in ("model", "data", "trainer")):
        rows = [(name.partition(".")[2], action) for name, action in options(fit, group)]
        lines += table(group, "", rows, group)
    rows = [(name.partition(".")[2], action) for name, action in options(fit, "trainer")]
    text = "Lightning's Trainer. Those marked ours have another default here."
    lines += table("trainer", text, rows, "trainer")
    loose = [(n, a) for n, a in options(fit, "") if "." not in n and n not in ("model", "data")]
    lines += table("fit, validate, test, predict", "`fit --resume RUN` goes on with a run.", loose, "")
    for job, parser in {"compare": compare, **other_jobs()}.items():
        rows = [(name, action) for name, action in options(parser(), "")]
        lines += table(job, "", rows, job, flags=False)
    return "\n".join(lines).rstrip() + "\n"


def other_jobs() -> dict[str, collections.abc.Callable[[], ArgumentParser]]:
    """Job → its parser."""
    from grok_lightning.audit import _parser as audit
    from grok_lightning.report.job import _parser as report
    from grok_lightning.sweep.job import _parser as sweep

    return {"sweep": sweep, "report": report, "audit": audit}


def main() -> None:
    """Write the page, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description="Write docs/options.md from the parsers.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    text = page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        raise SystemExit("docs/options.md is out of date: python docs/make_options.py")


if __name__ == "__main__":
    main()
