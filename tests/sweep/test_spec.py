"""Reading sweep files."""

from pathlib import Path

import pytest
import yaml

from grok_lightning.errors import ConfigError
from grok_lightning.sweep.configuration import as_flag
from grok_lightning.sweep.grid import grid
from grok_lightning.sweep.spec import read_sweep

COMMAND = ["${env}", "${interpreter}", "-m", "${program}", "fit", "--config", "a.yaml", "${args}", "--data.p", 11]
GOOD = {
    "program": "grok_lightning",
    "method": "grid",
    "command": COMMAND,
    "parameters": {"model.c": {"values": [1, 10]}},
}


def read(**changes):
    content = {key: value for key, value in (GOOD | changes).items() if value is not None}
    Path("x.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return read_sweep(Path("x.yaml"))


def test_a_file_of_every_field():
    about = {"run_cap": 3, "name": "n", "project": "p", "entity": "e", "description": "d"}
    sweep = read(**about, metric={"name": "val/acc", "goal": "maximize"}, early_terminate={"type": "hyperband"})
    assert (sweep.method, sweep.metric, sweep.maximize, sweep.run_cap) == ("grid", "val/acc", True, 3)
    assert sweep.early_terminate
    fit = sweep.command.fit(["--model.c=1"], ["--data.p=13"])
    assert fit == ["fit", "--config", "a.yaml", "--model.c=1", "--data.p", "11", "--data.p=13"]


def test_an_environment_variable_of_the_command(monkeypatch):
    monkeypatch.setenv("WHERE", "here")
    command = [*COMMAND[:6], "${envvar:WHERE}/a.yaml", "${args}"]
    assert read(command=command).command.before == ("--config", "here/a.yaml")


def test_the_grid_is_in_the_order_of_the_file_and_the_last_key_changes_fastest():
    parameters = {
        "model.c": {"values": [10, 1]},
        "data.p": {"value": 7},
        "data.batch_size": {"values": [4, 2, 8]},
    }
    sweep = read(parameters=parameters)
    points = [(v["model.c"], v["data.p"], v["data.batch_size"]) for v in grid(sweep)]
    assert points == [(10, 7, 4), (10, 7, 2), (10, 7, 8), (1, 7, 4), (1, 7, 2), (1, 7, 8)]
    assert sweep.swept == ["model.c", "data.batch_size"]


@pytest.mark.parametrize(
    ("entry", "distribution"),
    [
        ({"min": 1, "max": 3}, "int_uniform"),
        ({"min": 1, "max": 3.5}, "uniform"),
        ({"min": 0.5, "max": 3}, "uniform"),
        ({"min": 1, "max": 3, "distribution": "uniform"}, "uniform"),
        ({"min": 0.001, "max": 3, "distribution": "log_uniform_values"}, "log_uniform_values"),
        ({"min": 8, "max": 64, "q": 8, "distribution": "q_uniform"}, "q_uniform"),
        ({"min": 8, "max": 64, "q": 8, "distribution": "q_log_uniform_values"}, "q_log_uniform_values"),
        ({"values": [1, 2]}, "categorical"),
        ({"value": None}, "constant"),
    ],
)
def test_the_distribution_of_a_parameter_is_that_of_wandb(entry, distribution):
    (parameter,) = read(method="random", parameters={"model.c": entry}).parameters
    assert parameter.distribution == distribution


@pytest.mark.parametrize(
    ("value", "flag"),
    [
        (None, "--a.b=null"),
        (True, "--a.b=true"),
        (False, "--a.b=false"),
        (1e-05, "--a.b=1e-05"),
        ([0.9, 0.98], "--a.b=[0.9, 0.98]"),
        ("division", "--a.b=division"),
        (7, "--a.b=7"),
    ],
)
def test_values_become_flags(value, flag):
    assert as_flag("a.b", value) == flag


def entry(**fields):
    return {"method": "random", "run_cap": 2, "parameters": {"model.c": fields}}


MISTAKES = {
    "unknown field": ({"methods": "grid"}, "field = 'methods'"),
    "no method": ({"method": None}, "method = None"),
    "unknown method": ({"method": "hyperband"}, "grid, random, bayes"),
    "no parameters": ({"parameters": None}, "parameters = None"),
    "parameters is a list": ({"parameters": ["model.c"]}, "must map flags"),
    "nested": ({"parameters": {"model": {"parameters": {"c": {"value": 1}}}}}, "flat dotted keys, such as model.c"),
    "dashes": ({"parameters": {"--model.c": {"value": 1}}}, "without its dashes"),
    "where runs go": ({"parameters": {"record.root": {"value": "x"}}}, "--root"),
    "bare value": ({"parameters": {"model.c": 10}}, "model.c = 10"),
    "unknown field of a parameter": ({"parameters": {"model.c": {"vals": [1]}}}, "model.c: field = 'vals'"),
    "unknown distribution": (entry(min=1, max=2, distribution="normal"), "int_uniform"),
    "value and values": (entry(value=1, values=[1]), "value, values"),
    "no value": (entry(distribution="categorical"), "categorical needs values"),
    "only min": (entry(min=1), "min and max"),
    "no values": (entry(values=[]), "values = []"),
    "a number as text": (entry(min="1e-4", max=1), "1.0e-4"),
    "min above max": (entry(min=2, max=1), "below max = 1"),
    "log of 0": (entry(min=0, max=1, distribution="log_uniform_values"), "above 0"),
    "fractions as whole numbers": (entry(min=0.5, max=3, distribution="int_uniform"), "whole numbers"),
    "q without q_": (entry(min=1, max=3, q=1), "only q_uniform"),
    "q too large": (entry(min=1, max=3, q=5, distribution="q_uniform"), "q = 5"),
    "range in a grid": ({"parameters": {"model.c": {"min": 1, "max": 2}}}, "grid needs values"),
    "bayes without a metric": ({"method": "bayes"}, "metric"),
    "metric without a name": ({"metric": {"goal": "minimize"}}, "name: val/acc"),
    "goal": ({"metric": {"name": "val/acc", "goal": "max"}}, "metric.goal = 'max'"),
    "unknown field of the metric": ({"metric": {"name": "val/acc", "target": 1}}, "target"),
    "run_cap": ({"run_cap": 0}, "run_cap = 0"),
    "no command": ({"command": None}, "command is missing"),
    "command is text": ({"command": "python -m grok_lightning fit ${args}"}, "block list"),
    "another program": ({"command": ["${env}", "python", "train.py", "${args}"]}, "-m grok_lightning fit"),
    "another job": ({"command": ["python", "-m", "grok_lightning", "test", "${args}"]}, "-m grok_lightning fit"),
    "no args": ({"command": ["python", "-m", "grok_lightning", "fit"]}, "must contain ${args} once"),
    "boolean flags": ({"command": [*COMMAND[:-1], "${args_no_boolean_flags}"]}, "true and false need a value"),
    "json file": ({"command": [*COMMAND[:5], "${args_json_file}"]}, "write ${args}"),
    "unknown macro": ({"command": [*COMMAND, "${seed}"]}, "${envvar:NAME}"),
    "no such variable": ({"command": [*COMMAND, "${envvar:NO_SUCH}"]}, "NO_SUCH is not set"),
    "program missing": ({"program": None}, "program = None"),
    "something before python": ({"command": ["nice", *COMMAND[2:]]}, "command = 'nice'"),
}


@pytest.mark.parametrize(("changes", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named(changes, words):
    with pytest.raises(ConfigError) as error:
        read(**changes)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("method: [", "is not YAML"),
        ("- 1", "must be a mapping"),
        ("method: grid\nparameters:\n  model.c: {value: 1}\n  model.c: {value: 2}\n", "model.c: is there twice"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(text, words):
    Path("x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_sweep(Path("x.yaml"))


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        read_sweep(Path("nowhere.yaml"))
