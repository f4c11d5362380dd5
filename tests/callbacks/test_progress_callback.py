"""What a run shows of its progress: a bar on a terminal, sparse lines elsewhere, or nothing."""

import os
import pty
import re
import subprocess
import sys
import termios

import pytest
import short_run

from grok_lightning.__main__ import run

SHOW = ["--trainer.enable_progress_bar", "true", "--hessian.every_n_steps", "20"]


def lines_of(capsys, *flags, **kwargs):
    assert run(short_run.arguments(*SHOW, *flags, **kwargs)) == 0
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]


def test_a_line_about_every_tenth_of_the_run(capsys):
    lines = lines_of(capsys, "--trainer.val_check_interval", "2", "--model.c", "4", steps=100)
    assert [line.split(",")[0] for line in lines] == [f"step {step}/100" for step in range(10, 101, 10)]
    number = r"[0-9.e+-]+"
    assert re.fullmatch(
        rf"step 40/100, {number} steps/s, eta \d\d:\d\d, train_acc={number}, val_acc={number}, test_acc={number}, "
        rf"c=4, λ_max\(E\)={number}, λ_max\(W\)={number}",
        lines[3],
    ), lines[3]
    (logged,) = (
        row for row in short_run.Run(short_run.Path("runs/x/run")).lines if row["step"] == 40 and "val/acc" in row
    )
    assert f"val_acc={logged['val/acc']:.3f}" in lines[3]
    measured = short_run.Run(short_run.Path("runs/x/run")).series("hessian/E/lambda_max")
    assert f"λ_max(E)={measured[40]:.3g}" in lines[4]  # at step 50 the value of step 40 is the last one


def test_evaluations_further_apart_give_a_line_each(capsys):
    assert [line.split(",")[0] for line in lines_of(capsys, "--trainer.val_check_interval", "8")] == [
        "step 8/20", "step 16/20"
    ]  # fmt: skip


def test_without_an_embedding_there_is_no_c(capsys):
    lines = lines_of(capsys, model="EmbeddingFreeMLP")
    assert lines
    assert not any("c=" in line.replace("acc=", "") or "(E)" in line for line in lines)


def test_switched_off_there_is_the_summary_alone(capsys):
    assert lines_of(capsys, "--trainer.enable_progress_bar", "false") == []


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_has_one_line_that_fits_into_80_columns():
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "-m", "grok_lightning", *short_run.arguments(*SHOW, steps=40)]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    content = b""
    try:
        while block := os.read(ours, 65536):
            content += block
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    shown = [line for line in re.split(r"[\r\n]+", content.decode()) if line.startswith("step 40/40")]
    assert re.search(r"/s, eta 00:00, train \d\.\d\d\d val \d\.\d\d\d c 1 λE \S+ λW \S+$", shown[-1].rstrip()), shown
    assert all(len(line) <= 80 for line in shown)
