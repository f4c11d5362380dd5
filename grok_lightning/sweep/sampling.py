"""The values of random and bayes sweeps: W&B's distributions as Optuna's, and draws that do not depend on who asks."""

import hashlib
import json
import warnings
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from grok_lightning.sweep.spec import Parameter, Sweep

DRAWN = "hash"
"""Attribute of a trial whose values are all there: the hash of its configuration."""

RETRY_OF = "retry_of"
"""Attribute of a trial that repeats a failed one: the number of that."""


def distribution(parameter: Parameter) -> BaseDistribution | None:
    """Optuna's form of a parameter; ``None`` for a constant.

    Values of a category are held as JSON, because Optuna takes scalars only. ``q_log_uniform_values`` is drawn without
    its q, which Optuna does not have on a logarithmic scale, and rounded by :func:`value_of`.
    """
    if parameter.distribution == "constant":
        return None
    if parameter.distribution == "categorical":
        return CategoricalDistribution(list(dict.fromkeys(map(json.dumps, parameter.values))))
    if parameter.distribution == "int_uniform":
        return IntDistribution(int(parameter.low), int(parameter.high))
    if parameter.distribution == "q_uniform":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # max is no multiple of q away from min: it is left out
            return FloatDistribution(parameter.low, parameter.high, step=parameter.q)
    return FloatDistribution(parameter.low, parameter.high, log="log" in parameter.distribution)


def space(sweep: Sweep) -> dict[str, BaseDistribution]:
    """Key → distribution of everything that is drawn."""
    found = {parameter.key: distribution(parameter) for parameter in sweep.parameters}
    return {key: each for key, each in found.items() if each is not None}


def value_of(parameter: Parameter, drawn: Mapping[str, Any]) -> Any:
    """The value of a parameter in a trial.

    Args:
        parameter: Which.
        drawn: Key → value as Optuna keeps it.
    """
    if parameter.distribution == "constant":
        return parameter.values[0]
    value = drawn[parameter.key]
    if parameter.distribution == "categorical":
        return json.loads(value)
    if parameter.q is None:
        return value
    if parameter.distribution == "q_log_uniform_values":
        value = min(max(round(value / parameter.q) * parameter.q, parameter.low), parameter.high)
    value = float(f"{value:.12g}")  # 0.1 * 3 is to be 0.3
    whole = all(isinstance(number, int) for number in (parameter.low, parameter.high, parameter.q))
    return int(value) if whole else value


def values_of(sweep: Sweep, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Key → value of every parameter in a trial, in the order of the file."""
    return {parameter.key: value_of(parameter, drawn) for parameter in sweep.parameters}


def is_draw(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial counts: not one that was cut off while it was drawn, and not the repetition of a failed one."""
    return DRAWN in trial.user_attrs and RETRY_OF not in trial.user_attrs


class DrawSampler(BaseSampler):
    """Seeds every draw by itself, from (seed, how many draws came before it, key).

    So the n-th draw of a random sweep is the same after a restart, and on whichever machine makes it. A bayes draw also
    depends on the results so far.

    Args:
        seed: Seed of the sweep.
        bayes: Whether to use the results (TPE) once there are enough.
    """

    def __init__(self, seed: int, bayes: bool) -> None:
        self.seed, self.bayes = seed, bayes

    def _seed(self, study: optuna.Study, trial: optuna.trial.FrozenTrial, key: str) -> int:
        before = sum(is_draw(other) and other.number < trial.number for other in study.get_trials(deepcopy=False))
        return int(hashlib.sha256(f"{self.seed}/{before}/{key}".encode()).hexdigest()[:8], 16)

    def _tpe(self, seed: int) -> TPESampler:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # constant_liar: runs that are still going on count as bad, so that parallel ones spread out
            return TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """What is drawn together."""
        return self._tpe(0).infer_relative_search_space(study, trial) if self.bayes else {}

    def sample_relative(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw by the results so far; nothing while there are too few."""
        if not self.bayes:
            return {}
        return self._tpe(self._seed(study, trial, "")).sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw at random."""
        random = RandomSampler(seed=self._seed(study, trial, param_name))
        return random.sample_independent(study, trial, param_name, param_distribution)


def draws(sweep: Sweep, seed: int, count: int) -> list[dict[str, Any]]:
    """The first draws of a sweep as if no result were known: exact for random."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=DrawSampler(seed, bayes=False))
    found = []
    for number in range(count):
        trial = study.ask(space(sweep))
        trial.set_user_attr(DRAWN, str(number))
        found.append(values_of(sweep, trial.params))
    return found
