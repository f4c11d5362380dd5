"""The ``fit``, ``validate``, ``test`` and ``predict`` jobs: LightningCLI over the project's classes."""

import importlib
import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import yaml
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from grok_lightning import leaving
from grok_lightning.arguments import Discards, with_data
from grok_lightning.callbacks.adaptive_c import AdaptiveC
from grok_lightning.callbacks.balance import Balance
from grok_lightning.callbacks.checkpoint import LastCheckpoint
from grok_lightning.callbacks.figures import SendFigures
from grok_lightning.callbacks.fourier import Fourier
from grok_lightning.callbacks.grokking import Grokking
from grok_lightning.callbacks.health import Health
from grok_lightning.callbacks.hessian import Hessian
from grok_lightning.callbacks.interpolator import Interpolator
from grok_lightning.callbacks.ntk import NTK
from grok_lightning.callbacks.numerics import Numerics
from grok_lightning.callbacks.periodic import Periodic
from grok_lightning.callbacks.progress import StepProgress
from grok_lightning.callbacks.save_run import SaveRun
from grok_lightning.callbacks.spectrum import Spectrum
from grok_lightning.callbacks.stepping import use_quick_steps
from grok_lightning.callbacks.summary import Summary
from grok_lightning.callbacks.token_bounds import ObserveTokens
from grok_lightning.callbacks.tokens import Tokens
from grok_lightning.callbacks.two_phase import TwoPhase
from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.data.images import ImageDataModule
from grok_lightning.data.regression import MatrixCompletion, SparseRegression, TeacherStudent
from grok_lightning.data.table import SIZES, TableDataModule
from grok_lightning.data.text import TextDataModule
from grok_lightning.errors import ConfigError
from grok_lightning.loggers.run_record import RunRecord
from grok_lightning.loggers.wandb_run import WandbRun
from grok_lightning.modules.base import GrokModule
from grok_lightning.modules.flow import DiagonalLinear, MatrixFactorization, ReLUStudent
from grok_lightning.modules.language import LanguageModel
from grok_lightning.modules.mlp import EmbeddingFreeMLP, EmbeddingMLP
from grok_lightning.modules.transformer import Transformer
from grok_lightning.modules.vit import ViT
from grok_lightning.parser import TRAINER_DEFAULTS, ExactParser
from grok_lightning.refusals import check_checkpoint, check_seed, check_trainer, take_up
from grok_lightning.resume import Resumed

# The bare names of models and data resolve once imported.
__all__ = [
    "DiagonalLinear", "EmbeddingFreeMLP", "EmbeddingMLP", "GrokCLI", "ImageDataModule", "LanguageModel",
    "MatrixCompletion", "MatrixFactorization", "ModularDataModule", "ReLUStudent", "SparseRegression",
    "TeacherStudent", "TextDataModule", "Transformer", "ViT", "main", "resolver",
]  # fmt: skip


