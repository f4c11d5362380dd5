"""The two multilayer perceptrons of arXiv:2505.15624, eq. 1 and 2."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grok_lightning.errors import ConfigError, require
from grok_lightning.nets.base import SEQUENCE_LENGTH, Net, check_sizes, same_symbols
from grok_lightning.nets.embedding import TRAINED, EmbeddingOptions, add_embedding, embedding_rows, scale_all, scale_to
from grok_lightning.nets.first_layer import OPERAND_SLOTS, Tables, first_layer, gathered, products

Combine = Literal["concat", "sum"]


class _Stack(nn.Module):
    """ReLU layers behind the first one: ``depth - 2`` hidden layers, residual or not, and the output layer."""

    def __init__(self, hidden: int, depth: int, n_classes: int, residual: bool) -> None:
        super().__init__()
        if residual and depth < 3:
            raise ConfigError(
                f"model.residual = True: depth = {depth} has no hidden layer to go around; take 3 or more"
            )
        self.residual = residual
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
        *hidden, output = self.layers
        for layer in hidden:
            x = x + layer(F.relu(x)) if self.residual else layer(F.relu_(x))
        logits: Tensor = output(F.relu_(x))
        return logits


class EmbeddingMLPNet(Net):
    """MLP with a trained embedding, ``W₂ ReLU(W [e_a; e_OP; e_b; e_EQ] + b) + b₂`` (arXiv:2505.15624, eq. 2).

    With ``combine = "sum"`` W reads the sum of the four embeddings in place of their concatenation: d columns instead
    of 4d, and a and b cannot be told apart, so that only symmetric tasks can be fitted. With ``residual`` every hidden
    layer adds to what it reads, ``x ← x + W_i ReLU(x) + b_i``.

    Initialisation is PyTorch's: E ~ N(0, 1), linear layers uniform in ±1/√fan_in.

    Args:
        vocab_size: V, number of tokens.
        n_classes: Number of logits.
        d_model: d, embedding dimension.
        hidden: Width of the hidden layers.
        depth: Number of linear layers, output layer included (2 in the paper, 6 in its authors' replies).
        embedding: What E is and starts as.
        combine: concat or sum.
        residual: Whether hidden layers add to what they read.
        init_scale: Factor on all parameters at the start (arXiv:2210.01117).
    """

    E: Tensor | None
    E_left: Tensor | None
    E_right: Tensor | None

    def __init__(
        self,
        vocab_size: int,
        n_classes: int,
        d_model: int,
        hidden: int,
        depth: int = 2,
        embedding: EmbeddingOptions = TRAINED,
        combine: Combine = "concat",
        residual: bool = False,
        init_scale: float = 1.0,
    ) -> None:
        super().__init__()
        check_sizes(vocab_size=vocab_size, n_classes=n_classes, d_model=d_model, hidden=hidden)
        require(depth >= 2, "model.depth", depth, "must be 2 or more (linear layers, output layer included)")
        require(combine in ("concat", "sum"), "model.combine", combine, "must be concat or sum")
        self.n_classes = n_classes
        add_embedding(self, embedding, vocab_size, d_model)
        d = self.embedding().shape[1]
        self.n_read = SEQUENCE_LENGTH if combine == "concat" else 1
        self.first = nn.Linear(self.n_read * d, hidden)
        self.stack = _Stack(hidden, depth, n_classes, residual)
        if embedding.sigma_matched:
            scale_to(self, [self.first.weight])
        scale_all(self, init_scale)
        self._kept: dict[tuple[int, ...] | None, Tables] | None = None

    def embedding(self) -> Tensor:
        """E, shape (V, d)."""
        return embedding_rows(self.E, self.E_left, self.E_right)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits.

        The first layer is linear in the concatenated embeddings, so it equals a sum over slots of rows of
        ``E W_sᵀ``; for a batch longer than the vocabulary that form needs fewer multiplications, and those of OP and
        EQ are the same for every row. All forms are exact.

        Args:
            tokens: int64, shape (B, 4), values in [0, V).

        Returns:
            float, shape (B, n_classes).
        """
        logits: Tensor = self.stack(self._first_layer(tokens))
        return logits

    @contextmanager
    def still(self) -> Iterator[None]:
        """See :meth:`Net.still`: the products of E and W are taken once."""
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None

    def logits_of(self, tokens: Tensor) -> Tensor:
        """See :meth:`Net.logits_of`: so many rows at a time that their activations stay in the cache of a CPU core."""
        rows = 512 if tokens.is_cpu else max(1, len(tokens))
        return torch.cat([self(part) for part in torch.split(tokens, rows)])

    def _first_layer(self, tokens: Tensor) -> Tensor:
        W, b, n_read = self.first.weight, self.first.bias, self.n_read
        if self._kept is not None and not torch.is_grad_enabled():
            symbols = tuple(tokens[0, 1::2].tolist()) if same_symbols(tokens) else None
            if symbols not in self._kept:
                self._kept[symbols] = products(tokens, self.embedding(), W, b, n_read, symbols is not None)
            return gathered(tokens, self._kept[symbols])
        return first_layer(tokens, self.embedding(), W, b, n_read)

    def first_layer_names(self) -> set[str]:
        """The first linear layer, weight and bias."""
        return {"first.weight", "first.bias"}

    def hidden_matrices(self) -> set[str]:
        """The first layer, which reads E, and all others but the output layer."""
        return {"first.weight"} | self.stack.hidden_names()

    def matrices(self) -> dict[str, Tensor]:
        """E (if trained), W (first layer), E times the columns of W that read an operand's slot, later layers.

        The products are ``EW_a`` and ``EW_b``, or one ``EW`` where the embeddings are summed.
        """
        E = self.embedding()
        d = E.shape[1]
        found: dict[str, Tensor] = {"E": E} if "embedding" in self.blocks() else {}
        found["W"] = self.first.weight
        if self.n_read == 1:
            return found | {"EW": E @ self.first.weight.T} | self.stack.matrices()
        for name, slot in OPERAND_SLOTS.items():
            found[f"EW_{name}"] = E @ self.first.weight[:, slot * d : (slot + 1) * d].T
        return found | self.stack.matrices()


class EmbeddingFreeMLPNet(Net):
    """MLP on the raw 4-vector, ``W₂ ReLU(W (s·[a, OP, b, EQ]) + b) + b₂`` (arXiv:2505.15624, eq. 1).

    Args:
        vocab_size: V, number of tokens.
        n_classes: Number of logits.
        hidden: Width of the hidden layers.
        depth: Number of linear layers, output layer included.
        input_scale: s; 1.0 feeds the token numbers as they are, as the paper does.
        residual: Whether hidden layers add to what they read.
        init_scale: Factor on all parameters at the start (arXiv:2210.01117).
    """

    def __init__(
        self,
        vocab_size: int,
        n_classes: int,
        hidden: int,
        depth: int = 2,
        input_scale: float = 1.0,
        residual: bool = False,
        init_scale: float = 1.0,
    ) -> None:
        super().__init__()
        check_sizes(vocab_size=vocab_size, n_classes=n_classes, hidden=hidden)
        require(depth >= 2, "model.depth", depth, "must be 2 or more (linear layers, output layer included)")
        finite = 0 < input_scale < float("inf")
        require(finite, "model.input_scale", input_scale, "must be greater than 0 and finite")
        self.n_classes, self.input_scale = n_classes, input_scale
        self.first = nn.Linear(SEQUENCE_LENGTH, hidden)
        self.stack = _Stack(hidden, depth, n_classes, residual)
        scale_all(self, init_scale)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits.

        Args:
            tokens: int64, shape (B, 4).

        Returns:
            float, shape (B, n_classes).
        """
        x = tokens.to(self.first.weight.dtype) * self.input_scale
        # With four inputs the product is quick only if the weight is laid out as it is read.
        logits: Tensor = self.stack(torch.addmm(self.first.bias, x, self.first.weight.T.contiguous()))
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
