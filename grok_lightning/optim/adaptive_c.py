"""Moving the learning rate of the embedding while training goes on (arXiv:2505.15624, eq. 24)."""

import math
from collections.abc import Iterable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def next_c(c: float, predicted: float, kappa: float, smoothing: float, low: float, high: float) -> float:
    """``β c + (1 − β) clip(κ · predicted, low, high)``; c where nothing finite was predicted.

    Args:
        c: The ratio so far.
        predicted: Right-hand side of eq. 24, ``(σ_max(E)/σ_max(W)) · (f_W/f_E)``.
        kappa: κ, the factor that eq. 24 leaves open.
        smoothing: β, share of the old value that stays.
        low: Smallest c.
        high: Largest c.
    """
    if not math.isfinite(predicted):
        return c
    return smoothing * c + (1 - smoothing) * min(max(kappa * predicted, low), high)


def set_c(
    optimizer: Optimizer,
    schedulers: Iterable[LRScheduler],
    lr: float,
    old: float,
    new: float,
    decay_scales_with_c: bool,
) -> None:
    """Let the group named ``embedding`` have ``η_E = new·η`` from the next update on, under its schedule.

    Optimiser and schedulers keep the new rates in their own states, so a checkpoint brings them back.

    Args:
        optimizer: The optimiser.
        schedulers: Its learning-rate schedules, which multiply the base rates.
        lr: η.
        old: c so far.
        new: c from now on.
        decay_scales_with_c: Unless it does, λ_E is divided by c anew.
    """
    schedulers = list(schedulers)
    for index, group in enumerate(optimizer.param_groups):
        if group["name"] != "embedding":
            continue
        factor = group["lr"] / (lr * old)  # of the schedule; 1 without one
        group["lr"] = lr * new * factor
        if "initial_lr" in group:
            group["initial_lr"] = lr * new
        if not decay_scales_with_c:
            group["weight_decay"] *= old / new
        for scheduler in schedulers:
            scheduler.base_lrs[index] = lr * new
