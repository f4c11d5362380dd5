"""Data that are not modular arithmetic: named by class, split, evaluated, resumed and read back like the others."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from short_run import OFF, Run

from grok_lightning import load_data, load_run
from grok_lightning.arguments import MODULAR, with_data
from grok_lightning.compare.settings import flatten
from grok_lightning.errors import ConfigError

PARITY = """
import torch
from grok_lightning.data.splits import Split
from grok_lightning.data.table import TableDataModule

class Parity(TableDataModule):
    '''Parity of four bits, two of which make up a token.'''
    def __init__(self, n: int = 120, batch_size: int = 24, split_seed: int = 0, order_seed: int = 0):
        generator = torch.Generator().manual_seed(split_seed)
        inputs = torch.randint(4, (n, 4), generator=generator)
        rows = torch.randperm(n, generator=generator)
        split = Split(*(part.sort().values for part in rows.split([n // 2, n // 4, n - n // 2 - n // 4])))
        sizes = {"vocab_size": 6, "n_classes": 2}
        super().__init__(inputs, inputs.sum(1) % 2, split, sizes, batch_size, order_seed, split_seed, n_symbols=4)

class OtherTokens(Parity):
    def __init__(self):
        super().__init__()
        self.n_symbols = 6

class Bare(Parity):
    def __init__(self):
        super().__init__()
        self.sizes = {"n_classes": 2}
"""
FLAGS = ["--trainer.logger", "false", "--trainer.enable_progress_bar", "false", "--trainer.val_check_interval", 5]


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "parity_data.py").write_text(PARITY)
    return "parity_data.Parity"


def words(data, *flags, run_id="run", steps=20):
    record = ["--record.run_id", run_id, "--record.experiment", "x", "--trainer.max_steps", steps]
    return ["fit", "--data", data, "--model", "EmbeddingMLP", "--model.d_model", 4, *OFF, *FLAGS, *record, *flags]


def test_eq_24_is_left_out_where_tokens_are_not_operands_and_two_symbols(cli, own_file):
    assert cli(*words("parity_data.OtherTokens", "--balance.every_n_steps", 10)).status == 0
    assert not [key for line in Run(next(iter(Path("runs/x").iterdir()))).lines for key in line if "balance/" in key]


def test_data_of_a_users_own_train_are_measured_and_read_back(cli, own_file):
    measured = ["--balance.every_n_steps", 10, "--hessian.every_n_steps", 10]
    assert cli(*words(own_file, "--data.batch_size", 20, *measured)).status == 0
    run = Run(next(iter(Path("runs/x").iterdir())))
    config = yaml.safe_load((run.path / "config.yaml").read_text())["data"]
    assert config == {
        "class_path": own_file,
        "init_args": {"n": 120, "batch_size": 20, "split_seed": 0, "order_seed": 0},
    }
    facts = json.loads((run.path / "provenance.json").read_text())["data"]
    assert facts["n_rows"] == {"all": 120, "train": 60, "val": 30, "test": 30}
    assert facts["steps_per_epoch"] == 3
    assert run.series("hessian/n_samples")[10] == 60
    assert len(run.series("balance/token_count")[10]) == 6
    data = load_data(run.path)
    torch.testing.assert_close(data.labels, data.inputs.sum(1) % 2)
    assert load_run(run.path).settings["data"] == own_file


def test_other_data_do_not_take_over_the_defaults_of_the_usual_ones(own_file):
    assert with_data(["fit", "--data", own_file]) == ["fit", "--data", own_file]
    assert with_data(["fit", "--data.p", "5"]) == ["fit", f"--data={MODULAR}", "--data.p", "5"]
    assert with_data(["fit", "--data.class_path=ModularDataModule"])[1] == f"--data={MODULAR}"


def test_a_file_of_the_usual_data_before_another_class_is_refused(cli, own_file, tmp_path):
    (tmp_path / "usual.yaml").write_text("data: {p: 13}\n")
    done = cli("fit", "--config", tmp_path / "usual.yaml", "--data", own_file, "--model", "EmbeddingMLP")
    assert done.status == 2
    assert f"data = '{own_file}'" in done.err
    assert "usual.yaml" in done.err
    (tmp_path / "own.yaml").write_text(f"data: {{class_path: {own_file}}}\n")
    (tmp_path / "more.yaml").write_text("data: {batch_size: 12}\n")
    files = ["--config", tmp_path / "own.yaml", "--config", tmp_path / "more.yaml"]
    assert cli(*words(own_file), *files).status == 0
    run = next(iter((tmp_path / "runs" / "x").iterdir()))
    assert yaml.safe_load((run / "config.yaml").read_text())["data"]["init_args"]["batch_size"] == 12


def test_a_size_that_the_data_lack_is_refused_in_one_line(cli, own_file, tmp_path):
    done = cli(*words("parity_data.Bare"))
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "data = Bare: has no vocab_size, which the model needs (it has n_classes)" in done.err
    assert not (tmp_path / "runs").exists()


def test_resuming_ends_as_if_the_run_had_not_been_stopped(cli, own_file, tmp_path):
    assert cli(*words(own_file, run_id="whole", steps=20)).status == 0
    assert cli(*words(own_file, run_id="part", steps=11)).status == 0
    part = tmp_path / "runs" / "x" / "part"
    assert cli("fit", "--resume", part, "--trainer.max_steps", 20).status == 0
    whole, part = Run(tmp_path / "runs" / "x" / "whole"), Run(part)
    assert all(torch.equal(w, part.weights[name]) for name, w in whole.weights.items())
    assert whole.series("val/acc") == {t: x for t, x in part.series("val/acc").items() if t != 11}


def test_predictions_name_the_row(cli, own_file, tmp_path):
    assert cli(*words(own_file, steps=5)).status == 0
    run = tmp_path / "runs" / "x" / "run"
    done = cli("predict", "--config", run / "config.yaml", "--ckpt_path", run / "checkpoints" / "last.ckpt")
    lines = done.out.strip().splitlines()
    assert done.status == 0
    assert lines[-121] == "row,label,prediction"
    assert lines[-120].startswith(f"0,{int(load_data(run).labels[0])},")


def test_a_run_from_before_data_had_classes_resumes_and_compares_equal(cli, tmp_path):
    flags = ["--model", "EmbeddingMLP", "--model.d_model", 4, "--data.p", 11, "--data.batch_size", 16, *OFF, *FLAGS]
    record = ["--record.run_id", "old", "--record.experiment", "x"]
    assert cli("fit", *flags, *record, "--trainer.max_steps", 5).status == 0
    run = tmp_path / "runs" / "x" / "old"
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["data"]["class_path"] == MODULAR
    old = config | {"data": config["data"]["init_args"]}
    assert flatten(old) == flatten(config)
    (run / "config.yaml").write_text(yaml.safe_dump(old))
    assert len(load_data(run).labels) == 121
    done = cli("fit", "--resume", run, "--trainer.max_steps", 10, "--data.p", 13)
    assert done.status == 2
    assert "data.p = 13: the run was started with 11" in done.err
    assert cli("fit", "--resume", run, "--trainer.max_steps", 10).status == 0
    assert Run(run).checkpoint["global_step"] == 10
    shutil.rmtree(run)


def test_a_bad_batch_size_is_refused():
    from grok_lightning.data.splits import Split
    from grok_lightning.data.table import TableDataModule

    split = Split(torch.arange(4), torch.arange(0), torch.arange(4, 5))
    with pytest.raises(ConfigError, match=r"data\.batch_size = 5: must be from 1 to 4"):
        TableDataModule(torch.zeros(5, 2), torch.zeros(5), split, {}, 5)
