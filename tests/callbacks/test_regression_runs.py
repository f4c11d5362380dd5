"""Runs on the regression problems: closed forms, what is logged of them, and gradient descent in quick steps."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from short_run import OFF, Run

from grok_lightning.__main__ import run
from grok_lightning.data.regression import SparseRegression
from grok_lightning.nets.flow import DiagonalLinearNet
from grok_lightning.numerics.interpolators import least_l1, least_l2

SMALL = ["--data=SparseRegression", "--data.n_features=12", "--data.n_nonzero=2", "--data.n_train=8", "--data.n_val=40"]
RUN = [
    "--data.n_test=40", "--trainer.precision=64-true", "--trainer.logger=false", "--record.experiment=x",
    "--trainer.enable_progress_bar=false",
]  # fmt: skip


def fit(*flags, name="run", model="DiagonalLinear"):
    assert run(["fit", *OFF, *SMALL, f"--model={model}", *RUN, f"--record.run_id={name}", *flags]) == 0
    return Run(Path("runs/x") / name)


@pytest.fixture
def problem():
    data = SparseRegression(n_features=12, n_nonzero=2, n_train=8, n_val=40, n_test=40)
    rows = data.split.train
    return data.inputs[rows].numpy(), data.labels[rows].numpy(), data.truth.numpy()


def test_plain_linear_regression_follows_its_closed_form(problem):
    """w_t = w* + (1 − η(A + λ))^t (w_0 − w*); outside the row space w_t = (1 − ηλ)^t w_0: T ∝ 1/λ exactly."""
    X, y, truth = problem
    flags = ["--model.depth=1", "--model.lr=0.1", "--model.weight_decay=0.02", "--model.init_scale=2"]
    found = fit(*flags, "--trainer.max_steps=400", "--interpolator.every_n_steps=100")
    torch.manual_seed(0)
    w0 = DiagonalLinearNet(12, 1, 2.0).w.detach().double().numpy()
    A = X.T @ X / 8 + 0.02 * np.eye(12)
    end, target = np.linalg.solve(A, X.T @ y / 8), np.linalg.pinv(X) @ y
    series = {name: found.series(f"interpolator/{name}") for name in ("distance_to_least_l2", "l2_norm", "l1_norm")}
    to_truth = found.series("interpolator/distance_to_truth")
    for step in (0, 100, 400):
        w = end + np.linalg.matrix_power(np.eye(12) - 0.1 * A, step) @ (w0 - end)
        assert series["distance_to_least_l2"][step] == pytest.approx(
            np.linalg.norm(w - target) / np.linalg.norm(target)
        )
        assert series["l2_norm"][step] == pytest.approx(np.linalg.norm(w))
        assert series["l1_norm"][step] == pytest.approx(np.abs(w).sum())
        assert to_truth[step] == pytest.approx(np.linalg.norm(w - truth) / np.linalg.norm(truth))


def test_clocks_and_axis_of_a_diagonal_network(problem):
    X, y, _ = problem
    on = ["--two_phase.every_n_steps=10", "--interpolator.every_n_steps=500", "--trainer.val_check_interval=10"]
    found = fit("--model.lr=0.2", "--model.weight_decay=0.003", "--trainer.max_steps=4000", *on)
    times = found.series("two_phase/decay_time")
    assert times[10] == pytest.approx(0.003 * 0.2 * 10)
    grads, norms = found.series("two_phase/all/grad_norm"), found.series("two_phase/weight_norm")
    t_gf = next(step for step, grad in grads.items() if grad <= 0.01 * grads[0])
    assert found.series("clock/t_gf_steps") == {4000: t_gf}
    assert found.series("two_phase/bound")[4000] == pytest.approx(grads[0] / norms[t_gf])
    to_l1 = found.series("interpolator/distance_to_least_l1")
    assert to_l1[0] == pytest.approx(1)  # β = 0
    assert to_l1[4000] < 0.1 < to_l1[500]
    assert np.abs(least_l1(X, y)).sum() < np.abs(least_l2(X, y)).sum()


def test_quick_steps_of_gradient_descent_are_lightnings_own_bit_for_bit():
    flags = ["--trainer.max_steps=60", "--trainer.val_check_interval=30", "--trainer.log_every_n_steps=20"]
    quick, slow = fit(*flags, name="quick"), fit(*flags, "--trainer.profiler=simple", name="slow")
    assert all(torch.equal(weight, slow.weights[name]) for name, weight in quick.weights.items())
    assert quick.series("val/loss") == slow.series("val/loss")


def test_a_resumed_run_is_the_run_that_was_not_stopped():
    flags = ["--trainer.val_check_interval=10", "--two_phase.every_n_steps=5", "--interpolator.every_n_steps=5"]
    whole = fit(*flags, "--trainer.max_steps=40", name="whole")
    fit(*flags, "--trainer.max_steps=20", name="part")
    assert run(["fit", "--resume", "runs/x/part", "--trainer.max_steps=40"]) == 0
    part = Run(whole.path.parent / "part")
    assert all(torch.equal(weight, part.weights[name]) for name, weight in whole.weights.items())
    assert part.group("interpolator")[40] == whole.group("interpolator")[40]
    assert part.series("clock/t_wd_steps").get(40) == whole.series("clock/t_wd_steps").get(40)


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ("SparseRegression", "DiagonalLinear"),
        ("MatrixCompletion", "MatrixFactorization"),
        ("TeacherStudent", "ReLUStudent"),
    ],
)
def test_every_measurement_runs_and_softmax_quantities_are_left_out(data, model, cli):
    dense = ["--config", ROOT / "configs" / "diagnostics" / "dense.yaml", "--interpolator.every_n_steps", 5]
    few = ["--trainer.max_steps", 5, "--trainer.val_check_interval", 5, *RUN[2:], "--record.run_id", "run"]
    done = cli("fit", "--data", data, "--model", model, *dense, *few)
    assert done.status == 0, done.err
    found = Run(Path("runs/x/run"))
    keys = {key for line in found.lines for key in line}
    assert {"health/nonfinite_params", "two_phase/all/grad_norm", "hessian/all/lambda_max"} <= keys
    assert not keys & {"health/softmax_collapse", "health/logit_norm"}
    assert ("interpolator/distance_to_truth" in keys) == (model != "ReLUStudent")
    assert ("interpolator/distance_to_least_l1" in keys) == (model == "DiagonalLinear")
    assert ("spectrum/M/sigma_max" in keys) == (model == "MatrixFactorization")


def test_predict_prints_real_numbers_and_validate_reads_the_checkpoint(cli):
    fit("--trainer.max_steps=4", "--trainer.val_check_interval=4")
    again = ["--config", "runs/x/run/config.yaml", "--ckpt_path", "runs/x/run/checkpoints/last.ckpt"]
    done = cli("predict", *again)
    assert done.status == 0, done.err
    lines = [line for line in done.out.splitlines() if line.count(",") == 2]
    assert lines[0] == "row,label,prediction"
    assert len(lines) == 1 + 88
    label, found = map(float, lines[1].split(",")[1:])
    assert label != round(label)
    assert abs(found) < 100
    assert cli("validate", *again).status == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data", "SparseRegression", "--model", "EmbeddingMLP"], "data = SparseRegression: has no vocab_size"),
        (["--model", "DiagonalLinear"], "data = ModularDataModule: has no n_features"),
        (["--data", "SparseRegression", "--model", "DiagonalLinear", "--model.n_features", 3], "comes from the data"),
        (["--data", "SparseRegression", "--model", "DiagonalLinear", "--model.tolerance", 0], "model.tolerance = 0"),
        (["--data", "SparseRegression", "--model", "DiagonalLinear", "--model.c", 2], "model.c"),
        (["--data", "MatrixCompletion", "--data.rank", 0, "--model", "MatrixFactorization"], "data.rank = 0"),
        (
            ["--data", "TeacherStudent", "--model", "ReLUStudent", "--interpolator.every_n_steps", -1],
            "interpolator.every",
        ),
    ],
)
def test_bad_values_are_one_line(cli, flags, message):
    done = cli("fit", *flags)
    assert done.status == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
