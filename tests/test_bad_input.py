"""Every mistake gets one line that names it, a status that is not 0, no traceback and no run directory."""

from pathlib import Path

import pytest
from conftest import ROOT

ADDITION = ROOT / "configs" / "addition.yaml"
EMBEDDING_FREE = ROOT / "configs" / "embedding_free.yaml"

CASES = {
    "p is 1": (["--data.p", 1], "data.p = 1"),
    "p is negative": (["--data.p", -7], "data.p = -7"),
    "p is no integer": (["--data.p", "ninety"], "data.p"),
    "p is too large": (["--data.p", 100000], "4096"),
    "division mod 4": (["--data.task", "division", "--data.p", 4, "--data.batch_size", 2], "prime"),
    "exclude_zero with addition": (["--data.exclude_zero", "true"], "only multiplication"),
    "exclude_zero mod 10": (
        ["--data.task", "multiplication", "--data.exclude_zero", "true", "--data.p", 10],
        "prime",
    ),
    "s5 with a modulus": (["--data.task", "s5"], "no modulus"),
    "batch size 0": (["--data.batch_size", 0], "data.batch_size = 0"),
    "batch larger than the training set": (["--data.batch_size", 2823], "1 to 2822"),
    "batch size is a fraction": (["--data.batch_size", 1.5], "data.batch_size"),
    "frac_train 0": (["--data.frac_train", 0], "data.frac_train = 0"),
    "frac_train 1": (["--data.frac_train", 1], "data.frac_train = 1"),
    "frac_train 1.2": (["--data.frac_train", 1.2], "data.frac_train = 1.2"),
    "frac_train is no number": (["--data.frac_train", "most"], "data.frac_train"),
    "frac_train of no pair": (["--data.frac_train", 0.00001], "0 training"),
    "uniform at 0.8": (["--data.split", "uniform", "--data.frac_train", 0.8], "no uniform split"),
    "unknown split": (["--data.split", "stratified"], "data.split"),
    "skew below 1": (["--data.split", "skewed", "--data.skew", 0.5], "data.skew = 0.5"),
    "skew of a split that is not skewed": (["--data.skew", 8], "data.skew = 8.0: data.split is 'random', not skewed"),
    "decay of another sampler": (["--data.sampler_decay", 0.5], "data.sampler_decay = 0.5: data.sampler is 'shuffled'"),
    "gamma is no YAML number": (
        ["--data.sampler_gamma", "inf"],
        "data.sampler_gamma: Expected a float. Got value: inf",
    ),
    "negative split seed": (["--data.split_seed", -1], "data.split_seed = -1"),
    "negative order seed": (["--data.order_seed", -1], "data.order_seed = -1"),
    "unknown task": (["--data.task", "exponentiation"], "exponentiation"),
    "task class that does not exist": (["--data.task", "nowhere.Task"], "nowhere.Task"),
    "unknown model": (["--model", "Perceptron"], "Perceptron"),
    "unknown data key": (["--data.modulus", 97], "data.modulus"),
    "unknown model key": (["--model.learning_rate", 0.1], "learning_rate"),
    "unknown trainer key": (["--trainer.steps", 10], "trainer.steps"),
    "unknown group": (["--hessians.k", 10], "hessians"),
    "optimizer flag of LightningCLI": (["--optimizer", "SGD"], "optimizer"),
    "c is 0": (["--model.c", 0], "model.c = 0"),
    "c is negative": (["--model.c", -10], "model.c = -10"),
    "c is nan": (["--model.c", ".nan"], "model.c = nan"),
    "c is no number": (["--model.c", "ten"], "ten"),
    "lr is negative": (["--model.lr", -0.01], "model.lr = -0.01"),
    "weight decay is negative": (["--model.weight_decay", -1], "model.weight_decay = -1"),
    "unknown optimizer": (["--model.optimizer", "lion"], "lion"),
    "momentum with adam": (["--model.momentum", 0.9], "only sgd"),
    "decay switch with adam": (["--model.decay_scales_with_c", "false"], "adamw or sgd"),
    "momentum of muon with adam": (
        ["--model.muon_momentum", 0.9],
        "model.muon_momentum = 0.9: model.optimizer is 'adam'",
    ),
    "rho without a norm": (["--model.clamp.rho", 2], "model.clamp.rho = 2.0"),
    "unknown key of a group": (["--model.clamp", "{rho: 1, critical: 4}"], "model.clamp.critical: EmbeddingMLP has no"),
    "unknown flag of a group": (
        ["--model.gradient.lambda", 2],
        "model.gradient.lambda: EmbeddingMLP has no such option",
    ),
    "an abbreviation in a group": (["--model.gradient.alph", 0.5], "model.gradient.alph"),
    "an abbreviation of the trainer": (["--trainer.max_step", 2], "trainer.max_step"),
    "an abbreviation of config": (["--conf", ADDITION], "--conf"),
    "no step": (["--trainer.max_steps", "few"], "error: trainer.max_steps: Expected a int. Got value: few"),
    "a step of no batches": (["--trainer.accumulate_grad_batches", 0], "trainer.accumulate_grad_batches = 0"),
    "clipping uphill": (["--trainer.gradient_clip_val", -1], "trainer.gradient_clip_val = -1"),
    "logging every -1 steps": (["--trainer.log_every_n_steps", -1], "trainer.log_every_n_steps = -1"),
    "one beta": (["--model.betas", "[0.9]"], "beta"),
    "depth 1": (["--model.depth", 1], "model.depth = 1"),
    "d_model 0": (["--model.d_model", 0], "model.d_model = 0"),
    "d_model not divisible": (["--model", "Transformer", "--model.d_model", 130], "n_heads = 4"),
    "layers 0": (["--model", "Transformer", "--model.n_layers", 0], "model.n_layers = 0"),
    "unknown activation": (["--model", "Transformer", "--model.activation", "tanh"], "tanh"),
    "c without an embedding": (["--model", "EmbeddingFreeMLP"], "no embedding"),
    "settings that the new model lacks": (["--model.depth", 6, "--model", "Transformer"], "depth"),
    "size that the data decides": (["--model.vocab_size", 50], "comes from the data"),
    "the same in full": (["--model.init_args.n_classes", 50], "comes from the data"),
    "threshold above 1": (["--grokking.grok_threshold", 1.5], "grokking.grok_threshold = 1.5"),
    "threshold 0": (["--grokking.mem_threshold", 0], "grokking.mem_threshold = 0"),
    "no held-out pairs": (["--data.frac_train", 0.8, "--grokking.part", "val"], "no held-out pairs"),
    "sustained over 0": (["--grokking.sustain_evaluations", 0], "grokking.sustain_evaluations = 0"),
    "stop before grokking": (["--grokking.stop_after_steps", -5], "grokking.stop_after_steps = -5"),
    "run id with a slash": (["--record.run_id", "a/b"], "record.run_id = 'a/b'"),
    "checkpoints every -1": (["--checkpoint.every_n_steps", -1], "checkpoint.every_n_steps = -1"),
    "unknown W&B mode": (["--trainer.logger.mode", "sometimes"], "sometimes"),
    "a device count of 0": (["--trainer.devices", 0], "devices"),
    "negative seed": (["--seed_everything", -4], "seed_everything = -4"),
    "seed too large": (["--seed_everything", 2**40], "seed_everything"),
    "evaluation every 0 steps": (["--trainer.val_check_interval", 0], "trainer.val_check_interval = 0"),
    "evaluation by epochs": (["--trainer.check_val_every_n_epoch", 5], "val_check_interval to 1.0"),
    "evaluation of a few rows": (["--trainer.limit_val_batches", 0.5], "trainer.limit_val_batches = 0.5"),
    "evaluation of one batch": (["--trainer.limit_val_batches", 1], "trainer.limit_val_batches = 1"),
    "overfitting": (["--trainer.overfit_batches", 1], "trainer.overfit_batches = 1"),
    "reloading": (["--trainer.reload_dataloaders_every_n_epochs", 1], "trainer.reload_dataloaders_every_n_epochs = 1"),
    "a matrix that is not there": (["--spectrum.matrices", "[Q]"], "spectrum.matrices = ['Q']"),
    "an accelerator that is not there": (["--trainer.accelerator", "tpu"], "trainer"),
    "unknown strategy": (["--trainer.strategy", "magic"], "magic"),
    "a second config that is missing": (["--config", "missing.yaml"], "missing.yaml"),
    "a checkpoint that is missing": (["--ckpt_path", "missing.ckpt"], "missing.ckpt"),
}


