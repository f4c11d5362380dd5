"""The job, over real runs of small networks."""

import io
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from jsonargparse import ArgumentError
from rich.console import Console
from short_run import OFF
from tiny_sweep import make_source, make_sweep, parameters_of

from grok_lightning.compare.runs import LeftOut, find
from grok_lightning.errors import ConfigError
from grok_lightning.sweep.job import main, read_options
from grok_lightning.sweep.table import Progress, last_values
from grok_lightning.sweep.trials import Trials

SWEEP = [sys.executable, "-m", "grok_lightning", "sweep"]
"""The job in a process of its own."""

FIXED = ["--model", "EmbeddingMLP", "--model.d_model", "4", "--data.p", "11", "--data.batch_size", "16"]
FIXED += ["--trainer.logger", "false", "--trainer.val_check_interval", "10", *OFF]


def write(name="tiny.yaml", steps=20, **changes):
    content = {
        "method": "grid",
        "command": ["${env}", "${interpreter}", "-m", "grok_lightning", "fit", *FIXED, "${args}"],
        "parameters": {"model.c": {"values": [1, 10]}, "trainer.max_steps": {"value": steps}},
    }
    Path(name).write_text(yaml.safe_dump(content | changes, sort_keys=False))
    return name


def records(sweep="tiny"):
    paths = Path("runs", sweep, ".sweep", "trials").glob("*.json")
    return {record["hash"]: record for record in (json.loads(path.read_text()) for path in paths)}


def files():
    return sorted(str(path) for path in Path().rglob("*"))


def test_a_sweep_with_a_failing_run_from_start_to_end(capsys):
    parameters = {"model.c": {"values": [0, 1, 10, 10.0]}, "trainer.max_steps": {"value": 20}}
    command = ["tiny.yaml", "--workers", "2"]
    write(parameters=parameters)
    assert main(command) == 1
    first = capsys.readouterr().out
    by_c = {record["parameters"]["model.c"]: record for record in records().values()}
    assert {c: record["status"] for c, record in by_c.items()} == {0: "failed", 1: "completed", 10: "completed"}
    assert by_c[0]["returncode"] == 2
    assert by_c[0]["error"] == "model.c = 0.0: must be greater than 0 and finite"
    assert "the same configuration, run once: model.c = 10 and model.c = 10.0" in first
    assert "2 completed, 1 failed, 0 left" in first
    assert f"log: runs/tiny/.sweep/logs/{by_c[0]['hash']}.log" in first
    assert "compare runs/tiny --by model.c" in first
    for c in (1, 10):
        run = Path("runs/tiny") / by_c[c]["hash"]
        assert json.loads((run / "summary.json").read_text())["status"] == "completed"
        config = yaml.safe_load((run / "config.yaml").read_text())
        assert config["model"]["init_args"]["c"] == c
        assert config["trainer"]["default_root_dir"] == str(run)
    found, left_out = find(["runs/tiny"])  # what compare will say of it
    assert len(found) == 2
    reason = "failed before it wrote anything: model.c = 0.0: must be greater than 0 and finite"
    assert left_out == [LeftOut(f"runs/tiny/{by_c[0]['hash']}", reason)]
    made = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*/summary.json")}

    assert main(command) == 1  # everything has been run; the failure is told again
    assert "must be greater than 0" in capsys.readouterr().out
    assert {record["attempts"] for record in records().values()} == {1}
    assert {path: path.stat().st_mtime_ns for path in made} == made

    assert main([*command, "--retry-failed"]) == 1
    assert Counter(record["attempts"] for record in records().values()) == {1: 2, 2: 1}


