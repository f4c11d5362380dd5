"""The clocks of a run: when it memorises, when it generalises, when to stop."""

from typing import Any, Literal

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import datamodule_of
from grok_lightning.data.table import TableDataModule
from grok_lightning.errors import ConfigError, require
from grok_lightning.loggers.at_step import log_at_step
from grok_lightning.modules.base import GrokModule
from grok_lightning.numerics.clocks import GrokClocks, check_threshold, crossing


class Grokking(Callback):
    """Follows accuracy at every evaluation and reports T_mem, T_grok and their difference.

    T_mem is the first step with training accuracy ≥ mem_threshold, T_grok the first with accuracy on unseen pairs
    ≥ grok_threshold; each is also given as sustained (from there on it never falls below, or not for so many
    evaluations). Besides Lightning's validations the weights are evaluated before the first and after the last step.

    Args:
        mem_threshold: Training accuracy that counts as memorised (0.99 in arXiv:2505.15624).
        grok_threshold: Accuracy on unseen pairs that counts as generalised (0.95; arXiv:2607.06639 uses 0.90).
        part: Unseen pairs to read: val (held out) or test; ``null`` takes val, or test when frac_train leaves no val.
        sustain_evaluations: Evaluations in a row that count as sustained; ``null`` asks for the rest of the run.
        stop_after_steps: Stop training so many steps after T_grok; ``null`` runs to the end (converged ranks need it).
    """

    def __init__(
        self,
        mem_threshold: float = 0.99,
        grok_threshold: float = 0.95,
        part: Literal["val", "test"] | None = None,
        sustain_evaluations: int | None = None,
        stop_after_steps: int | None = None,
    ) -> None:
        for field, value in (("mem_threshold", mem_threshold), ("grok_threshold", grok_threshold)):
            require(check_threshold(value), f"grokking.{field}", value, "must be in (0, 1]")
        valid = sustain_evaluations is None or sustain_evaluations >= 1
        require(valid, "grokking.sustain_evaluations", sustain_evaluations, "must be 1 or more, or null")
        valid = stop_after_steps is None or stop_after_steps >= 0
        require(valid, "grokking.stop_after_steps", stop_after_steps, "must be 0 or more (steps), or null")
        self.mem_threshold, self.grok_threshold = mem_threshold, grok_threshold
        self.part, self.sustain_evaluations, self.stop_after_steps = (
            part,
            sustain_evaluations,
            stop_after_steps,
        )
        self.steps: list[int] = []
        self.accuracies: dict[str, list[float]] = {part: [] for part in metric_keys.PARTS}
        self.losses: dict[str, float] = {}  # of the last evaluation

    def resolve_part(self, datamodule: TableDataModule) -> None:
        """Settle which unseen pairs T_grok reads.

        Raises:
            ConfigError: If ``part`` is val and there are no held-out pairs.
        """
        has_val = len(datamodule.rows("val")) > 0
        if self.part == "val" and not has_val:
            raise ConfigError("grokking.part = 'val': this frac_train leaves no held-out pairs; use test, or null")
        self.part = self.part or ("val" if has_val else "test")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """See :meth:`resolve_part`."""
        self.resolve_part(datamodule_of(trainer))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Evaluate the weights that training starts from; those of a resumed run if their evaluation is still due."""
        interval = getattr(trainer, "val_check_interval")  # noqa: B009 - lightning sets it untyped
        if not self.steps or (isinstance(interval, int) and trainer.global_step % interval == 0):
            self._evaluate_here(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Read one evaluation, and stop if it is time to."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        self._add(trainer.global_step, trainer.callback_metrics)
        if self.stop_after_steps is not None and (t_grok := self.clocks().t_grok.first) is not None:
            trainer.should_stop = trainer.global_step >= t_grok + self.stop_after_steps

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Evaluate the last weights, if the last step was no evaluation, and log the clocks."""
        self._evaluate_here(trainer, pl_module)
        known = {name: step for name, step in self.clocks().as_dict().items() if step is not None}
        values = {metric_keys.clock(name): float(step) for name, step in known.items()}
        log_at_step(trainer, values | {metric_keys.GROKKED: float("t_grok" in known)})

    def clocks(self) -> GrokClocks:
        """The clocks of the series so far."""
        unseen = self.accuracies[self.part or "val"]
        return GrokClocks(
            crossing(self.steps, self.accuracies["train_full"], self.mem_threshold, self.sustain_evaluations),
            crossing(self.steps, unseen, self.grok_threshold, self.sustain_evaluations),
        )

    def final(self, part: str) -> float | None:
        """Last accuracy on a part of the table."""
        series = self.accuracies[part]
        return series[-1] if series else None

    def state_dict(self) -> dict[str, Any]:
        """The series, so that a resumed run reports the clocks of the whole."""
        return {"steps": self.steps, "accuracies": self.accuracies, "losses": self.losses}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a series."""
        self.steps = list(state_dict["steps"])
        self.accuracies = {part: list(series) for part, series in state_dict["accuracies"].items()}
        self.losses = dict(state_dict.get("losses", {}))

    def _evaluate_here(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.steps and self.steps[-1] == trainer.global_step:
            return
        assert isinstance(pl_module, GrokModule)
        values = pl_module.evaluate_tables(datamodule_of(trainer).val_dataloader())
        log_at_step(trainer, values)
        self._add(trainer.global_step, values)

    def _add(self, step: int, values: dict[str, Tensor]) -> None:
        if self.steps and self.steps[-1] == step:
            return
        self.steps.append(step)
        for part, series in self.accuracies.items():
            if metric_keys.loss(part) in values:
                self.losses[part] = float(values[metric_keys.loss(part)])
            if metric_keys.acc(part) in values:
                series.append(float(values[metric_keys.acc(part)]))
