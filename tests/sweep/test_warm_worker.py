"""Runs forked from a process that has torch loaded, against runs in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_sweep_job import FIXED, records, write

from grok_lightning.sweep.job import main
from grok_lightning.sweep.warm import LOADED

TIMED = ("_timestamp", "seconds")
WITH_WANDB = [word for word in FIXED if word not in ("--trainer.logger", "false")]


def kept(sweep, run):
    """What a run leaves, without what clocks decide."""
    path = Path("runs", sweep, run)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    lines = [{key: value for key, value in line.items() if not key.endswith(TIMED)} for line in lines]
    checkpoint = torch.load(path / "checkpoints" / "last.ckpt", weights_only=True)
    return lines, checkpoint["state_dict"], checkpoint["optimizer_states"][0]["state"]


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b or (a != a and b != b)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_after_others_equals_one_in_a_fresh_process_bit_for_bit(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    # What one run could leave to the next: a default dtype, autocast, W&B's open run.
    precisions = ["64-true", "bf16-mixed", "32-true"]
    command = ["${env}", "${interpreter}", "-m", "grok_lightning", "fit", *WITH_WANDB, "${args}"]
    for name, values in (("warm", precisions), ("cold", precisions[::-1])):
        parameters = {"trainer.precision": {"values": values}, "trainer.max_steps": {"value": 40}}
        write(parameters=parameters, command=command)
        flags = ["--cold", "--max-runs", "1"] if name == "cold" else []
        assert main(["tiny.yaml", "--workers", "1", "--threads", "1", "--name", name, *flags]) == 0
    assert len(records("warm")) == 3
    (last,) = (run for run, record in records("cold").items() if record["status"] == "completed")
    assert records("warm")[last]["parameters"]["trainer.precision"] == "32-true"
    assert equal(kept("warm", last), kept("cold", last))
    own = [path.name for path in Path("runs").rglob("offline-run-*") if path.is_dir()]
    assert sorted(name.split("-", 3)[3] for name in own) == sorted([*records("warm"), last])


def test_a_run_ends_with_its_sweep_and_with_the_process_it_came_from():
    code = (
        "import json, os, signal, socket, subprocess, sys, time\n"
        "ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "server = [sys.executable, '-c', 'from grok_lightning.sweep import warm; warm.LOADED = (); warm.serve()']\n"
        "server = subprocess.Popen([*server, str(theirs.fileno()), str(os.getpid())], pass_fds=[theirs.fileno()])\n"
        "theirs.close()\n"
        "request = {'arguments': ['fit'], 'environment': {}, 'log': 'log.txt'}\n"
        "lock = os.open('lock', os.O_CREAT)\n"
        "socket.send_fds(ours, [json.dumps(request).encode()], [lock])\n"
        "print(server.pid, json.loads(ours.recv(2**20))['pid'], flush=True)\n"
        "time.sleep(60)\n"
    )
    sweep = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    numbers = [int(word) for word in sweep.stdout.readline().split()]
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        os.kill(numbers[0], number)  # as a scheduler may
    assert all(Path(f"/proc/{number}").exists() for number in numbers)
    sweep.kill()
    sweep.communicate()
    deadline = time.monotonic() + 20
    while any(alive(number) for number in numbers):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_loading_starts_no_thread():
    """A thread would not live on in a fork, and what it held would stay locked."""
    code = f"import importlib, os, threading\nfor name in {LOADED!r}:\n    importlib.import_module(name)\n"
    code += "print(threading.active_count(), len(os.listdir('/proc/self/task')))"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1"]
