"""``fit`` with everything it does unasked against the plain PyTorch loop of the same model, loss and optimiser.

The plain loop is what a researcher would write by hand: the network as its formula says, Adam (the embedding in a group
of its own), a permutation per epoch, no logging, no evaluation. ``fit`` evaluates, logs and writes to W&B offline.

Both run in one process on one thread, in turns of 50 steps (the plain loop of the slow ones: 10), and are timed by the
processor time of the process. A ratio is the median over turns; where the default measurements are on, which most turns
do not make, the quotient of sums over 500 steps after the first 50: one period of all of them but the large spectrum.
Of repeats, the medians. A second table says where ``fit`` spends its step. "By hand" is the ratio that a loop without
Lightning would reach which makes the same updates, evaluations and measurements, and nothing else: the plain loop
against forward, backward, optimiser, evaluation and measurements of ``fit``.

    python benchmarks/fit_speed.py [--cells embedding-64,…] [--repeats 3]
"""

import argparse
import contextlib
import io
import logging
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from fit_sections import HEADINGS, WORK, Sections, gemm_rate
from lightning.pytorch import Callback
from plain_nets import PLAIN
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from grok_lightning.cli import GrokCLI
from grok_lightning.data.datamodule import ModularDataModule

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
TURN = 50
FULL = 2822
MODELS = {"embedding": "embedding_mlp", "free": "embedding_free_mlp", "transformer": "transformer"}
CELLS = [("embedding", size) for size in (64, 512, 1024, FULL)]
CELLS += [("free", 64), ("free", 512), ("transformer", 512)]
FLOORS = dict(
    zip(
        [f"{model}-{size}" for model, size in CELLS],
        [(1.2, 1.15), (1.45, 1.3), (1.8, 1.6), (2.3, 2.0), (0.9, 0.8), (1.0, 0.95), (1.05, 1.0)],
        strict=True,
    )
)
"""What is asked for: without and with the default measurements."""


def plain_loop(model, batch_size):
    """Endless: one training step of the plain loop at every ``next``."""
    data = ModularDataModule()
    tokens, labels = data.table.tokens[data.split.train], data.table.labels[data.split.train]
    torch.manual_seed(7)
    net = PLAIN[model]()
    if model == "transformer":
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.001, betas=(0.9, 0.98), weight_decay=1.0)
    elif model == "free":
        optimizer = torch.optim.Adam(net.parameters(), lr=0.001, weight_decay=0.001)
    else:
        rest = [*net.first.parameters(), *net.second.parameters()]
        groups = [{"params": net.embedding.parameters(), "lr": 0.1}, {"params": rest, "lr": 0.01}]
        optimizer = torch.optim.Adam(groups, weight_decay=0.001)
    while True:
        order = torch.randperm(len(labels))
        for rows in order.split(batch_size):
            optimizer.zero_grad()
            F.cross_entropy(net(tokens[rows]), labels[rows]).backward()
            optimizer.step()
            yield


class Turns(Callback):
    """Runs the plain loop in turns with ``fit``, at its evaluations, and times both: (plain, fit) seconds per step."""

    def __init__(self, plain, plain_steps, sections, wanted):
        self.plain, self.plain_steps, self.sections, self.wanted = plain, plain_steps, sections, wanted
        self.turns = []
        self._since = None

    def on_validation_end(self, trainer, pl_module):
        now = time.process_time()
        self.sections.end()
        with torch.inference_mode(False), torch.enable_grad():
            if self._since is None:
                next(self.plain)
            start = time.process_time()
            for _ in range(self.plain_steps):
                next(self.plain)
            plain = (time.process_time() - start) / self.plain_steps
        if self._since is not None:
            self.turns.append((plain, (now - self._since) / TURN))
        if len(self.turns) < self.wanted:  # not what happens after the last step
            self.sections.begin()
        self._since = time.process_time()


def flags(model, batch_size, steps, diagnostics, root):
    found = ["fit", "--config", f"{CONFIGS}/addition.yaml", "--model", f"{CONFIGS}/model/{MODELS[model]}.yaml"]
    found += [] if model == "embedding" else ["--model.c", 1]
    found += [] if diagnostics else ["--config", f"{CONFIGS}/diagnostics/off.yaml"]
    found += ["--data.batch_size", batch_size, "--trainer.max_steps", steps, "--record.root", root]
    return [str(word) for word in found]


