"""The parser of the training jobs."""

from typing import Any

from lightning.pytorch.cli import LightningArgumentParser


class ExactParser(LightningArgumentParser):
    """Knows no abbreviations: ``--model.gradient.alph`` or ``--conf`` is a typing error, not another name.

    jsonargparse makes the parsers of classes from the class of the parser alone, so it cannot be an argument.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})
