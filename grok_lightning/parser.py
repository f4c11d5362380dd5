"""The parser of the training jobs."""

import sys
from collections.abc import Sequence
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser

TRAINER_DEFAULTS: dict[str, Any] = {
    "max_steps": 3000,
    "val_check_interval": 50,
    "check_val_every_n_epoch": None,  # evaluate by step, not by epoch
    "num_sanity_val_steps": 0,  # the clocks evaluate step 0 themselves
    "use_distributed_sampler": False,  # batches are dealt to processes by the datamodule
    "log_every_n_steps": 50,
    "enable_model_summary": False,  # the parameter groups are printed instead
    "logger": {"class_path": "grok_lightning.loggers.wandb_run.WandbRun"},
}
"""Where ours differ from Lightning's."""


class ExactParser(LightningArgumentParser):
    """Knows no abbreviations: ``--model.gradient.alph`` or ``--conf`` is a typing error, not another name.

    ``--name=None`` is ``--name=null``: so W&B writes the nulls of a sweep, and jsonargparse what it hands on from
    ``--model.embedding.rank null`` to the parser of a class within a class.

    jsonargparse makes the parsers of classes from the class of the parser alone, so it cannot be an argument.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})

    def parse_args(  # type: ignore[override]  # noqa: D102  # jsonargparse's
        self, args: Sequence[str] | None = None, *more: Any, **kwargs: Any
    ) -> Namespace:
        words = sys.argv[1:] if args is None else args
        return super().parse_args([_null(word) for word in words], *more, **kwargs)


def _null(word: str) -> str:
    return word.removesuffix("None") + "null" if word.startswith("--") and word.endswith("=None") else word
