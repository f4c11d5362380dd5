"""Keeps a number of runs going until a source has no more, and ends them when it is told to stop."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Protocol

from grok_lightning.sweep.trials import Claim, Outcome, Trials
from grok_lightning.sweep.worker import Running, Worker

POLL_SECONDS = 0.1
TAKE_SECONDS = 1.0
"""How often to ask a source again that had nothing to give."""

GRACE_SECONDS = 20.0
"""How long runs have to end by themselves when the sweep is stopped."""


class Source(Protocol):
    """Deals out what is to be run."""

    total: int
    """How many configurations there are, or draws."""

    settled: dict[str, str]
    """Hash → completed or failed, of all that have ended."""

    notes: list[str]
    """What to tell the user at the end."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left, here or in another process."""

    def take(self) -> Claim | None:
        """The next configuration, claimed; ``None`` if there is none at the moment."""

    def settle(self, claim: Claim, outcome: Outcome) -> None:
        """Note how a run ended."""


class Display(Protocol):
    """Shows how far the sweep is."""

    def ended(self, running: Running, outcome: Outcome) -> None:
        """A run has ended."""

    def update(self, running: dict[int, Running], waiting: bool) -> None:
        """Time has passed."""


class Engine:
    """Runs what a source deals out, a number at a time.

    Args:
        source: Deals it out.
        trials: Where it is recorded.
        worker: Starts the runs.
        workers: How many at a time.
        display: Shows it.
    """

    def __init__(self, source: Source, trials: Trials, worker: Worker, workers: int, display: Display) -> None:
        self.source, self.trials, self.worker, self.workers, self.display = source, trials, worker, workers, display
        self.running: dict[int, Running] = {}
        self._ask_again = 0.0
        self._stopping = False
        self._signals: list[int] = []

    def run(self) -> int | None:
        """Run everything.

        Returns:
            ``None`` once all have ended; the number of the signal that stopped the sweep.
        """
        with _listening(self._signals) as signals:
            try:
                while not signals and (self.running or not self.source.finished):
                    self._fill()
                    self._collect()
                    self.display.update(self.running, waiting=not (self.running or self.source.finished))
                    if self.running or not self.source.finished:
                        time.sleep(POLL_SECONDS)
            finally:
                self._stop(signals)
            return signals[0] if signals else None

    def _fill(self) -> None:
        free = [slot for slot in range(self.workers) if slot not in self.running]
        if not free or time.monotonic() < self._ask_again:
            return
        claim = self.source.take()
        if claim is None:
            self._ask_again = time.monotonic() + TAKE_SECONDS
            return
        self.running[free[0]] = self.worker.start(claim, free[0])

    def _collect(self) -> None:
        for slot, running in list(self.running.items()):
            outcome = running.poll()
            if outcome is None:
                continue
            del self.running[slot]
            # a scheduler may signal the runs as well, and they may be the faster ones to end
            if (self._stopping or self._signals) and outcome.status != "completed":
                outcome = replace(outcome, status="interrupted", error="the sweep was stopped")
            self.trials.end(running.claim, outcome)
            self.source.settle(running.claim, outcome)
            running.claim.release()  # after its outcome is recorded: whoever claims it next reads that
            self.display.ended(running, outcome)
            self._ask_again = 0.0

    def _stop(self, signals: list[int]) -> None:
        """End what still runs: ask, and after :data:`GRACE_SECONDS` or a second signal make it."""
        self._stopping = True
        heard, deadline = len(signals), time.monotonic() + GRACE_SECONDS
        for running in self.running.values():
            running.stop(kill=False)
        while self.running and len(signals) == heard and time.monotonic() < deadline:
            self._collect()
            time.sleep(POLL_SECONDS)
        for running in self.running.values():
            running.stop(kill=True)
        while self.running:
            self._collect()
            time.sleep(POLL_SECONDS)


@contextmanager
def _listening(heard: list[int]) -> Iterator[list[int]]:
    """Collect SIGINT, SIGTERM and SIGUSR1 (Slurm's warning) in a list instead of dying of them."""

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
