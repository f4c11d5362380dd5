"""A small causal Transformer (the setting of arXiv:2201.02177; without LayerNorm and with ReLU, arXiv:2301.05217)."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grok_lightning.errors import require
from grok_lightning.nets.base import SEQUENCE_LENGTH, Net
from grok_lightning.nets.embedding import TRAINED, EmbeddingOptions, add_embedding, scale_all, scale_to

Activation = Literal["relu", "gelu"]


class Attention(nn.Module):
    """Causal multi-head self-attention, ``softmax(Q Kᵀ / √d_head) V``, heads concatenated, then W_O.

    It is written out: the fused kernels behind ``scaled_dot_product_attention`` have no second derivative, and a
    sequence of four tokens gains nothing from them.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_K = nn.Linear(d_model, d_model, bias=False)
        self.W_V = nn.Linear(d_model, d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)
        future = torch.ones(SEQUENCE_LENGTH, SEQUENCE_LENGTH, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Attend; x and result: float, shape (B, L, d_model)."""
        B, L, d = x.shape
        q, k, v = (
            f(x).view(B, L, self.n_heads, d // self.n_heads).transpose(1, 2)  # (B, n_heads, L, d_head)
            for f in (self.W_Q, self.W_K, self.W_V)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(d // self.n_heads)  # (B, n_heads, L, L)
        scores = scores.masked_fill(self.get_buffer("future")[:L, :L], float("-inf"))
        mixed: Tensor = self.W_O((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, L, d))
        return mixed


class Block(nn.Module):
    """Attention and MLP, each on the (pre-)normalised residual stream and added to it."""

    def __init__(self, d_model: int, n_heads: int, d_mlp: int, layer_norm: bool, activation: Activation) -> None:
        super().__init__()
        self.attention = Attention(d_model, n_heads)
        self.W_in, self.W_out = nn.Linear(d_model, d_mlp), nn.Linear(d_mlp, d_model)
        self.norm_attention = nn.LayerNorm(d_model) if layer_norm else nn.Identity()
        self.norm_mlp = nn.LayerNorm(d_model) if layer_norm else nn.Identity()
        self.activation = F.relu if activation == "relu" else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        """One layer; x and result: float, shape (B, L, d_model)."""
        x = x + self.attention(self.norm_attention(x))
        mixed: Tensor = self.W_out(self.activation(self.W_in(self.norm_mlp(x))))
        return x + mixed


class TransformerNet(Net):
    """Causal Transformer that reads ``[a, OP, b, EQ]`` and predicts the label at EQ.

    Args:
        vocab_size: V, number of tokens.
        n_classes: Number of logits.
        d_model: Width of the residual stream, a multiple of n_heads.
        n_layers: Number of layers.
        n_heads: Attention heads per layer.
        d_mlp: Width of the MLP.
        layer_norm: Pre-LayerNorm in every block and before the unembedding; off as an option (arXiv:2607.06639).
        tied: Use the rows of E that stand for labels as the unembedding, ``logits = x E[:n_classes]ᵀ``.
        activation: ``relu`` or ``gelu``.
        embedding: What E is and starts as; it has to be trained.
        init_scale: Factor on all parameters at the start (arXiv:2210.01117), gains of LayerNorm included.

    E starts as N(0, 1), like nn.Embedding; positions as N(0, 0.02²); a tied E as N(0, 1/d_model), so that logits
    start of order one.
    """

    E: Tensor | None
    E_left: Tensor | None
    E_right: Tensor | None

    def __init__(
        self,
        vocab_size: int,
        n_classes: int,
        d_model: int = 128,
        n_layers: int = 2,
        n_heads: int = 4,
        d_mlp: int = 512,
        layer_norm: bool = True,
        tied: bool = False,
        activation: Activation = "relu",
        embedding: EmbeddingOptions = TRAINED,
        init_scale: float = 1.0,
    ) -> None:
        super().__init__()
        sizes = {"d_model": d_model, "n_layers": n_layers, "n_heads": n_heads, "d_mlp": d_mlp}
        for name, value in sizes.items():
            require(value >= 1, f"model.{name}", value, "must be 1 or more")
        require(d_model % n_heads == 0, "model.d_model", d_model, f"must be a multiple of n_heads = {n_heads}")
        require(not tied or n_classes <= vocab_size, "model.tied", tied, "needs every label to be a token too")
        require(activation in ("relu", "gelu"), "model.activation", activation, "must be relu or gelu")
        self.n_classes = n_classes
        allowed = "must be trained: rows of the residual stream are d_model wide"
        require(embedding.inputs == "trained", "model.embedding.inputs", embedding.inputs, allowed)
        add_embedding(self, embedding, vocab_size, d_model, std=d_model**-0.5 if tied else 1.0)
        self.positions = nn.Parameter(torch.empty(SEQUENCE_LENGTH, d_model))
        nn.init.normal_(self.positions, std=0.02)
        layers = (Block(d_model, n_heads, d_mlp, layer_norm, activation) for _ in range(n_layers))
        self.layers = nn.ModuleList(layers)
        self.norm_final = nn.LayerNorm(d_model) if layer_norm else nn.Identity()
        self.unembedding = None if tied else nn.Linear(d_model, n_classes, bias=False)
        if embedding.sigma_matched:
            scale_to(self, [self.get_parameter(name) for name in sorted(self.first_layer_names())])
        scale_all(self, init_scale)

    def embedding(self) -> Tensor:
        """E, shape (V, d_model)."""
        if self.E is not None:
            return self.E
        assert self.E_left is not None  # one of the two forms is there
        assert self.E_right is not None
        return self.E_left @ self.E_right

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits at the last position.

        Args:
            tokens: int64, shape (B, L), L ≤ 4.

        Returns:
            float, shape (B, n_classes).
        """
        E = self.embedding()
        x = F.embedding(tokens, E) + self.positions[: tokens.shape[1]]  # (B, L, d_model)
        for layer in self.layers:
            x = layer(x)
        last = self.norm_final(x[:, -1])
        logits: Tensor = last @ E[: self.n_classes].T if self.unembedding is None else self.unembedding(last)
        return logits

    def first_layer_names(self) -> set[str]:
        """W_Q, W_K and W_V of the first layer: the maps that read the embedding."""
        return {f"layers.0.attention.{name}.weight" for name in ("W_Q", "W_K", "W_V")}

    def hidden_matrices(self) -> set[str]:
        """The six weights of every layer; not E, the positions or the unembedding."""
        return {name for name, p in self.named_parameters() if name.startswith("layers.") and p.ndim == 2}

    def matrices(self) -> dict[str, Tensor]:
        """E, then per layer ``W_Q.<i>`` … ``W_out.<i>``, and W_U (a tied one is E and not repeated)."""
        found: dict[str, Tensor] = {"E": self.embedding()}
        for i, layer in enumerate(self.layers):
            for name in ("W_Q", "W_K", "W_V", "W_O"):
                found[f"{name}.{i}"] = layer.get_submodule(f"attention.{name}").get_parameter("weight")
            found |= {f"{name}.{i}": layer.get_submodule(name).get_parameter("weight") for name in ("W_in", "W_out")}
        return found if self.unembedding is None else found | {"W_U": self.unembedding.weight}
