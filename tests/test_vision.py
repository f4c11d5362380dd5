"""Images from the command line: clocks, gap, measurements, precisions, several processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cifar_files
import numpy as np
import pytest
import torch
from conftest import ROOT

CONFIGS = ROOT / "configs"
OFF = ["--config", CONFIGS / "diagnostics" / "off.yaml"]
QUIET = ["--trainer.logger", "false", "--trainer.enable_progress_bar", "false"]
DATA = [f"--data.init_args.{value}" for value in ("n_train=120", "n_val=50", "batch_size=40")]
TINY = [f"--model.init_args.{value}" for value in ("d_model=16", "n_layers=2", "n_heads=2", "d_mlp=32")]
SHORT = ["--trainer.max_steps", 4, "--trainer.val_check_interval", 2, "--trainer.log_every_n_steps", 1]
DIGITS = ["fit", "--config", CONFIGS / "vit_digits.yaml", *DATA, *TINY, *SHORT, *QUIET]
CIFAR = ["--data.init_args.verify", "false", "--data.init_args.batch_size", 16]


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def series(run, key):
    return {line["step"]: line[key] for line in lines(run) if key in line}


def the_run(name="digits"):
    (run,) = Path("runs", name).iterdir()
    return run


def test_c_by_equation_24_is_refused(cli):
    done = cli(*DIGITS, *OFF, "--adaptive_c.every_n_steps", 2)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "adaptive_c.every_n_steps = 2: the inputs of ImageDataModule are no tokens" in done.err
    assert not Path("runs").exists()


def test_gap_curvature_and_spectra_are_recorded(cli):
    done = cli(*DIGITS, "--hessian.subset", 24, "--hessian.blocks=[E,W,rest,all]", "--ntk.every_n_steps", 4)
    assert done.status == 0, done.err
    assert "embedding: 368 parameters, lr 0.01" in done.out  # (4 + 1 + 1 + 17) rows of 16, c = 10
    run = the_run()
    for quantity, sign in (("acc", 1), ("loss", -1)):
        train, test = series(run, f"train_full/{quantity}"), series(run, f"test/{quantity}")
        gap = series(run, f"gap/{quantity}")
        assert list(gap) == [0, 2, 4]
        assert gap == pytest.approx({step: sign * (train[step] - test[step]) for step in gap}, abs=1e-6)
    last = {key: value for line in lines(run) for key, value in line.items()}
    assert last["hessian/n_samples"] == 24
    for block in ("E", "W", "rest", "all"):
        assert last[f"hessian/{block}_of_24/converged"] == 1
    assert last["hessian/all_of_24/lambda_max"] >= last["hessian/E_of_24/lambda_max"] * 0.99  # interlacing, to tol
    assert len(last["spectrum/E/sigma"]) == 4
    assert 1 <= last["spectrum/W_Q_0/stable_rank"] <= 16
    assert last["two_phase/E/grad_norm"] > 0
    assert not [key for key in last if key.startswith(("balance/", "fourier/"))]  # inputs are no tokens
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["data"]["n_rows"] == {"all": 1797, "train": 120, "val": 50, "test": 597}
    assert "1797" not in cli("report", run).err


def test_measured_rows_of_the_datamodule_show_in_the_key(cli):
    cli(*DIGITS, *OFF, "--hessian.every_n_steps", 4, "--hessian.subset", "null", "--data.init_args.n_measured", 30)
    assert series(the_run(), "hessian/E_of_30/lambda_max")


def test_cifar_from_an_archive_of_the_true_form(cli, monkeypatch):
    for source in ("cifar10", "cifar100"):
        cifar_files.make(Path("data"), source)
        done = cli("fit", "--config", CONFIGS / f"{source}.yaml", *OFF, *CIFAR, *TINY, *SHORT, *QUIET)
        assert done.status == 0, done.err
        run = the_run(source)
        assert list(series(run, "gap/acc")) == [0, 2, 4]
        assert json.loads((run / "summary.json").read_text())["thresholds"]["part"] == "test"
    checkpoint = ["--config", run / "config.yaml", "--ckpt_path", run / "checkpoints" / "last.ckpt"]
    predicted = cli("predict", *checkpoint)
    assert len(predicted.out.split("row,label,prediction")[1].strip().splitlines()) == 130


def test_mistakes_are_one_line(cli):
    for flags, message in (
        (["--data.init_args.source", "cifar10"], "data.folder = 'data': has no file cifar-10-python.tar.gz"),
        (["--data.init_args.n_val", "5000"], "data.n_val = 5000"),
        (["--model.init_args.patch_size", "3"], "model.patch_size = 3: must divide the images' 8 pixels per side"),
        (["--adaptive_c.every_n_steps", "2"], "adaptive_c"),
    ):
        done = cli(*DIGITS, *OFF, *flags)
        assert (done.status, done.err.count("\n")) == (2, 1), done.err
        assert message in done.err
        assert not Path("runs").exists()


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_precisions(cli, precision):
    plain, other = [], []
    for found, value in ((plain, "32-true"), (other, precision)):
        done = cli(*DIGITS, *OFF, "--trainer.precision", value, "--record.run_id", value)
        assert done.status == 0, done.err
        found.append(series(Path("runs/digits") / value, "test/loss"))
    assert other[0] == pytest.approx(plain[0], rel=1e-5 if "64" in precision else 0.1)
    assert other[0] != plain[0]


def test_accumulated_gradients_are_those_of_the_larger_batch(cli):
    cli(*DIGITS, *OFF, "--record.run_id", "large", "--data.init_args.batch_size", 120)
    flags = ["--trainer.accumulate_grad_batches", 3, "--trainer.val_check_interval", 6]
    cli(*DIGITS, *OFF, "--record.run_id", "small", *flags)
    large, small = (series(Path("runs/digits") / run, "test/loss") for run in ("large", "small"))
    assert {0, 2, 4} <= small.keys() & large.keys()
    assert {s: small[s] for s in large} == pytest.approx(large, rel=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_compiled_steps_are_the_same_steps(cli):
    for run, flag in (("plain", "false"), ("compiled", "true")):
        done = cli(*DIGITS, *OFF, "--record.run_id", run, "--model.init_args.compile", flag)
        assert done.status == 0, done.err
    plain, compiled = (series(Path("runs/digits") / run, "test/loss") for run in ("plain", "compiled"))
    assert compiled == pytest.approx(plain, rel=1e-4)


def fit(run_id, *flags, status=0):
    command = [sys.executable, "-m", "grok_lightning", *map(str, [*DIGITS, *OFF, "--record.run_id", run_id, *flags])]
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == status, done.stderr
    return Path("runs/digits") / run_id, done


@pytest.mark.slow
@pytest.mark.ddp
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_are_one(strategy):
    both = ["--trainer.gradient_clip_val", 0.5]
    trainer = ["--config", CONFIGS / "trainer" / f"{strategy}.yaml"]
    one, _ = fit("one", *both)
    two, _ = fit("two", *both, *trainer)
    for key in ("train/loss", "train/acc", "train_full/loss", "val/loss", "gap/loss", "lr/embedding"):
        assert series(two, key) == pytest.approx(series(one, key), rel=1e-5, abs=1e-6), key
    states = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (one, two)]
    for name, value in states[0]["state_dict"].items():
        if name.startswith("net."):
            assert torch.allclose(states[1]["state_dict"][name], value, atol=1e-4), name
    if strategy == "fsdp":  # the checkpoint of two processes is whole, and two go on from it
        longer, _ = fit("longer", *both, "--trainer.max_steps", 6)
        command = [sys.executable, "-m", "grok_lightning", "fit", "--resume", str(two), "--trainer.max_steps", "6"]
        environment = os.environ | {"MASTER_ADDR": "127.0.0.1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
        assert done.returncode == 0, done.stderr
        assert series(two, "test/loss") == pytest.approx(series(longer, "test/loss"), rel=1e-5)


@pytest.mark.slow
@pytest.mark.ddp
def test_what_sharded_parameters_do_not_allow_is_refused():
    sharded = ["--config", CONFIGS / "trainer" / "fsdp.yaml"]
    _, done = fit("measured", *sharded, "--health.every_n_steps", 2, status=2)
    assert "trainer.strategy = ModelParallelStrategy: may shard the parameters, which health needs whole" in done.stderr
    _, done = fit("compiled", *sharded, "--model.init_args.compile", "true", status=2)
    assert "model.compile: is not to be had under ModelParallelStrategy" in done.stderr
    assert not Path("runs/digits/measured").exists()
    assert not Path("runs/digits/compiled").exists()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
@pytest.mark.parametrize("large", ["files", "network"])  # both at once are half an hour of evaluation on a CPU
def test_the_large_configurations_in_two_halves(cli, source, large):
    sizes = {"n_train": (10000,) * 5, "n_test": 10000} if large == "files" else {}
    cifar_files.make(Path("data"), source, **sizes)
    net = TINY if large == "files" else []
    few = ["--trainer.max_steps", 2, "--trainer.limit_val_batches", 0, "--trainer.log_every_n_steps", 1]
    done = cli("fit", "--config", CONFIGS / f"{source}.yaml", *OFF, *CIFAR, *net, *few, *QUIET)
    assert done.status == 0, done.err
    width = 16 if large == "files" else 384
    assert f"first_layer: {3 * width**2:,} parameters" in done.out
    assert np.isfinite(series(the_run(source), "train/loss")[1])
