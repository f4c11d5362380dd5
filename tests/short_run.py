"""Short fits of small networks, and what they leave."""

import json
import warnings
from pathlib import Path

import torch

from grok_lightning.__main__ import run
from grok_lightning.cli import main

SIZES = {
    "EmbeddingMLP": ["--model.d_model", "4"],
    "EmbeddingFreeMLP": ["--model.d_model", "4", "--model.input_scale", "0.1"],
    "Transformer": ["--model.d_model", "8", "--model.n_heads", "2", "--model.d_mlp", "12", "--model.n_layers", "1"],
}
COMMON = [
    "--data.p", "11", "--data.batch_size", "16", "--trainer.val_check_interval", "10",
    "--trainer.log_every_n_steps", "5", "--trainer.enable_progress_bar", "false",
]  # fmt: skip
OFF = [
    f"--{group}.{grid}=0"
    for group in ("hessian", "spectrum", "balance", "fourier", "ntk", "health", "two_phase")
    for grid in ("every_n_steps", "log_points_per_decade")
]


class Run:
    """The record of one run."""

    def __init__(self, path):
        self.path = path
        self.lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        file = path / "checkpoints" / "last.ckpt"
        self.checkpoint = torch.load(file, weights_only=True) if file.exists() else {}

    @property
    def weights(self):
        return {key.removeprefix("net."): w for key, w in self.checkpoint["state_dict"].items()}

    def series(self, key):
        return {line["step"]: line[key] for line in self.lines if key in line}

    def group(self, group):
        """Step → key without the group → value, without what a clock decides."""
        timed = ("seconds", "cost_gradients")
        found = {}
        for line in self.lines:
            own = {key: value for key, value in line.items() if key.startswith(f"{group}/")}
            if kept := {key.removeprefix(f"{group}/"): v for key, v in own.items() if not key.endswith(timed)}:
                found.setdefault(line["step"], {}).update(kept)
        return found


def arguments(*flags, model="EmbeddingMLP", steps=20, run_id="run", off=True, logger="false"):
    head = ["fit", "--model", model, *SIZES[model], *COMMON, *(OFF if off else [])]
    tail = ["--trainer.max_steps", str(steps), "--record.run_id", run_id, "--record.experiment", "x"]
    return [*head, *tail, *(["--trainer.logger", logger] if logger else []), *map(str, flags)]


def fit(*flags, **kwargs):
    """Fit and read the record. Diagnostics are off but for those that the flags switch on."""
    assert run(arguments(*flags, **kwargs)) == 0
    return Run(Path("runs/x") / kwargs.get("run_id", "run"))


def net_after(steps, *flags, **kwargs):
    """The network after so many steps of the same run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return main(arguments(*flags, steps=steps, run_id=f"after-{steps}", **kwargs)).model.net
