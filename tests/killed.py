"""Runs in processes of their own that are stopped, and what is compared of them."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from short_run import arguments

PROGRAM = [sys.executable, "-m", "grok_lightning"]
TIMED = ("seconds", "cost_gradients", "_timestamp")


def start(words):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    return subprocess.Popen(
        [*PROGRAM, *map(str, words)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def complete(words):
    process = start(words)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    return out


def stop(words, run, signum, seconds):
    """Start, wait until the record grows, then so long, and send the signal; exit status, ``None`` if it was done."""
    file = run / "metrics.jsonl"
    size = file.stat().st_size if file.exists() else -1
    process = start(words)
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if file.exists() and file.stat().st_size != size:
            break
        time.sleep(0.01)
    try:
        process.wait(timeout=seconds)
        process.communicate()
        return None
    except subprocess.TimeoutExpired:
        process.send_signal(signum)
        process.communicate(timeout=120)
        return process.returncode or None  # 0: the signal came when all was saved


def stop_often(words, run, n, generator, longest):
    """Stop and resume a run n times at random moments, then let it end."""
    for _ in range(n):
        signum = generator.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
        status = stop(words, run, signum, generator.uniform(0, longest))
        if status is None:
            return
        expected = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}[signum]
        assert status == expected, (signum, status)
        words = ["fit", "--resume", run]
    complete(words)


def entries(run):
    """(step, key, value) of everything logged but for times, in order; a value logged twice is there twice."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        (line["step"], key, json.dumps(value))
        for line in lines
        for key, value in line.items()
        if key != "step" and not key.endswith(TIMED)
    ]


def assert_same(one, other):
    """Weights, optimiser, record and clocks of two run directories are equal bit for bit."""
    states = [torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (one, other)]
    assert states[0]["global_step"] == states[1]["global_step"]
    assert all(torch.equal(w, states[1]["state_dict"][name]) for name, w in states[0]["state_dict"].items())
    assert sorted(entries(one)) == sorted(entries(other))
    assert len(set(entries(other))) == len(entries(other))
    clocks = [json.loads((run / "summary.json").read_text())["clocks_steps"] for run in (one, other)]
    assert clocks[0] == clocks[1]


FLAGS = [
    "--checkpoint.every_n_steps=7", "--trainer.val_check_interval=35", "--trainer.log_every_n_steps=7",
    "--hessian.every_n_steps=100", "--hessian.blocks=[E,W,rest,all]", "--ntk.every_n_steps=100",
    "--balance.every_n_steps=50", "--model.warmup_steps=100", "--trainer.enable_progress_bar=false",
]  # fmt: skip


def words(run_id, *flags, model="EmbeddingMLP", steps=600, logger="false"):
    return arguments(*FLAGS, *flags, model=model, steps=steps, run_id=run_id, off=False, logger=logger)


def seeded(name):
    return random.Random(name)


RUNS = Path("runs/x")
