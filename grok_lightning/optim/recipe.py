"""The optimiser of a run: which parameters move how fast (arXiv:2505.15624, Prop. 4.1)."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from grok_lightning.errors import ConfigError, require
from grok_lightning.nets.base import Net
from grok_lightning.optim.clamp import UNCLAMPED, NormClamp
from grok_lightning.optim.filters import UNFILTERED, GradientFilter, StepHooks
from grok_lightning.optim.muon import MuonWithAdam

OptimizerName = Literal["adam", "adamw", "sgd", "muon"]


MUON_MOMENTUM = 0.95
"""torch's default."""

MUON = "_muon"
"""Ending of the names of the groups that Muon moves."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides an update.

    The embedding is updated with ``η_E = c·η`` and every other block with ``η``. Weight decay follows the
    optimiser: Adam and SGD add ``λθ`` to the gradient (coupled L2), AdamW subtracts ``lr·λθ`` (decoupled). In each
    case the decay of E therefore moves with ``c·η`` too; under Adam it also passes through the normalised step.
    ``decay_scales_with_c = False`` divides the embedding's λ by c, so that ``lr_E·λ_E = η·λ``. Muon moves the hidden
    matrices of the network (:meth:`~grok_lightning.nets.base.Net.hidden_matrices`) and leaves the rest to Adam.

    Attributes:
        lr: η (0.01 in arXiv:2505.15624, sec. 5).
        c: Ratio η_E / η (10 there).
        weight_decay: λ (0.001 there).
        optimizer: ``adam``, ``adamw``, ``sgd`` or ``muon``.
        momentum: Of SGD.
        betas: Of Adam and AdamW.
        warmup_steps: Learning rates rise linearly from η/warmup_steps to η over so many steps; 0 for none.
        decay_scales_with_c: Whether E decays c times faster, as it does without further care.
        muon_lr: Muon's own learning rate, about the spectral norm of an update; ``None`` for η.
        muon_momentum: Of Muon (0.95, torch's default).
        gradient: Filters between clipping and the step.
        weight_decay_embedding: λ of E; ``None`` for λ.
        weight_decay_first_layer: λ of the first layer; ``None`` for λ.
        weight_decay_rest: λ of everything else; ``None`` for λ.
        clamp: Whether the norm of all weights is held.
        freeze_embedding_at: Steps after which E stands still, without momentum and decay; ``None`` for never.
    """

    lr: float = 0.01
    c: float = 1.0
    weight_decay: float = 0.001
    optimizer: OptimizerName = "adam"
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    warmup_steps: int = 0
    decay_scales_with_c: bool = True
    muon_lr: float | None = None
    muon_momentum: float = MUON_MOMENTUM
    gradient: GradientFilter = UNFILTERED
    weight_decay_embedding: float | None = None
    weight_decay_first_layer: float | None = None
    weight_decay_rest: float | None = None
    clamp: NormClamp = UNCLAMPED
    freeze_embedding_at: int | None = None

    def __post_init__(self) -> None:
        positive = "must be greater than 0 and finite"
        require(0 < self.lr < math.inf, "model.lr", self.lr, positive)
        require(0 < self.c < math.inf, "model.c", self.c, positive)
        allowed = "must be 0 or more and finite"
        require(0 <= self.weight_decay < math.inf, "model.weight_decay", self.weight_decay, allowed)
        require(
            self.optimizer in ("adam", "adamw", "sgd", "muon"),
            "model.optimizer",
            self.optimizer,
            "must be adam, adamw, sgd or muon",
        )
        require(0 <= self.momentum < 1, "model.momentum", self.momentum, "must be in [0, 1)")
        if self.momentum and self.optimizer != "sgd":
            raise ConfigError(
                f"model.momentum = {self.momentum}: only sgd takes it, model.optimizer is {self.optimizer!r}"
            )
        in_range = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(in_range, "model.betas", self.betas, "must be two numbers in [0, 1)")
        require(self.warmup_steps >= 0, "model.warmup_steps", self.warmup_steps, "must be 0 or more (steps)")
        if not self.decay_scales_with_c and self.optimizer in ("adam", "muon"):
            raise ConfigError(
                "model.decay_scales_with_c = False: under adam (which muon uses for E) the decay is part of the "
                "normalised step, which c scales as a whole; use adamw or sgd"
            )
        require(self.muon_lr is None or 0 < self.muon_lr < math.inf, "model.muon_lr", self.muon_lr, positive)
        if self.muon_lr is not None and self.optimizer != "muon":
            raise ConfigError(f"model.muon_lr = {self.muon_lr}: model.optimizer is {self.optimizer!r}, not muon")
        require(0 <= self.muon_momentum < 1, "model.muon_momentum", self.muon_momentum, "must be in [0, 1)")
        if self.muon_momentum != MUON_MOMENTUM and self.optimizer != "muon":
            raise ConfigError(
                f"model.muon_momentum = {self.muon_momentum}: model.optimizer is {self.optimizer!r}, not muon"
            )
        self.gradient.check()
        for field, decay in self.own_decays.items():
            require(0 <= decay < math.inf, f"model.weight_decay_{field}", decay, f"{allowed}, or null")
        self.clamp.check()
        freeze = self.freeze_embedding_at
        require(
            freeze is None or freeze >= 0, "model.freeze_embedding_at", freeze, "must be 0 or more (steps), or null"
        )
        if freeze is not None and self.clamp.norm is not None:
            raise ConfigError(f"model.freeze_embedding_at = {freeze}: model.clamp.norm rescales E too; leave one out")

    @property
    def filters_gradients(self) -> bool:
        """Whether gradients change between clipping and the step."""
        return self.gradient.grokfast != "none" or self.gradient.orthogonal or self.freeze_embedding_at is not None

    @property
    def is_plain_sgd(self) -> bool:
        """Whether an update is ``−η(∇F + λθ)``, a step of gradient flow, once warm-up is over."""
        filtered = self.filters_gradients or self.clamp.norm is not None
        return self.optimizer == "sgd" and self.momentum == 0 and self.c == 1 and not filtered

    @property
    def own_decays(self) -> dict[str, float]:
        """Block → λ, of the blocks that have one of their own."""
        named = {
            "embedding": self.weight_decay_embedding,
            "first_layer": self.weight_decay_first_layer,
            "rest": self.weight_decay_rest,
        }
        return {block: decay for block, decay in named.items() if decay is not None}


