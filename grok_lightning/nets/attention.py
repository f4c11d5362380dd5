"""Attention through torch's fused kernels."""

from torch import Tensor, nn
from torch.nn import functional as F


def attend(x: Tensor, maps: tuple[nn.Linear, nn.Linear, nn.Linear], n_heads: int, causal: bool) -> Tensor:
    """Multi-head self-attention, ``softmax(Q Kᵀ / √d_head) V``, heads concatenated.

    ``scaled_dot_product_attention`` picks a kernel; measurements run under its math kernel, the only one that has a
    second derivative.

    Args:
        x: float, shape (B, T, d).
        maps: What gives Q, K and V.
        n_heads: Number of heads, which share d evenly.
        causal: Whether a position sees itself and those before it, or all.

    Returns:
        float, shape (B, T, d).
    """
    B, T, d = x.shape
    q, k, v = (to(x).view(B, T, n_heads, d // n_heads).transpose(1, 2) for to in maps)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(B, T, d)
