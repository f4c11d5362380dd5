"""How a run ended: the table on the screen and ``summary.json`` in the record."""

import math
import shlex
import time
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table

from grok_lightning.callbacks.checkpoint import LAST
from grok_lightning.callbacks.grokking import Grokking
from grok_lightning.callbacks.health import Health
from grok_lightning.callbacks.lookup import logger_of
from grok_lightning.callbacks.numerics import Numerics
from grok_lightning.callbacks.periodic import Periodic
from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.loggers.screen import print_safely
from grok_lightning.loggers.wandb_run import WandbRun
from grok_lightning.modules.base import GrokModule


class Summary(Callback):
    """Times the run and reports its clocks, accuracies and whereabouts at the end.

    Args:
        grokking: The clocks to report.
        diagnostics: The measurements whose share of the time to report. They have to come after this callback, so
            that the clock runs when they measure step 0.
    """

    def __init__(self, grokking: Grokking, diagnostics: Sequence[Periodic] = ()) -> None:
        self.grokking = grokking
        self.diagnostics = [diagnostic for diagnostic in diagnostics if diagnostic.enabled]
        self._seconds_before: dict[str, float] = {}
        self.started = self.perplexity = False
        self._ended = False
        self._start = self._evaluation_start = 0.0
        self._first_step = 0
        self._evaluation_seconds = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self.started, self._ended = True, False
        self.perplexity = isinstance(pl_module, GrokModule) and pl_module.perplexity
        self._start, self._first_step = time.perf_counter(), trainer.global_step
        self._seconds_before = {diagnostic.group: diagnostic.seconds for diagnostic in self.diagnostics}

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start timing an evaluation."""
        self._evaluation_start = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop timing an evaluation."""
        self._evaluation_seconds += time.perf_counter() - self._evaluation_start

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write and print the summary; what comes later (figures for W&B) cannot take it back."""
        facts = {"status": "interrupted" if trainer.interrupted else "completed"} | self._facts(trainer)
        if (record := logger_of(trainer, RunRecord)) is not None:
            record.write_json("summary.json", facts)
        self._ended = True
        if trainer.is_global_zero:
            self._report(trainer, facts)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Record why a run ended early."""
        record = logger_of(trainer, RunRecord)
        if record is None or not record.path.exists() or not self.started or self._ended:
            return
        status = "interrupted" if isinstance(exception, KeyboardInterrupt | SystemExit) else "failed"
        reason = f"{type(exception).__name__}: {exception}".rstrip(": ")
        try:
            record.write_json("summary.json", {"status": status, "reason": reason} | self._facts(trainer))
        except OSError as error:
            print_safely(f"summary.json cannot be written: {error}")
        if trainer.is_global_zero:
            print_safely(f"{status} at step {trainer.global_step}; run directory: {record.path}", _way_on(record))

    def _facts(self, trainer: Trainer) -> dict[str, Any]:
        seconds = max(time.perf_counter() - self._start, 1e-9)
        made = trainer.global_step - self._first_step
        callbacks: list[Callback] = getattr(trainer, "callbacks")  # noqa: B009 - lightning sets it untyped
        return {
            "steps": trainer.global_step,
            "seconds": round(seconds, 3),
            "steps_per_second": round(made / seconds, 3),
            "evaluation_share": round(self._evaluation_seconds / seconds, 4),
            "diagnostics_share": self._shares(seconds),
            "loss_spikes": next((d.spikes for d in self.diagnostics if isinstance(d, Health)), None),
            "skipped_steps": next((c.skipped for c in callbacks if isinstance(c, Numerics)), 0),
            "clocks_steps": self.grokking.clocks().as_dict(),
            "thresholds": {
                "mem": self.grokking.mem_threshold,
                "grok": self.grokking.grok_threshold,
                "part": self.grokking.part,
                "sustain_evaluations": self.grokking.sustain_evaluations,
            },
            "final_acc": {part: self.grokking.final(part) for part in self.grokking.accuracies},
            "final_loss": dict(self.grokking.losses),
        }

    def _shares(self, seconds: float) -> dict[str, float]:
        """Group of measurements → its share of the wall time since training started in this process."""
        spent = {d.group: d.seconds - self._seconds_before.get(d.group, 0.0) for d in self.diagnostics}
        return {group: round(own / seconds, 4) for group, own in spent.items()}

    def _report(self, trainer: Trainer, facts: dict[str, Any]) -> None:
        record, wandb_run = logger_of(trainer, RunRecord), logger_of(trainer, WandbRun)
        console = Console(highlight=False)
        with console.capture() as table:
            console.print(self._table(facts))
        print_safely(table.get().rstrip("\n"))
        # Plain lines, so that a path can be copied whole.
        print_safely(f"run directory: {'not kept' if record is None else record.path}")
        if record is not None:
            print_safely(f"report: python -m grok_lightning report {shlex.quote(str(record.path))}")
        print_safely(*_wandb_lines(wandb_run))

    def _table(self, facts: dict[str, Any]) -> Table:
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
        for name, loss in facts["final_loss"].items() if self.perplexity else ():
            table.add_row(f"final {name.removesuffix('_full')} perplexity", f"{_exp(loss):.4g} per token")
        if facts["loss_spikes"] or facts["skipped_steps"]:
            spikes = "uncounted" if facts["loss_spikes"] is None else facts["loss_spikes"]
            table.add_row("numerics", f"loss spikes: {spikes}, updates left out: {facts['skipped_steps']}")
        rate = f"{facts['steps_per_second']:.0f} steps/s, {facts['evaluation_share']:.1%} of it evaluation"
        table.add_row("time", f"{facts['seconds']:.1f} s, {rate}")
        table.add_row("diagnostics", _shares_line(facts["diagnostics_share"]))
        return table


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


def _way_on(record: RunRecord) -> str:
    resumed = f"python -m grok_lightning fit --resume {shlex.quote(str(record.path))}"
    if (record.path / LAST).exists():
        return f"goes on from its last checkpoint: {resumed}"
    return f"has no checkpoint yet and would start over: {resumed}"


def _shares_line(shares: dict[str, float]) -> str:
    if not shares:
        return "off"
    each = ", ".join(f"{group} {share:.1%}" for group, share in shares.items())
    return f"{sum(shares.values()):.1%} of the time: {each}"


def _wandb_lines(run: WandbRun | None) -> list[str]:
    if run is None:
        return ["W&B: off"]
    if run.failure is not None:
        return [f"W&B: stopped: {run.failure}"]
    if run.mode_reason == "online":
        return [f"W&B: {run.url}"]
    lines = [f"W&B: {run.mode_reason}"]
    if run.run_dir is not None and not run.mode_reason.startswith("disabled"):
        directory = shlex.quote(run.run_dir)
        lines += [f"  look:   wandb leet {directory}", f"  upload: wandb sync {directory}"]
    return lines