@pytest.mark.slow
def test_flags_go_to_every_run_and_a_changed_file_is_said(capsys):
    write(parameters={"model.c": {"value": 1}})
    assert main(["tiny.yaml", "--max_runs=1", "--", "--trainer.max_steps", "10"]) == 0
    (record,) = records().values()
    run = Path(record["run_dir"])
    assert json.loads((run / "summary.json").read_text())["steps"] == 10
    assert record["arguments"][-2:] == ["--trainer.max_steps", "10"]
    capsys.readouterr()
    write(parameters={"model.c": {"values": [1, 2]}})
    assert main(["tiny.yaml", "--max-runs", "1", "--", "--trainer.max_steps", "10"]) == 0
    out = capsys.readouterr().out
    assert "has changed" in out
    assert "1 completed and 0 failed before" in out
    assert list(records()) == [record["hash"]]


@pytest.mark.slow
def test_a_bayes_sweep_reads_the_accuracy_of_its_runs():
    parameters = {"model.c": {"min": 1.0, "max": 10.0}, "trainer.max_steps": {"value": 10}}
    write(method="bayes", run_cap=2, metric={"name": "val/acc", "goal": "maximize"}, parameters=parameters)
    assert main(["tiny.yaml", "--workers", "2"]) == 0
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend("runs/tiny/.sweep/journal.log"))
    study = optuna.load_study(study_name="tiny", storage=storage)
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    for trial in study.trials:
        lines = Path("runs/tiny", trial.user_attrs["hash"], "metrics.jsonl").read_text().splitlines()
        accuracies = [line["val/acc"] for line in map(json.loads, lines) if "val/acc" in line]
        assert trial.value == accuracies[-1]


def start_real(steps, workers=2, values=(1, 10)):
    write(parameters={"model.c": {"values": list(values)}, "trainer.max_steps": {"value": steps}})
    return subprocess.Popen([*SWEEP, "tiny.yaml", f"--workers={workers}"], stdout=subprocess.PIPE, text=True)


def wait_for_metrics(process, count=1):
    deadline = time.monotonic() + 120
    while len(list(Path("runs").rglob("*/metrics.jsonl"))) < count:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_sigterm_stops_real_runs_and_says_how_to_go_on():
    process = start_real(10**7)
    wait_for_metrics(process, 2)
    process.terminate()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "to go on: python -m grok_lightning sweep tiny.yaml --workers=2" in out
    assert {record["status"] for record in records().values()} == {"interrupted"}
    summaries = [json.loads(path.read_text()) for path in Path("runs").rglob("*/summary.json")]
    assert [summary["status"] for summary in summaries] == ["interrupted"] * 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_of_real_runs_killed_ten_times_gives_every_run_once():
    """Like the test over tiny_fit.py, with the whole of ``fit``."""
    values = [1, 2, 3, 4, 5, 6, 7, 8]
    moments = random.Random(3)
    killed = 0
    while killed < 10:
        process = start_real(400, values=values)
        deadline = time.monotonic() + moments.uniform(6, 18)  # loading the sweep takes some 7 s, and a run 9 s more
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
        process.communicate()
        if process.returncode != -signal.SIGKILL:
            break
        killed += 1
    process = start_real(400, values=values)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert killed >= 8
    assert {record["status"] for record in records().values()} == {"completed"}
    assert sorted(record["parameters"]["model.c"] for record in records().values()) == values
    kept = [path.parent for path in Path("runs/tiny").glob("*/summary.json")]
    assert sorted(path.name for path in kept) == sorted(records())
    for run in kept:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert max(line["step"] for line in lines) == 400
        assert len({line["step"] for line in lines if "val/acc" in line}) == sum("val/acc" in line for line in lines)
    resumed = [run for run in kept if "resumed" in json.loads((run / "provenance.json").read_text())]
    assert resumed  # some kills hit a run, which went on from there
    assert not list(Path("runs/tiny/.sweep/abandoned").glob("*/summary.json"))


