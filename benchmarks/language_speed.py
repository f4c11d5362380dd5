"""Tokens per second of ``fit`` on a small language model against a plain loop, in turns.

    python benchmarks/language_speed.py [--repeats 3] [--steps 100]

The plain loop is written with torch's own modules (nn.Embedding, nn.TransformerEncoderLayer, fused Adam in two groups)
and trains on the same rows. Times are of the processor, not of the wall, so that a busy machine disturbs less.
"""

import argparse
import contextlib
import io
import json
import logging
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback
from torch import nn
from torch.nn import functional as F

from grok_lightning.cli import GrokCLI
from grok_lightning.data.text import TextDataModule

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
TURN, D, LAYERS, HEADS, LENGTH, ROWS, V = 20, 64, 2, 4, 64, 16, 1024


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(V, D), nn.Parameter(0.02 * torch.randn(LENGTH, D))
        layer = nn.TransformerEncoderLayer(D, HEADS, 4 * D, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.norm, self.unembedding = nn.LayerNorm(D), nn.Linear(D, V, bias=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)

    def forward(self, tokens):
        x = self.layers(self.embedding(tokens) + self.positions, mask=self.mask, is_causal=True)
        return self.unembedding(self.norm(x))


def plain_loop():
    """Endless: one training step at every ``next``."""
    data = TextDataModule(vocab_size=V, context_length=LENGTH, batch_size=ROWS)
    inputs, labels = data.inputs[data.split.train], data.labels[data.split.train]
    net = Plain()
    rest = [p for name, p in net.named_parameters() if name != "embedding.weight"]
    groups = [{"params": net.embedding.parameters(), "lr": 0.01}, {"params": rest, "lr": 0.001}]
    optimizer = torch.optim.Adam(groups, fused=True)
    while True:
        for rows in torch.randperm(len(inputs)).split(ROWS):
            optimizer.zero_grad()
            F.cross_entropy(net(inputs[rows]).flatten(0, 1), labels[rows].flatten()).backward()
            optimizer.step()
            yield


class Turns(Callback):
    """Runs the plain loop in turns with ``fit``, at its evaluations, and times both."""

    def __init__(self):
        self.plain, self.seconds, self.steps, self._since = plain_loop(), {"fit": 0.0, "plain": 0.0}, 0, None

    def on_validation_start(self, trainer, pl_module):
        if self._since is not None:
            self.seconds["fit"] += time.process_time() - self._since
            self.steps += TURN

    def on_validation_end(self, trainer, pl_module):
        start = time.process_time()
        with torch.inference_mode(False), torch.enable_grad():
            for _ in range(TURN if self._since is not None else 5):
                next(self.plain)
        self.seconds["plain"] += time.process_time() - start if self._since is not None else 0.0
        self._since = time.process_time()


def measure(steps, flags):
    """Tokens per second of processor time of ``fit`` and of the plain loop."""
    turns = Turns()

    class Timed(GrokCLI):
        def _instantiate_trainer(self, config, callbacks):
            return super()._instantiate_trainer(config, [*callbacks, turns])

    quiet = io.StringIO()
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stderr(quiet), contextlib.redirect_stdout(quiet):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            words = ["fit", "--config", CONFIGS / "text_small.yaml", *flags, "--trainer.logger=false"]
            words += [
                "--record.root",
                root,
                f"--trainer.max_steps={TURN + steps}",
                f"--trainer.val_check_interval={TURN}",
            ]
            Timed([str(word) for word in words])
        summary = json.loads(next(Path(root).glob("*/*/summary.json")).read_text())
    assert turns.steps == steps, (turns.steps, summary)
    return {name: steps * ROWS * LENGTH / seconds for name, seconds in turns.seconds.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    off = ["--config", CONFIGS / "diagnostics" / "off.yaml"]
    print("| fit | plain loop, tokens/s | fit, tokens/s | ratio |\n|---|---|---|---|", flush=True)
    for name, flags in (("bare", off), ("with token deciles", [*off, "--tokens.every_n_steps=20"])):
        found = [measure(options.steps, flags) for _ in range(options.repeats)]
        plain, fit = (statistics.median(each[loop] for each in found) for loop in ("plain", "fit"))
        ratio = statistics.median(each["fit"] / each["plain"] for each in found)
        print(f"| {name} | {plain:,.0f} | {fit:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
