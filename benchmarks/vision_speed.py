"""Images per second of ``fit`` on images against the plain PyTorch loop of the same network, loss and optimiser.

The plain loop cuts batches from a float tensor, with two parameter groups, no logging and no evaluation. ``fit`` runs
its training steps alone (``diagnostics/off.yaml``, the run record, no evaluation between first and last step).
Both run in this process, one after the other, and are timed by its processor time (by the clock on a GPU); the first 20
steps of each are left out.

    python benchmarks/vision_speed.py [--config configs/vit_digits.yaml] [--steps 200] [--repeats 3] [fit flags …]
"""

import argparse
import contextlib
import io
import logging
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback
from torch.nn.functional import cross_entropy

from grok_lightning.callbacks.stepping import StepsOver
from grok_lightning.cli import GrokCLI

ROOT = Path(__file__).resolve().parent.parent
WARM = 20


def now():
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


class Clock(StepsOver, Callback):
    """Times from the start of step ``WARM`` to the end of the last; the steps between may be passed over."""

    def __init__(self, steps):
        self.last = WARM + steps

    def acts_at(self, trainer, step):
        return step in (WARM, self.last)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == WARM:
            self.start = now()
        if trainer.global_step == self.last:
            self.seconds = now() - self.start


def fit(config, steps, flags):
    """Seconds of ``steps`` steps of fit, and its parts."""
    quiet = ["--trainer.logger=false", "--trainer.enable_progress_bar=false", f"--trainer.max_steps={WARM + steps}"]
    never = ["--trainer.val_check_interval=100000", "--trainer.limit_val_batches=0", "--checkpoint.every_n_steps=0"]
    off = ["--config", str(ROOT / "configs/diagnostics/off.yaml")]
    clock, original = Clock(steps), GrokCLI.instantiate_trainer
    words = ["fit", "--config", str(config), *off, *quiet, *never, *flags]

    def with_clock(self, **kwargs):
        trainer = original(self, **kwargs)
        trainer.callbacks.append(clock)
        return trainer

    GrokCLI.instantiate_trainer = with_clock
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            cli = GrokCLI(words)
    finally:
        GrokCLI.instantiate_trainer = original
    return clock.seconds, cli


def plain(cli, steps):
    """Seconds of so many steps of a loop written by hand."""
    data, net = cli.datamodule, cli.model.net
    device = next(net.parameters()).device
    net.train()
    rows = data.split.train
    images, labels = data.normalised(data.inputs[rows].to(device)), data.labels[rows].to(device)
    moved = set(net.blocks()["embedding"])
    named = list(net.named_parameters())
    groups = [
        {"params": [p for name, p in named if name in moved], "lr": cli.model.recipe.lr * cli.model.recipe.c},
        {"params": [p for name, p in named if name not in moved]},
    ]
    optimizer = torch.optim.Adam(groups, lr=cli.model.recipe.lr, fused=True)
    made = 0
    while True:
        for batch in torch.randperm(len(rows)).to(device).split(data.batch_size):
            if made == WARM:
                start = now()
            if made == WARM + steps:
                return now() - start
            optimizer.zero_grad()
            cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()
            made += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/vit_digits.yaml")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    options, flags = parser.parse_known_args()
    options.config = options.config.resolve()
    os.environ["WANDB_MODE"] = "disabled"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    rates = {"fit": [], "plain": []}
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            seconds, cli = fit(options.config, options.steps, flags)
        images = options.steps * cli.datamodule.batch_size
        rates["fit"].append(images / seconds)
        rates["plain"].append(images / plain(cli, options.steps))
    for name, found in rates.items():
        spread = f"median of {len(found)} ({min(found):.0f} to {max(found):.0f})"
        print(f"{name}: {statistics.median(found):.0f} images/s, {spread}")
    print(f"fit / plain: {statistics.median(rates['fit']) / statistics.median(rates['plain']):.3f}")


if __name__ == "__main__":
    main()