def compare(model, batch_size, diagnostics):
    """Turns of both loops, and milliseconds per step of the parts of ``fit``.

    The timers of the parts cost 0.01 ms a step or less.
    """
    slow = model == "transformer" or batch_size == FULL
    steps = 500 if diagnostics else 100 if slow else 500
    sections = Sections()
    turns = Turns(plain_loop(model, batch_size), 10 if slow else TURN, sections, steps // TURN)

    class Timed(GrokCLI):
        def _instantiate_trainer(self, config, callbacks):
            return super()._instantiate_trainer(config, [*callbacks, turns])

    quiet = io.StringIO()
    silent = contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet), warnings.catch_warnings()
    with tempfile.TemporaryDirectory() as root, silent[0], silent[1], silent[2], sections.installed():
        warnings.simplefilter("ignore")
        Timed(flags(model, batch_size, TURN + steps, diagnostics, root))
    assert len(turns.turns) == steps // TURN, len(turns.turns)
    mean = 1e3 * statistics.mean(ours for _, ours in turns.turns)
    return turns.turns, sections.per_step(steps, mean)


def ratio(turns, diagnostics):
    """Speed of ``fit`` in units of the plain loop: the median over turns, or of sums where turns are not alike."""
    if diagnostics:
        return sum(plain for plain, _ in turns) / sum(ours for _, ours in turns)
    return statistics.median(plain / ours for plain, ours in turns)


def shapes(model, batch_size):
    """The products of a forward that take most of its operations."""
    rows = min(batch_size, 99)
    if model == "embedding":
        return [(rows, 128, 512)] * 2 + [(batch_size, 512, 97)]
    if model == "free":
        return [(batch_size, 512, 97)]
    return [(2 * batch_size, 128, 128)] * 6 + [(2 * batch_size, 128, 512), (2 * batch_size, 512, 128)]


def flops(net, batch_size):
    """Floating-point operations of the matrix products of one forward and backward."""
    data = ModularDataModule()
    tokens, labels = data.table.tokens[data.split.train[:batch_size]], data.table.labels[:batch_size]
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(net(tokens), labels).backward()
    return counter.get_total_flops()


def our_net(model, batch_size):
    with tempfile.TemporaryDirectory() as root:
        parsed = GrokCLI(flags(model, batch_size, 1, False, root), parse_only=True)
        return parsed.parser.instantiate_classes(parsed.config).fit.model.net


def measure(cell, repeats):
    """The rows of a cell in the two tables."""
    model, size = cell.rsplit("-", 1)
    size = int(size)
    runs = [(compare(model, size, False), compare(model, size, True)) for _ in range(repeats)]
    bare, full = ([turn for run in runs for turn in run[i][0]] for i in (0, 1))
    ratios = [statistics.median(ratio(run[i][0], bool(i)) for run in runs) for i in (0, 1)]
    products = [flops(PLAIN[model](), size) / 1e6, flops(our_net(model, size), size) / 1e6]
    own_rate = gemm_rate(shapes(model, size))
    plain = 1e3 * statistics.median(turn[0] for turn in bare)
    ours = [1e3 * statistics.median(turn[1] for turn in bare), 1e3 * statistics.mean(turn[1] for turn in full)]
    bound = products[1] / own_rate
    met = ["yes" if found >= floor else "no" for found, floor in zip(ratios, FLOORS[cell], strict=True)]
    name = cell.replace("-", ", ")
    first = f"| {name} | {products[0]:.0f} / {products[1]:.0f} | {own_rate:.0f} | {bound:.2f} | {plain:.2f} | "
    first += f"{ours[0]:.2f} | "
    for i in (0, 1):
        first += f"**{ratios[i]:.2f}** | {FLOORS[cell][i]:g}: {met[i]} | " + (f"{ours[1]:.2f} | " if i == 0 else "")
    sections = [[statistics.median(run[i][1][k] for run in runs) for k in range(len(HEADINGS))] for i in (0, 1)]
    work = [sum(part for name, part in zip(HEADINGS, parts, strict=True) if name in WORK) for parts in sections]
    by_hand = [plain / spent for spent in work]
    rows = [first + f"{by_hand[0]:.2f} / {by_hand[1]:.2f} | {ours[0] / bound:.1f} |"]
    for kind, parts in zip(("bare", "default"), sections, strict=True):
        rows.append(f"| {name}, {kind} | " + " | ".join(f"{part:.2f}" for part in parts) + " |")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", default=",".join(f"{model}-{size}" for model, size in CELLS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    rate = gemm_rate([(1024, 1024, 1024)])
    print(f"one thread, {rate:.0f} GFLOP/s in a product of 1 024 x 1 024 matrices; ms of processor time per step\n")
    rows = []
    for cell in options.cells.split(","):
        rows.append(measure(cell, options.repeats))
        print(*rows[-1], sep="\n", flush=True)
    print("\n| model, batch | MFLOP plain / ours | GFLOP/s | bound | plain | bare | ratio | floor | ", end="")
    print("default | ratio | floor | by hand | bare / bound |")
    print("|" + "---|" * 13, *(row[0] for row in rows), sep="\n")
    print("\n| model, batch | " + " | ".join(HEADINGS) + " |")
    print("|" + "---|" * (1 + len(HEADINGS)), *(row for found in rows for row in found[1:]), sep="\n")


if __name__ == "__main__":
    main()
