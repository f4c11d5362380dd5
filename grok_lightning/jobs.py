"""Runs a job of the command line; every mistake of the user's becomes one line and an exit status."""

import importlib
import logging
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from jsonargparse import ArgumentError

from grok_lightning import leaving
from grok_lightning.errors import ConfigError, NonFiniteError

SIGTERM_STATUS = 128 + signal.SIGTERM
SIGINT_STATUS = 128 + signal.SIGINT

_NOISE = (
    re.compile(r"Does not validate against any of the Union subtypes Subtypes: \[.*?\] Errors: - "),
    re.compile(r" - Expected a <class 'NoneType'> Given value type: <class '[\w.]*(?:NestedArg|Namespace)'>.*"),
    re.compile(r" Given value type: <class '[\w.]*(?:NestedArg|Namespace)'>.*"),
    re.compile(r" - Expected a <class 'NoneType'>"),
    re.compile(r" Given value type: <class '[\w.]+'>(?= Given value: )"),
    re.compile(r"- Expected a path but \S+ either not accessible or invalid - "),
    re.compile(r"typing\."),
    re.compile(r"<class '|(?<=\w)'>"),
)
"""What jsonargparse says about its own types around the sentence that helps."""


def run_job(arguments: list[str]) -> int:
    """Run ``JOB options…`` and return its exit status; see :func:`grok_lightning.__main__.run`."""
    if os.getcwd() not in sys.path and "" not in sys.path:  # noqa: PTH109 - sys.path holds strings
        sys.path.append(os.getcwd())  # noqa: PTH109 - a task in the user's own file is found by class_path
    quiet()
    try:
        jobs = _jobs()
        if not arguments[0].startswith("-") and arguments[0] not in jobs:
            raise ConfigError(f"job = {arguments[0]!r}: must be one of {', '.join(jobs)}")
        return jobs.get(arguments[0], _lightning)(arguments)
    except (ConfigError, ArgumentError) as error:
        return _refuse(str(error), 2)
    except SystemExit as error:
        return SIGINT_STATUS if isinstance(error.__context__, KeyboardInterrupt) else _exit_status(error)
    except KeyboardInterrupt:
        return SIGINT_STATUS
    except NonFiniteError as error:
        return _refuse(str(error), 1)
    except OSError as error:
        return _refuse(f"{error.filename or 'file system'}: {error.strerror or error}", 1)
    except Exception as error:
        # jsonargparse reports what a constructor raised as an error of its own; the mistake behind it is what counts
        if (mistake := mistake_behind(error)) is None:
            raise
        return _refuse(str(mistake), 2)


OWN_JOBS = {
    "sweep": "grok_lightning.sweep.job",
    "compare": "grok_lightning.compare.job",
    "audit": "grok_lightning.audit",
    "report": "grok_lightning.report.job",
}
"""Job → module whose ``main`` takes the arguments after the job and returns the exit status."""


def _jobs() -> dict[str, Callable[[list[str]], int]]:
    trainer_jobs = dict.fromkeys(("fit", "validate", "test", "predict"), _lightning)
    return {**trainer_jobs, **dict.fromkeys(OWN_JOBS, _own)}


def _own(arguments: list[str]) -> int:
    job = importlib.import_module(OWN_JOBS[arguments[0]])
    leaving.through_exceptions(True)
    status: int = job.main(arguments[1:])
    return status


def _lightning(arguments: list[str]) -> int:
    from grok_lightning import resume
    from grok_lightning.arguments import config_files

    arguments, resumed = resume.split(arguments)
    for file in config_files(arguments):
        _check_config(Path(file))
    from grok_lightning.cli import main

    main(arguments, resumed)
    return 0


def _check_config(path: Path) -> None:
    """Say which file is at fault; jsonargparse speaks of a string."""
    import yaml

    from grok_lightning import yaml_files

    if not path.is_file():
        raise ConfigError(f"config = {str(path)!r}: {'is not a file' if path.exists() else 'there is no such file'}")
    try:
        content = yaml_files.parse(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = str(error).replace('in "<unicode string>", ', "")
        raise ConfigError(f"config = {str(path)!r}: is not YAML: {reason}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"config = {str(path)!r}: must be a mapping of groups to settings")


_CLASS = r"(?:Parser key )?\"([\w.]+)\": Problem with given class_path '(?:\w+\.)*(\w+)': "
_SHORTER = (
    (re.compile(_CLASS + r"(?:Parser key )?\"([\w.]+)\": "), r"\1.\3: "),
    (re.compile(_CLASS + r"Option '([\w.]+)' is not accepted"), r"\1.\3: \2 has no such option"),
    (re.compile(_CLASS + r"unrecognized arguments: --([\w.]+).*"), r"\1.\3: \2 has no such option"),
    (re.compile(_CLASS + r"Group '([\w.]+)' does not accept option '([\w.]+)'.*"), r"\1.\3.\4: \2 has no such option"),
    (re.compile(r"^Parser key \"([\w.]+)\": (?!Problem)"), r"\1: "),
    (re.compile(r" Given value: "), ". Got value: "),
)
"""What jsonargparse says of an argument of a class, as the flag that a user types."""


def mistake_behind(error: BaseException | None) -> ConfigError | None:
    """The user's mistake among the causes of an error; ``None`` if there is none."""
    while error is not None and not isinstance(error, ConfigError):
        error = error.__cause__ or error.__context__
    return error


def one_line(message: str) -> str:
    """A message in one line, whatever shape it came in, without what jsonargparse says about its own types."""
    words = " ".join(line.strip() for line in message.splitlines() if line.strip())
    for noise in _NOISE:
        words = noise.sub("", words)
    for long, short in _SHORTER:
        words = long.sub(short, words)
    return words


def _refuse(message: str, status: int) -> int:
    print(f"grok_lightning: error: {one_line(message)}", file=sys.stderr)
    return status


def _exit_status(error: SystemExit) -> int:
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    if isinstance(error, SIGTERMException):  # lightning 2.6 exits with 0 on it
        return SIGTERM_STATUS
    if isinstance(error.code, str):
        return _refuse(error.code, 1)
    return 0 if error.code is None else error.code


def _is_news(record: logging.LogRecord) -> bool:
    message = record.getMessage()  # an advertisement, and a seed that the configuration names anyway
    return "litlogger" not in message and not message.startswith(
        ("Seed set to", "TPU available", "GPU available: False")
    )


def quiet() -> None:
    """Hide warnings that a user can do nothing about."""
    warnings.filterwarnings("ignore", message=".*LeafSpec.*")  # lightning 2.6 on torch 2.13
    warnings.filterwarnings("ignore", message=".*smaller than the logging interval.*")  # logging is by step here
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(_is_news)
    logging.getLogger("lightning.fabric.utilities.rank_zero").addFilter(_is_news)
    logging.getLogger("lightning.fabric.utilities.seed").addFilter(_is_news)
    warnings.filterwarnings("ignore", message=".*sync_dist=True.*")  # every process evaluates the whole table
    warnings.filterwarnings("ignore", message=".*`srun` command is available.*")  # not every run on a cluster is a job
    warnings.filterwarnings("ignore", message=".*no logger configured.*")  # validate and test print only
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="jsonargparse")
