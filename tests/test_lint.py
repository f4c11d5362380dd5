"""The static checks are tests, so that one command says whether a change is sound."""

import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy", "--cache-dir", "{tmp}"]],
    ids=["ruff check", "ruff format", "mypy"],
)
def test_static_check(command, tmp_path):
    words = [word.format(tmp=tmp_path) for word in command]
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
