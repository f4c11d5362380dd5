"""The Hessian callback against dense Hessians of the weights that a run leaves."""

import math
import warnings
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from short_run import arguments, fit, net_after
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from grok_lightning.__main__ import run
from grok_lightning.callbacks.hessian import Hessian
from grok_lightning.callbacks.spectrum import Spectrum
from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.errors import ConfigError

ALL_BLOCKS = "--hessian.blocks=[E,W,rest,all]"
EXACT = ["--hessian.dtype", "float64", "--hessian.tol", "1e-7", "--hessian.k", "3", ALL_BLOCKS]
LABELS = {"E": "embedding", "W": "first_layer", "rest": "rest"}


def training_set(task="addition"):
    data = ModularDataModule(task=task, p=11, batch_size=16)
    return data.table.tokens[data.split.train], data.table.labels[data.split.train]


def dense(net, names, tokens, labels):
    """Hessian and gradient of the mean loss in float64, by torch.func."""
    params = {name: p.detach().double() for name, p in net.named_parameters()}
    buffers = dict(net.named_buffers())
    flat = torch.cat([params[name].reshape(-1) for name in names])

    def loss(theta):
        parts = torch.split(theta, [params[name].numel() for name in names])
        moved = {name: part.view_as(params[name]) for name, part in zip(names, parts, strict=True)}
        return cross_entropy(functional_call(net, params | buffers | moved, (tokens,)), labels)

    return torch.func.jacrev(torch.func.grad(loss))(flat), torch.func.grad(loss)(flat), loss(flat)


@pytest.mark.parametrize("model", ["EmbeddingMLP", "EmbeddingFreeMLP", "Transformer"])
def test_eigenvalues_are_those_of_the_dense_hessian(model):
    record = fit("--hessian.every_n_steps", 20, *EXACT, model=model)
    net = net_after(20, model=model)
    blocks = {label: net.blocks()[name] for label, name in LABELS.items() if name in net.blocks()}
    blocks["all"] = [name for name, _ in net.named_parameters()]
    tokens, labels = training_set()
    found = record.group("hessian")[20]
    assert {key.split("/")[0] for key in found if "/" in key} == set(blocks)
    for label, names in blocks.items():
        H, gradient, loss = dense(net, names, tokens, labels)
        values = torch.linalg.eigvalsh(H)
        top = values.flip(0)[:3].tolist()
        assert found[f"{label}/lambda_max"] == pytest.approx(top[0], rel=1e-9)
        assert found[f"{label}/eigenvalues"] == pytest.approx(top, rel=1e-6)
        off = abs(found[f"{label}/lambda_min"] - float(values[0]))
        assert off <= found[f"{label}/lambda_min_residual"] + 1e-9
        assert found[f"{label}/lambda_abs_max"] in (found[f"{label}/lambda_max"], found[f"{label}/lambda_min"])
        assert found[f"{label}/grad_norm"] == pytest.approx(float(gradient.norm()), rel=1e-9)
        assert found["loss"] == pytest.approx(float(loss), rel=1e-9)
        assert found[f"{label}/residual"] <= 1e-7
        assert found[f"{label}/converged"] == 1
    assert found["n_samples"] == len(labels)


def test_float32_by_default_and_costs_are_kept():
    record = fit("--hessian.every_n_steps", 20, ALL_BLOCKS)
    net = net_after(20)
    H, _, _ = dense(net, ["E"], *training_set())
    last = {key: value for line in record.lines for key, value in line.items() if line["step"] == 20}
    assert last["hessian/E/lambda_max"] == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-4)
    cost = last["hessian/E/seconds"] / last["hessian/gradient_seconds"]
    assert last["hessian/E/cost_gradients"] == pytest.approx(cost)
    assert last["time/hessian_seconds"] > 0
    assert last["hessian/E/n_hvp"] >= 2


def test_power_iteration_reports_magnitude_only():
    record = fit("--hessian.every_n_steps", 20, "--hessian.method", "power", "--hessian.max_krylov", 300, ALL_BLOCKS)
    last = record.group("hessian")[20]
    net = net_after(20)
    H, _, _ = dense(net, [name for name, _ in net.named_parameters()], *training_set())
    values = torch.linalg.eigvalsh(H)
    assert last["all/lambda_abs_max"] == pytest.approx(float(values[values.abs().argmax()]), rel=1e-3)
    assert "all/lambda_max" not in last
    assert last["all/n_hvp"] == 300


