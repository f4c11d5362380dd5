"""A causal Transformer language model: pre-LayerNorm, learned positions, GELU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grok_lightning.errors import require
from grok_lightning.nets.attention import attend
from grok_lightning.nets.base import Net, check_heads, check_sizes, layer_matrices
from grok_lightning.nets.embedding import TRAINED, EmbeddingOptions, add_embedding, embedding_rows, scale_all, scale_to

MAPS = ("W_Q", "W_K", "W_V", "W_O")
"""Weights of an attention layer."""


class Layer(nn.Module):
    """``x ← x + W_O · attention(LN x)``, ``x ← x + W_out · GELU(W_in · LN x)``; attention is causal."""

    def __init__(self, d_model: int, n_heads: int, d_mlp: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model, bias=False) for _ in MAPS)
        self.W_in, self.W_out = nn.Linear(d_model, d_mlp), nn.Linear(d_mlp, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """One layer; x and what is returned: float, shape (B, T, d_model)."""
        maps = self.W_Q, self.W_K, self.W_V
        x = x + self.W_O(attend(self.norm_attention(x), maps, self.n_heads, causal=True))
        added: Tensor = self.W_out(F.gelu(self.W_in(self.norm_mlp(x))))
        return x + added


class LanguageNet(Net):
    """Causal language model: the logits at position t see tokens 0 … t and predict token t + 1.

    Args:
        vocab_size: V, number of tokens.
        context_length: Positions it has; rows may be shorter.
        d_model: Width of the residual stream, a multiple of n_heads.
        n_layers: Number of layers.
        n_heads: Attention heads per layer.
        d_mlp: Width of the MLPs.
        tied: Use E as the unembedding, ``logits = x Eᵀ``: one matrix, one block, in which the gradient of the lookup
            (rows of tokens in the batch) and that of the logits (every row, at every step) add up.
        embedding: What E is and starts as; it has to be trained.
        init_scale: Factor on all parameters at the start (arXiv:2210.01117), gains of LayerNorm included.

    E starts as N(0, 1), like nn.Embedding, or as N(0, 1/d_model) where it is tied, so that logits start of order one;
    positions as N(0, 0.02²); all else as PyTorch has it.
    """

    E: Tensor | None
    E_left: Tensor | None
    E_right: Tensor | None

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int = 64,
        n_layers: int = 2,
        n_heads: int = 4,
        d_mlp: int = 256,
        tied: bool = False,
        embedding: EmbeddingOptions = TRAINED,
        init_scale: float = 1.0,
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, n_layers=n_layers, n_heads=n_heads, d_mlp=d_mlp)
        check_heads(d_model, n_heads)
        allowed = "must be trained: rows of the residual stream are d_model wide"
        require(embedding.inputs == "trained", "model.embedding.inputs", embedding.inputs, allowed)
        self.n_classes = vocab_size
        add_embedding(self, embedding, vocab_size, d_model, std=d_model**-0.5 if tied else 1.0)
        self.positions = nn.Parameter(nn.init.normal_(torch.empty(context_length, d_model), std=0.02))
        self.layers = nn.ModuleList(Layer(d_model, n_heads, d_mlp) for _ in range(n_layers))
        self.norm_final = nn.LayerNorm(d_model)
        self.unembedding = None if tied else nn.Linear(d_model, vocab_size, bias=False)
        if embedding.sigma_matched:
            scale_to(self, [self.get_parameter(name) for name in sorted(self.first_layer_names())])
        scale_all(self, init_scale)

    def embedding(self) -> Tensor:
        """E, shape (V, d_model)."""
        return embedding_rows(self.E, self.E_left, self.E_right)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the token after each.

        Args:
            tokens: int64, shape (B, T), T ≤ context_length.

        Returns:
            float, shape (B, V, T).
        """
        E = self.embedding()
        x = F.embedding(tokens, E) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        final = self.norm_final(x)
        logits: Tensor = final @ E.T if self.unembedding is None else self.unembedding(final)
        return logits.transpose(1, 2)

    def first_layer_names(self) -> set[str]:
        """W_Q, W_K and W_V of the first layer: the maps that read the embedding."""
        return {f"layers.0.{name}.weight" for name in ("W_Q", "W_K", "W_V")}

    def hidden_matrices(self) -> set[str]:
        """The six weights of every layer; not E, the positions or the unembedding."""
        return layer_matrices(self)

    def matrices(self) -> dict[str, Tensor]:
        """E, then per layer ``W_Q.<i>`` … ``W_out.<i>``, and W_U (a tied one is E and not repeated)."""
        found: dict[str, Tensor] = {"E": self.embedding()}
        for i, layer in enumerate(self.layers):
            found |= {f"{name}.{i}": layer.get_parameter(f"{name}.weight") for name in (*MAPS, "W_in", "W_out")}
        return found if self.unembedding is None else found | {"W_U": self.unembedding.weight}
