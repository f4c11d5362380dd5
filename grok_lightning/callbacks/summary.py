"""How a run ended: the table on the screen and ``summary.json`` in the record."""

import time
from typing import Any, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table

from grok_lightning.callbacks.grokking import Grokking
from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.loggers.wandb_run import WandbRun

L = TypeVar("L", RunRecord, WandbRun)


class Summary(Callback):
    """Times the run and reports its clocks, accuracies and whereabouts at the end.

    Args:
        grokking: The clocks to report.
    """

    def __init__(self, grokking: Grokking) -> None:
        self.grokking = grokking
        self._start = self._evaluation_start = 0.0
        self._first_step = 0
        self._evaluation_seconds = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._start, self._first_step = time.perf_counter(), trainer.global_step

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start timing an evaluation."""
        self._evaluation_start = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop timing an evaluation."""
        self._evaluation_seconds += time.perf_counter() - self._evaluation_start

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write and print the summary."""
        self._report(trainer, "interrupted" if trainer.interrupted else "completed")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Record why a run ended early."""
        record = _find(trainer, RunRecord)
        if record is not None and record.path.exists():
            reason = f"{type(exception).__name__}: {exception}"
            record.write_json("summary.json", {"status": "failed", "reason": reason} | self._facts(trainer))

    def _facts(self, trainer: Trainer) -> dict[str, Any]:
        seconds = max(time.perf_counter() - self._start, 1e-9)
        made = trainer.global_step - self._first_step
        return {
            "steps": trainer.global_step,
            "seconds": round(seconds, 3),
            "steps_per_second": round(made / seconds, 3),
            "evaluation_share": round(self._evaluation_seconds / seconds, 4),
            "clocks_steps": self.grokking.clocks().as_dict(),
            "thresholds": {
                "mem": self.grokking.mem_threshold,
                "grok": self.grokking.grok_threshold,
                "part": self.grokking.part,
                "sustain_evaluations": self.grokking.sustain_evaluations,
            },
            "final_acc": {part: self.grokking.final(part) for part in self.grokking.accuracies},
        }

    def _report(self, trainer: Trainer, status: str) -> None:
        facts = {"status": status} | self._facts(trainer)
        record, wandb_run = _find(trainer, RunRecord), _find(trainer, WandbRun)
        if record is not None:
            record.write_json("summary.json", facts)
        if trainer.is_global_zero:
            place = "not kept" if record is None else str(record.path)
            Console(highlight=False).print(self._table(facts, place, _wandb_line(wandb_run)))

    def _table(self, facts: dict[str, Any], place: str, wandb_line: str) -> Table:
        table = Table(title=f"{facts['status']} after {facts['steps']} steps", show_header=False, title_justify="left")
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        clocks, part = self.grokking.clocks(), self.grokking.part
        for name, crossing, what in (
            ("T_mem", clocks.t_mem, f"training accuracy ≥ {self.grokking.mem_threshold:g}"),
            ("T_grok", clocks.t_grok, f"{part} accuracy ≥ {self.grokking.grok_threshold:g}"),
        ):
            sustained = "never sustained" if crossing.sustained is None else f"sustained from {crossing.sustained}"
            reached = f"{crossing.first} steps (to within {crossing.resolution}), {sustained}"
            table.add_row(name, f"{'not reached' if crossing.first is None else reached}; {what}")
        table.add_row("delay", "none: not both reached" if clocks.delay is None else f"{clocks.delay} steps")
        for name, key in (("train", "train_full"), ("val", "val"), ("test", "test")):
            value = facts["final_acc"][key]
            table.add_row(f"final {name} accuracy", "no such pairs" if value is None else f"{value:.4f}")
        rate = f"{facts['steps_per_second']:.0f} steps/s, {facts['evaluation_share']:.1%} of it evaluation"
        table.add_row("time", f"{facts['seconds']:.1f} s, {rate}")
        table.add_row("run directory", place)
        table.add_row("W&B", wandb_line)
        return table


def _find(trainer: Trainer, kind: type[L]) -> L | None:
    return next((logger for logger in trainer.loggers if isinstance(logger, kind)), None)


def _wandb_line(run: WandbRun | None) -> str:
    if run is None:
        return "off"
    if run.failure is not None:
        return f"stopped: {run.failure}"
    directory = run.run_dir
    if run.mode_reason == "online":
        return f"online: {run.url}"
    look = f"look: wandb leet {directory}; upload: wandb sync {directory}"
    return (
        run.mode_reason if directory is None or run.mode_reason.startswith("disabled") else f"{run.mode_reason}; {look}"
    )
