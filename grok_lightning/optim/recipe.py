"""The optimiser of a run: which parameters move how fast (arXiv:2505.15624, Prop. 4.1)."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from grok_lightning.errors import ConfigError, require
from grok_lightning.nets.base import Net

OptimizerName = Literal["adam", "adamw", "sgd"]


@dataclass(frozen=True)
class Recipe:
    """Everything that decides an update.

    The embedding is updated with ``η_E = c·η`` and every other block with ``η``. Weight decay follows the
    optimiser: Adam and SGD add ``λθ`` to the gradient (coupled L2), AdamW subtracts ``lr·λθ`` (decoupled). In each
    case the decay of E therefore moves with ``c·η`` too; under Adam it also passes through the normalised step.
    ``decay_scales_with_c = False`` divides the embedding's λ by c, so that ``lr_E·λ_E = η·λ``.

    Attributes:
        lr: η (0.01 in arXiv:2505.15624, sec. 5).
        c: Ratio η_E / η (10 there).
        weight_decay: λ (0.001 there).
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        momentum: Of SGD.
        betas: Of Adam and AdamW.
        warmup_steps: Learning rates rise linearly from η/warmup_steps to η over so many steps; 0 for none.
        decay_scales_with_c: Whether E decays c times faster, as it does without further care.
    """

    lr: float = 0.01
    c: float = 1.0
    weight_decay: float = 0.001
    optimizer: OptimizerName = "adam"
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    warmup_steps: int = 0
    decay_scales_with_c: bool = True

    def __post_init__(self) -> None:
        positive = "must be greater than 0 and finite"
        require(0 < self.lr < math.inf, "model.lr", self.lr, positive)
        require(0 < self.c < math.inf, "model.c", self.c, positive)
        allowed = "must be 0 or more and finite"
        require(0 <= self.weight_decay < math.inf, "model.weight_decay", self.weight_decay, allowed)
        require(
            self.optimizer in ("adam", "adamw", "sgd"),
            "model.optimizer",
            self.optimizer,
            "must be adam, adamw or sgd",
        )
        require(0 <= self.momentum < 1, "model.momentum", self.momentum, "must be in [0, 1)")
        if self.momentum and self.optimizer != "sgd":
            raise ConfigError(
                f"model.momentum = {self.momentum}: only sgd takes it, model.optimizer is {self.optimizer!r}"
            )
        in_range = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(in_range, "model.betas", self.betas, "must be two numbers in [0, 1)")
        require(self.warmup_steps >= 0, "model.warmup_steps", self.warmup_steps, "must be 0 or more (steps)")
        if not self.decay_scales_with_c and self.optimizer == "adam":
            raise ConfigError(
                "model.decay_scales_with_c = False: under adam the decay is part of the normalised step, which c "
                "scales as a whole; use adamw or sgd"
            )


def parameter_groups(net: Net, recipe: Recipe) -> list[dict[str, Any]]:
    """One torch parameter group per block of the network, named after it.

    Args:
        net: The network; its :meth:`~grok_lightning.nets.base.Net.blocks` decide what the embedding is.
        recipe: Learning rate, ratio and decay.

    Raises:
        ConfigError: If c is not 1 and the network has no embedding.
    """
    blocks = net.blocks()
    if recipe.c != 1 and "embedding" not in blocks:
        raise ConfigError(f"model.c = {recipe.c}: {type(net).__name__} has no embedding to scale; set model.c to 1")
    parameters = dict(net.named_parameters())
    groups = []
    for block, names in blocks.items():
        scale = recipe.c if block == "embedding" else 1.0
        groups.append(
            {
                "name": block,
                "params": [parameters[name] for name in names],
                "lr": recipe.lr * scale,
                "weight_decay": recipe.weight_decay / (1.0 if recipe.decay_scales_with_c else scale),
            }
        )
    return groups


def build_optimizer(net: Net, recipe: Recipe, fused: bool = True) -> torch.optim.Optimizer:
    """The torch optimiser of a recipe.

    Args:
        net: The network.
        recipe: The optimiser.
        fused: One kernel per group instead of several per parameter; the same update up to rounding.
    """
    groups = parameter_groups(net, recipe)
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, fused=fused)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=fused)
    return torch.optim.Adam(groups, lr=recipe.lr, betas=recipe.betas, fused=fused)


def warmup(step: int, warmup_steps: int) -> float:
    """Factor on the learning rate at update ``step`` (from 0): ``min(1, (step + 1) / warmup_steps)``."""
    return min(1.0, (step + 1) / max(1, warmup_steps))


def describe_groups(optimizer: torch.optim.Optimizer) -> str:
    """One line: name, number of parameters, learning rate and decay of every group."""
    return "; ".join(
        f"{group['name']}: {_count(group['params']):,} parameters, lr {group['lr']:g}, decay {group['weight_decay']:g}"
        for group in optimizer.param_groups
    )


def _count(parameters: list[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