def test_cold_starts_carry_the_density_and_warm_ones_say_so():
    flags = ["--hessian.every_n_steps", 5, "--hessian.cold_every", 2, ALL_BLOCKS]
    found = fit(*flags).group("hessian")
    assert [found[step]["E/warm_start"] for step in (0, 5, 10, 15, 20)] == [0, 1, 0, 1, 0]
    for step in (0, 10, 20):
        nodes, weights = (torch.tensor(found[step][f"W/density_{part}"]) for part in ("nodes", "weights"))
        n = 4 * 4 * 16 + 16
        assert float(weights.sum()) == pytest.approx(1, rel=1e-6)
        assert found[step]["W/trace"] == pytest.approx(n * float(weights @ nodes), rel=1e-4)
        assert found[step]["W/frobenius_norm"] == pytest.approx(math.sqrt(n * float(weights @ nodes**2)), rel=1e-4)
    assert not any("density" in key or "trace" in key for key in found[5])
    assert found[5]["all/n_hvp"] < found[0]["all/n_hvp"]


def test_a_subset_shows_in_the_key():
    found = fit("--hessian.every_n_steps", 20, "--hessian.subset", 7, "--hessian.chunk_size", 3).group("hessian")[20]
    assert found["n_samples"] == 7
    assert "E_of_7/lambda_max" in found
    assert not any(key.startswith("E/") for key in found)


def test_a_resumed_run_measures_the_same_numbers():
    flags = ["--hessian.every_n_steps", 5, "--hessian.k", 2, ALL_BLOCKS]
    whole = fit(*flags).group("hessian")
    fit(*flags, steps=10, run_id="half")
    resumed = fit(*flags, "--ckpt_path", "runs/x/half/checkpoints/last.ckpt", run_id="rest").group("hessian")
    assert sorted(resumed) == [15, 20]
    for step, values in resumed.items():
        assert values == whole[step]


def test_nan_is_recorded_with_one_warning_and_training_goes_on():
    flags = ["--model.optimizer", "sgd", "--model.lr", "1e30", "--hessian.every_n_steps", 1]
    flags += ["--numerics.nonfinite", "skip"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = fit(*flags, steps=6)
    said = [str(warning.message) for warning in caught if str(warning.message).startswith("hessian:")]
    assert len(said) == 1
    assert "not converged" in said[0]
    last = record.group("hessian")[6]
    assert math.isnan(last["E/lambda_max"])
    assert last["E/converged"] == 0
    assert record.checkpoint["global_step"] == 6


def test_fast_dev_run(tmp_path):
    flags = ["--trainer.fast_dev_run", "true", "--hessian.every_n_steps", "1"]
    assert run(arguments(*flags, off=False, logger=None)) == 0
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("strategy", [FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy])
@pytest.mark.parametrize("callback", [Hessian, Spectrum])
def test_strategies_that_shard_are_refused(strategy, callback):
    trainer = SimpleNamespace(strategy=strategy.__new__(strategy))
    with pytest.raises(ConfigError, match=f"trainer.strategy = {strategy.__name__}"):
        callback().check(trainer)
    callback(every_n_steps=0, log_points_per_decade=0).check(trainer)  # switched off: nothing to refuse
    callback().check(SimpleNamespace(strategy=DDPStrategy()))


def test_a_sharding_strategy_is_refused_before_anything_is_written(cli, tmp_path):
    strategy = ["--trainer.strategy", '{"class_path": "lightning.pytorch.strategies.ModelParallelStrategy"}']
    done = cli(*arguments(*strategy, off=False, logger=None))
    assert done.status == 2
    assert "ModelParallelStrategy" in done.err
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "flag",
    ["k=0", "tol=0", "tol=1", "max_krylov=0", "subset=0", "chunk_size=0", "cold_every=0", "seed=-1", "blocks=[Q]"],
)
def test_bad_settings_are_refused(cli, flag):
    done = cli("fit", "--model", "EmbeddingMLP", f"--hessian.{flag}")
    assert done.status == 2
    assert f"hessian.{flag.split('=')[0]}" in done.err
