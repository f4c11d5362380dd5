"""What every network offers to the optimiser and to the measurements."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from grok_lightning.errors import require

Blocks = dict[str, list[str]]
"""Block name → names of its parameters (as in ``named_parameters``), disjoint and together exhaustive."""

SEQUENCE_LENGTH = 4
"""Tokens per sample: ``[a, OP, b, EQ]``."""

SYMBOL_SLOTS = [1, 3]
"""Positions of OP and EQ."""


class Net(nn.Module):
    """A classifier of token sequences.

    Callbacks and the optimiser know no concrete network; they ask :meth:`blocks` and :meth:`matrices`.

    Attributes:
        n_classes: Number of logits.
        embedded: Names of the parameters that make up the embedding: the matrix, or its two factors.
    """

    n_classes: int
    embedded: ClassVar[tuple[str, ...]] = ("E", "E_left", "E_right")

    @contextmanager
    def still(self) -> Iterator[None]:
        """While weights do not change and nothing is differentiated: what does not depend on rows is kept."""
        yield

    def logits_of(self, tokens: Tensor) -> Tensor:
        """Logits of many rows at once, for evaluations."""
        logits: Tensor = self(tokens)
        return logits

    def blocks(self) -> Blocks:
        """Named groups of parameters.

        ``embedding`` is the trained embedding matrix E, or its factors (absent where there is none), ``first_layer``
        the weights that read it (the "downstream" W of arXiv:2505.15624), ``rest`` everything else.
        """
        first = self.first_layer_names()
        blocks: Blocks = {"embedding": [], "first_layer": [], "rest": []}
        for name, _ in self.named_parameters():
            blocks["embedding" if name in self.embedded else "first_layer" if name in first else "rest"].append(name)
        return {block: names for block, names in blocks.items() if names}

    def embedding(self) -> Tensor | None:
        """The embedding matrix E, live, shape (V, d), multiplied out where it is trained as factors; or ``None``."""
        return None

    def first_layer_names(self) -> set[str]:
        """Names of the parameters of the first layer; empty where nothing counts as one."""
        return set()

    def hidden_matrices(self) -> set[str]:
        """Names of the 2-D weights between hidden layers, which Muon is made for: neither E nor the output layer."""
        return set()

    def linear_map(self) -> Tensor | None:
        """What the network computes, live, where it is linear in its input: β or M; ``None`` elsewhere."""
        return None

    def matrices(self) -> dict[str, Tensor]:
        """Named 2-D weights, live (not copies), for spectra and ranks; every 2-D parameter unless a class says better.

        ``E``: (V, d). Weights of linear maps as they are stored, (out, in); the product that arXiv:2505.15624
        calls EW is therefore ``E @ W.T``. Products ``EW_<slot>`` are given per operand slot.
        """
        return {name: parameter for name, parameter in self.named_parameters() if parameter.ndim == 2}


def check_sizes(**sizes: int) -> None:
    """Refuse a size, under its name as an argument of the model, that is less than 1."""
    for name, value in sizes.items():
        require(value >= 1, f"model.{name}", value, "must be 1 or more")


def check_heads(d_model: int, n_heads: int) -> None:
    """Refuse heads that do not share the residual stream evenly."""
    require(d_model % n_heads == 0, "model.d_model", d_model, f"must be a multiple of n_heads = {n_heads}")


def layer_matrices(net: nn.Module) -> set[str]:
    """Names of the 2-D weights of the layers of a Transformer, six each."""
    return {name for name, p in net.named_parameters() if name.startswith("layers.") and p.ndim == 2}


def same_symbols(tokens: Tensor) -> bool:
    """Whether OP and EQ are the same tokens in every row, as far as that can be seen without a cost.

    Elsewhere than on a CPU to look would be to wait for the device, and inside torch.compile it would break the graph.

    Args:
        tokens: int64, shape (B, L).
    """
    if tokens.shape[1] < SEQUENCE_LENGTH or not tokens.is_cpu or torch.compiler.is_compiling():
        return False
    symbols = tokens[:, 1:SEQUENCE_LENGTH:2]
    return bool((symbols == symbols[:1]).all())
