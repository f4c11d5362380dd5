"""``python -m grok_lightning JOB …``: dispatches a job, and turns a user's mistake into one line."""

import atexit
import sys
from typing import NoReturn

from grok_lightning import leaving

HELP = """\
usage: python -m grok_lightning JOB [options]

Run, measure and judge grokking experiments.

jobs:
  fit         train a model, e.g. fit --config configs/addition.yaml; go on with one: fit --resume RUN
  sweep       run a W&B sweep file on this machine, without a server, e.g. sweep sweeps/c.yaml
  compare     statistics over runs and seeds, e.g. compare runs/c --by model.c
  validate    evaluate a checkpoint: --config RUN/config.yaml --ckpt_path RUN/checkpoints/last.ckpt
  test        evaluate a checkpoint on the test set
  predict     predict the label of every pair of the table
  report      figures and a page of one run, or of several side by side: report RUN… [--out DIR]
  audit       T_grok, T_compress and their verdicts of finished runs, or of any CSV, JSONL or NPZ file

'JOB --help' lists the options of a job; 'fit --model.help EmbeddingMLP' those of a model,
'fit --data.help ModularDataModule' those of the data.
"""


def run(args: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        args: Arguments without the program's name; ``None`` for ``sys.argv``.

    Returns:
        0 on success, 2 for bad input, 1 for a run that failed, 143 after SIGTERM, 130 after an interrupt.
    """
    arguments = sys.argv[1:] if args is None else args
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP, end="")
        return 0
    if arguments[0] == "--version":
        from grok_lightning import __version__

        print(f"grok_lightning {__version__}")
        return 0
    from grok_lightning.jobs import run_job

    return run_job(arguments)


def main() -> NoReturn:
    """Run the command line as a program; SIGINT ends it with 130, SIGTERM with 143, without a traceback."""
    atexit.register(leaving.too_late)  # registered first, so called last
    leaving.install()
    try:
        status = run()
    finally:
        leaving.install()  # the end of the interpreter may take seconds, too, and others change handlers
    sys.exit(status)


if __name__ == "__main__":
    main()
