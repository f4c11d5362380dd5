"""The run record on disk."""

import json
from pathlib import Path

import pytest

from grok_lightning.errors import ConfigError
from grok_lightning.loggers.run_record import RunRecord, new_run_id


def test_lines_are_on_disk_as_soon_as_they_are_logged():
    record = RunRecord("runs", "x", "one")
    assert not Path("runs").exists()
    record.log_metrics({"a": 1.5, "sigma": [3.0, 2.0]}, step=4)
    line = json.loads(Path("runs/x/one/metrics.jsonl").read_text())
    assert (line["step"], line["a"], line["sigma"]) == (4, 1.5, [3.0, 2.0])
    record.log_metrics({"a": float("nan")}, step=5)
    record.finalize("success")
    record.log_metrics({"a": 2.0}, step=6)  # after a finalize it goes on in the same file
    steps = [json.loads(text)["step"] for text in Path("runs/x/one/metrics.jsonl").read_text().splitlines()]
    assert steps == [4, 5, 6]
    record.finalize("success")


def test_files_are_complete_or_absent(monkeypatch):
    record = RunRecord("runs", "x", "one")
    record.write("config.yaml", "first")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        record.write("config.yaml", "second")
    assert Path("runs/x/one/config.yaml").read_text() == "first"


def test_ids_differ_and_follow_an_agent(monkeypatch):
    assert len({new_run_id() for _ in range(100)}) == 100
    monkeypatch.setenv("WANDB_RUN_ID", "given")
    assert RunRecord().run_id == "given"


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "sp ace"])
def test_names_stay_inside_the_root(name):
    with pytest.raises(ConfigError, match=r"record\.experiment"):
        RunRecord(experiment=name)


def test_check_makes_nothing():
    RunRecord("deep/er", "x", "one").check()
    assert not Path("deep").exists()


def test_of_two_that_find_no_directory_one_gets_it():
    one, other = (RunRecord("runs", "x", "one") for _ in range(2))
    for record in (one, other):
        record.check()
    one.write("config.yaml", "first")
    with pytest.raises(ConfigError, match="exists and is not written over"):
        other.write("config.yaml", "second")
    assert Path("runs/x/one/config.yaml").read_text() == "first"
    one.finalize("success")


def test_the_one_that_did_not_get_it_takes_nothing_back():
    winner, loser = RunRecord(run_id="run"), RunRecord(run_id="run")
    for record in (winner, loser):
        record.check()
    winner.write("config.yaml", "a: 1\n")
    with pytest.raises(ConfigError, match="exists and is not written over"):
        loser.write("config.yaml", "a: 2\n")
    loser.discard()
    assert (winner.path / "config.yaml").read_text() == "a: 1\n"
    winner.discard()
    assert not winner.path.exists()
