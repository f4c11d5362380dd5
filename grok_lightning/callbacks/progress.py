"""How far a run is, by optimiser step; epochs of a few steps say nothing in a grokking run."""

import sys
import time
from typing import Any, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.utilities.types import STEP_OUTPUT
from tqdm import tqdm

from grok_lightning import metric_keys
from grok_lightning.callbacks.adaptive_c import AdaptiveC
from grok_lightning.callbacks.hessian import Hessian
from grok_lightning.callbacks.stepping import StepsOver
from grok_lightning.modules.base import GrokModule

C = TypeVar("C", bound=Callback)

LINES = 10
"""Lines in all that a run prints where there is no terminal."""

LINE_SECONDS = 60.0
"""Distance of those lines where the number of steps is not known."""

FORMAT = "step {n_fmt}/{total_fmt} {bar} {rate_noinv_fmt}, eta {remaining}{postfix}"
"""Of the bar, which takes what is left of the line: everything else fits into 80 columns."""


class StepProgress(StepsOver, ProgressBar):
    """Step, rate, time to go, accuracies of the last evaluation, c, and λ_max(E) and λ_max(W) once measured.

    Of a language model also the validation perplexity.

    On a terminal one line that is refreshed five times a second; elsewhere (a pipe, a log of CI) a plain line at an
    evaluation about every tenth of the run. Both go to standard error.
    """

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None
        self._enabled = True
        self._on_terminal = False
        self._first_step = 0
        self._start = self._line_time = 0.0
        self._next_line = 0

    def disable(self) -> None:
        """Show nothing (Lightning calls this on all processes but the first)."""
        self._enabled = False

    def enable(self) -> None:
        """Show the bar."""
        self._enabled = True

    def acts_at(self, trainer: Trainer, step: int) -> bool:
        """Whether a step has to be shown at once: never, the bar catches up."""
        return False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar at the step training starts from."""
        self._on_terminal = sys.stderr.isatty() and sys.stdout.isatty()
        self._first_step = trainer.global_step
        self._start = self._line_time = time.monotonic()
        self._next_line = self._first_step + self._line_steps(trainer)
        if self._on_terminal and self._enabled:
            self._bar = tqdm(
                total=_total(trainer),
                initial=trainer.global_step,
                bar_format=FORMAT if _total(trainer) else None,
                unit="",
                mininterval=0.2,
                dynamic_ncols=True,
            )

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: STEP_OUTPUT,
        batch: object,
        batch_idx: int,
    ) -> None:
        """Advance by the updates that were made."""
        if self._bar is not None:
            self._bar.update(trainer.global_step - self._bar.n)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show this evaluation."""
        if not self._enabled or trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self._bar is not None:
            self._bar.set_postfix_str(_in_short(trainer, pl_module), refresh=False)
        elif not self._on_terminal and self._is_due(trainer):
            step, now = trainer.global_step, time.monotonic()
            self._next_line, self._line_time = step + self._line_steps(trainer), now
            print(f"{self._pace(trainer, now)}, {_in_full(trainer, pl_module)}", file=sys.stderr, flush=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Close the bar, so that a message starts on a line of its own."""
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _line_steps(self, trainer: Trainer) -> int:
        total = _total(trainer)
        return 0 if total is None else max(1, (total - self._first_step) // LINES)

    def _is_due(self, trainer: Trainer) -> bool:
        if _total(trainer) is None:
            return time.monotonic() >= self._line_time + LINE_SECONDS
        return trainer.global_step >= self._next_line

    def _pace(self, trainer: Trainer, now: float) -> str:
        """Step, mean rate since training started in this process, and the time to go at that rate."""
        step, total = trainer.global_step, _total(trainer)
        rate = (step - self._first_step) / max(now - self._start, 1e-9)
        if total is None:
            return f"step {step}, {rate:.1f} steps/s"
        left = "?" if rate <= 0 else tqdm.format_interval(int((total - step) / rate))
        return f"step {step}/{total}, {rate:.1f} steps/s, eta {left}"


def _total(trainer: Trainer) -> int | None:
    return trainer.max_steps if trainer.max_steps > 0 else None


def _in_full(trainer: Trainer, pl_module: LightningModule) -> str:
    words = [f"{part}_acc={value:.3f}" for part, value in _accuracies(trainer).items()]
    words += [f"val_ppl={value:.1f}" for value in _perplexity(trainer)]
    words += [f"{name}={value:.3g}" for name, value in [*_c(trainer, pl_module), *_lambda_max(trainer)]]
    return ", ".join(words)


def _in_short(trainer: Trainer, pl_module: LightningModule) -> str:
    """Without the test pairs, which follow the held-out ones."""
    accuracies = _accuracies(trainer)
    unseen = "val" if "val" in accuracies else "test"
    words = [f"{part} {value:.3f}" for part, value in accuracies.items() if part in ("train", unseen)]
    words += [f"ppl {value:.1f}" for value in _perplexity(trainer)]
    words += [f"{name} {value:.3g}" for name, value in _c(trainer, pl_module)]
    words += [f"λ{name[-2]} {value:.2g}" for name, value in _lambda_max(trainer)]
    return " ".join(words)


def _perplexity(trainer: Trainer) -> list[float]:
    """That of the last evaluation, of a language model."""
    value = trainer.callback_metrics.get(metric_keys.perplexity("val"))
    return [] if value is None else [float(value)]


def _accuracies(trainer: Trainer) -> dict[str, float]:
    """Those of the last evaluation."""
    keys = {part.removesuffix("_full"): metric_keys.acc(part) for part in metric_keys.PARTS}
    found = {part: trainer.callback_metrics.get(key) for part, key in keys.items()}
    return {part: float(value) for part, value in found.items() if value is not None}


def _c(trainer: Trainer, pl_module: LightningModule) -> list[tuple[str, float]]:
    """The c in use; nothing without a trained embedding."""
    assert isinstance(pl_module, GrokModule)
    if "embedding" not in pl_module.net.blocks():
        return []
    adapting = [callback.c for callback in _callbacks(trainer, AdaptiveC) if callback.every_n_steps]
    return [("c", next(iter(adapting), pl_module.recipe.c))]


def _lambda_max(trainer: Trainer) -> list[tuple[str, float]]:
    """The largest eigenvalue of the blocks E and W, as last measured in this process."""
    found: list[tuple[str, float]] = []
    for hessian in _callbacks(trainer, Hessian):
        for block in ("E", "W"):
            keys = [metric_keys.curvature(block, "lambda_max", subset) for subset in (None, hessian.subset)]
            known = [hessian.latest[key] for key in keys if key in hessian.latest]
            found += [(f"λ_max({block})", value) for value in known[:1] if isinstance(value, float)]
    return found


def _callbacks(trainer: Trainer, kind: type[C]) -> list[C]:
    callbacks: list[Callback] = getattr(trainer, "callbacks")  # noqa: B009 - lightning sets it untyped
    return [callback for callback in callbacks if isinstance(callback, kind)]
