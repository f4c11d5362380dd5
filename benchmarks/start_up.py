"""Seconds of wall time from the shell to a result, medians over fresh processes.

python benchmarks/start_up.py [--repeats 5]
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
FIT = ["fit", "--config", str(CONFIGS / "addition.yaml"), "--config", str(CONFIGS / "diagnostics" / "off.yaml")]
FIT += ["--trainer.max_steps", "1"]
CASES = {
    "--help": ["--help"],
    "fit --help": ["fit", "--help"],
    "fit, one step, W&B offline": FIT,
    "fit, one step, no W&B": [*FIT, "--trainer.logger", "false"],
}


def seconds(arguments):
    with tempfile.TemporaryDirectory() as directory:
        start = time.perf_counter()
        command = [sys.executable, "-m", "grok_lightning", *arguments]
        environment = os.environ | {"WANDB_MODE": "offline"}
        subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    found = {name: [] for name in CASES}
    for _ in range(repeats):
        for name, arguments in CASES.items():
            found[name].append(seconds(arguments))
    for name, values in found.items():
        print(f"{name:28s} {statistics.median(values):6.2f} s")


if __name__ == "__main__":
    main()
