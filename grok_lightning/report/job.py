"""``python -m grok_lightning report RUN… [--out DIR]``: figures and a page of runs."""

import sys
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from grok_lightning.errors import ConfigError, require

SEVERAL = Path("report")
"""Where the report of several runs goes unless it is told."""


def main(argv: list[str]) -> int:
    """Run the job; writes figures and a page, and prints where.

    Args:
        argv: Arguments after ``report``.

    Returns:
        0 once everything is written, 1 if the file system refuses, 2 on a value or file that cannot be used.
    """
    try:
        return _run(_parser().parse_args(argv))
    except (ArgumentError, ConfigError) as error:
        return _refuse(" ".join(str(error).split()), 2)
    except OSError as error:
        return _refuse(f"{error.filename or 'file system'}: {error.strerror or error}", 1)


def _run(options: Any) -> int:
    require(len(options.paths) > 0, "runs", options.paths, "at least one run directory is needed")
    # matplotlib, scipy and jinja are loaded only once the options make sense
    from grok_lightning.report.make import make

    made = make(
        options.paths,
        None if options.out is None else Path(options.out),
        by=options.by,
        partial=options.partial,
        draws=options.draws,
        formats=options.formats,
    )
    for line in made.lines:
        print(line)
    return 0


def _parser() -> ArgumentParser:
    text = (
        "One page (HTML, readable without a network) and every figure as PNG, SVG and PDF: of one run, or of several "
        "side by side with the tables of compare."
    )
    parser = ArgumentParser(prog="grok_lightning report", description=text, exit_on_error=False)
    add = parser.add_argument
    add("paths", nargs="+", type=str, help="run directories, and directories of them (an experiment, a sweep)")
    where = f"directory to write to (default: RUN/figures for one run, {SEVERAL}/ for several)"
    add("--out", type=str | None, default=None, help=where)
    add("--by", nargs="+", type=str, default=[], help="settings that tell runs apart (default: all that differ)")
    add(
        "--partial",
        action="store_true",
        help="let the comparison count partial runs, as censored; they are drawn anyway",
    )
    add("--draws", type=int, default=10_000, help="bootstrap resamples of the comparison, 2000 or more")
    add(
        "--formats",
        nargs="+",
        type=str,
        default=["png", "svg", "pdf"],
        help="file formats of figures; png is always there",
    )
    return parser


def _refuse(message: str, status: int) -> int:
    print(f"grok_lightning: error: {message}", file=sys.stderr)
    return status
