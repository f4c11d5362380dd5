"""Weights & Biases, made safe to leave on: it decides by itself whether to go online, and never stops a run."""

import io
import math
import os
import shutil
import socket
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.loggers.logger import DummyExperiment
from lightning.pytorch.utilities.rank_zero import rank_zero_only, rank_zero_warn

from grok_lightning import metric_keys
from grok_lightning.loggers.run_record import new_run_id, remove_if_empty

Mode = Literal["auto", "online", "offline", "disabled"]

REACH_SECONDS = 3.0
"""How long to try the server's port before going offline."""


def is_logged_in() -> bool:
    """Whether W&B finds an API key without asking: in the environment or in the netrc file."""
    import wandb

    return wandb.login(prompt=False, verify=False)


def is_reachable() -> bool:
    """Whether the W&B server's port answers. Behind a proxy this cannot be tried, and counts as reachable."""
    import wandb

    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return True
    url = urlsplit(os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url)
    port = url.port or (80 if url.scheme == "http" else 443)
    try:
        with socket.create_connection((url.hostname or "", port), timeout=REACH_SECONDS):
            return True
    except OSError:
        return False


def resolve_mode(mode: Mode) -> tuple[str, str]:
    """The mode W&B is started in, and the reason in words.

    ``WANDB_MODE`` wins over ``auto``; without it a run goes online when an API key is found and the server answers.
    """
    wanted = os.environ.get("WANDB_MODE", "") if mode == "auto" else mode
    wanted = {"dryrun": "offline", "run": "online", "shared": "online"}.get(wanted, wanted)
    if wanted not in ("", "auto", "online", "offline", "disabled"):
        return "offline", f"offline: WANDB_MODE = {wanted!r} is not known"
    if wanted in ("offline", "disabled"):
        return wanted, f"{wanted}, as asked"
    if not is_logged_in():
        return "offline", "offline: not logged in to W&B"
    if not is_reachable():
        return "offline", "offline: the W&B server does not answer"
    return "online", "online"


def _never_stops(self: "WandbRun", action: Callable[[], None]) -> None:
    """Turn any failure into one warning, after which W&B is left alone."""
    if self.failure is not None:
        return
    try:
        action()
    except Exception as error:  # whatever W&B raises, the training data is worth more
        self.failure = _first_line(error)
        rank_zero_warn(f"W&B stopped and is left alone ({self.failure}); training and the run record go on")


