"""A language model as a user runs it."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from killed import assert_same
from short_run import Run
from text_files import write_parquet, write_tokens

from grok_lightning.modules.base import GrokModule

TEXT = ["fit", "--config", f"{ROOT}/configs/text_small.yaml", "--config", f"{ROOT}/configs/diagnostics/off.yaml"]
SMALL = [
    "--data.vocab_size=300", "--data.context_length=16", "--data.train_rows_evaluated=16", "--model.d_model=16",
    "--model.n_heads=2", "--model.n_layers=1", "--trainer.val_check_interval=4", "--trainer.log_every_n_steps=2",
    "--trainer.logger=false", "--trainer.enable_progress_bar=false", "--record.experiment=x",
]  # fmt: skip
RUNS = Path("runs/x")


def words(run_id, *flags, steps=8):
    return [*TEXT, *SMALL, f"--record.run_id={run_id}", f"--trainer.max_steps={steps}", *map(str, flags)]


def done(cli, run_id, *flags, steps=8):
    found = cli(*words(run_id, *flags, steps=steps))
    assert found.status == 0, found.err
    return found, Run(RUNS / run_id)


def test_perplexity_is_the_exponential_of_the_mean_loss(cli):
    found, run = done(cli, "run")
    for part in ("train_full", "val", "test"):
        losses, perplexities = run.series(f"{part}/loss"), run.series(f"{part}/perplexity")
        assert list(losses) == list(perplexities) == [0, 4, 8]
        assert list(perplexities.values()) == pytest.approx([math.exp(loss) for loss in losses.values()])
    assert run.series("val/loss")[8] < run.series("val/loss")[0]
    (line,) = [line for line in found.out.splitlines() if "final val perplexity" in line]
    assert f"{run.series('val/perplexity')[8]:.4g} per token" in line
    summary = json.loads((RUNS / "run" / "summary.json").read_text())
    assert summary["final_loss"]["test"] == run.series("test/loss")[8]
    data = json.loads((RUNS / "run" / "provenance.json").read_text())["data"]
    assert data["n_rows"]["evaluated_train"] == 16
    assert data["sizes"] == {"vocab_size": 300, "context_length": 16}


def test_measurements_run_on_a_subset(cli):
    every = [
        f"--{g}.every_n_steps=4" for g in ("hessian", "spectrum", "balance", "health", "two_phase", "ntk", "tokens")
    ]
    _, run = done(cli, "run", *every, "--hessian.subset=4", "--hessian.blocks=[E,W,rest,all]", "--ntk.n_probe=4")
    last = run.lines
    keys = {key for line in last for key in line}
    for block in ("E", "W", "rest", "all"):
        values = run.series(f"hessian/{block}_of_4/lambda_max")
        assert set(values) == {0, 4, 8}
        assert all(map(math.isfinite, values.values()))
    assert {"spectrum/E/erank", "spectrum/W_Q_0/erank", "spectrum/W_U/stable_rank", "two_phase/all/grad_norm"} <= keys
    assert {"ntk/E/relative_drift", "health/softmax_collapse", "tokens/slope"} <= keys
    assert not [key for key in keys if key.startswith("balance/")]  # its operands are modular arithmetic's
    _, off = done(cli, "off")
    assert all(torch.equal(run.weights[name], off.weights[name]) for name in off.weights)


def test_c_adapts_to_the_frequencies_of_the_tokens_of_a_text(cli):
    """test_tokens_callback.py has the prediction by brute force."""
    every = ["--adaptive_c.every_n_steps=4", "--tokens.every_n_steps=4", "--trainer.log_every_n_steps=1"]
    _, run = done(cli, "run", *every, steps=9)
    predicted = run.series("adaptive_c/predicted")
    assert list(predicted) == [4, 8]
    assert predicted == pytest.approx({step: run.series("tokens/predicted_c")[step] for step in (4, 8)})
    rates = {group: run.series(f"lr/{group}")[8] for group in ("embedding", "rest")}
    assert rates["embedding"] / rates["rest"] == pytest.approx(min(predicted[8], 32.0))


def test_a_run_that_is_cut_off_goes_on_to_the_same_bits(cli, monkeypatch):
    flags = ["--tokens.every_n_steps=5", "--checkpoint.every_n_steps=3"]
    done(cli, "whole", *flags, steps=12)
    right = GrokModule.batch_loss

    def cut_off(module, batch):
        if module.global_step == 7:
            raise KeyboardInterrupt
        return right(module, batch)

    with monkeypatch.context() as fault:
        fault.setattr(GrokModule, "batch_loss", cut_off)
        assert cli(*words("cut", *flags, steps=12)).status == 130
    assert cli("fit", "--resume", RUNS / "cut").status == 0
    assert_same(RUNS / "whole", RUNS / "cut")


def test_accumulated_gradients_are_those_of_a_larger_batch(cli):
    sgd = ["--model.optimizer=sgd", "--model.lr=0.5", "--tokens.every_n_steps=2"]
    _, small = done(cli, "small", *sgd, "--data.batch_size=8", "--trainer.accumulate_grad_batches=2", steps=4)
    _, large = done(cli, "large", *sgd, "--data.batch_size=16", steps=4)
    for name, weights in large.weights.items():
        assert torch.allclose(small.weights[name], weights, atol=1e-6), name
    assert small.series("tokens/f_E")[4] == pytest.approx(large.series("tokens/f_E")[4])
    assert small.series("tokens/gradient_c")[4] == pytest.approx(large.series("tokens/gradient_c")[4], rel=1e-4)


def test_mixed_precision_learns_the_same(cli):
    losses = {}
    for precision in ("32-true", "bf16-mixed"):
        _, run = done(cli, precision, f"--trainer.precision={precision}", "--tokens.every_n_steps=5", steps=20)
        assert {weights.dtype for weights in run.weights.values()} == {torch.float32}
        losses[precision] = run.series("val/loss")
    full, mixed = (list(series.values()) for series in losses.values())
    assert mixed == pytest.approx(full, rel=0.02)
    assert mixed != full
    assert mixed[-1] < mixed[0] - 0.5


@pytest.mark.parametrize("tied", ["true", "false"])
def test_predict_prints_the_test_part(cli, tied):
    done(cli, "run", f"--model.tied={tied}", steps=2)
    printed = cli(
        "predict", "--config", RUNS / "run" / "config.yaml", "--ckpt_path", RUNS / "run/checkpoints/last.ckpt"
    )
    assert printed.status == 0, printed.err
    lines = printed.out.splitlines()
    start = lines.index("row,position,label,prediction")
    rows = json.loads((RUNS / "run" / "provenance.json").read_text())["data"]["n_rows"]["test"]
    assert len(lines) - start - 1 == 16 * rows


@pytest.mark.parametrize("write", [write_tokens, write_parquet])
def test_wikitext_in_its_own_formats(cli, write):
    folder = write(Path("data/wikitext-103"))  # where the config expects it
    found = cli(
        "fit", "--config", f"{ROOT}/configs/wikitext103.yaml", "--config", f"{ROOT}/configs/diagnostics/off.yaml",
        "--data.context_length=32", "--data.batch_size=4", "--trainer.max_steps=3", "--trainer.val_check_interval=2",
        "--trainer.logger=false", "--trainer.enable_progress_bar=false", "--record.run_id=run", "--record.experiment=x",
    )  # fmt: skip
    assert found.status == 0, found.err
    run = Run(RUNS / "run")
    assert run.series("val/perplexity")[3] < run.series("val/perplexity")[0]
    assert folder.name == "wikitext-103"


def test_text_that_is_absent_is_one_line(cli):
    found = cli("fit", "--config", f"{ROOT}/configs/wikitext103.yaml")
    assert (found.status, found.err.count("\n")) == (2, 1)
    for word in ("data/wikitext-103", "wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens", "column text"):
        assert word in found.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("missing", "arguments"), [("tokenizers", []), ("pyarrow.parquet", ["--data.path=data/wikitext-103"])]
)
def test_a_missing_library_is_one_line_that_names_the_extra(cli, monkeypatch, missing, arguments):
    write_parquet(Path("data/wikitext-103"))
    monkeypatch.setitem(sys.modules, missing, None)
    found = cli(*words("run", *arguments))
    assert (found.status, found.err.count("\n")) == (2, 1)
    assert "pip install 'grok_lightning[language]'" in found.err
    assert not Path("runs").exists()


@pytest.mark.ddp
@pytest.mark.slow  # test_ddp.py has two processes among the fast ones
def test_two_processes_are_one():
    for devices in (1, 2):
        strategy = ["--config", f"{ROOT}/configs/trainer/ddp.yaml"] if devices == 2 else []
        flags = [
            *strategy,
            "--model.optimizer=sgd",
            "--model.lr=0.5",
            "--data.batch_size=15",
            "--tokens.every_n_steps=4",
        ]
        program = [sys.executable, "-m", "grok_lightning", *words(f"on-{devices}", *flags)]
        environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        process = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=200)
        assert process.returncode == 0, process.stderr
    one, two = Run(RUNS / "on-1"), Run(RUNS / "on-2")
    for key in ("train/loss", "val/loss", "test/perplexity", "tokens/f_E", "tokens/gradient_c"):
        assert len(one.series(key)) >= 2
        assert two.series(key) == pytest.approx(one.series(key), rel=1e-4), key


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")
def test_compiled_steps_are_the_eager_ones(cli):
    sgd = ["--model.optimizer=sgd", "--model.lr=0.5"]
    (_, compiled), (_, eager) = (done(cli, c, f"--model.compile={c}", *sgd) for c in ("true", "false"))
    for name, weights in eager.weights.items():
        assert torch.allclose(compiled.weights[name], weights, atol=1e-5), name
