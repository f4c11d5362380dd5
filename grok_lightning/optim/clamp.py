"""Training at a fixed weight norm."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from grok_lightning.errors import require


@dataclass(frozen=True)
class NormClamp:
    """Holds the norm of all weights at ``ρ·‖W‖_c``: after every step ``θ ← θ · ρ‖W‖_c / ‖θ‖₂``.

    ‖W‖_c is the norm that a run without the clamp has at T_grok (``health/all/param_norm``). This is our reading of
    arXiv:2606.13753, which finds that T_grok grows like exp(7.5 ρ), and of its use in arXiv:2607.06639: the norm is
    that of all parameters together, biases and E included, and it is held, from above and from below. The weights
    before the first step are left as they are.

    Args:
        rho: ρ, multiple of the critical norm.
        norm: ‖W‖_c; ``null`` for no clamp.
    """

    rho: float = 1.0
    norm: float | None = None

    def check(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            ConfigError: If a value is out of range.
        """
        positive = "must be greater than 0 and finite"
        require(0 < self.rho < math.inf, "model.clamp.rho", self.rho, positive)
        require(self.norm is None or 0 < self.norm < math.inf, "model.clamp.norm", self.norm, f"{positive}, or null")
        idle = self.norm is None and self.rho != 1
        require(not idle, "model.clamp.rho", self.rho, "is a multiple of model.clamp.norm, which is not given")

    def install(self, optimizer: Optimizer) -> None:
        """Act after every step of an optimiser of all parameters."""
        if self.norm is None:
            return
        target, parameters = self.rho * self.norm, [p for group in optimizer.param_groups for p in group["params"]]

        def after_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            rescale(parameters, target)

        optimizer.register_step_post_hook(after_step)


UNCLAMPED = NormClamp()
"""Weights as the optimiser leaves them."""


@torch.no_grad()
def rescale(parameters: list[Tensor], norm: float) -> None:
    """Multiply all parameters by one factor, so that ``√Σ ‖θ_i‖² = norm``."""
    total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p) for p in parameters]))
    for parameter in parameters:
        parameter.mul_(norm / total)
