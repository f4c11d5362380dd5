"""From the shell to a result: wall time and processor time of fresh processes, medians.

The bare import of what `fit` cannot do without is measured beside it; `fit --help` is given in units of it.

    python benchmarks/start_up.py [--repeats 5]
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
FIT = ["fit", "--config", str(CONFIGS / "addition.yaml"), "--config", str(CONFIGS / "diagnostics" / "off.yaml")]
FIT += ["--trainer.max_steps", "1"]
BARE = "import lightning.pytorch.cli"
CASES = {
    BARE: None,
    "--help": ["--help"],
    "fit --help": ["fit", "--help"],
    "fit, one step, W&B offline": FIT,
    "fit, one step, no W&B": [*FIT, "--trainer.logger", "false"],
}


def seconds(arguments):
    """Wall and processor seconds of one process."""
    with tempfile.TemporaryDirectory() as directory:
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", BARE] if arguments is None else [sys.executable, "-m", "grok_lightning"]
        environment = os.environ | {"WANDB_MODE": "offline"}
        command += arguments or []
        subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.perf_counter() - start, busy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    found = {name: [] for name in CASES}
    for _ in range(repeats):
        for name, arguments in CASES.items():
            found[name].append(seconds(arguments))
    print("| process | wall, s | processor, s |\n|---|---|---|")
    for name, values in found.items():
        wall, busy = (statistics.median(value[i] for value in values) for i in (0, 1))
        print(f"| {name} | {wall:.2f} | {busy:.2f} |")
    pairs = zip(found["fit --help"], found[BARE], strict=True)
    ratios = [[theirs[i] / bare[i] for i in (0, 1)] for theirs, bare in pairs]
    wall, busy = (statistics.median(pair[i] for pair in ratios) for i in (0, 1))
    print(f"fit --help in units of the bare import: {wall:.2f} by wall time, {busy:.2f} by processor time")


if __name__ == "__main__":
    main()
