"""Running one configuration in a process of its own.

The engine knows :class:`Worker` and :class:`Running` only: :class:`SubprocessWorker` starts a run from nothing, the one
of :mod:`grok_lightning.sweep.warm_worker` with torch loaded.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grok_lightning.sweep import launch
from grok_lightning.sweep.configuration import Configuration
from grok_lightning.sweep.trials import Claim, Outcome, Trials

_OF_AN_AGENT = ("WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH")
"""What a W&B agent says about its own run, and would give every run here the same id."""


class Running(Protocol):
    """A run that has been started."""

    @property
    def claim(self) -> Claim:
        """What is being run."""

    def poll(self) -> Outcome | None:
        """How it ended; ``None`` while it goes on."""

    def stop(self, kill: bool) -> None:
        """Ask it to end, or make it."""


class Worker(Protocol):
    """Something that starts runs."""

    def start(self, claim: Claim, slot: int) -> Running:
        """Start a run.

        Args:
            claim: What to run, claimed.
            slot: Which of the parallel places it takes, from 0.
        """


def run_arguments(trials: Trials, configuration: Configuration, goes_on: bool = False) -> list[str]:
    """Arguments of one run: its own, and last those that say where it goes; or to resume it.

    Args:
        trials: Where runs go.
        configuration: What is to be run.
        goes_on: Whether its run directory holds an earlier attempt that is to be resumed.
    """
    if goes_on:
        return ["fit", "--resume", str(trials.run_dir(configuration.key)), "--trainer.enable_progress_bar=false"]
    return [
        *configuration.arguments,
        f"--record.root={trials.root}",
        f"--record.experiment={trials.name}",
        f"--record.run_id={configuration.key}",
        f"--trainer.default_root_dir={trials.run_dir(configuration.key)}",
        "--trainer.enable_progress_bar=false",
    ]


@dataclass(frozen=True)
class SubprocessWorker:
    """Starts ``python -m grok_lightning fit``, with this interpreter and in this directory.

    Attributes:
        trials: Where runs go.
        threads: Threads of each run.
        gpus: Devices that the parallel places take in turn; none leaves the choice to the run.
        program: What takes ``fit`` and its arguments.
    """

    trials: Trials
    threads: int
    gpus: Sequence[str] = ()
    program: Sequence[str] = (sys.executable, "-m", "grok_lightning")

    def environment(self, slot: int) -> dict[str, str]:
        """The run's environment."""
        own = {name: value for name, value in os.environ.items() if name not in _OF_AN_AGENT}
        # A run is a process of its own wherever the sweep runs: Lightning would take it for a task of the sweep's job.
        own = {name: value for name, value in own.items() if not name.startswith("SLURM_")}
        own |= {"OMP_NUM_THREADS": str(self.threads), "WANDB_RUN_GROUP": self.trials.name, "PYTHONUNBUFFERED": "1"}
        if self.gpus:
            own["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        return own

    def start(self, claim: Claim, slot: int) -> "SubprocessRun":
        """Start a run, which holds the claim's lock until it ends."""
        goes_on = self.trials.start(claim)
        command = [*self.program, *run_arguments(self.trials, claim.configuration, goes_on)]
        path = self.trials.log(claim.configuration.key)
        with path.open("ab") as log:
            log.write(f"$ {shlex.join(command)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                [sys.executable, "-S", launch.__file__, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(slot),
                pass_fds=[claim.lock],
                start_new_session=True,  # a Ctrl-C is for the sweep, which decides about its runs
            )
            return SubprocessRun(claim, process, self.trials, log.tell())


class Process(Protocol):
    """A process that leads its group."""

    @property
    def pid(self) -> int:
        """Its number."""

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; ``None`` while it runs."""


class SubprocessRun:
    """A run in a process of its own.

    Args:
        claim: What is run.
        process: Leader of a process group.
        trials: Where the run goes.
        log_start: Length of the log before the run.
    """

    def __init__(self, claim: Claim, process: Process, trials: Trials, log_start: int) -> None:
        self.claim = claim
        self._process, self._trials, self._log_start = process, trials, log_start
        self._started = time.monotonic()

    def poll(self) -> Outcome | None:
        """How it ended, by the exit status and ``summary.json`` together; ``None`` while it goes on."""
        code = self._process.poll()
        if code is None:
            return None
        seconds = time.monotonic() - self._started
        status = self._trials.summary(self.claim.configuration.key).get("status")
        if code == 0 and status == "completed":
            return Outcome("completed", 0, None, seconds)
        return Outcome("failed", code, self._error(code, status), seconds)

    def stop(self, kill: bool) -> None:
        """Signal the whole process group."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL if kill else signal.SIGTERM)
        except ProcessLookupError:
            return

    def _error(self, code: int, status: str | None) -> str:
        if code < 0:
            hint = " (by the out-of-memory killer?)" if -code == signal.SIGKILL else ""
            return f"ended by {signal.Signals(-code).name}{hint}"
        if code == 0:
            return "ended without a summary" if status is None else f"ended as {status}"
        return last_error(self._trials.log(self.claim.configuration.key), self._log_start) or f"exit status {code}"


def last_error(log: Path, start: int) -> str | None:
    """The line of a log that says what went wrong: the last of this program's own, or else the last of all.

    Args:
        log: The log.
        start: Where to begin, in bytes.
    """
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - 2**16))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("grok_lightning: error: ")]
    chosen = own[-1].removeprefix("grok_lightning: error: ") if own else (lines[-1] if lines else None)
    return None if chosen is None else chosen[:500]
