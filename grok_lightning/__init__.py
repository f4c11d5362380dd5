"""Grokking experiments on PyTorch Lightning: run, measure and judge them."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grok_lightning.notebook import (
        LargestEigenvalue,
        Spectrum,
        fit,
        lambda_max,
        load_data,
        load_net,
        spectrum,
    )
    from grok_lightning.recorded import RecordedRun, load_run

__version__ = "0.1.0"

__all__ = [
    "LargestEigenvalue",
    "RecordedRun",
    "Spectrum",
    "__version__",
    "fit",
    "lambda_max",
    "load_data",
    "load_net",
    "load_run",
    "spectrum",
]

_HOME = {"RecordedRun": "grok_lightning.recorded", "load_run": "grok_lightning.recorded"}
"""Name → module, where it is not the notebook's: reading a record needs no torch."""


def __getattr__(name: str) -> Any:
    """Load what is asked for, when it is asked for: importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME.get(name, "grok_lightning.notebook")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
