"""A Vision Transformer (arXiv:2010.11929) without dropout, for images of a few dozen pixels a side."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grok_lightning.errors import require
from grok_lightning.nets.attention import attend
from grok_lightning.nets.base import Net, check_heads, check_sizes, layer_matrices

Pool = Literal["class_token", "mean"]


class Attention(nn.Module):
    """Multi-head self-attention over all positions, then W_O."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_K = nn.Linear(d_model, d_model, bias=False)
        self.W_V = nn.Linear(d_model, d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attend; x and result: float, shape (B, L, d_model)."""
        mixed: Tensor = self.W_O(attend(x, (self.W_Q, self.W_K, self.W_V), self.n_heads, causal=False))
        return mixed


class Block(nn.Module):
    """Attention and MLP (GELU), each on the pre-normalised residual stream and added to it."""

    def __init__(self, d_model: int, n_heads: int, d_mlp: int) -> None:
        super().__init__()
        self.attention = Attention(d_model, n_heads)
        self.W_in, self.W_out = nn.Linear(d_model, d_mlp), nn.Linear(d_mlp, d_model)
        self.norm_attention, self.norm_mlp = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        """One layer; x and result: float, shape (B, L, d_model)."""
        x = x + self.attention(self.norm_attention(x))
        mixed: Tensor = self.W_out(F.gelu(self.W_in(self.norm_mlp(x))))
        return x + mixed


class ViTNet(Net):
    """Classifier of square images, cut into P × P patches: ``x_i = patch_i E + b + position_i``, then the layers.

    The block ``embedding``, which moves at c times the learning rate of the rest, is everything that makes up the first
    residual stream: E, b, the positions and the class token. ``first_layer`` is W_Q, W_K and W_V of layer 0.

    Args:
        n_classes: Number of logits.
        image_size: Pixels per side.
        channels: Colours per pixel.
        patch_size: P, pixels per side of a patch; divides image_size.
        d_model: Width of the residual stream, a multiple of n_heads.
        n_layers: Number of layers.
        n_heads: Attention heads per layer.
        d_mlp: Width of the MLP.
        pool: What the logits are read from: a class token (arXiv:2010.11929), or the mean over patches.

    E and b start like nn.Linear, positions and class token as N(0, 0.02²). W_Q, W_K, W_V and W_O have no biases, as in
    the other Transformer here (that of W_K would change nothing at all).
    """

    embedded = ("E", "E_bias", "positions", "class_token")

    def __init__(
        self,
        n_classes: int,
        image_size: int,
        channels: int,
        patch_size: int = 8,
        d_model: int = 384,
        n_layers: int = 7,
        n_heads: int = 8,
        d_mlp: int = 1536,
        pool: Pool = "class_token",
    ) -> None:
        super().__init__()
        check_sizes(patch_size=patch_size, d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_mlp=d_mlp)
        check_heads(d_model, n_heads)
        allowed = f"must divide the images' {image_size} pixels per side"
        require(image_size % patch_size == 0, "model.patch_size", patch_size, allowed)
        require(pool in ("class_token", "mean"), "model.pool", pool, "must be class_token or mean")
        self.n_classes, self.patch_size = n_classes, patch_size
        n_patches, width = (image_size // patch_size) ** 2, channels * patch_size**2
        self.E = nn.Parameter(torch.empty(width, d_model).uniform_(-(width**-0.5), width**-0.5))
        self.E_bias = nn.Parameter(torch.empty(d_model).uniform_(-(width**-0.5), width**-0.5))
        self.class_token = nn.Parameter(0.02 * torch.randn(1, d_model)) if pool == "class_token" else None
        self.positions = nn.Parameter(0.02 * torch.randn(n_patches + (pool == "class_token"), d_model))
        self.layers = nn.ModuleList(Block(d_model, n_heads, d_mlp) for _ in range(n_layers))
        self.norm_final = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, n_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits.

        Args:
            images: float, shape (B, channels, image_size, image_size), normalised.

        Returns:
            float, shape (B, n_classes).
        """
        x = patches(images, self.patch_size).to(self.E.dtype) @ self.E + self.E_bias
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
        x = x + self.positions
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(self.norm_final(x).mean(1) if self.class_token is None else self.norm_final(x[:, 0]))
        return logits

    def embedding(self) -> Tensor:
        """E, shape (channels · P², d_model): its rows are pixels of a patch, not tokens."""
        return self.E

    def first_layer_names(self) -> set[str]:
        """W_Q, W_K and W_V of the first layer."""
        return {f"layers.0.attention.{name}.weight" for name in ("W_Q", "W_K", "W_V")}

    def hidden_matrices(self) -> set[str]:
        """The six weights of every layer."""
        return layer_matrices(self)

    def matrices(self) -> dict[str, Tensor]:
        """E and the positions, then per layer ``W_Q.<i>`` … ``W_out.<i>``, and the head as W_U."""
        found: dict[str, Tensor] = {"E": self.E, "positions": self.positions}
        for i, layer in enumerate(self.layers):
            for name in ("W_Q", "W_K", "W_V", "W_O"):
                found[f"{name}.{i}"] = layer.get_submodule(f"attention.{name}").get_parameter("weight")
            found |= {f"{name}.{i}": layer.get_submodule(name).get_parameter("weight") for name in ("W_in", "W_out")}
        return found | {"W_U": self.head.weight}


def patches(images: Tensor, size: int) -> Tensor:
    """Non-overlapping patches, row by row, each as channel, row, column.

    Args:
        images: Shape (B, C, H, W), H and W multiples of size.
        size: P, pixels per side.

    Returns:
        Shape (B, H·W / P², C·P²).
    """
    B, C, H, W = images.shape
    cut = images.reshape(B, C, H // size, size, W // size, size).permute(0, 2, 4, 1, 3, 5)
    return cut.reshape(B, (H // size) * (W // size), C * size * size)
