"""Every file under sweeps/ holds flags that the real parser takes, and the values it says it sweeps."""

from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from short_run import arguments
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args
from wandb.sdk.sweeps.scheduler.optuna import search_space_from_sweep_config
from wandb_file import history

from grok_lightning.__main__ import run
from grok_lightning.cli import resolver
from grok_lightning.sweep.spec import read_sweep

FILES = sorted((ROOT / "sweeps").glob("*.yaml"))
NAMES = [path.stem for path in FILES]
SWEEPS = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}

C = [0.5, 1, 4, 8, 10, 16, 24, 32]
BATCH = [64, 128, 256, 512, 1024, 2048]
SEEDS = [0, 1, 2, 3, 4]
MORE_SEEDS = {"c_x_task": [*range(10)]}
"""Where a verdict needs more pairs than five."""
GRIDS = {
    "c": {"model.c": C},
    "batch_size": {"data.batch_size": BATCH},
    "c_x_batch_size": {"model.c": C, "data.batch_size": BATCH},
    "c_x_lr_x_task": {
        "model.c": [1, 10],
        "model.lr": [0.01, 0.005, 0.001],
        "data.task": ["addition", "multiplication", "division", "sum_of_squares"],
    },
    "split_x_batch_size": {"data.split": ["random", "uniform", "skewed"], "data.batch_size": BATCH},
    "sgd_c": {"model.c": [1, 10]},
    "embedding_x_task": {
        "model": ["EmbeddingMLP", "EmbeddingFreeMLP"],
        "data.task": ["addition", "multiplication"],
    },
    "c_x_task": {
        "model.c": [1, 10],
        "data.task": ["addition", "multiplication", "division", "sum_of_squares"],
    },
    "depth": {"model.depth": [2, 6]},
    "low_rank": {"model.embedding.rank": [None, 16]},
    "split_x_c": {"data.split": ["random", "uniform"], "model.c": [1, 10]},
    "entropy_sampler": {"data.sampler_gamma": [1e6, 0.01, 0.001]},
    "frozen_embedding": {"model.freeze_embedding_at": [None, 0, 500]},
    "adaptive_c": {"model.c": [1, 10], "adaptive_c.every_n_steps": [0, 100]},
    "transformer_c": {"model.c": [1, 10]},
    "curvature_c": {"model.c": [1, 10]},
    "ranks_c": {"model.c": [1, 10]},
    "fourier_x_task": {"data.task": ["addition", "multiplication", "division"]},
    "two_phase_decay": {"model.weight_decay": [0.1, 0.01, 0.003, 0.001, 0.0003]},
    "two_phase_completion": {"model.weight_decay": [0.001, 0.0003, 0.0001]},
    "two_phase_relu": {"model.weight_decay": [0.03, 0.01, 0.003]},
    "two_phase_init": {"model.init_scale": [0.01, 0.03, 0.1, 0.3, 0.5]},
    "text_c_start": {"model.c": [1, 10]},
    "text_c": {"model.c": [1, 3, 10, 30], "model.lr": [0.005, 0.001]},
    "vit_digits_c": {"model.c": [1, 3, 10, 30]},
    "vit_digits_lr": {"model.lr": [0.003, 0.01]},
}
OTHER_DATA = ("text_c", "two_phase_", "vit_digits_")
"""How names of sweeps begin whose data have no p."""

SEARCHES = {"c_random": "random", "c_bayes": "bayes"}
WANDB_FIELDS = {
    "program", "entity", "project", "description", "name", "method", "metric", "parameters", "early_terminate",
    "command", "run_cap",
}  # fmt: skip
"""docs.wandb.ai/models/sweeps/sweep-config-keys"""


@pytest.fixture(scope="module")
def resolve():
    return resolver()


