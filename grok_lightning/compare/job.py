"""``python -m grok_lightning compare RUNS… --by KEY``: statistics over finished runs."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from grok_lightning.errors import ConfigError, require


def main(argv: list[str]) -> int:
    """Run the job; prints tables, then writes the files asked for.

    Args:
        argv: Arguments after ``compare``.

    Returns:
        0 once there is something to say, 1 if no run can be used, 2 on a value that cannot be used.
    """
    try:
        options = _parser().parse_args(argv)
    except ArgumentError as error:
        return _refuse(" ".join(str(error).split()), 2)
    # scipy and what it needs are loaded only once the options make sense
    from grok_lightning.compare.comparison import NoRunsError, words_of

    try:
        return _run(options)
    except NoRunsError as error:
        return _refuse(words_of(error), 1)
    except ConfigError as error:
        return _refuse(words_of(error), 2)
    except OSError as error:
        return _refuse(f"{error.filename or 'file system'}: {error.strerror or error}", 1)


def _run(options: Any) -> int:
    from grok_lightning.compare.clocks import Definition
    from grok_lightning.compare.comparison import Comparison, compare
    from grok_lightning.compare.export import check_writable, write_csv, write_json
    from grok_lightning.compare.tables import print_comparison

    writers: dict[str, Callable[[Comparison, Path], None]] = {"csv": write_csv, "json": write_json}
    if options.figure is not None:
        from grok_lightning.compare.figure import check_suffix, write_figure

        check_suffix(Path(options.figure))
        writers["figure"] = write_figure
    targets = {name: Path(options[name]) for name in writers if options[name] is not None}
    for name, path in targets.items():
        check_writable(name, path)
    require(len(set(targets.values())) == len(targets), "csv, json, figure", options.csv, "must be different files")
    comparison = compare(
        options.paths,
        options.by,
        pool=options.pool,
        baseline=options.baseline,
        partial=options.partial,
        definition=Definition(
            options.mem_threshold, options.threshold, options.part, options.sustain_evaluations
        ),
        alpha=options.alpha,
        n_draws=options.draws,
        seed=options.seed,
        final=options.final,
    )  # fmt: skip
    print_comparison(comparison)
    for name, path in targets.items():
        writers[name](comparison, path)
    return 0


def _parser() -> ArgumentParser:
    text = "Grok rates, times to grok with censoring, paired tests over seeds, and verdicts on claims about c and λ."
    parser = ArgumentParser(prog="grok_lightning compare", description=text, exit_on_error=False)
    add = parser.add_argument
    add("paths", nargs="+", type=str, help="run directories, and directories of them (an experiment, a sweep)")
    add("--by", nargs="+", type=str, required=True, help="settings that make cells; the first is compared")
    add("--pool", nargs="+", type=str, default=[], help="settings that may differ inside a cell")
    add("--baseline", type=str | None, default=None, help="value to compare with (default: c = 1, or the first)")
    add("--final", nargs="+", type=str, default=[], help="series whose last values to compare too, such as val/loss")
    add("--partial", action="store_true", help="count failed, interrupted and unfinished runs, as censored")
    add("--threshold", type=float | None, default=None, help="compute T_grok again, at this accuracy")
    add("--mem_threshold", type=float | None, default=None, help="compute T_mem again, at this training accuracy")
    add("--part", type=str | None, default=None, help="compute T_grok again, on val or test")
    add(
        "--sustain_evaluations",
        type=int | None,
        default=None,
        help="compute the sustained clocks again, with so many evaluations",
    )
    add("--alpha", type=float, default=0.05, help="level of tests; intervals cover 1 - alpha")
    add("--draws", type=int, default=10_000, help="bootstrap resamples, 2000 or more")
    add("--seed", type=int, default=0, help="seed of the resamples")
    add("--csv", type=str | None, default=None, help="write the cells to this file")
    add("--json", type=str | None, default=None, help="write everything to this file")
    add("--figure", type=str | None, default=None, help="draw to this .png, .svg or .pdf file")
    return parser


def _refuse(message: str, status: int) -> int:
    print(f"grok_lightning: error: {message}", file=sys.stderr)
    return status