def test_a_dry_run_prints_every_command_and_writes_nothing(capsys):
    write()
    before = files()
    assert main(["tiny.yaml", "--dry-run", "--name", "other"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert files() == before
    assert len(lines) == 2
    for line, c in zip(lines, (1, 10), strict=True):
        key, status, command = line.split(maxsplit=2)
        assert status == "queued"
        assert command.startswith("python -m grok_lightning fit --model EmbeddingMLP")
        assert f"--model.c={c} " in command
        assert f"--record.root=runs --record.experiment=other --record.run_id={key} " in command


@pytest.mark.parametrize(("method", "shown"), [("random", 12), ("bayes", 10)])
def test_a_dry_run_of_a_search_shows_the_draws_that_can_be_known(capsys, method, shown):
    metric = {"name": "val/acc", "goal": "maximize"}
    write(method=method, metric=metric, parameters={"model.c": {"min": 1.0, "max": 2.0}})
    before = files()
    assert main(["tiny.yaml", "--dry_run", "--max_runs", "12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "--model.c=" in line]) == shown
    assert ("depends on the results" in lines[-1]) == (method == "bayes")
    assert files() == before


@pytest.mark.parametrize(
    ("changes", "argv", "words"),
    [
        ({"parameters": {"model.cc": {"values": [1, 2]}}}, [], "with --model.cc=1"),
        ({"parameters": {"model.c": {"values": [1, "ten"]}}}, [], "with --model.c=ten"),
        ({}, ["--", "--hessians.k", "3"], "hessians"),
        ({"method": "random"}, [], "max_runs is missing"),
        ({"method": "random", "parameters": {"model.cc": {"min": 1, "max": 9}}}, ["--max_runs", "1"], "model.cc"),
        ({}, ["--", "--record.run_id", "x"], "--name"),
        ({}, ["--workers", "0"], "workers = 0"),
        ({}, ["--max-runs", "0"], "max_runs = 0"),
        ({}, ["--name", "a/b"], "name = 'a/b'"),
    ],
)
def test_a_mistake_is_named_before_anything_starts(changes, argv, words):
    write(**changes)
    before = files()
    with pytest.raises(ConfigError) as error:
        main(["tiny.yaml", *argv])
    assert words in str(error.value)
    assert files() == before


def test_an_unknown_option_is_refused():
    with pytest.raises(ArgumentError, match="runs_max"):
        main(["tiny.yaml", "--runs-max", "1"])


def test_early_termination_is_said_to_be_left_to_wandb(capsys):
    write(early_terminate={"type": "hyperband", "min_iter": 3})
    main(["tiny.yaml", "--dry-run"])
    assert "early_terminate: runs are not stopped early here" in capsys.readouterr().out


def test_options():
    options = read_options(["a/b.yaml", "--max-runs=3", "--workers", "2", "--", "--model.c", "1", "--", "x-y"])
    assert (options.name, options.max_runs, options.workers) == ("b", 3, 2)
    assert options.flags == ("--model.c", "1", "--", "x-y")
    assert read_options(["a.yaml", "--threads", "3"]).threads == 3


def show(terminal):
    trials = Trials(Path("runs"), "tiny")
    trials.create()
    source = make_source("grid", 3, trials)
    sweep = make_sweep("grid", parameters_of("grid", 3))
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    claim = source.take()
    trials.run_dir(claim.configuration.key).mkdir()
    metrics = trials.run_dir(claim.configuration.key) / "metrics.jsonl"
    metrics.write_text('{"step": 2, "val/acc": 0.125}\n{"step": 3, "train/loss": 1}\n{"step": 4, "val')
    running = type("Run", (), {"claim": claim})()
    with Progress(sweep, source, trials, 2, console) as progress:
        progress.update({0: running}, waiting=False)
    claim.release()
    return console.file.getvalue()


def test_the_table_shows_what_runs_and_how_far_it_is():
    shown = show(terminal=True)
    for words in ("model.c = 0", "3 / 4", "0.125", "0 completed, 0 failed, 3 left (1 running)"):
        assert words in shown


def test_without_a_terminal_there_is_no_table():
    assert show(terminal=False) == ""


def test_the_end_of_a_file_that_is_being_written():
    assert last_values(Path("nowhere")) == (None, None)
    path = Path("m.jsonl")
    path.write_text('{"step": 1, "val/acc": 0.5}\n{"step": 2')
    assert last_values(path) == (1, 0.5)
