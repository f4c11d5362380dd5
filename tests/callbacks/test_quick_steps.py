"""Steps that are passed over quickly against the same steps run one by one by Lightning."""

import json
import os
import signal
import warnings
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback
from short_run import OFF, arguments

from grok_lightning.callbacks import stepping
from grok_lightning.cli import GrokCLI
from grok_lightning.modules.base import GrokModule

ON = [flag for flag in OFF if "every_n_steps" in flag]
TIMED = ("seconds", "cost_gradients", "_timestamp")


class Watcher(Callback):
    """A callback of a user that wants to see every step."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append((trainer.global_step, batch_idx, tuple(batch.labels.tolist())))


class Ends(Callback):
    """Epochs and evaluations; no hook of single steps."""

    def __init__(self):
        self.seen = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.seen.append(("epoch", trainer.current_epoch, trainer.global_step))

    def on_validation_end(self, trainer, pl_module):
        self.seen.append(("validation", trainer.global_step))


def fit(run_id, *flags, callbacks=(), **kwargs):
    """The command-line run with callbacks of a user's own."""

    class Own(GrokCLI):
        def _instantiate_trainer(self, config, own):
            return super()._instantiate_trainer(config, [*own, *callbacks])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Own(arguments(*flags, run_id=run_id, **kwargs)).trainer


def record(run_id):
    path = Path("runs/x") / run_id
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    values = [
        (line["step"], key, json.dumps(value))
        for line in lines
        for key, value in line.items()
        if not key.endswith(TIMED)
    ]
    return sorted(values), torch.load(path / "checkpoints" / "last.ckpt", weights_only=True)


def assert_equal(one, other, path="checkpoint"):
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            if not str(key).endswith("seconds") and "Timer" not in str(key):
                assert_equal(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for i, pair in enumerate(zip(one, other, strict=True)):
            assert_equal(*pair, f"{path}.{i}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    else:
        assert one == other, path


CASES = {
    "default": [],
    "free": ["--model.optimizer=sgd", "--model.momentum=0.9"],
    "transformer": [],
    "everything": [
        "--hessian.every_n_steps=30", "--balance.every_n_steps=20", "--health.every_n_steps=15",
        "--spectrum.every_n_steps=40", "--spectrum.log_points_per_decade=3", "--two_phase.every_n_steps=25",
        "--checkpoint.every_n_steps=7",
    ],
    "warmup": ["--model.warmup_steps=33"],
    "clipping": ["--trainer.gradient_clip_val=0.01"],
    "clipping by value": ["--trainer.gradient_clip_val=0.001", "--trainer.gradient_clip_algorithm=value"],
    "64": ["--trainer.precision=64-true"],
    "bf16": ["--trainer.precision=bf16-mixed"],
    "accumulate": ["--trainer.accumulate_grad_batches=3"],
    "epochs": ["--trainer.max_epochs=20", "--trainer.max_steps=-1", "--trainer.val_check_interval=1.0",
               "--trainer.check_val_every_n_epoch=2"],
    "part of an epoch": ["--trainer.limit_train_batches=2"],
    "full batch": ["--data.batch_size=36"],
    "bar": ["--trainer.enable_progress_bar=true"],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_quick_steps_are_lightnings_steps(case):
    model = {"free": "EmbeddingFreeMLP", "transformer": "Transformer"}.get(case, "EmbeddingMLP")
    flags = ["--data.batch_size=4", "--trainer.val_check_interval=20", *CASES[case]]
    watcher = Watcher()
    quick = fit("quick", *flags, model=model, steps=130)
    slow = fit("slow", *flags, callbacks=[watcher], model=model, steps=130)
    assert quick.global_step == slow.global_step
    assert quick.current_epoch == slow.current_epoch
    (lines, checkpoint), (other_lines, other) = record("quick"), record("slow")
    assert lines == other_lines
    assert_equal(checkpoint, other)
    assert len(watcher.seen) > 100  # every step was Lightning's


@pytest.mark.parametrize("case", ["default", "epochs"])
def test_a_callback_with_hooks_of_epochs_gets_every_epoch(case):
    ends = Ends(), Ends()
    flags = ["--data.batch_size=4", "--trainer.val_check_interval=20", *CASES[case]]
    fit("quick", *flags, callbacks=[ends[0]], steps=130)
    fit("slow", *flags, callbacks=[ends[1], Watcher()], steps=130)
    assert ends[0].seen == ends[1].seen
    assert sum(name == "epoch" for name, *_ in ends[0].seen) > 10


def test_only_steps_at_which_something_is_due_are_run_whole(monkeypatch):
    made, step = [], GrokModule.training_step
    monkeypatch.setattr(GrokModule, "training_step", lambda *a: made.append(a[0].global_step + 1) or step(*a))
    monkeypatch.setattr(stepping, "QUICK_SECONDS", 1e9)
    flags = ["--data.batch_size=2", "--trainer.log_every_n_steps=8", "--trainer.val_check_interval=12"]
    fit("run", *flags, "--spectrum.every_n_steps=15", "--checkpoint.every_n_steps=26", steps=40)
    # 36 pairs, so an epoch ends at 18 and 36, where nothing is due; the step after a checkpoint makes it complete
    assert made == [8, 12, 15, 16, 24, 26, 27, 30, 32, 36, 40]


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_before_zero_grad", "on_after_backward"])
def test_a_callback_with_hooks_of_single_steps_gets_every_step(hook):
    calls = []
    callback = type("Own", (Callback,), {hook: lambda self, trainer, *args: calls.append(trainer.global_step)})()
    fit("run", callbacks=[callback], steps=25)
    assert calls == list(range(25))


def test_a_signal_is_answered_at_once(cli):
    class Kill(Callback):
        def on_validation_end(self, trainer, pl_module):
            if trainer.global_step == 20:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        fit("run", "--data.batch_size=1", "--trainer.val_check_interval=20", callbacks=[Kill()], steps=1000)
    checkpoint = torch.load("runs/x/run/checkpoints/last.ckpt", weights_only=True)
    summary = json.loads(Path("runs/x/run/summary.json").read_text())
    assert summary["steps"] == checkpoint["global_step"] <= 40


def test_the_loop_is_in_place():
    assert isinstance(fit("run", steps=1).fit_loop.epoch_loop, stepping.QuickEpochLoop)
