"""``fit`` on configs/addition.yaml against the plain PyTorch loop of the same model, loss and optimiser.

The plain loop is what a researcher would write by hand: Embedding, Linear, ReLU, Linear, Adam with two groups, a
permutation per epoch, no logging, no evaluation. Both run in this process, in turns; ratios are of medians.

    python benchmarks/fit_speed.py [--steps 1000] [--repeats 5] [--threads 2] [--diagnostics]
"""

import argparse
import contextlib
import io
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from grok_lightning.__main__ import run
from grok_lightning.data.datamodule import ModularDataModule

CONFIGS = Path(__file__).resolve().parent.parent / "configs"


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(99, 128)
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 97)

    def forward(self, tokens):
        return self.second(F.relu(self.first(self.embedding(tokens).flatten(1))))


def plain_rate(steps):
    data = ModularDataModule()
    tokens, labels = data.table.tokens[data.split.train], data.table.labels[data.split.train]
    torch.manual_seed(7)
    net = Plain()
    rest = [*net.first.parameters(), *net.second.parameters()]
    groups = [{"params": net.embedding.parameters(), "lr": 0.1}, {"params": rest, "lr": 0.01}]
    optimizer = torch.optim.Adam(groups, weight_decay=0.001)
    made, start = 0, time.perf_counter()
    while made < steps:
        order = torch.randperm(len(labels))
        for rows in order.split(512):
            optimizer.zero_grad()
            F.cross_entropy(net(tokens[rows]), labels[rows]).backward()
            optimizer.step()
            made += 1
            if made == steps:
                break
    return steps / (time.perf_counter() - start)


def fit_rate(steps, *flags):
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stderr(io.StringIO()):
        with contextlib.redirect_stdout(io.StringIO()):
            arguments = ["fit", "--config", str(CONFIGS / "addition.yaml"), "--trainer.max_steps", str(steps)]
            status = run([*arguments, "--record.root", root, *flags])
        assert status == 0
        summary = json.loads(next(Path(root).glob("*/*/summary.json")).read_text())
    return summary["steps_per_second"], summary["evaluation_share"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--diagnostics", action="store_true", help="with the default measurements on")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    off = [] if options.diagnostics else ["--config", str(CONFIGS / "diagnostics" / "off.yaml")]
    plain, ours, shares = [], [], []
    for _ in range(options.repeats):
        plain.append(plain_rate(options.steps))
        rate, share = fit_rate(options.steps, *off)
        ours.append(rate)
        shares.append(share)
    a, b = statistics.median(plain), statistics.median(ours)
    print(f"plain loop {a:.0f} steps/s, fit {b:.0f} steps/s, ratio {b / a:.2f}")
    print(f"share of the time spent in evaluation {statistics.median(shares):.1%}")


if __name__ == "__main__":
    main()
