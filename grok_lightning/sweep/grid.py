"""Every combination of the values of a sweep file."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from grok_lightning.sweep.configuration import Configuration, Planner
from grok_lightning.sweep.spec import Sweep
from grok_lightning.sweep.trials import Claim, Outcome, Trials


def grid(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """Key → value for every combination, in the order of the file; the last key changes fastest."""
    keys = [parameter.key for parameter in sweep.parameters]
    for values in itertools.product(*(parameter.values for parameter in sweep.parameters)):
        yield dict(zip(keys, values, strict=True))


def plan_grid(planner: Planner, limit: int) -> tuple[list[Configuration], list[tuple[str, str]]]:
    """Resolve the first points of the grid.

    Args:
        planner: Resolves them.
        limit: How many.

    Returns:
        The configurations, each once, and the pairs of spellings (first, later) that mean the same one.

    Raises:
        ConfigError: If a point is one that ``fit`` would refuse.
    """
    found: dict[str, Configuration] = {}
    same: list[tuple[str, str]] = []
    for values in itertools.islice(grid(planner.sweep), limit):
        configuration = planner.plan(values)
        first = found.setdefault(configuration.key, configuration)
        if first is not configuration:
            same.append((spelling(first, planner.sweep), spelling(configuration, planner.sweep)))
    return list(found.values()), same


def spelling(configuration: Configuration, sweep: Sweep) -> str:
    """The values in which runs differ, in words."""
    shown = {key: value for key, value in configuration.parameters.items() if key in sweep.swept}
    return ", ".join(f"{key} = {value}" for key, value in shown.items()) or configuration.key


class GridSource:
    """Deals out configurations that nobody else runs, until all have ended.

    Args:
        configurations: All of them.
        trials: What is on disk.
        retry_failed: Whether failed runs are run again.
    """

    def __init__(self, configurations: Sequence[Configuration], trials: Trials, retry_failed: bool) -> None:
        self.trials, self.retry_failed = trials, retry_failed
        self.total = len(configurations)
        self.settled: dict[str, str] = {}
        self.notes: list[str] = []
        self._pending: list[Configuration] = []
        for configuration in configurations:
            status = trials.status(configuration.key)
            if self._is_due(status) or trials.read(configuration.key).get("status") != status:
                self._pending.append(configuration)
            else:
                self.settled[configuration.key] = status

    @property
    def finished(self) -> bool:
        """Whether nothing is left to deal out."""
        return not self._pending

    def take(self) -> Claim | None:
        """The next configuration, claimed; ``None`` if all that are left are being run elsewhere."""
        for configuration in list(self._pending):
            claim = self.trials.claim(configuration)
            if claim is None:
                continue
            self._pending.remove(configuration)
            status = self.trials.found(claim)
            if self._is_due(status):
                return claim
            self.settled[configuration.key] = status
            claim.release()
        return None

    def _is_due(self, status: str) -> bool:
        return status == "queued" or (status == "failed" and self.retry_failed)

    def settle(self, claim: Claim, outcome: Outcome) -> None:
        """Note how a run ended."""
        self.settled[claim.configuration.key] = outcome.status