def parameter_groups(net: Net, recipe: Recipe) -> list[dict[str, Any]]:
    """One torch parameter group per block of the network, named after it.

    Under muon the hidden matrices of a block are a group of their own, ``<block>_muon``.

    Args:
        net: The network; its :meth:`~grok_lightning.nets.base.Net.blocks` decide what the embedding is.
        recipe: Learning rate, ratio and decay.

    Raises:
        ConfigError: If a setting is about a block that the network lacks, or muon would have no matrix to move.
    """
    blocks, kind = net.blocks(), type(net).__name__
    if recipe.c != 1 and "embedding" not in blocks:
        raise ConfigError(f"model.c = {recipe.c}: {kind} has no embedding to scale; set model.c to 1")
    for block, own in recipe.own_decays.items():
        require(block in blocks, f"model.weight_decay_{block}", own, f"{kind} has no trained {block}")
    freeze = recipe.freeze_embedding_at
    fits = freeze is None or "embedding" in blocks
    require(fits, "model.freeze_embedding_at", freeze, f"{kind} has no trained embedding")
    hidden = net.hidden_matrices() if recipe.optimizer == "muon" else set()
    if recipe.optimizer == "muon" and not hidden:
        raise ConfigError(f"model.optimizer = 'muon': {kind} of this depth has no hidden matrix for it to move")
    parameters, groups = dict(net.named_parameters()), []
    for block, names in blocks.items():
        scale = recipe.c if block == "embedding" else 1.0
        decay = recipe.own_decays.get(block, recipe.weight_decay) / (1.0 if recipe.decay_scales_with_c else scale)
        muon_lr = recipe.lr if recipe.muon_lr is None else recipe.muon_lr
        for group, chosen, lr in (
            (block, [name for name in names if name not in hidden], recipe.lr * scale),
            (block + MUON, [name for name in names if name in hidden], muon_lr),
        ):
            if chosen:
                tensors = [parameters[name] for name in chosen]
                groups.append({"name": group, "params": tensors, "lr": lr, "weight_decay": decay})
    return groups


def build_optimizer(net: Net, recipe: Recipe, fused: bool = True) -> torch.optim.Optimizer:
    """The torch optimiser of a recipe.

    Args:
        net: The network.
        recipe: The optimiser.
        fused: One kernel per group instead of several per parameter; the same update up to rounding.
    """
    groups = parameter_groups(net, recipe)
    if recipe.optimizer == "muon":
        muon = [group for group in groups if group["name"].endswith(MUON)]
        others = [group for group in groups if not group["name"].endswith(MUON)]
        return MuonWithAdam(muon, others, recipe.muon_momentum, recipe.betas, fused)
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum, fused=fused)
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, fused=fused)
    return torch.optim.Adam(groups, lr=recipe.lr, betas=recipe.betas, fused=fused)


def build_hooks(optimizer: torch.optim.Optimizer, recipe: Recipe) -> StepHooks | None:
    """What a recipe does right before and after each step of an optimiser; ``None`` if it leaves gradients alone.

    Args:
        optimizer: The optimiser, not fused where a gradient scaler is at work.
        recipe: The recipe.
    """
    recipe.clamp.install(optimizer)
    if not recipe.filters_gradients:
        return None
    embedding = [p for group in optimizer.param_groups if group["name"] == "embedding" for p in group["params"]]
    return StepHooks(optimizer, recipe.gradient, embedding, recipe.freeze_embedding_at)


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
