"""Updates that are broken on purpose: they stop the run or are left out, and never reach weights or checkpoint."""

import json
import math
import os
import subprocess
import warnings
from pathlib import Path

import pytest
import torch
from killed import PROGRAM
from short_run import arguments, fit, net_after

from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.modules.base import GrokModule

SKIP = "--numerics.nonfinite=skip"
QUICK = ["--trainer.log_every_n_steps=1000", "--trainer.val_check_interval=1000"]
WHOLE = ["--trainer.log_every_n_steps=1", "--trainer.val_check_interval=1000"]


@pytest.fixture
def broken(monkeypatch):
    """``broken({8: spoil})``: the loss of update 8 becomes ``spoil(module, loss)``."""

    right = GrokModule.batch_loss

    def arrange(spoilt):
        def batch_loss(module, batch):
            loss, logits = right(module, batch)
            spoil = spoilt.get(module.global_step + 1, lambda module, loss: loss)
            return spoil(module, loss), logits

        monkeypatch.setattr(GrokModule, "batch_loss", batch_loss)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield arrange


def nan_loss(module, loss):
    return loss * math.nan


def gradient_of_e(value):
    """A finite loss with a gradient of its own in the first row of E."""

    def spoil(module, loss):
        extra = module.net.E[0, 0] * 1.0
        extra.register_hook(lambda grad: torch.full_like(grad, value))
        return loss + (extra - extra.detach())

    return spoil


def ends(run_id):
    path = Path("runs/x") / run_id
    return json.loads((path / "summary.json").read_text()), path / "checkpoints" / "last.ckpt"


def state(checkpoint):
    return torch.load(checkpoint, weights_only=True)


@pytest.mark.parametrize("way", [QUICK, WHOLE], ids=["quick", "whole"])
def test_a_broken_loss_stops_the_run_which_goes_on_from_the_checkpoint_before(cli, broken, way):
    whole = fit(*way, run_id="whole")
    broken({8: nan_loss})
    done = cli(*arguments(*way, "--checkpoint.every_n_steps=5"))
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "update 8 has a loss of nan and gradient norms E nan, W nan, rest nan" in done.err
    summary, checkpoint = ends("run")
    assert (summary["status"], summary["steps"], state(checkpoint)["global_step"]) == ("failed", 7, 5)
    assert "update 8" in summary["reason"]
    assert "fit --resume runs/x/run" in done.out
    broken({})
    assert cli("fit", "--resume", "runs/x/run").status == 0
    found = state(checkpoint)["state_dict"]
    assert all(torch.equal(w, found[name]) for name, w in whole.checkpoint["state_dict"].items())


def test_the_block_is_named_with_the_norms_of_the_others(cli, broken):
    net, data = net_after(7, "--data.batch_size=full"), ModularDataModule(p=11, batch_size=16)
    tokens, labels = data.table.tokens[data.split.train], data.table.labels[data.split.train]
    net.zero_grad()
    torch.nn.functional.cross_entropy(net(tokens), labels).backward()
    norm_of_w = math.hypot(float(net.first.weight.grad.norm()), float(net.first.bias.grad.norm()))
    broken({8: gradient_of_e(math.inf)})
    done = cli(*arguments(*QUICK, "--data.batch_size=full"))
    assert done.status == 1
    said = done.err.split("gradient norms ")[1].split(";")[0]
    norms = {block: float(value) for block, value in (part.split(" ") for part in said.split(", "))}
    assert norms["E"] == math.inf
    assert norms["W"] == pytest.approx(norm_of_w, rel=1e-4)
    assert math.isfinite(norms["rest"])


RECIPES = {
    "adamw": ["--model.optimizer=adamw", "--model.loss_dtype=float64", "--trainer.gradient_clip_val=0.5"],
    "sgd": ["--model.optimizer=sgd", "--model.momentum=0.9", "--model.gradient.grokfast=ema"],
    "muon": ["--model.optimizer=muon", "--model.muon_lr=0.02", "--data.sampler=entropy", "--data.sampler_gamma=0.1"],
}


@pytest.mark.parametrize("name", RECIPES)
def test_an_update_that_is_left_out_leaves_weights_and_optimiser_as_they_were(broken, name):
    broken({8: nan_loss})
    before = fit(*RECIPES[name], SKIP, steps=7, run_id="before").checkpoint
    after = fit(*RECIPES[name], SKIP, steps=8, run_id="after").checkpoint
    assert all(torch.equal(w, after["state_dict"][name]) for name, w in before["state_dict"].items())
    old, new = (checkpoint["optimizer_states"][0] for checkpoint in (before, after))
    for parameter, held in old["state"].items():
        assert all(
            torch.equal(torch.as_tensor(v), torch.as_tensor(new["state"][parameter][k])) for k, v in held.items()
        )
    if "gradient_filter" in old:
        memory = [filtered["gradient_filter"] for filtered in (old, new)]
        assert memory[0]["counts"] == memory[1]["counts"]
        assert all(torch.equal(mean, memory[1]["means"][index]) for index, mean in memory[0]["means"].items())