@pytest.fixture(autouse=True)
def project_root(tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")  # the files are started from the root of the project


def choices(spec):
    """The values of a parameter; both ends and the middle of a range."""
    if "distribution" in spec:
        low, high = spec["min"], spec["max"]
        return [low, (low * high) ** 0.5, high]
    return spec["values"] if "values" in spec else [spec["value"]]


def command_line(name, point):
    """The words after ``python -m grok_lightning``, made as W&B's agent makes them."""
    args = create_sweep_command_args({"args": {key: {"value": value} for key, value in point.items()}})["args"]
    words = [word for part in SWEEPS[name]["command"] for word in (args if part == "${args}" else [part])]
    assert words[:4] == ["${env}", "${interpreter}", "-m", "grok_lightning"]
    return words[4:]


def points(name):
    """Few points that have every value of every parameter."""
    parameters = {key: choices(spec) for key, spec in SWEEPS[name]["parameters"].items()}
    longest = max(map(len, parameters.values()))
    return [{key: values[at % len(values)] for key, values in parameters.items()} for at in range(longest)]


def lookup(config, key):
    group, *rest = key.split(".")
    if not rest and group == "model":
        return config["model"]["class_path"].rpartition(".")[2]
    found = config[group]["init_args"] if group in ("data", "model") else config[group]
    for name in rest:
        found = found[name]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_parser_takes_every_value(name, resolve):
    for point in points(name):
        config = resolve(command_line(name, point))
        assert {key: lookup(config, key) for key in point} == point
        assert config["record"]["experiment"] == name
        fixed = {"split_seed": 0, "order_seed": 0, "p": 97} if not name.startswith(OTHER_DATA) else {"order_seed": 0}
        assert {key: config["data"]["init_args"][key] for key in fixed} == fixed


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_what_wandb_documents(name):
    sweep = SWEEPS[name]
    assert set(sweep) <= WANDB_FIELDS
    assert set(sweep["metric"]) == {"name", "goal"}
    assert sweep["command"].count("${args}") == 1
    space = search_space_from_sweep_config(sweep["parameters"])  # W&B's own reader of parameters
    for key, spec in sweep["parameters"].items():
        if "distribution" in spec:
            assert (space[key].low, space[key].high, space[key].log) == (spec["min"], spec["max"], True)
        else:
            assert list(space[key].choices) == choices(spec)


@pytest.mark.parametrize("name", NAMES)
def test_the_sweep_job_reads_the_same(name):
    read = read_sweep(ROOT / "sweeps" / f"{name}.yaml")
    assert read.swept == [key for key, spec in SWEEPS[name]["parameters"].items() if "value" not in spec]


@pytest.mark.parametrize("name", NAMES)
def test_files_named_in_the_command_exist(name):
    words = SWEEPS[name]["command"]
    named = [words[at + 1] for at, word in enumerate(words) if word == "--config"]
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("name", NAMES)
def test_seeds(name):
    assert SWEEPS[name]["parameters"]["seed_everything"] == {"values": MORE_SEEDS.get(name, SEEDS)}


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_grid(name):
    sweep = SWEEPS[name]
    swept = {key: spec["values"] for key, spec in sweep["parameters"].items() if "values" in spec}
    assert sweep["method"] == "grid"
    assert swept == GRIDS[name] | {"seed_everything": MORE_SEEDS.get(name, SEEDS)}


@pytest.mark.parametrize("name", sorted(SEARCHES))
def test_search(name):
    sweep = SWEEPS[name]
    assert sweep["method"] == SEARCHES[name]
    assert sweep["run_cap"] > 0  # a search without an end
    assert sweep["parameters"]["model.c"] == {"distribution": "log_uniform_values", "min": 0.5, "max": 32.0}


@pytest.mark.parametrize("words", [["=null"], ["=None"], [" ", "null"]])
def test_null_within_a_setting(words, resolve):
    flag = ["--model.embedding.rank" + words[0].strip(), *words[1:]]  # W&B writes =None
    config = resolve(["fit", "--config", "configs/paper/c12_low_rank.yaml", *flag])
    assert config["model"]["init_args"]["embedding"]["rank"] is None


def test_nothing_is_left_out():
    assert sorted(NAMES) == sorted([*GRIDS, *SEARCHES])


def test_a_run_logs_every_metric_to_wandb():
    assert run(arguments("--trainer.max_steps", "20", logger=None)) == 0
    (file,) = Path("runs/wandb").glob("offline-run-*/*.wandb")
    rows = history(file)
    for sweep in SWEEPS.values():
        assert len([row for row in rows if sweep["metric"]["name"] in row]) == 3  # steps 0, 10 and 20


@pytest.mark.parametrize("task", GRIDS["c_x_lr_x_task"]["data.task"])
def test_the_flag_task_is_the_file_of_that_task(task, resolve):
    """The sweep over tasks starts from configs/addition.yaml."""
    own = resolve(["fit", "--config", f"configs/{task}.yaml"])
    flag = resolve(["fit", "--config", "configs/addition.yaml", f"--data.task={task}"])
    for config in (own, flag):
        del config["config"]
        config["model"].pop("__path__", None)  # the file that the settings of the model stand in
    assert flag == own
