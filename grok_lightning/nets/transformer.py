"""A small causal Transformer (the setting of arXiv:2201.02177; without LayerNorm and with ReLU, arXiv:2301.05217)."""

import math
from itertools import zip_longest
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grok_lightning.errors import require
from grok_lightning.nets.base import SEQUENCE_LENGTH, Net, check_heads, check_sizes, layer_matrices, same_symbols
from grok_lightning.nets.embedding import TRAINED, EmbeddingOptions, add_embedding, embedding_rows, scale_all, scale_to

PREFIX = 2
"""Positions of ``a OP``, which in a causal network see nothing of b."""

Activation = Literal["relu", "gelu"]

KeysValues = tuple[Tensor, Tensor]
"""Keys and values of some positions, each of shape (B, n_heads, L, d_head)."""


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

    def heads(self, x: Tensor) -> Tensor:
        """Split (B, L, d_model) into heads, (B, n_heads, L, d_head)."""
        B, L, d = x.shape
        return x.view(B, L, self.n_heads, d // self.n_heads).transpose(1, 2)

    def keys_values(self, x: Tensor) -> KeysValues:
        """What positions offer to those that attend to them; x: float, shape (B, L, d_model)."""
        return self.heads(self.W_K(x)), self.heads(self.W_V(x))

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend from the last positions to all.

        Args:
            x: float, shape (B, Q, d_model), the last Q of the L positions.
            k: Keys of all positions, shape (B, n_heads, L, d_head).
            v: Their values, of the same shape.

        Returns:
            float, shape (B, Q, d_model).
        """
        (B, Q, d), L = x.shape, k.shape[2]
        scores = self.heads(self.W_Q(x)) @ k.transpose(-1, -2) / math.sqrt(d // self.n_heads)  # (B, n_heads, Q, L)
        if Q > 1:  # the last position sees all
            scores = scores.masked_fill(self.get_buffer("future")[L - Q : L, :L], float("-inf"))
        mixed: Tensor = self.W_O((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, Q, d))
        return mixed


class Block(nn.Module):
    """Attention and MLP, each on the (pre-)normalised residual stream and added to it."""

    def __init__(self, d_model: int, n_heads: int, d_mlp: int, layer_norm: bool, activation: Activation) -> None:
        super().__init__()
        self.attention = Attention(d_model, n_heads)
        self.W_in, self.W_out = nn.Linear(d_model, d_mlp), nn.Linear(d_mlp, d_model)
        self.norm_attention = nn.LayerNorm(d_model) if layer_norm else nn.Identity()
        self.norm_mlp = nn.LayerNorm(d_model) if layer_norm else nn.Identity()
        self.activation = F.relu_ if activation == "relu" else F.gelu  # nothing else reads what W_in gives

    def keys_values(self, x: Tensor) -> KeysValues:
        """What this layer's attention reads of positions; x: float, shape (B, L, d_model)."""
        return self.attention.keys_values(self.norm_attention(x))

    def forward(self, x: Tensor, past: KeysValues | None = None, last: bool = False) -> Tensor:
        """One layer.

        Args:
            x: float, shape (B, L, d_model).
            past: Keys and values of the positions before those of x, if there are any.
            last: Whether only the last position is carried on.

        Returns:
            float, shape (B, L, d_model), or (B, 1, d_model) with ``last``.
        """
        normed = self.norm_attention(x)
        k, v = self.attention.keys_values(normed)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        if last:
            x, normed = x[:, -1:], normed[:, -1:]
        x = x + self.attention(normed, k, v)
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
        check_sizes(d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_mlp=d_mlp)
        check_heads(d_model, n_heads)
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
        return embedding_rows(self.E, self.E_left, self.E_right)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits at the last position.

        Nothing is computed that is computed twice or not read, which changes nothing beyond rounding: the last layer
        carries on the last position alone; and as ``a OP`` cannot see what follows, a batch longer than the vocabulary
        goes through its two positions once for every token that a may be, not once for every row.

        Args:
            tokens: int64, shape (B, L), L ≤ 4.

        Returns:
            float, shape (B, n_classes).
        """
        E = self.embedding()
        shared = len(tokens) > len(E) and same_symbols(tokens)
        start, past = (PREFIX, self._past(tokens, E)) if shared else (0, [])
        x = self._stream(tokens[:, start:], E, start)
        for layer, before in zip_longest(self.layers, past):
            x = layer(x, before, last=layer is self.layers[-1])
        final = self.norm_final(x[:, 0])
        logits: Tensor = final @ E[: self.n_classes].T if self.unembedding is None else self.unembedding(final)
        return logits

    def _stream(self, tokens: Tensor, E: Tensor, start: int) -> Tensor:
        """What the layers start from, (B, L, d_model), of tokens from position ``start`` on."""
        return F.embedding(tokens, E) + self.positions[start : start + tokens.shape[1]]

    def _past(self, tokens: Tensor, E: Tensor) -> list[KeysValues]:
        """Keys and values of ``a OP`` in every layer, row by row; computed once for each token."""
        a, found = torch.arange(len(E)), []
        x = self._stream(torch.stack([a, tokens[0, 1].expand_as(a)], dim=1), E, 0)
        for layer in self.layers:
            assert isinstance(layer, Block)  # what __init__ put there; ModuleList does not keep the type
            k, v = layer.keys_values(x)
            found.append((k.index_select(0, tokens[:, 0]), v.index_select(0, tokens[:, 0])))
            if layer is not self.layers[-1]:
                x = layer(x)
        return found

    def first_layer_names(self) -> set[str]:
        """W_Q, W_K and W_V of the first layer: the maps that read the embedding."""
        return {f"layers.0.attention.{name}.weight" for name in ("W_Q", "W_K", "W_V")}

    def hidden_matrices(self) -> set[str]:
        """The six weights of every layer; not E, the positions or the unembedding."""
        return layer_matrices(self)

    def matrices(self) -> dict[str, Tensor]:
        """E, then per layer ``W_Q.<i>`` … ``W_out.<i>``, and W_U (a tied one is E and not repeated)."""
        found: dict[str, Tensor] = {"E": self.embedding()}
        for i, layer in enumerate(self.layers):
            for name in ("W_Q", "W_K", "W_V", "W_O"):
                found[f"{name}.{i}"] = layer.get_submodule(f"attention.{name}").get_parameter("weight")
            found |= {f"{name}.{i}": layer.get_submodule(name).get_parameter("weight") for name in ("W_in", "W_out")}
        return found if self.unembedding is None else found | {"W_U": self.unembedding.weight}
