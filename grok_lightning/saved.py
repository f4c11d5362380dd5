"""Checkpoint files: read without executing anything, and refused in one line if they are damaged or no checkpoints."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from grok_lightning.errors import ConfigError


def load(path: str, field: str, device: str = "cpu") -> dict[str, Any]:
    """The content of a checkpoint file, which has weights by name, whoever wrote it.

    Args:
        path: The file.
        field: What the user set to this path, for messages.
        device: Where its tensors go; ``meta`` for none of their numbers.

    Raises:
        ConfigError: If it is missing, damaged, no checkpoint, or would have to execute something.
    """
    said = f"{field} = {path!r}:"
    if not Path(path).is_file():
        raise ConfigError(f"{said} there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch.load does not look at the checksums
        if damaged is not None:
            raise ConfigError(f"{said} is damaged (checksum of {damaged})")
        content = torch.load(path, map_location=device, weights_only=True)
    except ConfigError:
        raise
    except Exception as error:  # whatever is wrong with the file, it is no checkpoint
        raise ConfigError(f"{said} cannot be read as a checkpoint ({type(error).__name__})") from error
    weights = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(weights, Mapping) or not all(isinstance(w, Tensor) for w in weights.values()):
        raise ConfigError(f"{said} is no checkpoint, it has no state_dict of tensors")
    return dict(content)


def check_resumable(content: Mapping[str, Any], said: str) -> None:
    """Refuse what training cannot go on from, such as a checkpoint of weights only.

    Args:
        content: A checkpoint.
        said: Field and path, for the message.

    Raises:
        ConfigError: With the first part that is missing or not what training leaves there.
    """
    step, states, loops = (content.get(part) for part in ("global_step", "optimizer_states", "loops"))
    fits = {
        "global_step": type(step) is int and step >= 0,
        "optimizer_states": isinstance(states, list) and len(states) == 1 and _has(states[0], "state", "param_groups"),
        "lr_schedulers": isinstance(content.get("lr_schedulers"), list),
        "callbacks": all(isinstance(of, Mapping) for of in _values(content.get("callbacks"))),
        "loops": _has(loops, "fit_loop"),
        "pytorch-lightning_version": isinstance(content.get("pytorch-lightning_version"), str),
    }
    for part, fit in fits.items():
        if not fit:
            raise ConfigError(f"{said} training cannot go on from it: its {part} is missing or damaged")


def check_fits(weights: Mapping[str, Tensor], own: Mapping[str, Tensor], said: str) -> None:
    """Refuse weights of other names, shapes or kinds than a model has.

    Args:
        weights: Those of a checkpoint.
        own: Those of the model.
        said: Field and path, for the message.

    Raises:
        ConfigError: With the first that differs.
    """
    for name in sorted(own.keys() | weights.keys()):
        if name not in weights or name not in own:
            where = "is not in it" if name in own else "is unknown to this model"
            raise ConfigError(f"{said} does not fit the model: {name} {where}")
        theirs, ours = weights[name], own[name]
        if theirs.shape != ours.shape:
            shapes = f"has shape {tuple(theirs.shape)}, this model's {tuple(ours.shape)}"
            raise ConfigError(f"{said} does not fit the model: {name} {shapes}")
        if theirs.is_floating_point() != ours.is_floating_point():
            raise ConfigError(f"{said} does not fit the model: {name} is {theirs.dtype}, this model's {ours.dtype}")


def _has(thing: object, *names: str) -> bool:
    return isinstance(thing, Mapping) and all(name in thing for name in names)


def _values(thing: object) -> list[object]:
    return list(thing.values()) if isinstance(thing, Mapping) else [None]
