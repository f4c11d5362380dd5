"""The two-phase clock of weight decay: fit first, shrink the norm later (arXiv:2505.20172).

With F the mean training loss without its weight decay term, and λ the decay (the whole gradient is ∇F + λw)::

    t_GF = min{t : ‖∇F(w_t)‖ ≤ ε·‖∇F(w_0)‖}     end of the fast phase, the gradient flow on F
    t_WD = min{t : ‖∇F(w_t)‖ ≤ λ·‖w_t‖}         decay is no weaker than the gradient from here on
    bound = ‖∇F(w_0)‖ / ‖w_GF‖                  two phases need λ ≪ bound

and generalisation is predicted at a time of order 1/λ, that is 1/(λ·η) steps of SGD with learning rate η.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from grok_lightning.errors import require


@dataclass(frozen=True)
class TwoPhaseClock:
    """Clocks in optimiser steps; ``None`` where the run did not get there.

    Attributes:
        t_gf: End of the fast phase.
        t_wd: First step at which decay balances the gradient; ``None`` without decay.
        bound: ‖∇F(w_0)‖ / ‖w_GF‖, in units of λ.
        decay_ratio: λ / bound; the theory speaks of values far below 1.
        predicted_steps: 1/(λ·η), a scale and no more; ``None`` without decay or learning rate.
        first_step: First logged step; it stands in for w_0 and should be 0.
    """

    t_gf: int | None
    t_wd: int | None
    bound: float | None
    decay_ratio: float | None
    predicted_steps: float | None
    first_step: int


def two_phase_clock(
    steps: Sequence[int],
    grad_norm: Sequence[float],
    weight_norm: Sequence[float],
    weight_decay: float,
    lr: float | None = None,
    epsilon: float = 0.01,
) -> TwoPhaseClock:
    """Read t_GF and t_WD off logged norms; formulas in the module's docstring.

    Args:
        steps: Logged steps, strictly increasing; the first stands in for w_0.
        grad_norm: ‖∇F(w_t)‖ of the unregularised mean loss over the full training set.
        weight_norm: ‖w_t‖ over the same parameters.
        weight_decay: λ of the term λ/2·‖w‖², 0 or more.
        lr: Learning rate η of SGD; ``None`` leaves the prediction out (it does not hold for Adam).
        epsilon: ε in (0, 1); the source leaves it open, 0.01 is ours.

    Raises:
        ConfigError: On empty, ragged, non-finite or negative series, steps that do not increase, or λ, η or ε
            out of range.
    """
    n = len(steps)
    for field, series in (("grad_norm", grad_norm), ("weight_norm", weight_norm)):
        require(len(series) == n and n > 0, field, len(series), f"must have one value for each of {n} > 0 steps")
        bad = next((value for value in series if not (math.isfinite(value) and value >= 0)), None)
        require(bad is None, field, bad, "must be finite and 0 or more")
    require(all(a < b for a, b in pairwise(steps)), "steps", steps[0], "must increase strictly from there")
    require(math.isfinite(weight_decay) and weight_decay >= 0, "weight_decay", weight_decay, "must be 0 or more")
    require(lr is None or (math.isfinite(lr) and lr > 0), "lr", lr, "must be a positive number")
    require(0 < epsilon < 1, "epsilon", epsilon, "must be in (0, 1)")
    fitted = next((i for i, g in enumerate(grad_norm) if g <= epsilon * grad_norm[0]), None)
    balanced = next((i for i in range(n) if grad_norm[i] <= weight_decay * weight_norm[i]), None)
    bound = grad_norm[0] / weight_norm[fitted] if fitted is not None and weight_norm[fitted] > 0 else None
    return TwoPhaseClock(
        t_gf=None if fitted is None else steps[fitted],
        t_wd=None if balanced is None or weight_decay == 0 else steps[balanced],
        bound=bound,
        decay_ratio=weight_decay / bound if bound else None,
        predicted_steps=1 / (weight_decay * lr) if lr is not None and weight_decay > 0 else None,
        first_step=steps[0],
    )
