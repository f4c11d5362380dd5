"""A signal ends the program with its status and no traceback, also where no run is under way."""

import random
import signal
import subprocess
import sys

import pytest
from conftest import ROOT

COMMAND = [sys.executable, "-m", "grok_lightning", "fit", "--config", str(ROOT / "configs" / "addition.yaml")]
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}


def send(signum, seconds, *flags):
    """Start, wait and send; exit status and output."""
    process = subprocess.Popen([*COMMAND, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signum)
        out, _ = process.communicate(timeout=60)
    return process.returncode, out


@pytest.mark.parametrize("signum", STATUS)
def test_while_torch_is_imported(signum, tmp_path):
    assert send(signum, 1.0) == (STATUS[signum], "")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("signum", STATUS)
def test_a_signal_that_comes_after_the_work_changes_nothing(signum):
    last = "import atexit, os; atexit.register(os.kill, os.getpid(), {}); "  # before ours, so called after it
    code = (
        last.format(int(signum))
        + "import sys; sys.argv[1:] = ['--version']; from grok_lightning.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_at_random_moments_of_a_short_run():
    draw = random.Random(0)
    flags = ["--trainer.max_steps", "60", "--trainer.logger", "false", "--hessian.every_n_steps", "0"]
    for number in range(30):
        signum = (signal.SIGINT, signal.SIGTERM)[number % 2]
        status, out = send(signum, draw.uniform(0.3, 12), *flags)
        assert status in (STATUS[signum], 0), (number, status, out)
        assert "Traceback" not in out, out
