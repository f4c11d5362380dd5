"""Random and bayes sweeps: distributions, draws, and the journal."""

import json
import math
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from tiny_sweep import TINY_FIT, TinyPlanner, make_source, make_sweep, parameters_of
from tiny_sweep import Quiet as Display

from grok_lightning.errors import ConfigError
from grok_lightning.sweep.engine import Engine
from grok_lightning.sweep.sampling import draws
from grok_lightning.sweep.search import SearchSource, objective
from grok_lightning.sweep.spec import Parameter
from grok_lightning.sweep.trials import Trials
from grok_lightning.sweep.worker import SubprocessWorker

PROGRAM = (sys.executable, "-S", str(TINY_FIT))


@pytest.fixture
def trials():
    found = Trials(Path("runs"), "tiny")
    found.create()
    return found


def run(source, trials, workers=2):
    return Engine(source, trials, SubprocessWorker(trials, 1, program=PROGRAM), workers, Display()).run()


def journal():
    storage = JournalStorage(JournalFileBackend("runs/tiny/.sweep/journal.log"))
    return optuna.load_study(study_name="tiny", storage=storage)


@pytest.mark.parametrize(
    ("parameter", "allowed"),
    [
        (Parameter("a", "uniform", (), 0.5, 2.0), lambda v: 0.5 <= v <= 2),
        (Parameter("a", "int_uniform", (), 1, 4), lambda v: v in {1, 2, 3, 4} and isinstance(v, int)),
        (Parameter("a", "q_uniform", (), 8, 32, 8), lambda v: v in {8, 16, 24, 32} and isinstance(v, int)),
        (Parameter("a", "q_uniform", (), 0.1, 0.5, 0.1), lambda v: v in {0.1, 0.2, 0.3, 0.4, 0.5}),
        (Parameter("a", "q_log_uniform_values", (), 8, 64, 8), lambda v: v in range(8, 72, 8)),
        (Parameter("a", "log_uniform_values", (), 1e-4, 1.0), lambda v: 1e-4 <= v <= 1),
        (
            Parameter("a", "categorical", ([0.9, 0.99], None, "adam", True)),
            lambda v: v in [[0.9, 0.99], None, "adam", 1],
        ),
        (Parameter("a", "constant", (3,)), lambda v: v == 3),
    ],
)
def test_draws_stay_inside_their_distribution_and_fill_it(parameter, allowed):
    values = [draw["a"] for draw in draws(make_sweep("random", [parameter]), 0, 60)]
    assert all(map(allowed, values))
    kinds = {"constant": 1, "int_uniform": 4, "categorical": 4, "q_uniform": 4}
    assert len({json.dumps(value) for value in values}) >= kinds.get(parameter.distribution, 5)


def test_log_uniform_draws_are_uniform_in_the_logarithm():
    sweep = make_sweep("random", [Parameter("a", "log_uniform_values", (), 1e-4, 1.0)])
    logs = [math.log10(draw["a"]) for draw in draws(sweep, 0, 200)]
    below = sum(log < -2 for log in logs)
    assert 75 <= below <= 125  # half of 200, within 3.5 standard deviations


def test_draws_depend_on_the_seed_and_on_nothing_else():
    sweep = make_sweep("random", parameters_of("random", 0))
    assert draws(sweep, 0, 5) == draws(sweep, 0, 8)[:5]
    assert draws(sweep, 0, 5) != draws(sweep, 1, 5)
    assert len({draw["model.c"] for draw in draws(sweep, 0, 20)}) == 20


def test_a_random_sweep_runs_the_draws_that_a_dry_run_shows(trials):
    assert run(make_source("random", 6, trials), trials) is None
    recorded = [json.loads(path.read_text()) for path in (trials.state / "trials").glob("*.json")]
    shown = draws(make_sweep("random", parameters_of("random", 0)), 0, 6)
    assert sorted(each["parameters"]["model.c"] for each in recorded) == sorted(draw["model.c"] for draw in shown)


def test_the_journal_is_opened_again_and_the_objective_is_the_last_value(trials):
    run(make_source("bayes", 3, trials), trials)
    source = make_source("bayes", 14, trials)  # past the draws that are made at random
    assert len(source.settled) == 3
    run(source, trials)
    study = journal()
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 14
    for trial in study.trials:
        assert trial.value == pytest.approx(trial.params["model.c"] / 4)  # tiny_fit: c / step, and 4 steps
    assert study.best_value == max(trial.value for trial in study.trials)


