"""Interventions through the command line: they act where they should, and a resumed run ends the same."""

import json

import lightning
import pytest
import torch
from short_run import fit, net_after

from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.errors import ConfigError
from grok_lightning.modules.mlp import EmbeddingMLP
from grok_lightning.nets.embedding import EmbeddingOptions
from grok_lightning.optim.filters import GradientFilter

STEPS = ["--trainer.val_check_interval", 10]
MUON = ["--model.optimizer=muon", "--model.muon_lr=0.02", "--model.c=4", "--model.warmup_steps=9"]


def differences(one, other):
    return [name for name, w in one.weights.items() if not torch.equal(w, other.weights[name])]


def resumed(cli, flags):
    whole = fit(*STEPS, *flags, steps=30, run_id="whole")
    part = fit(*STEPS, *flags, steps=13, run_id="part")
    done = cli("fit", "--resume", part.path, "--trainer.max_steps", 30)
    assert done.status == 0, done.err
    return whole, type(part)(part.path)


STRUCTURES = {
    "low_rank": ["--model.embedding.rank=2", "--model.c=4", "--spectrum.every_n_steps=10"],
    "sum": ["--model.combine=sum", "--model.init_scale=2", "--spectrum.every_n_steps=10"],
    "fourier": ["--model.embedding.inputs=fourier", "--balance.every_n_steps=10", "--fourier.every_n_steps=10"],
    "residual": ["--model.residual=true", "--model.depth=4", "--model.embedding.sigma_matched=true"],
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_resume_and_are_measured(cli, name):
    whole, part = resumed(cli, STRUCTURES[name])
    assert not differences(whole, part)
    if name == "low_rank":
        assert whole.series("spectrum/E/numerical_rank")[30] == 2
    if name == "sum":
        assert whole.series("spectrum/EW/numerical_rank")[30] == 4  # d_model


def test_an_embedding_goes_from_a_small_run_to_a_larger_one(cli):
    small = fit("--model.d_model=2", steps=5, run_id="small")
    source = f"--model.embedding.source={small.path / 'checkpoints' / 'last.ckpt'}"
    start = net_after(0, source, "--model.embedding.rank=2")
    assert torch.equal(start.E_left, small.weights["E"])
    done = cli("fit", "--model", "EmbeddingMLP", "--model.d_model=4", "--data.p=11", "--data.batch_size=9", source)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "its E has shape (13, 2), this run needs (13, 4); set model.embedding.rank to 2" in done.err


@pytest.mark.parametrize("flag", ["--model.embedding.rank=2", "--model.freeze_embedding_at=3", "--model.combine=sum"])
def test_a_model_without_an_embedding_takes_no_settings_of_it(cli, flag):
    done = cli("fit", "--model", "EmbeddingFreeMLP", flag)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert flag.removeprefix("--model.").split("=")[0].split(".")[0] in done.err


def test_a_module_of_ones_own_saves_and_loads_its_settings(tmp_path):
    options = EmbeddingOptions(rank=2)
    module = EmbeddingMLP(13, 11, d_model=4, embedding=options, gradient=GradientFilter("ema"))
    checkpoint = {"state_dict": module.state_dict(), "hyper_parameters": dict(module.hparams)}
    checkpoint["pytorch-lightning_version"] = lightning.__version__
    module.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "own.ckpt")
    loaded = EmbeddingMLP.load_from_checkpoint(tmp_path / "own.ckpt", weights_only=True)
    assert torch.equal(loaded.net.E_left, module.net.E_left)
    assert loaded.recipe.gradient == GradientFilter("ema")
    loaded.refuse_other_settings(checkpoint["hyper_parameters"], also_optimiser=True)
    other = EmbeddingMLP(13, 11, d_model=4, embedding=options)
    with pytest.raises(ConfigError, match=r"model.gradient.grokfast = none: the checkpoint was trained with ema"):
        other.refuse_other_settings(checkpoint["hyper_parameters"], also_optimiser=True)


def test_other_filters_are_refused_on_resuming(cli):
    run = fit("--model.gradient.grokfast=ema", steps=10)
    done = cli("fit", "--resume", run.path, "--trainer.max_steps", 20, "--model.gradient.lam", 3)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "model.gradient.lam = 3.0: the run was started with 2.0" in done.err