def check(done, word, created):
    lines = [line for line in done.err.splitlines() if line.strip()]
    assert done.status in (1, 2)
    assert len(lines) == 1, done.err
    assert lines[0].startswith("grok_lightning: error: ")
    assert word in lines[0]
    assert len(lines[0]) < 500
    assert "Traceback" not in done.err
    assert not Path("runs").exists()
    assert {str(path) for path in Path().iterdir() if "cache" not in path.name} == created


@pytest.mark.parametrize(("flags", "word"), CASES.values(), ids=CASES)
def test_flag(cli, flags, word):
    check(cli("fit", "--config", ADDITION, *flags), word, set())


FILES = {
    "not YAML": ("data: [1, 2", "bad.yaml"),
    "a list": ("- data\n- model\n", "bad.yaml"),
    "empty": ("", "bad.yaml"),
    "no model": ("data:\n  p: 5\n", "model"),
    "typo in a group": ("data:\n  batchsize: 3\n", "batchsize"),
    "wrong type": ("data:\n  batch_size: many\n", "batch_size"),
    "binary": ("\x00\x01\x02", "bad.yaml"),
}


@pytest.mark.parametrize(("text", "word"), FILES.values(), ids=FILES)
def test_file(cli, text, word):
    Path("bad.yaml").write_text(text)
    check(cli("fit", "--config", "bad.yaml"), word, {"bad.yaml"})


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["fit"], "model"),
        (["fit", "--config"], "config"),
        (["train", "--config", ADDITION], "must be one of fit"),
        (["fit", "--config", EMBEDDING_FREE, "--model.c", 10], "no embedding"),
        (["validate", "--config", ADDITION, "--ckpt_path", "missing.ckpt"], "missing.ckpt"),
        (["validate", "--config", ADDITION], "needs the weights of a checkpoint"),
        (["fit", "--config", ROOT / "configs"], "is not a file"),
    ],
)
def test_command_line(cli, arguments, word):
    check(cli(*arguments), word, set())


