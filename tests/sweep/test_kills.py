"""A sweep that is killed at any moment and started again gives the same set: none twice, none lost."""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

TINY_SWEEP = Path(__file__).with_name("tiny_sweep.py")
TRIALS = Path("runs/tiny/.sweep/trials")


def start(method, workers, count, *words):
    command = [sys.executable, str(TINY_SWEEP), method, str(workers), str(count), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process, timeout=120):
    output, _ = process.communicate(timeout=timeout)
    return process.returncode, output


def witness():
    path = Path("witness.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition, timeout=60.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def status_of(run_dir):
    path = run_dir / "summary.json"
    return json.loads(path.read_text())["status"] if path.exists() else None


def completed():
    return {path.parent.name for path in Path("runs/tiny").glob("*/summary.json") if status_of(path.parent)}


def kill_and_restart(method, count, kills, seed):
    """Kill the sweep and, by its own arrangement, its runs, at random moments; then let it finish."""
    moments = random.Random(seed)
    killed = 0
    while killed < kills:
        seen = len(witness())
        process = start(method, 2, count)
        wait_for(lambda seen=seen, process=process: len(witness()) > seen or process.poll() is not None)
        time.sleep(moments.uniform(0, 0.35))
        process.kill()
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        if process.returncode != -signal.SIGKILL:
            break
    code, output = finish(start(method, 2, count))
    assert code == 0, output
    return killed


def check_none_twice_none_lost(count):
    events = witness()
    ends = Counter(event["run"] for event in events if event["what"] == "end")
    assert max(ends.values()) == 1  # none finished twice
    assert len(completed()) == count  # none lost
    assert len(list(TRIALS.glob("*.json"))) == count
    assert {json.loads(path.read_text())["status"] for path in TRIALS.glob("*.json")} == {"completed"}
    abandoned = list(Path("runs/tiny/.sweep/abandoned").iterdir())
    assert [status_of(path) for path in abandoned] == [None] * len(abandoned)  # no finished run was started over
    starts = Counter(event["run"] for event in events if event["what"] == "start")
    assert set(starts) == completed()
    return abandoned


def test_a_grid_killed_a_dozen_times_gives_every_run_once():
    killed = kill_and_restart("grid", 40, kills=12, seed=1)
    assert killed >= 10
    assert check_none_twice_none_lost(40)  # some attempts were cut off, or the kills hit nothing


@pytest.mark.slow
def test_a_random_sweep_killed_makes_the_draws_it_would_have_made():
    code, output = finish(start("random", 2, 16))
    assert code == 0, output
    undisturbed = completed()
    Path("runs").rename("undisturbed")
    Path("witness.jsonl").unlink()
    assert kill_and_restart("random", 16, kills=5, seed=2) >= 4
    assert len(undisturbed) == 16
    assert completed() == undisturbed
    check_none_twice_none_lost(16)


def test_a_run_does_not_outlive_its_sweep():
    process = start("grid", 1, 3, "seconds=60")
    wait_for(lambda: witness())
    pid = witness()[0]["pid"]
    assert is_alive(pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not is_alive(pid), timeout=5)


def test_two_sweeps_share_a_directory():
    code = Counter()
    for process in [start("grid", 1, 12), start("grid", 1, 12)]:
        wait_for(lambda: witness())
        code[process.pid] = process
    for process in code.values():
        status, output = finish(process)
        assert status == 0, output
        assert len(json.loads(output.splitlines()[-1])) == 12  # both report all of them
    assert not check_none_twice_none_lost(12)
    assert max(Counter(e["run"] for e in witness() if e["what"] == "start").values()) == 1


def test_two_bayes_sweeps_share_a_journal():
    processes = [start("bayes", 1, 14), start("bayes", 1, 14)]
    for process in processes:
        status, output = finish(process)
        assert status == 0, output
    check_none_twice_none_lost(14)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_runs_and_leaves_them_to_be_run_again(number, status):
    process = start("grid", 2, 6)
    wait_for(lambda: len(witness()) >= 2)
    process.send_signal(number)
    code, output = finish(process)
    assert code in (status, 0)
    assert code == status, output
    left = [event["pid"] for event in witness()]
    assert not any(map(is_alive, left))
    statuses = Counter(json.loads(path.read_text())["status"] for path in TRIALS.glob("*.json"))
    assert statuses["interrupted"] >= 1
    assert statuses["failed"] == 0
    assert finish(start("grid", 2, 6))[0] == 0
    check_none_twice_none_lost(6)


def test_the_lock_of_a_claim_lasts_as_long_as_the_process_that_inherited_it():
    from tiny_sweep import make_source

    from grok_lightning.sweep.trials import Trials

    trials = Trials(Path("runs"), "tiny")
    trials.create()
    claim = make_source("grid", 1, trials).take()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[claim.lock])
    claim.release()
    assert trials.claim(claim.configuration) is None
    with (trials.state / "locks" / claim.configuration.key).open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    child.communicate(b"\n")
    again = trials.claim(claim.configuration)
    assert again is not None
    again.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(again.lock)
