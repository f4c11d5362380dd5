"""The two-phase clock: when the loss is fitted, and when weight decay takes over."""

import math
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from grok_lightning import metric_keys
from grok_lightning.callbacks.lookup import datamodule_of, labelled_blocks, net_of, pairs
from grok_lightning.callbacks.periodic import Periodic, Values
from grok_lightning.errors import require
from grok_lightning.loggers.at_step import log_at_step
from grok_lightning.modules.base import GrokModule
from grok_lightning.modules.score import chunk_rows
from grok_lightning.numerics.gradient import gradient_norms
from grok_lightning.numerics.health import block_norms
from grok_lightning.numerics.two_phase import two_phase_clock


class TwoPhase(Periodic):
    """``t_GF = min{t : ‖∇F‖ ≤ ε‖∇F(w_0)‖}`` and ``t_WD = min{t : ‖∇F‖ ≤ λ‖w‖}`` (arXiv:2505.20172).

    F is the mean loss over the training set without weight decay, λ the model's weight decay, w all parameters. Where
    blocks have a decay of their own, λw is taken block by block, and there are no clocks, which are made for one λ.

    Args:
        every_n_steps: Distance of measurements in optimiser steps, and so the resolution of the clocks; 0 for none
            on this grid.
        log_points_per_decade: Log-spaced measurements per factor of ten in steps; 0 for none.
        epsilon: ε in (0, 1); the source leaves it open, 0.01 is ours.
    """

    group = "two_phase"

    def __init__(self, every_n_steps: int = 500, log_points_per_decade: int = 0, epsilon: float = 0.01) -> None:
        super().__init__(every_n_steps, log_points_per_decade)
        require(0 < epsilon < 1, "two_phase.epsilon", epsilon, "must be in (0, 1)")
        self.epsilon = epsilon
        self._history: list[tuple[int, float, float]] = []  # step, gradient norm, weight norm

    def measure(self, trainer: Trainer, pl_module: LightningModule) -> Values:
        """One gradient over the training set."""
        assert isinstance(pl_module, GrokModule)
        net = net_of(pl_module)
        tokens, labels = pairs(trainer, datamodule_of(trainer).measured_rows())
        params = dict(net.named_parameters())
        blocks = labelled_blocks(net) | {"all": list(params)}
        gradients = gradient_norms(net, tokens, labels, blocks, chunk_rows(labels), pl_module.loss)
        grad, weight = gradients["all"], float(block_norms(params, {"all": list(params)})["all"])
        self._history.append((trainer.global_step, grad, weight))
        recipe = pl_module.recipe
        norms = block_norms(params, net.blocks())
        pulls = [recipe.own_decays.get(block, recipe.weight_decay) * float(norm) for block, norm in norms.items()]
        values = {metric_keys.grad_norm(block): norm for block, norm in gradients.items()}
        values[metric_keys.two_phase("weight_norm")] = weight
        if grad > 0:
            values[metric_keys.two_phase("decay_over_gradient")] = math.hypot(*pulls) / grad
        if recipe.is_plain_sgd and recipe.weight_decay > 0 and not recipe.own_decays:
            values[metric_keys.two_phase("decay_time")] = recipe.weight_decay * recipe.lr * trainer.global_step
        return values

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the last weights, and log the clocks that were reached."""
        super().on_train_end(trainer, pl_module)
        assert isinstance(pl_module, GrokModule)
        recipe, usable = pl_module.recipe, [point for point in self._history if _finite(point)]
        if (
            not usable or usable[0][0] != 0 or recipe.own_decays
        ):  # both clocks are measured against the weights before the first update
            return
        steps, grads, weights = zip(*usable, strict=True)
        lr = recipe.lr if recipe.is_plain_sgd else None
        clock = two_phase_clock(steps, grads, weights, recipe.weight_decay, lr, self.epsilon)
        found = {
            metric_keys.clock("t_gf"): clock.t_gf,
            metric_keys.clock("t_wd"): clock.t_wd,
            metric_keys.two_phase("bound"): clock.bound,
            metric_keys.two_phase("decay_ratio"): clock.decay_ratio,
            metric_keys.two_phase("predicted_steps"): clock.predicted_steps,
        }
        log_at_step(trainer, {key: float(value) for key, value in found.items() if value is not None})

    def state_dict(self) -> dict[str, Any]:
        """The norms so far."""
        return super().state_dict() | {"history": list(self._history)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue."""
        super().load_state_dict(state_dict)
        self._history = [(int(step), float(grad), float(weight)) for step, grad, weight in state_dict["history"]]


def _finite(point: tuple[int, float, float]) -> bool:
    return all(abs(value) < float("inf") for value in point)
