"""The jobs of the command line, as a user types them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import short_run
import torch
import yaml
from conftest import ROOT
from wandb_file import config as wandb_config
from wandb_file import history

from grok_lightning import metric_keys

ADDITION = ROOT / "configs" / "addition.yaml"
SHORT = ["--trainer.max_steps", 40, "--trainer.val_check_interval", 20, "--trainer.log_every_n_steps", 10]
DIAGNOSTICS_OFF = ["--config", ROOT / "configs" / "diagnostics" / "off.yaml"]


def fit(cli, *flags):
    done = cli("fit", "--config", ADDITION, *DIAGNOSTICS_OFF, *SHORT, *flags)
    assert done.status == 0, done.err
    return done


def runs():
    return sorted(path.parent for path in Path("runs").glob("*/*/config.yaml"))


def metrics(run, timed=False):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = lambda key: timed or not key.startswith(("_", "time/"))  # noqa: E731
    return [{key: value for key, value in line.items() if kept(key)} for line in lines]


def test_a_run_leaves_its_record_and_a_summary(cli):
    done = fit(cli)
    (run,) = runs()
    assert run.parent.name == "addition"
    assert {path.name for path in run.iterdir()} == {
        "config.yaml", "metrics.jsonl", "provenance.json", "summary.json", "checkpoints", "figures", ".lock",
    }  # fmt: skip
    for word in ("T_mem", "T_grok", "delay", "final train accuracy", "final val accuracy", "final test accuracy"):
        assert word in done.out
    assert "not reached" in done.out  # 40 steps are not enough, and the table says so
    assert str(run) in done.out
    assert "wandb sync" in done.out
    assert "embedding: 12,672 parameters, lr 0.1" in done.out
    assert (run / "checkpoints" / "last.ckpt").is_file()


def test_every_line_is_stamped_with_the_updates_its_weights_had(cli):
    fit(cli)
    lines = metrics(runs()[0])
    evaluated = [line["step"] for line in lines if metric_keys.acc("val") in line]
    batches = [line["step"] for line in lines if metric_keys.TRAIN_LOSS in line]
    assert evaluated == [0, 20, 40]
    assert batches == [9, 19, 29, 39]
    final = torch.load(runs()[0] / "checkpoints" / "last.ckpt", weights_only=True)
    assert final["global_step"] == 40


def test_evaluations_are_what_the_saved_weights_give(cli):
    from grok_lightning.data.datamodule import ModularDataModule
    from grok_lightning.modules.mlp import EmbeddingMLP

    fit(cli)
    module = EmbeddingMLP.load_from_checkpoint(runs()[0] / "checkpoints" / "last.ckpt", weights_only=True)
    data = ModularDataModule()
    last = next(line for line in reversed(metrics(runs()[0])) if metric_keys.acc("val") in line)
    for part in metric_keys.PARTS:
        rows = data.rows(part)
        logits = module.double()(data.table.tokens[rows]).detach()
        labels = data.table.labels[rows]
        assert last[metric_keys.acc(part)] == pytest.approx(
            float((logits.argmax(1) == labels).double().mean()), abs=2e-3
        )
        loss = torch.nn.functional.cross_entropy(logits, labels)
        assert last[metric_keys.loss(part)] == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.parametrize("flags", [[], ["--model", "Transformer"], ["--model.warmup_steps", 30]], ids=str)
def test_the_saved_config_runs_again_to_identical_metrics(cli, flags):
    fit(cli, *flags, "--trainer.logger", "false")
    (first,) = runs()
    assert cli("fit", "--config", first / "config.yaml").status == 0
    second = next(run for run in runs() if run != first)
    assert metrics(second) == metrics(first)
    assert yaml.safe_load((second / "config.yaml").read_text()) == yaml.safe_load((first / "config.yaml").read_text())


def test_provenance_and_summary_say_what_a_reader_needs(cli):
    fit(cli, "--data.split", "uniform", "--data.split_seed", 3, "--grokking.grok_threshold", 0.9)
    (run,) = runs()
    source = json.loads((run / "provenance.json").read_text())
    assert source["seeds"] == {"seed_everything": 7, "split_seed": 3, "order_seed": 0}
    assert source["torch"] == torch.__version__
    assert source["threads"] == torch.get_num_threads()
    data = source["data"]
    assert data["n_pairs"] == {"all": 9409, "train": 2822, "val": 4705, "test": 1882}
    p = data["token_probabilities"]["train"]["b"]
    assert sum(p) == pytest.approx(1)
    assert max(p) - min(p) == pytest.approx(1 / 2822)
    assert 0.9 < data["batch_token_coverage"] <= 1
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "completed"
    assert summary["thresholds"]["grok"] == 0.9
    assert summary["clocks_steps"]["t_grok"] is None


def test_wandb_gets_the_same_keys_and_the_whole_config(cli):
    fit(cli, "--model.c", 3, "--config", ROOT / "configs" / "diagnostics" / "default.yaml")
    (run,) = runs()
    (file,) = Path("runs/wandb").glob("offline-run-*/run-*.wandb")
    assert run.name in file.name
    ours = {key for line in metrics(run, timed=True) for key in line} - {"step", "_timestamp"}
    rows = history(file)
    assert ours <= {key.removesuffix("._type") for row in rows for key in row}  # an array is a histogram there
    by_step = {row["trainer/global_step"]: row for row in rows if metric_keys.acc("val") in row}
    for line in metrics(run):
        if metric_keys.acc("val") in line:
            assert by_step[line["step"]][metric_keys.acc("val")] == line[metric_keys.acc("val")]
    config = wandb_config(file)
    assert config["data"]["init_args"]["batch_size"] == 512
    assert config["data"]["init_args"]["split_seed"] == 0
    assert config["seed_everything"] == 7
    assert config["model"]["init_args"]["c"] == 3
    assert config["grokking"]["grok_threshold"] == 0.95
    assert config["trainer"]["max_steps"] == 40


@pytest.mark.parametrize(
    ("mode", "files"), [("offline", 1), ("disabled", 0), ("online", 1)], ids=["offline", "disabled", "no login"]
)
def test_a_logger_overlay_overrides(cli, config, monkeypatch, mode, files):
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("NETRC", "no-such-netrc")
    done = fit(cli, "--config", config(f"logger/wandb_{mode}.yaml"))
    assert len(list(Path("runs").glob("wandb/offline-run-*/run-*.wandb"))) == files
    assert {"offline": "offline, as asked", "disabled": "disabled", "online": "not logged in"}[mode] in done.out


def test_an_unreachable_server_costs_seconds_and_no_data(monkeypatch):
    monkeypatch.delenv("WANDB_MODE")
    server = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "grok_lightning", "fit", "--config", ADDITION, *DIAGNOSTICS_OFF, *SHORT]
    done = subprocess.run(  # a process of its own: W&B remembers a login for as long as it lives
        [str(word) for word in command], env=os.environ | server, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "does not answer" in done.stdout
    assert len(history(next(Path("runs/wandb").glob("offline-run-*/run-*.wandb")))) > 4


def test_wandb_that_dies_does_not_stop_training(cli, monkeypatch):
    import wandb

    def broken(*args, **kwargs):
        raise ConnectionResetError("gone")

    monkeypatch.setattr(wandb.Run, "log", broken)
    with pytest.warns(UserWarning, match="W&B stopped and is left alone"):
        done = fit(cli)
    assert "stopped: ConnectionResetError: gone" in done.out
    assert [line["step"] for line in metrics(runs()[0]) if metric_keys.acc("val") in line] == [0, 20, 40]


def test_wandb_that_cannot_start_does_not_stop_training(cli, monkeypatch):
    import wandb

    def broken(*args, **kwargs):
        raise wandb.errors.CommError("no")

    monkeypatch.setattr(wandb, "init", broken)
    with pytest.warns(UserWarning, match="W&B"):
        done = fit(cli)
    assert "stopped: CommError: no" in done.out


def test_a_users_own_task_by_class_path(cli):
    Path("my_task.py").write_text(
        "from grok_lightning.data.tasks import Task\n\n\n"
        "class Affine(Task):\n"
        "    def __init__(self, slope: int = 1) -> None:\n        self.slope = slope\n\n"
        "    def label(self, a, b, p):\n        return (self.slope * a + b) % p\n"
    )
    Path("mine.yaml").write_text("data:\n  task:\n    class_path: my_task.Affine\n    init_args:\n      slope: 3\n")
    fit(cli, "--config", "mine.yaml", "--trainer.logger", "false")
    (run,) = runs()
    assert run.parent.name == "Affine"
    assert cli("fit", "--config", run / "config.yaml").status == 0  # the record knows the task


@pytest.mark.parametrize("overlay", ["transformer", "embedding_mlp"])
def test_an_overlay_changes_the_model(cli, config, overlay):
    fit(cli, "--model", config(f"model/{overlay}.yaml"), "--trainer.logger", "false")
    saved = yaml.safe_load((runs()[0] / "config.yaml").read_text())["model"]
    assert saved["init_args"]["d_model"] == 128


def test_the_transformer_overlay_keeps_the_recipe(cli):
    fit(cli, "--model", "Transformer", "--trainer.logger", "false")
    saved = yaml.safe_load((runs()[0] / "config.yaml").read_text())["model"]
    assert saved["class_path"] == "grok_lightning.modules.transformer.Transformer"
    assert (saved["init_args"]["c"], saved["init_args"]["lr"]) == (10.0, 0.01)


def test_six_layers(cli):
    fit(cli, "--model.depth", 6, "--model.hidden", 64, "--trainer.logger", "false")
    state = torch.load(runs()[0] / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    assert sum(name.endswith("weight") and "stack" in name for name in state) == 5


def test_warmup_reaches_the_optimiser(cli):
    fit(cli, "--model.warmup_steps", 20, "--trainer.logger", "false")
    rates = {line["step"]: line["lr/embedding"] for line in metrics(runs()[0]) if "lr/embedding" in line}
    assert rates == pytest.approx({9: 0.1 * 10 / 20, 19: 0.1, 29: 0.1, 39: 0.1})


def test_stop_after_grokking(cli):
    flags = ["--grokking.grok_threshold", 0.001, "--grokking.stop_after_steps", 20, "--trainer.logger", "false"]
    fit(cli, *flags)
    assert max(line["step"] for line in metrics(runs()[0])) == 20


def test_the_last_step_is_evaluated_wherever_it_falls(cli):
    fit(cli, "--trainer.max_steps", 33, "--trainer.logger", "false")
    assert [line["step"] for line in metrics(runs()[0]) if metric_keys.acc("test") in line] == [0, 20, 33]


def test_nothing_held_out_reads_the_test_set_and_says_so(cli):
    done = fit(cli, "--data.frac_train", 0.8, "--trainer.logger", "false")
    assert "test accuracy ≥ 0.95" in done.out
    assert "no such pairs" in done.out


def test_fast_dev_run_keeps_no_record(cli, config):
    done = fit(cli, "--config", config("trainer/debug.yaml"))
    assert "not kept" in done.out
    assert not Path("runs").exists()


def test_no_logger_no_bar_no_checkpoint(cli):
    done = fit(
        cli, "--trainer.logger", "false", "--trainer.enable_progress_bar", "false",
        "--trainer.enable_checkpointing", "false",
    )  # fmt: skip
    assert "step:" not in done.err
    assert not list(Path("runs").glob("*/*/checkpoints/*"))
    assert not Path("runs/wandb").exists()


def test_the_bar_shows_step_and_accuracies(cli):
    done = fit(cli, "--trainer.logger", "false")
    assert "40/40" in done.err
    for name in ("train_acc=", "val_acc=", "test_acc="):
        assert name in done.err


def test_seeds_are_independent(cli):
    results = {}
    for name, flags in {
        "base": [],
        "init": ["--seed_everything", 1],
        "order": ["--data.order_seed", 1],
        "split": ["--data.split_seed", 1],
    }.items():
        fit(cli, *flags, "--trainer.logger", "false", "--record.run_id", name)
        run = Path("runs/addition") / name
        digest = json.loads((run / "provenance.json").read_text())["data"]["split_sha256"]
        first = next(line for line in metrics(run) if line["step"] == 0)["train_full/loss"]
        results[name] = (digest, first, metrics(run)[-2])
    base = results["base"]
    assert results["order"][:2] == base[:2]  # the same split and the same first weights, other batches
    assert results["order"][2] != base[2]
    assert results["init"][0] == base[0]
    assert results["init"][1] != base[1]
    assert results["split"][0] != base[0]


@pytest.mark.parametrize("job", ["validate", "test", "predict"])
def test_jobs_on_a_checkpoint(cli, job):
    fit(cli, "--trainer.logger", "false")
    (run,) = runs()
    done = cli(job, "--config", run / "config.yaml", "--ckpt_path", run / "checkpoints" / "last.ckpt")
    assert done.status == 0, done.err
    if job == "predict":
        rows = done.out[done.out.index("a,b,label,prediction") :].split()[1:]
        assert len(rows) == 9409
        assert rows[98].startswith("1,1,2,")
    else:
        assert "test/acc" in done.out.replace("\n", "")
    assert runs() == [run]


def test_a_checkpoint_does_not_bring_another_c_back(cli):
    fit(cli, "--trainer.logger", "false")
    checkpoint = runs()[0] / "checkpoints" / "last.ckpt"
    more = ["--trainer.max_steps", 60, "--trainer.logger", "false", "--ckpt_path", checkpoint]
    done = cli("fit", "--config", ADDITION, *DIAGNOSTICS_OFF, *SHORT, "--model.c", 50, *more)
    assert done.status == 2
    assert "model.c = 50.0: the checkpoint was trained with 10.0" in done.err
    assert cli("fit", "--config", ADDITION, *DIAGNOSTICS_OFF, *SHORT, *more).status == 0


def test_training_goes_on_in_a_new_directory_with_the_same_weights(cli):
    flags = ["--trainer.logger", "false"]
    fit(cli, *flags, "--trainer.max_steps", 40, "--record.run_id", "whole")
    fit(cli, *flags, "--trainer.max_steps", 23, "--record.run_id", "head")
    head = Path("runs/addition/head/checkpoints/last.ckpt")
    fit(cli, *flags, "--trainer.max_steps", 40, "--record.run_id", "tail", "--ckpt_path", head)
    whole, tail = (
        torch.load(f"runs/addition/{name}/checkpoints/last.ckpt", weights_only=True)["state_dict"]
        for name in ("whole", "tail")
    )
    assert all(torch.equal(whole[name], tail[name]) for name in whole)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"])
def test_a_signal_is_not_success(tmp_path, number, status):
    command = [sys.executable, "-m", "grok_lightning", "fit", "--config", str(ADDITION)]
    command += ["--trainer.max_steps", "100000"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
        try:
            deadline = time.monotonic() + 90
            while not list(Path("runs").glob("*/*/metrics.jsonl")) and time.monotonic() < deadline:
                time.sleep(0.2)
            time.sleep(2)
            process.send_signal(number)
            assert process.wait(timeout=60) == status, (tmp_path / "log").read_text()
        finally:
            process.kill()
    assert json.loads((runs()[0] / "summary.json").read_text())["status"] == "interrupted"
    assert f"run directory: {runs()[0]}" in (tmp_path / "log").read_text()


def test_a_reader_that_goes_away_is_no_failure():
    command = f"{sys.executable} -m grok_lightning fit --config {ADDITION} --trainer.logger false "
    command += " ".join(map(str, [*DIAGNOSTICS_OFF, *SHORT]))
    subprocess.run(["bash", "-c", f"{command} | head -c 1 > /dev/null"], timeout=60, capture_output=True, check=True)
    assert json.loads((runs()[0] / "summary.json").read_text())["status"] == "completed"


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param({"WANDB_API_KEY": "bad", "WANDB_BASE_URL": "http://127.0.0.1:9"}, id="key"),
        pytest.param({"WANDB_MODE": "garbage"}, id="mode", marks=pytest.mark.slow),
    ],
)
def test_a_malformed_wandb_setting_does_not_stop_training(monkeypatch, setting):
    monkeypatch.delenv("WANDB_MODE")
    command = [sys.executable, "-m", "grok_lightning", "fit", "--config", ADDITION, *DIAGNOSTICS_OFF, *SHORT]
    done = subprocess.run(
        [str(word) for word in command], env=os.environ | setting, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert [line["step"] for line in metrics(runs()[0]) if metric_keys.acc("val") in line] == [0, 20, 40]


@pytest.mark.slow
def test_a_server_that_never_answers_costs_the_timeout_and_no_data(monkeypatch):
    monkeypatch.delenv("WANDB_MODE")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = {"WANDB_API_KEY": "a" * 40, "WANDB_BASE_URL": f"http://127.0.0.1:{server.getsockname()[1]}"}
        command = [sys.executable, "-m", "grok_lightning", "fit", "--config", ADDITION, *DIAGNOSTICS_OFF, *SHORT]
        command += ["--trainer.logger.init_timeout", "3"]
        done = subprocess.run(
            [str(word) for word in command], env=os.environ | address, capture_output=True, text=True, timeout=100
        )
    assert done.returncode == 0, done.stderr
    assert "offline: going online failed" in done.stdout
    (file,) = Path("runs/wandb").glob("offline-run-*/run-*.wandb")
    assert metric_keys.acc("val") in {key for row in history(file) for key in row}


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_precision_and_clipping(cli, precision):
    fit(cli, "--trainer.precision", precision, "--trainer.gradient_clip_val", 1.0, "--trainer.logger", "false")
    assert json.loads((runs()[0] / "provenance.json").read_text())["precision"] == precision


def test_the_evaluation_before_the_first_step_is_in_the_precision_of_the_others():
    losses = {}
    for precision in ("32-true", "bf16-mixed"):
        still = ("--model.lr=1e-30", f"--trainer.precision={precision}", "--model.optimizer=sgd")
        losses[precision] = short_run.fit(*still, run_id=precision).series("val/loss")
        assert len(losses[precision]) > 1
        assert len(set(losses[precision].values())) == 1  # the weights never move
    assert losses["32-true"][0] != losses["bf16-mixed"][0]


def test_version_and_help(cli):
    from grok_lightning import __version__

    assert __version__ in cli("--version").out
    assert cli("--help").status == 0
    done = cli("fit", "--help")
    assert done.status == 0
    for flag in ("--grokking.mem_threshold", "--record.root", "--checkpoint.every_n_steps"):
        assert flag in done.out
    assert "--data.frac_train" in cli("fit", "--data.help", "ModularDataModule").out
    done = cli("fit", "--model.help", "EmbeddingMLP")
    assert "--model.c" in done.out