def test_skipped_updates_are_counted_over_a_resumption_and_quick_steps_are_the_same(cli, broken):
    broken({8: nan_loss, 16: gradient_of_e(math.nan)})
    runs = [fit(*way, SKIP, run_id=run_id) for way, run_id in ((QUICK, "quick"), (WHOLE, "whole"))]
    part = fit(*QUICK, SKIP, steps=13, run_id="part")
    assert cli("fit", "--resume", part.path, "--trainer.max_steps", 20).status == 0
    for run in (*runs, type(part)(part.path)):
        assert ends(run.path.name)[0]["skipped_steps"] == 2
        assert run.series("health/skipped_steps") == {7: 1, 15: 2}
        assert all(torch.equal(w, runs[0].weights[name]) for name, w in run.weights.items())


def test_so_many_in_a_row_end_the_run_and_a_stopped_run_may_go_on_skipping(cli, broken):
    broken({step: nan_loss for step in range(8, 300)})
    assert cli(*arguments(*QUICK, "--checkpoint.every_n_steps=5", steps=200)).status == 1
    done = cli("fit", "--resume", "runs/x/run", SKIP)
    assert (done.status, done.err.splitlines()[-1].endswith("and 100 updates in a row were left out")) == (1, True)
    assert ends("run")[0]["skipped_steps"] == 100


def test_weights_that_overflow_are_no_checkpoint(cli):
    done = cli(*arguments("--model.optimizer=sgd", "--model.lr=3e38", "--model.c=10", "--checkpoint.every_n_steps=1"))
    assert done.status == 1
    assert "the weights of 1 updates are not finite; no checkpoint is made of them" in done.err
    assert not ends("run")[1].exists()


def test_a_sum_that_overflows_is_no_broken_update(broken):
    def spoil(module, loss):
        entries = module.net.E * 1.0
        entries.register_hook(lambda grad: torch.full_like(grad, 3e38))
        return loss + (entries - entries.detach()).sum()

    broken({2: spoil})
    fit(steps=2)
    assert ends("run")[0]["status"] == "completed"


SCALED = ["--trainer.plugins=MixedPrecision", "--trainer.plugins.precision=16-mixed", "--trainer.plugins.device=cpu"]


def test_what_a_scaler_leaves_out_is_no_error_but_a_broken_loss_is(cli, broken):
    broken({8: gradient_of_e(math.inf)})
    fit(*SCALED, run_id="scaled")
    assert ends("scaled")[0]["skipped_steps"] == 0
    broken({8: lambda module, loss: loss + math.inf})
    done = cli(*arguments(*SCALED, run_id="stopped"))
    assert (done.status, "update 8 has a loss of inf" in done.err) == (1, True)
    before, after = (fit(*SCALED, SKIP, steps=steps, run_id=f"to-{steps}") for steps in (7, 8))
    assert all(torch.equal(w, after.weights[name]) for name, w in before.weights.items())
    assert ends("to-8")[0]["skipped_steps"] == 1


@pytest.mark.ddp
@pytest.mark.slow
@pytest.mark.parametrize(("how", "status"), [("stop", 1), ("skip", 0)])
def test_two_processes_decide_alike(how, status):
    Path("spoilt.py").write_text(
        "from grok_lightning.modules.mlp import EmbeddingMLP\n"
        "class Spoilt(EmbeddingMLP):\n"
        "    def batch_loss(self, batch):\n"
        "        loss, logits = super().batch_loss(batch)\n"
        "        only_here = self.global_rank == 1 and self.global_step == 7\n"
        "        return loss + float('inf') if only_here else loss, logits\n"
    )
    two = ["--trainer.strategy=ddp", "--trainer.devices=2", "--trainer.accelerator=cpu", f"--numerics.nonfinite={how}"]
    command = ["spoilt.Spoilt" if word == "EmbeddingMLP" else word for word in arguments(*two)]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run([*PROGRAM, *command], env=environment, capture_output=True, text=True, timeout=120)
    summary, _ = ends("run")
    assert done.returncode == status, done.stderr
    assert (summary["steps"], summary["skipped_steps"]) == ((7, 0) if how == "stop" else (20, 1))
    assert ("Traceback" in done.stderr, "gradient norms E" in done.stderr) == (False, True)