class WandbRun(WandbLogger):
    """Logs to W&B: online when logged in and the server answers, offline otherwise; never with a prompt.

    Args:
        project: W&B project; ``null`` for ``WANDB_PROJECT``, or else ``grok_lightning``.
        mode: auto, online, offline or disabled; auto follows ``WANDB_MODE`` where it is set.
        save_dir: Where the ``wandb`` directory goes; ``null`` for the run record's root.
        entity: W&B team or user.
        group: Name that groups runs, e.g. the seeds of one setting.
        name: Display name; ``null`` lets W&B choose.
        tags: Labels.
        notes: Free text.
        log_model: Upload the files of a ModelCheckpoint in trainer.callbacks at the end (needs online mode).
        init_timeout: Seconds to wait for the server at the start.
        finish_timeout: Seconds to wait for uploads at the end; what is left is kept on disk.
        figures: Draw the figures of ``report`` when the run has come to its end, and log them as images; takes some
            seconds, and is left out for runs of less than 100 steps.
    """

    def __init__(
        self,
        project: str | None = None,
        mode: Mode = "auto",
        save_dir: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        name: str | None = None,
        tags: list[str] | None = None,
        notes: str | None = None,
        log_model: bool = False,
        init_timeout: float = 20.0,
        finish_timeout: float = 60.0,
        figures: bool = True,
    ) -> None:
        self.failure: str | None = None
        self.mode, self.init_timeout, self.finish_timeout = mode, init_timeout, finish_timeout
        self.mode_reason = "not started"
        self.figures = figures
        self.run_dir: str | None = None  # of W&B's files, once the run is started
        super().__init__(
            project=project or os.environ.get("WANDB_PROJECT") or "grok_lightning",
            save_dir=save_dir or "",
            id=new_run_id(),
            resume="allow",  # LightningCLI would pass null, which switches resuming off
            entity=entity,
            group=group,
            name=name,
            tags=tags,
            notes=notes,
            log_model=log_model,
        )
        self.own_save_dir = save_dir
        self._wandb_init.pop("anonymous", None)  # W&B warns about it even when it is not set

    def follow(self, run_id: str, root: str) -> None:
        """Share the run record's id, and its root unless a directory of its own was given."""
        self._id = run_id
        directory = self.own_save_dir or root
        self._save_dir = directory
        self._wandb_init |= {"id": run_id, "dir": directory}

    @property
    @rank_zero_only
    def experiment(self) -> Any:
        """The W&B run; a stand-in that ignores everything if it could not be started."""
        if self._experiment is None:
            _never_stops(self, self._start)
        return DummyExperiment() if self._experiment is None else self._experiment

    def _start(self) -> None:
        import wandb

        mode, self.mode_reason = resolve_mode(self.mode)
        os.environ.setdefault("WANDB_CONSOLE", "off")  # a progress bar is no log, and a closed pipe no reason to die
        self._wandb_init["settings"] = wandb.Settings(
            init_timeout=self.init_timeout,
            finish_timeout=self.finish_timeout,
            silent=True,
            x_transaction_log_flush_interval=1.0,  # a killed run keeps all but its last second
        )
        if mode == "online":
            try:
                self._init(mode)
                return
            except Exception as error:  # of the network or the account; the data can be uploaded later
                self.mode_reason = f"offline: going online failed ({_first_line(error)})"
                wandb.teardown()  # W&B's own process may still hold the run that it could not start
                mode = "offline"
        self._init(mode)

    def _init(self, mode: str) -> None:
        self._wandb_init["mode"] = mode
        directory = Path(self._wandb_init["dir"] or ".").absolute()  # W&B's own process may stand elsewhere
        directory.mkdir(parents=True, exist_ok=True)
        self._wandb_init["dir"] = str(directory)
        super().experiment  # noqa: B018 - the parent's property starts the run
        if self._experiment is not None:
            path = Path(self._experiment.dir).parent
            self.run_dir = str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

    @property
    def url(self) -> str | None:
        """Address of an online run."""
        return None if self._experiment is None else self._experiment.url

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log scalars, and arrays as histograms, with ``trainer/global_step`` as their x-axis."""
        _never_stops(self, lambda: WandbLogger.log_metrics(self, _histograms(metrics), step))

    @property
    def takes_figures(self) -> bool:
        """Whether figures are wanted, and the run was started, keeps what is logged and has not failed."""
        kept = self._experiment is not None and self.failure is None and not self.mode_reason.startswith("disabled")
        return self.figures and kept

    @rank_zero_only
    def log_figures(self, pngs: Mapping[str, bytes], step: int) -> None:
        """Log pictures as images of the W&B run; failing with one is a warning and costs the figures only.

        Args:
            pngs: Name of a figure → PNG.
            step: Updates that had been made at the end of what they show.
        """
        try:
            import wandb
            from PIL import Image

            images = {metric_keys.figure(name): wandb.Image(Image.open(io.BytesIO(png))) for name, png in pngs.items()}
            if images and self._experiment is not None:
                self._experiment.log({**images, "trainer/global_step": step})
        except Exception as error:  # the metrics are there; the run still has to be closed
            rank_zero_warn(f"W&B did not take the figures ({_first_line(error)})")

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Keep the configuration in the W&B run."""
        _never_stops(self, lambda: WandbLogger.log_hyperparams(self, params))

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the W&B run, within the time allowed for it."""
        _never_stops(self, lambda: self._finish(status))

    @rank_zero_only
    def discard(self) -> None:
        """Take back what was written of a run that never made a step."""
        self.finalize("failed")
        if self.run_dir is not None and self.mode_reason != "online":
            shutil.rmtree(self.run_dir, ignore_errors=True)
            files = Path(self.run_dir).parent
            if not list(files.glob("*run-*-*")):
                shutil.rmtree(files, ignore_errors=True)  # W&B's links to its last run, which is gone
            remove_if_empty(files.parent)

    def _finish(self, status: str) -> None:
        super().finalize(status)
        if self._experiment is not None:
            self._experiment.finish(exit_code=0 if status == "success" else 1)
            self._experiment = None


def _histograms(metrics: Mapping[str, Any]) -> dict[str, Any]:
    import wandb

    return {
        key: wandb.Histogram([v for v in value if math.isfinite(v)]) if isinstance(value, list) else value
        for key, value in metrics.items()
    }


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
