"""How far a sweep is: a live table on a terminal, sparse lines elsewhere."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from grok_lightning.loggers.screen import print_safely
from grok_lightning.metric_keys import acc
from grok_lightning.sweep.engine import Source
from grok_lightning.sweep.grid import spelling
from grok_lightning.sweep.spec import Sweep
from grok_lightning.sweep.trials import Outcome, Trials
from grok_lightning.sweep.worker import Running

LIVE_SECONDS = 1.0
LINE_SECONDS = 60.0


class Progress:
    """Shows a sweep; used as a context, so that the terminal is left in order.

    Args:
        sweep: The sweep file.
        source: Knows how many have ended.
        trials: Where the runs write.
        workers: How many run at a time.
        console: Where to show it.
    """

    def __init__(self, sweep: Sweep, source: Source, trials: Trials, workers: int, console: Console) -> None:
        self.sweep, self.source, self.trials, self.workers, self.console = sweep, source, trials, workers, console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._seconds: list[float] = []
        self._next = 0.0

    def __enter__(self) -> "Progress":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def ended(self, running: Running, outcome: Outcome) -> None:
        """One line for every run that ends."""
        configuration = running.claim.configuration
        if outcome.status != "interrupted":
            self._seconds.append(outcome.seconds)
        reason = "" if outcome.error is None else f": {outcome.error}"
        words = f"{outcome.status} {configuration.key} ({spelling(configuration, self.sweep)})"
        self._print(f"{words} in {outcome.seconds:.0f} s{reason}")
        self._next = 0.0 if self._live is not None else self._next

    def update(self, running: dict[int, Running], waiting: bool) -> None:
        """Refresh the table, or write a line now and then."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (LIVE_SECONDS if self._live is not None else LINE_SECONDS)
        line = self.counts(len(running)) + ("; waiting for runs of other processes" if waiting else "")
        if self._live is None:
            if self._seconds or not running:  # not before there is news
                self._print(line)
        else:
            self._live.update(Group(self._table(running), Text(line)), refresh=True)

    def counts(self, running: int) -> str:
        """``3 completed, 1 failed, 4 left (2 running), about 5 min to go``."""
        ended = Counter(self.source.settled.values())
        left = max(self.source.total - ended["completed"] - ended["failed"], 0)
        words = f"{ended['completed']} completed, {ended['failed']} failed, {left} left"
        if running:
            words += f" ({running} running)"
        if self._seconds and left:
            seconds = sum(self._seconds) / len(self._seconds) * left / min(self.workers, left)
            words += f", about {_time(seconds)} to go"
        return words

    def _table(self, running: dict[int, Running]) -> Table:
        table = Table(title=f"sweep {escape(self.trials.name)}", title_justify="left")
        for name in ("run", "parameters", "step", acc("val")):
            table.add_column(name, overflow="fold")
        for each in running.values():
            configuration = each.claim.configuration
            step, accuracy = last_values(self.trials.run_dir(configuration.key) / "metrics.jsonl")
            of = "" if configuration.max_steps is None else f" / {configuration.max_steps}"
            shown = "-" if accuracy is None else f"{accuracy:.3f}"
            at = "starting" if step is None else f"{step}{of}"
            table.add_row(configuration.key, escape(spelling(configuration, self.sweep)), at, shown)
        return table

    def _print(self, line: str) -> None:
        if self._live is None:
            print_safely(line)
        else:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


def last_values(metrics: Path) -> tuple[int | None, float | None]:
    """Last step and last accuracy on held-out pairs, from the end of a file that is being written."""
    try:
        with metrics.open("rb") as file:
            file.seek(max(0, metrics.stat().st_size - 2**15))
            lines = file.read().split(b"\n")
    except OSError:
        return None, None
    step: int | None = None
    for line in reversed(lines):
        try:
            values: Any = json.loads(line)
        except ValueError:  # cut off at either end
            continue
        if isinstance(values, dict):
            step = values.get("step") if step is None else step
            if (found := values.get(acc("val"))) is not None:
                return step, float(found)
    return step, None


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
