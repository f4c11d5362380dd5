"""Every command of the README is run, shortened."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [line for language, block in BLOCKS if language == "bash" for line in block.splitlines()]
SHORT = ["--trainer.max_steps", "4", "--trainer.val_check_interval", "2", "--spectrum.every_n_steps", "2"]
OFF = ["--config", str(ROOT / "configs" / "diagnostics" / "off.yaml")]


def test_two_commands_set_everything_up():
    installs = [command for command in COMMANDS if command.startswith("pip install")]
    assert installs == [
        "pip install -c constraints.txt -e . && python -m grok_lightning fit --config configs/addition.yaml",
        'pip install -c constraints.txt -e ".[test]" && pytest',
    ]
    assert installs[1] in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("extra", [".", ".[test]"])
def test_the_constraints_satisfy_the_ranges(extra):
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "-c", "constraints.txt", "-e", extra]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    wanted = re.search(r"Would install (.*)", done.stdout)
    assert wanted is not None, done.stdout
    assert [name for name in wanted[1].split() if not name.startswith("grok_lightning")] == []


def test_the_commands_in_order(cli, tmp_path):
    for folder in ("configs", "sweeps"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    python = next(block for language, block in BLOCKS if language == "python")
    (tmp_path / python.splitlines()[0].removeprefix("# ")).write_text(python)
    for command in COMMANDS:
        if "python -m grok_lightning" not in command or "trainer/ddp.yaml" in command:
            continue  # pip and pytest are above, two processes in test_ddp.py
        words = shlex.split(command.split("&&")[-1])[3:]
        if words[0] == "audit":
            expanded = sorted(map(str, Path().glob(words[1])))
        else:
            expanded = [max(map(str, Path().glob(word))) if "*" in word else word for word in words[1:]]
        more = [*OFF, *SHORT] if words[0] == "fit" and "--config" in words else []
        if "--resume" in words:
            more = ["--trainer.max_steps", "6"]  # two more than the run has
        done = cli(words[0], *expanded, *more)
        assert done.status == 0, (command, done.err)
        assert done.out, command


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert target.startswith("https://arxiv.org/") or (ROOT / target).exists(), target


def test_the_docker_image_installs_as_the_readme_does():
    dockerfile = (ROOT / "Dockerfile").read_text()
    line = next(line for line in dockerfile.splitlines() if line.startswith("RUN pip"))
    install = next(command for command in COMMANDS if command.startswith("pip install")).split(" && ")[0]
    assert line.replace(" --no-cache-dir", "").startswith(f"RUN {install}")
    assert 'ENTRYPOINT ["python", "-m", "grok_lightning"]' in dockerfile
    assert "USER grok" in dockerfile
    assert "ARG BASE=python:3.11-slim" in dockerfile
