"""``python -m grok_lightning sweep FILE``: runs a W&B sweep file on this machine, without a server."""

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from jsonargparse import ArgumentParser

from grok_lightning.errors import require

DESCRIPTION = """Run a W&B sweep file on this machine. A sweep that was stopped goes on where it was: completed runs are
skipped, others go on where they were stopped. Several processes may share a directory: on one machine, or on several
that see the same files. What follows '--' is given to every run."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OURS = ("--record.root", "--record.experiment", "--record.run_id", "--trainer.default_root_dir")


@dataclass(frozen=True)
class Options:
    """The command line; see :func:`_parser`."""

    file: Path
    flags: tuple[str, ...]
    workers: int
    threads: int
    gpus: int
    max_runs: int | None
    dry_run: bool
    cold: bool
    retry_failed: bool
    name: str
    root: Path
    seed: int


def main(argv: list[str]) -> int:
    """Run the job.

    Args:
        argv: Arguments after ``sweep``.

    Returns:
        0 if every run completed, 1 if one failed, 130 or 143 if the sweep was stopped by a signal.

    Raises:
        ConfigError: If the file or an option cannot be used.
        ArgumentError: If an option cannot be read.
    """
    options = read_options(argv)
    from grok_lightning.sweep.conduct import conduct, show

    return show(options) if options.dry_run else conduct(options, _again(argv))


def read_options(argv: list[str]) -> Options:
    """Read the command line.

    Args:
        argv: Arguments after ``sweep``.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    given = _parser().parse_args([_underscores(word) for word in argv[:end]])
    flags = tuple(argv[end + 1 :])
    for flag in flags:
        ours = flag.split("=")[0] in _OURS
        require(not ours, "flag", flag, "is decided by the sweep; --root and --name say where runs go")
    for field, least in (("workers", 1), ("threads", 1), ("max_runs", 1), ("gpus", 0), ("seed", 0)):
        value = given[field]
        require(value is None or value >= least, field, value, f"must be {least} or more")
    file = Path(given.file)
    name = file.stem if given.name is None else given.name
    require(bool(_NAME.fullmatch(name)), "name", name, "must be letters, digits, '.', '_' and '-'")
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    workers = given.workers or cores
    return Options(
        file,
        flags,
        workers,
        given.threads or max(1, cores // workers),
        given.gpus,
        given.max_runs,
        given.dry_run,
        given.cold,
        given.retry_failed,
        name,
        Path(given.root),
        given.seed,
    )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="grok_lightning sweep", description=DESCRIPTION, exit_on_error=False)
    add = parser.add_argument
    add("file", type=str, help="a W&B sweep file, such as sweeps/c.yaml")
    add("--workers", type=int | None, default=None, help="runs at a time (default: the number of cores)")
    add("--threads", type=int | None, default=None, help="threads of each run (default: cores / workers)")
    add("--gpus", type=int, default=0, help="give the first so many CUDA devices to the runs in turn")
    add("--max_runs", type=int | None, default=None, help="the first so many configurations only")
    add("--name", type=str | None, default=None, help="of the sweep and its directory (default: the file's)")
    add("--root", type=str, default="runs", help="directory of all experiments")
    add("--seed", type=int, default=0, help="of the draws of random and bayes")
    add("--retry_failed", action="store_true", help="run failed configurations again, once")
    add("--cold", action="store_true", help="load torch anew for every run, as it is done elsewhere than on Linux")
    add("--dry_run", action="store_true", help="print the command lines, and run and write nothing")
    return parser


def _underscores(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value


def _again(argv: list[str]) -> str:
    return shlex.join(["python", "-m", "grok_lightning", "sweep", *argv])