def test_a_bad_value_is_one_line(cli):
    done = cli("fit", "--model", "EmbeddingMLP", "--model.gradient.lam", "-1")
    assert done.status == 2
    assert done.err == "grok_lightning: error: model.gradient.lam = -1.0: must be 0 or more and finite\n"


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_every_step_is_filtered_after_clipping(precision):
    flags = ["--model.gradient.grokfast=ema", "--trainer.gradient_clip_val=1e-6", "--trainer.log_every_n_steps=1"]
    norms = fit(*flags, f"--trainer.precision={precision}", steps=4).series("gradient/memory_norm")
    assert list(norms) == [1, 2, 3]  # of the memory after so many updates
    assert all(0 < norm <= 1.0001e-6 for norm in norms.values())


def test_learning_rates_of_muon_are_logged_by_group():
    flags = [*MUON, "--model.weight_decay=0", "--trainer.log_every_n_steps=10"]
    run = fit(*flags, steps=20)
    rates = {key: run.series(key)[19] for line in run.lines for key in line if key.startswith("lr/")}
    assert rates == pytest.approx(
        {"lr/embedding": 0.04, "lr/first_layer": 0.01, "lr/first_layer_muon": 0.02, "lr/rest": 0.01}
    )


def training_set():
    data = ModularDataModule(p=11, batch_size=16)
    return data.table.tokens[data.split.train], data.table.labels[data.split.train]


@pytest.mark.parametrize("loss", ["stablemax", "mse"])
def test_every_loss_that_is_logged_is_the_one_that_is_minimised(loss):
    flags = [f"--model.loss={loss}", "--model.loss_dtype=float64"]
    run = fit(*flags, "--hessian.every_n_steps=10", "--two_phase.every_n_steps=10", "--hessian.dtype=float64", steps=10)
    tokens, labels = training_set()
    x = net_after(10, *flags).double()(tokens).detach()
    s = torch.where(x >= 0, x + 1, 1 / (1 - x))
    one_hot = torch.eye(11, dtype=torch.float64)[labels]
    shares = (s / s.sum(1, keepdim=True))[torch.arange(len(labels)), labels]
    expected = -shares.log().mean() if loss == "stablemax" else (x - one_hot).square().mean()
    assert run.series("hessian/loss")[10] == pytest.approx(float(expected), rel=1e-9)
    assert run.series("train_full/loss")[10] == pytest.approx(float(expected), rel=1e-5)
    assert run.group("two_phase")[10]["E/grad_norm"] == pytest.approx(run.group("hessian")[10]["E/grad_norm"], rel=1e-4)


def test_c_grokfast_stablemax_and_clipping_in_one_step():
    flags = [
        "--model.optimizer=sgd", "--model.lr=0.5", "--model.c=3", "--model.weight_decay=0.25",
        "--model.gradient.grokfast=ema", "--model.gradient.lam=4", "--model.loss=stablemax",
        "--trainer.gradient_clip_val=0.01", "--data.batch_size=36",
    ]  # fmt: skip
    before, after = net_after(0, *flags).double(), fit(*flags, steps=1)
    tokens, labels = training_set()
    assert len(labels) == 36  # the batch is the whole training set
    x = before(tokens)
    s = torch.where(x >= 0, x + 1, 1 / (1 - x))
    loss = -(s / s.sum(1, keepdim=True))[torch.arange(36), labels].log().mean()
    names = [name for name, _ in before.named_parameters()]
    gradients = torch.autograd.grad(loss, list(before.parameters()))
    norm = torch.cat([g.flatten() for g in gradients]).norm()
    assert norm > 0.01
    for name, g in zip(names, gradients, strict=True):
        w = before.get_parameter(name).detach()
        clipped = g * 0.01 / norm
        rate = 0.5 * 3 if name == "E" else 0.5
        expected = w - rate * (clipped + 4 * clipped + 0.25 * w)  # the first μ is the gradient itself
        assert torch.allclose(after.weights[name].double(), expected, atol=3e-7), name


def test_losses_are_recorded_in_the_configuration(cli):
    run = fit("--model.loss=mse", steps=5)
    assert json.loads((run.path / "summary.json").read_text())["status"] == "completed"
    done = cli("fit", "--resume", run.path, "--trainer.max_steps", 20, "--model.loss", "stablemax")
    assert "model.loss = 'stablemax': the run was started with 'mse'" in done.err