class GrokCLI(LightningCLI):
    """LightningCLI with the project's callbacks, run record and refusals."""

    def __init__(self, args: Sequence[str] | None, parse_only: bool = False, resumed: Resumed | None = None) -> None:
        self.parse_only, self.resumed = parse_only, resumed
        self.discards = Discards()
        self.summary: Summary | None = None
        logger = logging.getLogger("grok_lightning.arguments")
        logger.handlers, logger.propagate = [self.discards], False
        logger.setLevel(logging.DEBUG)
        parser: dict[str, Any] = {"exit_on_error": False, "logger": logger}
        super().__init__(
            GrokModule,
            TableDataModule,
            save_config_callback=SaveRun,
            save_config_kwargs={"save_to_log_dir": False, "resumed": resumed},
            trainer_defaults=TRAINER_DEFAULTS,
            seed_everything_default=0,
            parser_class=ExactParser,
            parser_kwargs=parser
            | {"prog": "python -m grok_lightning"}
            | {name: dict(parser) for name in self.subcommands()},
            subclass_mode_model=True,
            subclass_mode_data=True,
            auto_configure_optimizers=False,  # an --optimizer flag would replace the parameter groups, and c with them
            args=None if args is None else list(args),
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Named groups instead of list entries: a later --config merges into them."""
        parser.add_lightning_class_args(Grokking, "grokking")
        parser.add_lightning_class_args(LastCheckpoint, "checkpoint")
        parser.add_lightning_class_args(Numerics, Numerics.group)
        for diagnostic in (Hessian, Spectrum, Balance, Fourier, NTK, Health, TwoPhase, Tokens, Interpolator):
            parser.add_lightning_class_args(diagnostic, diagnostic.group)
        parser.add_lightning_class_args(AdaptiveC, AdaptiveC.group)
        parser.add_class_arguments(RunRecord, "record")
        for name in SIZES:  # those that a model does not take are passed over
            size = partial(self._size, name)
            parser.link_arguments("data", f"model.init_args.{name}", compute_fn=size, apply_on="instantiate")

    def _size(self, name: str, data: TableDataModule) -> int | None:
        """What the data say of an argument of the model, if it has such an argument."""
        module, _, model = self.config[self.subcommand].model.class_path.rpartition(".")
        arguments = inspect.signature(getattr(importlib.import_module(module), model)).parameters
        return data.size(name) if name in arguments else None

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, and refuse a change of model that would silently drop settings made before it."""
        self.config = parser.parse_args(args if args is None else with_data(args))
        config = self.config[self.config.subcommand]
        model = config.model
        check_seed(config.seed_everything)
        check_trainer(config.trainer)
        if config.ckpt_path is None and self.config.subcommand != "fit":
            raise ConfigError(f"ckpt_path is missing: {self.config.subcommand} needs the weights of a checkpoint")
        for name in SIZES:
            if model is not None and model.init_args.get(name) is not None:
                raise ConfigError(f"model.{name} = {model.init_args[name]}: comes from the data and cannot be set")
        self.discards.refuse()

    def resolve(self, arguments: Sequence[str]) -> dict[str, Any]:
        """The configuration that ``JOB options…`` describes, as plain mappings; nothing is built or run."""
        self.discards.messages.clear()
        self.parse_arguments(self.parser, list(arguments))
        config: dict[str, Any] = self.config[self.config.subcommand].as_dict()
        return config

    def _set_seed(self) -> None:
        if not self.parse_only:
            super()._set_seed()

    def instantiate_classes(self) -> None:
        """Build the parts of the run, unless only the configuration is asked for."""
        if not self.parse_only:
            super().instantiate_classes()

    def _parse_ckpt_path(self) -> None:
        """Leave the command line as it is: Lightning would let the checkpoint's settings win over it unsaid."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Add the run record, the progress bar and the summary."""
        config = self._get(self.config_init, "trainer")
        self.record = self._get(self.config_init, "record")
        callbacks = [self._get(self.config_init, key) for key in self._parser(self.subcommand).callback_keys]
        if config["enable_checkpointing"] is False or config["fast_dev_run"]:
            callbacks = [callback for callback in callbacks if not isinstance(callback, LastCheckpoint)]
        if self.subcommand == "fit":
            callbacks += [] if self.datamodule.bounds is None else [ObserveTokens()]
            config["logger"] = self._loggers(config["logger"])
            self._refuse_early(bool(config["fast_dev_run"]))
            diagnostics = [callback for callback in callbacks if isinstance(callback, Periodic)]
            self.summary = Summary(self._get(self.config_init, "grokking"), diagnostics)
            callbacks = [self.summary, *callbacks, SendFigures()]
            own_bar = any(isinstance(callback, ProgressBar) for callback in _as_list(config["callbacks"]))
            if config["enable_progress_bar"] is not False and not own_bar:
                callbacks.append(StepProgress())
        else:
            config["logger"] = False  # the other jobs print, and leave the record of the run alone
        try:
            trainer: Trainer = self._instantiate_trainer({**config, **kwargs}, callbacks)
        except (ValueError, ImportError, MisconfigurationException) as error:
            raise ConfigError(f"trainer: {error}") from error
        use_quick_steps(trainer)
        return trainer

    def _refuse_early(self, unrecorded: bool) -> None:
        """Refuse what only shows once the parts are built, before anything is written."""
        self._get(self.config_init, "grokking").resolve_part(self.datamodule)
        if self.resumed is not None:
            take_up(self.resumed, yaml.safe_load(self._parser("fit").dump(self.config["fit"])), self.record)
        if not unrecorded and getattr(rank_zero_only, "rank", 0) == 0:
            self.record.check()

    def _loggers(self, asked: Any) -> list[Logger]:
        if self.record.experiment_name is None:
            self.record.experiment_name = self.datamodule.task_name
        others = [] if asked in (None, True, False) else _as_list(asked)
        for logger in others:
            if isinstance(logger, WandbRun):
                logger.follow(self.record.run_id, self.record.save_dir)
        return [self.record, *others]

    def _run_subcommand(self, subcommand: str) -> None:
        """Run the job; a run that fails before its first step is one line, and leaves nothing behind."""
        if self.parse_only:
            return
        if (path := self.config[subcommand].ckpt_path) is not None:
            check_checkpoint(path, self.model, goes_on=subcommand == "fit")
        leaving.through_exceptions(True)
        try:
            super()._run_subcommand(subcommand)
        except (Exception, SystemExit) as error:
            if self.summary is None or self.summary.started:
                raise
            for logger in self.trainer.loggers:
                if isinstance(logger, RunRecord | WandbRun):
                    logger.discard()
            if isinstance(error, (ValueError, RuntimeError, ZeroDivisionError, TypeError)):
                raise ConfigError(f"the run cannot start: {error}") from error
            raise

    def predict(self, **kwargs: Any) -> None:
        """Print the prediction of every pair as CSV."""
        batches: list[Any] = self.trainer.predict(**{**kwargs, "return_predictions": True}) or []
        lines = self.datamodule.prediction_lines(torch.cat(batches).cpu())
        print("\n".join(lines))

    def before_fit(self) -> None:
        """Refuse batches that cannot be dealt to so many processes, and strategies that hide parameters."""
        callbacks: list[Callback] = getattr(self.trainer, "callbacks")  # noqa: B009 - lightning sets it untyped
        for diagnostic in callbacks:
            if isinstance(diagnostic, Periodic):
                diagnostic.check(self.trainer)
        self.datamodule.batch_order(world_size=self.trainer.world_size)


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def main(args: Sequence[str] | None = None, resumed: Resumed | None = None) -> GrokCLI:
    """Run one job.

    Args:
        args: Command line without the program's name; ``None`` for ``sys.argv``.
        resumed: The run that the arguments resume.
    """
    return GrokCLI(args, resumed=resumed)


def resolver() -> Callable[[Sequence[str]], dict[str, Any]]:
    """A function from the arguments of a job (``["fit", "--config", …]``) to its configuration.

    The parser is built once, in 0.3 s or so; every call then takes about 0.1 s. Mistakes raise as they do in the job.
    """
    return GrokCLI(["fit", "--model", EmbeddingMLP.__name__], parse_only=True).resolve
