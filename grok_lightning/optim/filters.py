"""What happens to a gradient between clipping and the optimiser: freezing, Grokfast and ⊥Grad."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from grok_lightning.errors import require

Grokfast = Literal["none", "ema", "ma"]

STATE_KEY = "gradient_filter"
"""Where the state of an optimiser keeps the memory of its filter."""

PARALLEL = 1e-6
"""‖g⊥‖/‖g‖ below which g counts as parallel to w: what is left is rounding, and is not blown up to ‖g‖."""


@dataclass(frozen=True)
class GradientFilter:
    """Filters of the gradient of the loss, in this order, after unscaling and clipping and right before the step.

    Grokfast (arXiv:2405.20233) amplifies the slow part of every parameter's gradient, ``g ← g + λ μ``: with ``ema``
    ``μ ← α μ + (1 − α) g`` (the first gradient seeds μ), with ``ma`` μ is the mean of the last ``window`` gradients,
    and nothing is added before there are so many. A gradient with an infinity or NaN counts as μ in that memory,
    which so stays as it was. ⊥Grad (arXiv:2501.04697) takes from every tensor's gradient the part along its weights,
    ``g⊥ = g − (⟨g, w⟩ / ⟨w, w⟩) w``, and rescales it to ‖g‖. Neither sees weight decay, which the optimiser adds.

    Args:
        grokfast: none, ema or ma.
        alpha: α of ema (0.98 in the paper's experiment on x·y mod 97).
        lam: λ, strength of the slow part (2 with ema, 5 with ma there).
        window: Number of gradients that ma keeps (100 there); their memory is so many times the model's.
        orthogonal: Whether ⊥Grad is applied.
    """

    grokfast: Grokfast = "none"
    alpha: float = 0.98
    lam: float = 2.0
    window: int = 100
    orthogonal: bool = False

    def check(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            ConfigError: If a value is out of range.
        """
        kind = "model.gradient.grokfast"
        require(self.grokfast in ("none", "ema", "ma"), kind, self.grokfast, "must be none, ema or ma")
        require(0 <= self.alpha < 1, "model.gradient.alpha", self.alpha, "must be in [0, 1)")
        require(0 <= self.lam < math.inf, "model.gradient.lam", self.lam, "must be 0 or more and finite")
        require(self.window >= 1, "model.gradient.window", self.window, "must be 1 or more (steps)")


UNFILTERED = GradientFilter()
"""Gradients as they are."""


def orthogonalise(gradient: Tensor, weight: Tensor) -> Tensor:
    """``g⊥ ‖g‖ / ‖g⊥‖`` with ``g⊥ = g − (⟨g, w⟩ / ⟨w, w⟩) w``, over all entries of the tensor (arXiv:2501.04697).

    Args:
        gradient: g, any shape.
        weight: w, of the same shape; where it is 0, g is returned.

    Returns:
        A gradient orthogonal to w, of the norm of g; 0 where g is parallel to w up to rounding.
    """
    g, w = gradient.flatten(), weight.detach().flatten()
    square = w @ w
    along = torch.where(square > 0, (g @ w) / square, 0)
    rest = g - along * w
    before, after = torch.linalg.vector_norm(g), torch.linalg.vector_norm(rest)
    factor = torch.where(after > PARALLEL * before, before / after, 0)
    return (rest * factor).view_as(gradient)


class StepHooks:
    """Acts on the gradients of an optimiser right before each of its steps, with or without a closure.

    The memory is part of ``optimizer.state_dict()``, as plain numbers and tensors, so whoever saves the optimiser
    saves it too.

    Args:
        optimizer: Gets the hooks. It must not unscale gradients itself (a fused one under a gradient scaler does).
        options: The filters.
        frozen: Parameters that have no gradient any more once ``freeze_at`` steps were made; without one, no
            optimiser moves them by momentum or decay either.
        freeze_at: Number of steps after which they stand still; ``None`` for never.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        options: GradientFilter,
        frozen: Iterable[Tensor] = (),
        freeze_at: int | None = None,
    ) -> None:
        self.options, self.frozen, self.freeze_at = options, list(frozen), freeze_at
        self.steps = 0
        self.parameters: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
        self._means: dict[int, Tensor] = {}
        self._rings: dict[int, Tensor] = {}
        self._counts: dict[int, int] = {}
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_state_dict_post_hook(self._save)
        optimizer.register_load_state_dict_pre_hook(self._load)

    def memory_norm(self) -> Tensor | None:
        """``‖μ‖₂`` over all parameters; ``None`` without Grokfast or before its first step."""
        norms = [torch.linalg.vector_norm(mean) for mean in self._means.values()]
        return torch.linalg.vector_norm(torch.stack(norms)) if norms else None

    @torch.no_grad()
    def apply(self) -> None:
        """Replace the gradients of all parameters by what the optimiser is to see."""
        if self.freeze_at is not None and self.steps >= self.freeze_at:
            for parameter in self.frozen:
                parameter.grad = None
        self.steps += 1
        for index, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            if self.options.grokfast != "none":
                mean = self._remember(index, parameter.grad)
                if mean is not None:
                    parameter.grad.add_(mean, alpha=self.options.lam)
            if self.options.orthogonal:
                parameter.grad.copy_(orthogonalise(parameter.grad, parameter))

    def _remember(self, index: int, gradient: Tensor) -> Tensor | None:
        """Take a gradient into the memory; μ if it is to be added."""
        if index not in self._means:
            self._means[index] = torch.zeros_like(gradient)
            if self.options.grokfast == "ma":
                self._rings[index] = gradient.new_zeros(self.options.window, *gradient.shape)
        mean, count = self._means[index], self._counts.get(index, 0)
        self._counts[index] = count + 1
        taken = torch.where(gradient.isfinite().all(), gradient, mean)
        if self.options.grokfast == "ema":
            alpha = self.options.alpha if count else 0.0
            return mean.mul_(alpha).add_(taken, alpha=1 - alpha)
        window, ring = self.options.window, self._rings[index]
        slot, filled = count % window, min(count + 1, window)
        if slot == window - 1:  # summed anew once per window, so that rounding does not pile up
            ring[slot].copy_(taken)
            mean.copy_(ring.mean(0))
        else:
            mean.mul_(min(count, window) / filled).add_(taken - ring[slot], alpha=1 / filled)
            ring[slot].copy_(taken)
        return mean if filled == window else None

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]] | None:
        """Act now, or after the closure that computes the gradients (Lightning clips in there too)."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimiser
        if closure is None:
            self.apply()
            return None
        return args[:1], {**kwargs, "closure": self._after(closure)}

    def _after(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def filtered() -> Any:
            loss = closure()
            self.apply()
            return loss

        return filtered

    def _save(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        state[STATE_KEY] = {
            "steps": self.steps,
            "counts": dict(self._counts),
            "means": {index: mean.clone() for index, mean in self._means.items()},
            "rings": {index: ring.clone() for index, ring in self._rings.items()},
        }

    def _load(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        saved = state.pop(STATE_KEY, None)
        if saved is None:
            raise ValueError("the optimiser's state has no memory of gradients: it was saved without filters")
        self.steps, self._counts = saved["steps"], dict(saved["counts"])
        for name, held in (("means", self._means), ("rings", self._rings)):
            held.clear()
            held.update({index: tensor.to(self.parameters[index], copy=True) for index, tensor in saved[name].items()})
