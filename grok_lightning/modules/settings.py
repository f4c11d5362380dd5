"""A model's settings as plain values, as checkpoints keep them and messages name them."""

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar

Options = TypeVar("Options")

OPTIMISATION = (
    "lr",
    "c",
    "weight_decay",
    "optimizer",
    "momentum",
    "betas",
    "warmup_steps",
    "decay_scales_with_c",
    "muon_lr",
    "muon_momentum",
    "gradient",
    "weight_decay_embedding",
    "weight_decay_first_layer",
    "weight_decay_rest",
    "clamp",
    "freeze_embedding_at",
    "loss",
    "loss_dtype",
    "compile",
    "tolerance",
)
"""Hyper-parameters of the optimiser; all others are of the network."""


def as_options(kind: type[Options], value: Options | Mapping[str, Any]) -> Options:
    """A group of settings as its dataclass, also where a checkpoint holds it as a mapping.

    Args:
        kind: The dataclass.
        value: An instance, or its fields.
    """
    return kind(**value) if isinstance(value, Mapping) else value


def plain(value: object) -> object:
    """A group of settings as a mapping, any other value as it is."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def flat(settings: Mapping[str, Any]) -> dict[str, object]:
    """Settings by dotted name; lists, which a config file has where a default has tuples, as tuples."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        content = plain(value)
        if isinstance(content, Mapping):
            found |= {f"{name}.{inner}": part for inner, part in flat(content).items()}
        else:
            found[name] = tuple(content) if isinstance(content, list) else content
    return found


def is_optimisers(name: str) -> bool:
    """Whether a hyper-parameter, by dotted name, is of the optimiser and not of the network."""
    return name.split(".")[0] in OPTIMISATION
