"""The gradient of the mean training loss over a whole set of samples, without a trace on the network."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from grok_lightning.numerics.health import block_norms
from grok_lightning.numerics.quiet import exact, undisturbed, unwrap
from grok_lightning.optim.losses import CROSS_ENTROPY, Loss


def gradient_norms(
    net: nn.Module,
    tokens: Tensor,
    labels: Tensor,
    blocks: Mapping[str, Sequence[str]],
    chunk_size: int,
    loss: Loss = CROSS_ENTROPY,
) -> dict[str, float]:
    """``‖∂F/∂θ_b‖₂`` with ``F = (1/N) Σ_i loss(net(tokens_i), labels_i)``, no weight decay (arXiv:2505.20172).

    Eval mode, no autocast, no TF32; ``.grad``, modes and random states stay as they are.

    Args:
        net: The network; wrappers are taken off.
        tokens: What the network takes, shape (N, …).
        labels: Shape (N,), or (N, T) for T predictions a row; the mean is over all of them.
        blocks: Block name → parameter names.
        chunk_size: Samples per graph; chunks weigh by their sample counts.
        loss: The training loss.

    Returns:
        Block name → norm, in units of the loss (nats for cross-entropy) per unit of weight.
    """
    net = unwrap(net)
    with exact(tokens.device):
        params = {name: p.detach().requires_grad_() for name, p in net.named_parameters()}
        total = {name: torch.zeros_like(p) for name, p in params.items()}
        for part, target in zip(torch.split(tokens, chunk_size), torch.split(labels, chunk_size), strict=True):
            with undisturbed(net, tokens.device):
                logits = torch.func.functional_call(net, params, (part,))
            value = loss(logits, target, "sum") / labels.numel()
            found = torch.autograd.grad(value, list(params.values()), materialize_grads=True)
            for name, gradient in zip(params, found, strict=True):
                total[name] += gradient
    return {block: float(norm) for block, norm in block_norms(total, blocks).items()}
