"""What the embedding matrix is: trained, of low rank, taken from another run, or replaced by fixed features."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from grok_lightning import saved
from grok_lightning.errors import ConfigError, require
from grok_lightning.nets.base import Net

Inputs = Literal["trained", "one_hot", "fourier"]

SYMBOLS = 2
"""Tokens beside the operands: OP and EQ."""


@dataclass(frozen=True)
class EmbeddingOptions:
    """The embedding E, shape (V, d), and what it starts as.

    Args:
        inputs: trained; or fixed rows in its place (MLP only), which are neither trained nor scaled: one_hot, or
            fourier, the orthonormal real Fourier basis on the operands and one-hot OP and EQ. Both have d = V.
        scale: α, factor on E at the start (arXiv:2505.15624, 4.3); 1 is N(0, 1), PyTorch's.
        sigma_matched: Scale E at the start so that σ_max(E) = σ_max(W), W the layer that reads it.
        rank: r; trains E = U·V with U of shape (V, r), N(0, 1), and V of shape (r, d), N(0, 1/r), so that E starts
            with entries of variance 1. c and weight decay act on the factors. ``null`` for E itself.
        source: Checkpoint of another run on as many tokens whose E is taken as the start (arXiv:2504.13292): as E
            where it has d columns, as U where it has r of them (V stays random, as in that paper). ``null`` for none.
    """

    inputs: Inputs = "trained"
    scale: float = 1.0
    sigma_matched: bool = False
    rank: int | None = None
    source: str | None = None

    def check(self, d_model: int) -> None:
        """Refuse values that mean nothing, or not together.

        Args:
            d_model: d.

        Raises:
            ConfigError: If a value cannot be used.
        """
        field = "model.embedding"
        require(self.inputs in ("trained", "one_hot", "fourier"), f"{field}.inputs", self.inputs, "is not known")
        require(0 < self.scale < math.inf, f"{field}.scale", self.scale, "must be greater than 0 and finite")
        allowed = f"must be from 1 to d_model = {d_model}, or null"
        require(self.rank is None or 1 <= self.rank <= d_model, f"{field}.rank", self.rank, allowed)
        if self.sigma_matched and self.scale != 1:
            raise ConfigError(f"{field}.scale = {self.scale}: {field}.sigma_matched decides the scale; leave one out")
        if self.inputs != "trained" and self != EmbeddingOptions(inputs=self.inputs):
            raise ConfigError(f"{field}.inputs = {self.inputs!r}: fixed inputs have no scale, rank or source")


TRAINED = EmbeddingOptions()
"""A trained E that starts as N(0, 1)."""


def fourier_basis(n: int) -> Tensor:
    """Orthonormal real Fourier basis on ``{0, …, n−1}``, one row per point.

    Columns: ``1/√n``; ``√(2/n) cos(2πkt/n)`` and ``√(2/n) sin(2πkt/n)`` for k = 1, …, ⌈n/2⌉−1; for even n
    ``(−1)^t/√n``.

    Args:
        n: Number of points.

    Returns:
        float64, shape (n, n), rows orthonormal.
    """
    t = torch.arange(n, dtype=torch.float64)
    columns = [torch.full((n,), n**-0.5, dtype=torch.float64)]
    for k in range(1, (n + 1) // 2):
        angle = 2 * math.pi * (k * t % n) / n
        columns += [(2 / n) ** 0.5 * angle.cos(), (2 / n) ** 0.5 * angle.sin()]
    if n % 2 == 0:
        columns.append(n**-0.5 * (1 - 2 * (t % 2)))
    return torch.stack(columns, dim=1)


def fixed_rows(inputs: Inputs, vocab_size: int) -> Tensor:
    """The fixed features of all tokens: float32, shape (V, V)."""
    if inputs == "one_hot":
        return torch.eye(vocab_size)
    n, rows = vocab_size - SYMBOLS, torch.eye(vocab_size)
    rows[:n, :n] = fourier_basis(n)
    return rows


def add_embedding(net: Net, options: EmbeddingOptions, vocab_size: int, d_model: int, std: float = 1.0) -> None:
    """Register E (a parameter, or a buffer of fixed rows), or its factors ``E_left`` and ``E_right``.

    Args:
        net: The network; all three names exist afterwards, some as ``None``.
        options: What E is.
        vocab_size: V.
        d_model: d.
        std: Standard deviation of E at the start, before ``scale``.
    """
    options.check(d_model)
    for name in ("E", "E_left", "E_right"):
        net.register_parameter(name, None)
    if options.inputs != "trained":
        del net.E
        net.register_buffer("E", fixed_rows(options.inputs, vocab_size), persistent=False)
        return
    r = options.rank
    shapes = {"E": (vocab_size, d_model)} if r is None else {"E_left": (vocab_size, r), "E_right": (r, d_model)}
    for name, shape in shapes.items():
        spread = std if name != "E_right" else shape[0] ** -0.5
        net.register_parameter(name, nn.Parameter(nn.init.normal_(torch.empty(shape), std=spread)))
    start = net.get_parameter(next(iter(shapes)))
    with torch.no_grad():
        if options.source is not None:
            start.copy_(source_embedding(options.source, start, d_model))
        start.mul_(options.scale)


def embedding_rows(E: Tensor | None, E_left: Tensor | None, E_right: Tensor | None) -> Tensor:
    """E, or ``E_left E_right`` where it is trained as factors: the rows of all tokens, shape (V, d).

    Args:
        E: What :func:`add_embedding` registered, as are the other two.
        E_left: Shape (V, r).
        E_right: Shape (r, d).
    """
    if E is not None:
        return E
    assert E_left is not None  # one of the two forms is there
    assert E_right is not None
    return E_left @ E_right


def scale_to(net: Net, readers: Iterable[Tensor]) -> None:
    """Scale E so that ``σ_max(E) = σ_max(W)``.

    Args:
        net: A network with a trained E.
        readers: The matrices that make up W, each (out, in); they are stacked.
    """
    E = net.embedding()
    assert E is not None  # there is one to scale
    with torch.no_grad():
        top_e, top_w = (torch.linalg.matrix_norm(M.double(), ord=2) for M in (E, torch.cat(list(readers))))
        start = dict(net.named_parameters())
        (start["E"] if "E" in start else start["E_left"]).mul_(top_w / top_e)


def scale_all(net: nn.Module, init_scale: float) -> None:
    """Multiply every parameter by α, biases and gains included (arXiv:2210.01117).

    Args:
        net: The network.
        init_scale: α.
    """
    require(0 < init_scale < math.inf, "model.init_scale", init_scale, "must be greater than 0 and finite")
    if init_scale != 1:
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(init_scale)


def source_embedding(path: str, like: Tensor, d_model: int) -> Tensor:
    """E of a checkpoint, ``U·V`` multiplied out; nothing in the file is executed.

    Args:
        path: The checkpoint.
        like: What it has to fit.
        d_model: d of this model, for the message.

    Raises:
        ConfigError: If there is no such E, or it does not fit.
    """
    said = f"model.embedding.source = {path!r}:"
    state = saved.load(path, "model.embedding.source")["state_dict"]
    factors: list[Tensor] = [state[key] for key in ("net.E", "net.E_left", "net.E_right") if key in state]
    if not factors:
        raise ConfigError(f"{said} holds no trained embedding")
    if any(factor.ndim != 2 or not factor.is_floating_point() for factor in factors):
        raise ConfigError(f"{said} its embedding is no matrix of real numbers")
    if len(factors) == 2 and factors[0].shape[1] != factors[1].shape[0]:
        raise ConfigError(f"{said} its factors of E do not fit each other")
    if not all(factor.isfinite().all() for factor in factors):
        raise ConfigError(f"{said} its embedding is not finite")
    found: Tensor = factors[0] if len(factors) == 1 else factors[0] @ factors[1]
    if found.shape != like.shape:
        (V, d), needed = found.shape, tuple(like.shape)
        hint = f"; set model.embedding.rank to {d}" if len(like) == V and d < d_model else ""
        raise ConfigError(f"{said} its E has shape ({V}, {d}), this run needs {needed}{hint}")
    return found