def test_a_run_directory_that_exists_is_not_written_over(cli):
    run = Path("runs/addition/mine")
    run.mkdir(parents=True)
    done = cli("fit", "--config", ADDITION, "--record.run_id", "mine")
    assert done.status == 2
    assert "exists" in done.err
    assert not list(run.iterdir())


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--model.lr", 0.02], "model.lr = 0.02: the checkpoint was trained with 0.01"),
        (["--model.d_model", 64], "model.d_model = 64"),
        (["--data.p", 89], "n_classes = 89"),
    ],
)
def test_a_checkpoint_of_other_settings(cli, flags, word):
    base = ["fit", "--config", ADDITION, "--config", ROOT / "configs" / "diagnostics" / "off.yaml"]
    few = ["--trainer.max_steps", 2, "--trainer.val_check_interval", 2]
    assert cli(*base, *few, "--record.root", "first").status == 0
    (checkpoint,) = Path("first").glob("*/*/checkpoints/last.ckpt")
    before = {str(path) for path in Path().iterdir() if "cache" not in path.name}
    check(cli(*base, "--ckpt_path", checkpoint, *flags), word, before)


def test_a_root_that_cannot_be_written_to(cli):
    Path("file").write_text("")
    check(cli("fit", "--config", ADDITION, "--record.root", "file"), "record.root", {"file"})


def test_a_users_task_that_breaks(cli):
    Path("broken_task.py").write_text(
        "from grok_lightning.data.tasks import Task\n"
        "class Broken(Task):\n    def label(self, a, b, p):\n        return a + b\n"
    )
    done = cli("fit", "--config", ADDITION, "--data.task", "broken_task.Broken")
    assert done.status == 2
    assert "label() has to return int64 values in [0, 97)" in done.err
    assert not Path("runs").exists()


def test_a_users_task_that_raises_keeps_its_traceback(cli):
    Path("raising_task.py").write_text(
        "from grok_lightning.data.tasks import Task\n"
        "class Raising(Task):\n    def label(self, a, b, p):\n        return a.nonsense\n"
    )
    with pytest.raises(Exception, match="nonsense"):  # the user's own bug is theirs to see
        cli("fit", "--config", ADDITION, "--data.task", "raising_task.Raising")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model: &a {b: *a}", "a value contains itself"),
        ("data: {p: &a [*a]}", "a value contains itself"),
        ("model: " + "[" * 3000, "nests too deep"),
        ("data: {p: 2026-13-45}", "month must be in 1..12"),
    ],
)
@pytest.mark.parametrize("job", ["fit", "sweep"])
def test_yaml_that_is_no_setting(cli, tmp_path, job, text, reason):
    (tmp_path / "odd.yaml").write_text(text)
    done = cli("fit", "--config", "odd.yaml") if job == "fit" else cli("sweep", "odd.yaml")
    assert done.status == 2
    assert "odd.yaml" in done.err
    assert reason in done.err
    assert len(done.err.splitlines()) == 1


def test_a_run_id_of_the_environment_stays_inside_the_root(cli, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "../../outside")
    check(cli("fit", "--config", ADDITION), "WANDB_RUN_ID = '../../outside'", set())