def test_a_failed_run_and_one_without_the_metric_are_failures_to_optuna(trials):
    sweep = make_sweep("random", [Parameter("model.c", "uniform", (), -1.0, -0.5)])
    source = SearchSource(TinyPlanner(sweep), trials, 2, 0, False)
    run(source, trials)
    assert list(source.settled.values()) == ["failed", "failed"]
    assert [trial.state for trial in journal().trials] == [TrialState.FAIL] * 2


def test_a_metric_that_no_run_has_is_said(trials):
    sweep = make_sweep("bayes", parameters_of("bayes", 0), metric="val/accuracy")
    source = SearchSource(TinyPlanner(sweep), trials, 1, 0, False)
    run(source, trials)
    assert list(source.settled.values()) == ["completed"]
    assert "'val/accuracy'" in source.notes[0]
    assert [trial.state for trial in journal().trials] == [TrialState.FAIL]


def test_draws_that_mean_the_same_are_one_run(trials):
    sweep = make_sweep("random", [Parameter("model.c", "categorical", (1, 2))])
    run(SearchSource(TinyPlanner(sweep), trials, 6, 0, False), trials)
    assert len(list((trials.state / "trials").iterdir())) == 2
    study = journal()
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 6
    assert {(trial.params["model.c"], trial.value) for trial in study.trials} == {("1", 0.25), ("2", 0.5)}


def test_failed_runs_are_repeated_when_asked(trials):
    sweep = make_sweep("random", [Parameter("model.c", "uniform", (), 0.5, 1.0)])
    broken = SubprocessWorker(trials, 1, program=(sys.executable, "-c", "raise SystemExit('broken machine')"))
    Engine(SearchSource(TinyPlanner(sweep), trials, 2, 0, False), trials, broken, 2, Display()).run()
    again = SearchSource(TinyPlanner(sweep), trials, 2, 0, False)
    run(again, trials)
    assert list(again.settled.values()) == ["failed", "failed"]
    retry = SearchSource(TinyPlanner(sweep), trials, 3, 0, True)
    run(retry, trials)
    assert list(retry.settled.values()) == ["completed"] * 3
    values = [trial.value for trial in journal().get_trials(states=[TrialState.COMPLETE])]
    assert sorted(values) == pytest.approx(sorted(draw["model.c"] / 4 for draw in draws(sweep, 0, 3)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parameters": [Parameter("model.c", "uniform", (), 0.0, 2.0)]}, "parameters"),
        ({"metric": "test/acc"}, "metric = 'test/acc'"),
        ({"method": "bayes"}, "method = 'bayes'"),
        ({"seed": 3}, "seed = 3"),
    ],
)
def test_another_search_in_the_same_directory_is_refused(trials, changes, words):
    first = {"method": "random", "parameters": [Parameter("model.c", "uniform", (), 0.0, 1.0)], "metric": "val/acc"}

    def source(seed=0, **about):
        return SearchSource(TinyPlanner(make_sweep(**about)), trials, 1, seed, False)

    source(**first)
    source(**first)
    with pytest.raises(ConfigError) as error:
        source(**(first | changes))
    assert words in str(error.value)
    assert "--name" in str(error.value)


def test_the_objective_reads_what_a_run_writes():
    directory = Path("run")
    directory.mkdir()
    assert objective(directory, "val/acc") is None
    lines = [{"step": 1, "val/acc": 0.5}, {"step": 2, "val/acc": 0.75}, {"step": 3, "x": math.nan}]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 4, "val')
    assert objective(directory, "val/acc") == 0.75
    assert objective(directory, "x") is None
    assert objective(directory, "y") is None


def test_a_run_that_writes_no_summary_has_failed(trials):
    (trials.directory / "note").write_text("not a run")
    worker = SubprocessWorker(trials, 1, program=(*PROGRAM, "silent=1"))
    source = make_source("grid", 2, trials)
    Engine(source, trials, worker, 2, Display()).run()
    assert list(source.settled.values()) == ["failed"] * 2
    assert {trials.error(key) for key in source.settled} == {"ended without a summary"}


def test_a_run_that_is_killed_has_failed_with_the_name_of_the_signal(trials):
    worker = SubprocessWorker(trials, 1, program=(*PROGRAM, "code=9"))
    source = make_source("grid", 1, trials)
    Engine(source, trials, worker, 1, Display()).run()
    assert [trials.error(key) for key in source.settled] == ["ended by SIGKILL (by the out-of-memory killer?)"]


def test_the_engine_does_not_load_torch():
    code = "import sys, grok_lightning.sweep.conduct; sys.exit(any(m in sys.modules for m in ('torch', 'optuna')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
