"""Gradient flow with weight decay as an ordinary differential equation: the reference that small steps approach."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from torch import Tensor, nn

from grok_lightning.errors import ConfigError, require
from grok_lightning.optim.losses import Loss

Floats = NDArray[np.float64]


def gradient_flow(
    net: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    loss: Loss,
    weight_decay: float,
    times: Sequence[float],
    *,
    rtol: float = 1e-8,
    atol: float = 1e-10,
    method: str = "LSODA",
) -> list[dict[str, Tensor]]:
    """``dw/dt = −∇F(w) − λw`` from the weights of a network, F its mean loss; gradient descent is its Euler scheme.

    Step k of ``w ← w − η(∇F(w) + λw)`` is at time t = ηk and differs from the flow by O(η) at a fixed time. The
    integrator chooses its own steps: where the flow is slow and stiff, as in the second phase of arXiv:2505.20172, an
    implicit method (LSODA switches by itself, or BDF, Radau) gets far beyond what gradient descent can afford, on
    networks of up to some hundred weights that are smooth: along a kink of ReLU an integrator can creep for ever. The
    network is left as it is.

    Args:
        net: The network; w(0) are its parameters, in float64 from there on.
        inputs: What it takes, shape (N, …).
        labels: Its labels.
        loss: The loss; called as ``loss(outputs, labels)``.
        weight_decay: λ, 0 or more.
        times: When to look, increasing, 0 or more.
        rtol: Relative tolerance of the integrator.
        atol: Its absolute tolerance.
        method: One of scipy's: RK45, DOP853, LSODA, BDF, Radau …

    Returns:
        Per time, parameter name → float64 value.

    Raises:
        ConfigError: On times or a decay out of range, or if the integrator gives up.
    """
    ordered = len(times) > 0 and times[0] >= 0 and all(a < b for a, b in pairwise(times))
    require(ordered, "times", list(times), "must increase from 0 or more")
    require(weight_decay >= 0, "weight_decay", weight_decay, "must be 0 or more")
    start = {name: p.detach().double().cpu() for name, p in net.named_parameters()}
    sizes, inputs = [p.numel() for p in start.values()], inputs.cpu()

    def named(flat: Floats) -> dict[str, Tensor]:
        parts = torch.split(torch.from_numpy(flat.copy()), sizes)
        return {name: part.view_as(start[name]) for name, part in zip(start, parts, strict=True)}

    def velocity(_: float, flat: Floats) -> Floats:
        params = {name: p.requires_grad_() for name, p in named(flat).items()}
        value = loss(torch.func.functional_call(net, params, (inputs,)), labels.cpu())
        gradients = torch.autograd.grad(value, list(params.values()), materialize_grads=True)
        joined: Floats = torch.cat([g.flatten() for g in gradients]).numpy()
        return -joined - weight_decay * flat

    flat = torch.cat([p.flatten() for p in start.values()]).numpy()
    if times[-1] == 0:
        return [named(flat)]
    solved = solve_ivp(velocity, (0.0, times[-1]), flat, method, t_eval=list(times), rtol=rtol, atol=atol)
    if not solved.success:
        raise ConfigError(f"method = {method!r}: the integrator gave up: {solved.message}")
    return [named(state) for state in solved.y.T]
