"""``fit`` with everything it does unasked against the plain PyTorch loop of the same model, loss and optimiser.

The plain loop is what a researcher would write by hand: the network as its formula says, Adam (the embedding in a group
of its own), a permutation per epoch, no logging, no evaluation. ``fit`` evaluates, logs and writes to W&B offline.

Both run in one process on one thread, in turns of 50 steps, and are timed by the processor time of the process, so that
other work on the machine falls out of the ratio. The window of ``fit`` begins after its first 50 steps and holds 500
steps where the default measurements are on, one period of all of them; 200 (Transformer: 100) where they are off.

    python benchmarks/fit_speed.py [--cells embedding-64,…] [--repeats 3]
"""

import argparse
import contextlib
import io
import json
import logging
import math
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback
from torch import nn
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


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(99, 128)
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 97)

    def forward(self, tokens):
        return self.second(F.relu(self.first(self.embedding(tokens).flatten(1))))


class Free(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 512), nn.Linear(512, 97)

    def forward(self, tokens):
        return self.second(F.relu(self.first(tokens.float())))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(128, 384, bias=False), nn.Linear(128, 128, bias=False)
        self.norms = nn.ModuleList([nn.LayerNorm(128), nn.LayerNorm(128)])
        self.mlp = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, 4, 32).permute(2, 0, 3, 1, 4)
        future = torch.ones(4, 4, dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(32)).masked_fill(future, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(99, 128), nn.Parameter(0.02 * torch.randn(4, 128))
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.norm, self.unembedding = nn.LayerNorm(128), nn.Linear(128, 97, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.unembedding(self.norm(x[:, -1]))


PLAIN = {"embedding": Embedding, "free": Free, "transformer": Transformer}


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
    """Runs the plain loop in turns with ``fit``, at its evaluations, and times both."""

    def __init__(self, plain):
        self.plain, self.fit_seconds, self.plain_seconds, self.steps = plain, 0.0, 0.0, 0
        self._since = None

    def on_validation_end(self, trainer, pl_module):
        now = time.process_time()
        if self._since is not None:
            self.fit_seconds += now - self._since
            self.steps += TURN
        with torch.inference_mode(False), torch.enable_grad():
            for _ in range(TURN if self._since is not None else 5):
                next(self.plain)
        end = time.process_time()
        self.plain_seconds += end - now if self._since is not None else 0.0
        self._since = time.process_time()


def flags(model, batch_size, steps, diagnostics, root):
    found = ["fit", "--config", f"{CONFIGS}/addition.yaml", "--model", f"{CONFIGS}/model/{MODELS[model]}.yaml"]
    found += [] if model == "embedding" else ["--model.c", 1]
    found += [] if diagnostics else ["--config", f"{CONFIGS}/diagnostics/off.yaml"]
    found += ["--data.batch_size", batch_size, "--trainer.max_steps", steps, "--record.root", root]
    return [str(word) for word in found]


def compare(model, batch_size, diagnostics):
    """Milliseconds of processor time per step of the plain loop and of ``fit``, taken in turns."""
    steps = 500 if diagnostics else 100 if model == "transformer" else 200
    turns = Turns(plain_loop(model, batch_size))

    class Timed(GrokCLI):
        def _instantiate_trainer(self, config, callbacks):
            return super()._instantiate_trainer(config, [*callbacks, turns])

    quiet = io.StringIO()
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Timed(flags(model, batch_size, TURN + steps, diagnostics, root))
        summary = json.loads(next(Path(root).glob("*/*/summary.json")).read_text())
    assert turns.steps == steps, (turns.steps, summary)
    return 1e3 * turns.plain_seconds / steps, 1e3 * turns.fit_seconds / steps


def gemm_rate():
    """GFLOP/s of one thread on the product of two 1 024 x 1 024 matrices, best of 10."""
    a, b = torch.randn(2, 1024, 1024)
    best = float("inf")
    for _ in range(10):
        start = time.process_time()
        a @ b
        best = min(best, time.process_time() - start)
    return 2 * 1024**3 / best / 1e9


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", default=",".join(f"{model}-{size}" for model, size in CELLS))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    rate = gemm_rate()
    print(f"one thread, {rate:.0f} GFLOP/s in a product of 1 024 x 1 024 matrices; ms of processor time per step\n")
    print("| model, batch | MFLOP plain / ours | bound | plain | fit, bare | ratio | fit, default | ratio | × bound |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for cell in options.cells.split(","):
        model, size = cell.rsplit("-", 1)
        size = int(size)
        measured = [(compare(model, size, False), compare(model, size, True)) for _ in range(options.repeats)]
        plain = statistics.median(p for pair in measured for p, _ in pair)
        bare, full = (statistics.median(pair[i][1] for pair in measured) for i in (0, 1))
        ratios = [statistics.median(pair[i][0] / pair[i][1] for pair in measured) for i in (0, 1)]
        work = [flops(PLAIN[model](), size) / 1e6, flops(our_net(model, size), size) / 1e6]
        bound = work[1] / rate
        print(
            f"| {model}, {size} | {work[0]:.0f} / {work[1]:.0f} | {bound:.2f} | {plain:.2f} | {bare:.2f} | "
            f"{ratios[0]:.2f} | {full:.2f} | {ratios[1]:.2f} | {bare / bound:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
