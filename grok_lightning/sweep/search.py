"""Random and bayes sweeps: Optuna proposes and its journal file remembers; machines that share it share the work."""

import fcntl
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from grok_lightning.errors import ConfigError, require
from grok_lightning.records import METRICS, read_metrics
from grok_lightning.sweep.configuration import Configuration, Planner
from grok_lightning.sweep.sampling import DRAWN, RETRY_OF, DrawSampler, is_draw, space, values_of
from grok_lightning.sweep.trials import Claim, Outcome, Trials

JOURNAL = "journal.log"


class KernelLock(JournalFileOpenLock):
    """Lock of the journal that ends with its process; Optuna's own waits 30 s for one that was killed.

    Args:
        path: The journal.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path, self._file = f"{path}.flock", -1

    def acquire(self) -> bool:
        """Wait for the lock."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        """Give it back."""
        os.close(self._file)


def objective(run_dir: Path, metric: str | None) -> float | None:
    """Last value of a column of the run's metrics; ``None`` if there is none that is a number.

    Without a metric, which random does not need, it is 0.
    """
    if metric is None:
        return 0.0
    if not (run_dir / METRICS).is_file():
        return None
    _, values = read_metrics(run_dir).get(metric, ([], []))
    return values[-1] if values and math.isfinite(values[-1]) else None


class SearchSource:
    """Deals out draws until there are enough, and tells Optuna how they ended.

    One turn at a time, over all processes that share the directory: take up a draw whose process has died, or make a
    new one. A draw belongs to whoever holds the lock of its configuration, so nothing has to time out.

    Args:
        planner: Resolves draws.
        trials: What is on disk.
        total: How many draws.
        seed: Seed of the draws.
        retry_failed: Whether failed runs are run again.

    Raises:
        ConfigError: If the directory belongs to a sweep over something else.
    """

    def __init__(self, planner: Planner, trials: Trials, total: int, seed: int, retry_failed: bool) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.planner, self.trials, self.total = planner, trials, total
        self.sweep = planner.sweep
        self.settled: dict[str, str] = {}
        self.finished = False
        self.notes: list[str] = []
        self._retries: dict[str, FrozenTrial] = {}
        self._numbers: dict[str, int] = {}
        self._planned: dict[int, Configuration] = {}
        with self._turn():
            self.study = self._open(seed)
            for trial in self._all():
                if trial.state.is_finished() and is_draw(trial):
                    self._look_back(trial, retry_failed)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with (self.trials.state / "turn").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _open(self, seed: int) -> optuna.Study:
        sweep = self.sweep
        path = str(self.trials.state / JOURNAL)
        backend = JournalFileBackend(path, KernelLock(path))
        study = optuna.create_study(
            storage=JournalStorage(backend),
            study_name=self.trials.name,
            sampler=DrawSampler(seed, bayes=sweep.method == "bayes"),
            direction="maximize" if sweep.maximize else "minimize",
            load_if_exists=True,
        )
        about = {"method": sweep.method, "metric": sweep.metric, "maximize": sweep.maximize, "seed": seed}
        shown = [json.dumps([p.key, p.distribution, p.values, p.low, p.high, p.q]) for p in sweep.parameters]
        now = json.loads(json.dumps(about | {"parameters": sorted(shown)}))
        before = study.user_attrs.get("search", now)
        for field, value in now.items():
            allowed = f"the sweep in {self.trials.directory} has another ({before[field]!r}); --name starts a new one"
            require(before[field] == value, field, value, allowed)
        if "search" not in study.user_attrs:
            study.set_user_attr("search", now)
        return study

    def _look_back(self, trial: FrozenTrial, retry_failed: bool) -> None:
        """Sort a draw that Optuna has closed by what is on disk: its run may be gone, or a second try cut off."""
        key = str(trial.user_attrs[DRAWN])
        status = self.trials.status(key)
        if status == "queued" or (status == "failed" and retry_failed):
            self._retries.setdefault(key, trial)
        else:
            self.settled[key] = status

    def _all(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def take(self) -> Claim | None:
        """A draw of a process that died, a failed run to be repeated, or a new draw; claimed.

        ``None`` if all draws have been made; :attr:`finished` says whether they have ended, too.
        """
        while self._retries:
            key = next(iter(self._retries))
            claim = self.trials.claim(self._plan(self._retries.pop(key)))
            if claim is not None:
                return claim
        with self._turn():
            for trial in self._all():
                if trial.state == TrialState.RUNNING and trial.number not in self._numbers.values():
                    claim = self._take_over(trial)
                    if claim is not None:
                        return claim
            while sum(map(is_draw, self._all())) < self.total:
                claim = self._draw()
                if claim is not None:
                    return claim
            self.finished = not any(trial.state == TrialState.RUNNING for trial in self._all())
        return None

    def _take_over(self, trial: FrozenTrial) -> Claim | None:
        if DRAWN not in trial.user_attrs:  # its process died while drawing; the same draw is made anew
            self.study.tell(trial.number, state=TrialState.FAIL)
            return None
        return self._claim(trial.number, self._plan(trial))

    def _draw(self) -> Claim | None:
        trial = self.study.ask(space(self.sweep))
        configuration = self._planned[trial.number] = self.planner.plan(values_of(self.sweep, trial.params))
        trial.set_user_attr(DRAWN, configuration.key)  # last: now the draw is whole
        return self._claim(trial.number, configuration)

    def _plan(self, trial: FrozenTrial) -> Configuration:
        if trial.number not in self._planned:
            self._planned[trial.number] = self.planner.plan(values_of(self.sweep, trial.params))
        return self._planned[trial.number]

    def _claim(self, number: int, configuration: Configuration) -> Claim | None:
        """Claim a draw; one that is being run is left for later, one that has been run is told at once."""
        claim = self.trials.claim(configuration)
        if claim is None:
            return None
        status = self.trials.found(claim)
        if status == "queued":
            self._numbers[configuration.key] = number
            return claim
        self._tell(number, configuration.key, status)
        claim.release()
        return None

    def settle(self, claim: Claim, outcome: Outcome) -> None:
        """Tell Optuna how a run ended; an interrupted one stays open and is taken up by the next sweep."""
        key = claim.configuration.key
        number = self._numbers.pop(key, None)
        if outcome.status == "interrupted":
            return
        if number is not None:
            self._tell(number, key, outcome.status)
            return
        self.settled[key] = outcome.status
        value = self._value(key, outcome.status)
        if value is not None:  # a closed trial cannot be told again
            first = next(trial for trial in self._all() if trial.user_attrs.get(DRAWN) == key)
            attributes = {DRAWN: key, RETRY_OF: first.number}
            self.study.add_trial(
                optuna.create_trial(
                    params=first.params, distributions=first.distributions, value=value, user_attrs=attributes
                )
            )

    def _tell(self, number: int, key: str, status: str) -> None:
        self.settled[key] = status
        value = self._value(key, status)
        if value is None:
            self.study.tell(number, state=TrialState.FAIL)
        else:
            self.study.tell(number, value)

    def _value(self, key: str, status: str) -> float | None:
        if status != "completed":
            return None
        try:
            value = objective(self.trials.run_dir(key), self.sweep.metric)
        except ConfigError as error:
            self.notes.append(str(error))
            return None
        if value is None:
            self.notes.append(f"{self.trials.run_dir(key)} has no number in {self.sweep.metric!r}: it counts as failed")
        return value
