"""The two multilayer perceptrons of arXiv:2505.15624, eq. 1 and 2."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grok_lightning.errors import require
from grok_lightning.nets.base import SEQUENCE_LENGTH, Net

OPERAND_SLOTS = {"a": 0, "b": 2}
"""Positions of the operands in ``[a, OP, b, EQ]``."""

SYMBOL_SLOTS = [1, 3]
"""Positions of OP and EQ."""


def _check_sizes(**sizes: int) -> None:
    for name, value in sizes.items():
        require(value >= 1, f"model.{name}", value, "must be 1 or more")


class _Stack(nn.Module):
    """ReLU layers behind the first one: ``depth - 2`` hidden layers and the output layer."""

    def __init__(self, hidden: int, depth: int, n_classes: int) -> None:
        super().__init__()
        widths = [hidden] * (depth - 1) + [n_classes]
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))

    def matrices(self) -> dict[str, Tensor]:
        """``W2``, ``W3``, …: the weights behind the first layer."""
        return {f"W{i}": layer.get_parameter("weight") for i, layer in enumerate(self.layers, start=2)}

    def hidden_names(self) -> set[str]:
        """Weights of the layers before the output layer."""
        return {f"stack.layers.{i}.weight" for i in range(len(self.layers) - 1)}

    def forward(self, preactivation: Tensor) -> Tensor:
        x = preactivation
        for layer in self.layers:
            x = layer(F.relu(x))
        return x


class EmbeddingMLPNet(Net):
    """MLP with a trained embedding, ``W₂ ReLU(W [e_a; e_OP; e_b; e_EQ] + b) + b₂`` (arXiv:2505.15624, eq. 2).

    Initialisation is PyTorch's: E ~ N(0, 1), linear layers uniform in ±1/√fan_in.

    Args:
        vocab_size: V, number of tokens.
        n_classes: Number of logits.
        d_model: d, embedding dimension.
        hidden: Width of the hidden layers.
        depth: Number of linear layers, output layer included (2 in the paper, 6 in its authors' replies).
    """

    def __init__(self, vocab_size: int, n_classes: int, d_model: int, hidden: int, depth: int = 2) -> None:
        super().__init__()
        _check_sizes(vocab_size=vocab_size, n_classes=n_classes, d_model=d_model, hidden=hidden)
        require(depth >= 2, "model.depth", depth, "must be 2 or more (linear layers, output layer included)")
        self.n_classes = n_classes
        self.E = nn.Parameter(torch.empty(vocab_size, d_model))
        nn.init.normal_(self.E)
        self.first = nn.Linear(SEQUENCE_LENGTH * d_model, hidden)
        self.stack = _Stack(hidden, depth, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits.

        The first layer is linear in the concatenated embeddings, so it equals a sum over slots of rows of
        ``E W_sᵀ``; for a batch longer than the vocabulary that form needs fewer multiplications. Both are exact.

        Args:
            tokens: int64, shape (B, 4), values in [0, V).

        Returns:
            float, shape (B, n_classes).
        """
        hidden = self._concatenated(tokens) if len(tokens) < len(self.E) else self._gathered(tokens)
        logits: Tensor = self.stack(hidden)
        return logits

    def _concatenated(self, tokens: Tensor) -> Tensor:
        hidden: Tensor = self.first(F.embedding(tokens, self.E).flatten(1))  # (B, 4d) → (B, hidden)
        return hidden

    def _gathered(self, tokens: Tensor) -> Tensor:
        W = self.first.weight.view(-1, SEQUENCE_LENGTH, self.E.shape[1])  # (hidden, slot, d)
        first, *others = OPERAND_SLOTS.values()
        fixed: Tensor = self.first.bias
        may_look = tokens.is_cpu and not torch.compiler.is_compiling()  # elsewhere it would wait, or break the graph
        if may_look and bool((tokens[:, SYMBOL_SLOTS] == tokens[:1, SYMBOL_SLOTS]).all()):
            for slot in SYMBOL_SLOTS:  # OP and EQ are the same in every row, so one row of E·W_sᵀ serves them all
                fixed = fixed + W[:, slot] @ self.E[tokens[0, slot]]
        else:
            others += SYMBOL_SLOTS
        # Not embedding_bag, which would sum in one pass: it has no second derivative, and the Hessian needs one.
        rows = F.embedding(tokens[:, first], self.E @ W[:, first].T + fixed)  # (B, hidden)
        for slot in others:
            rows.add_(F.embedding(tokens[:, slot], self.E @ W[:, slot].T))
        return rows

    def first_layer_names(self) -> set[str]:
        """The first linear layer, weight and bias."""
        return {"first.weight", "first.bias"}

    def hidden_matrices(self) -> set[str]:
        """The first layer, which reads E, and all others but the output layer."""
        return {"first.weight"} | self.stack.hidden_names()

    def matrices(self) -> dict[str, Tensor]:
        """E, W (first layer), ``EW_a`` and ``EW_b`` (E times the columns of W that read the slot), later layers."""
        d = self.E.shape[1]
        found: dict[str, Tensor] = {"E": self.E, "W": self.first.weight}
        for name, slot in OPERAND_SLOTS.items():
            found[f"EW_{name}"] = self.E @ self.first.weight[:, slot * d : (slot + 1) * d].T
        return found | self.stack.matrices()


class EmbeddingFreeMLPNet(Net):
    """MLP on the raw 4-vector, ``W₂ ReLU(W (s·[a, OP, b, EQ]) + b) + b₂`` (arXiv:2505.15624, eq. 1).

    Args:
        vocab_size: V, number of tokens.
        n_classes: Number of logits.
        hidden: Width of the hidden layers.
        depth: Number of linear layers, output layer included.
        input_scale: s; 1.0 feeds the token numbers as they are, as the paper does.
    """

    def __init__(self, vocab_size: int, n_classes: int, hidden: int, depth: int = 2, input_scale: float = 1.0) -> None:
        super().__init__()
        _check_sizes(vocab_size=vocab_size, n_classes=n_classes, hidden=hidden)
        require(depth >= 2, "model.depth", depth, "must be 2 or more (linear layers, output layer included)")
        finite = 0 < input_scale < float("inf")
        require(finite, "model.input_scale", input_scale, "must be greater than 0 and finite")
        self.n_classes, self.input_scale = n_classes, input_scale
        self.first = nn.Linear(SEQUENCE_LENGTH, hidden)
        self.stack = _Stack(hidden, depth, n_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits.

        Args:
            tokens: int64, shape (B, 4).

        Returns:
            float, shape (B, n_classes).
        """
        logits: Tensor = self.stack(self.first(tokens.to(self.first.weight.dtype) * self.input_scale))
        return logits

    def first_layer_names(self) -> set[str]:
        """The first linear layer, weight and bias."""
        return {"first.weight", "first.bias"}

    def hidden_matrices(self) -> set[str]:
        """All but the first layer, which reads the raw input, and the output layer."""
        return self.stack.hidden_names()

    def matrices(self) -> dict[str, Tensor]:
        """W (first layer) and the later layers; there is no E."""
        return {"W": self.first.weight} | self.stack.matrices()
