"""Products of the Hessian of a mean loss with vectors, block by block of parameters."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from grok_lightning.errors import ConfigError, require
from grok_lightning.numerics.quiet import exact, now, undisturbed, unwrap

ALL = "all"
"""Name of the block of all parameters, which every operator has beside the blocks it is given."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""``loss(logits, labels)``: the mean over the samples it is given, 0-dimensional."""


class HessianOperator:
    """Diagonal blocks of the Hessian of the mean loss, as ``v ↦ H_bb v``.

    ``H_bb = ∂²L/∂θ_b²``, ``L = (1/N) Σ_i loss(net(tokens_i), labels_i)`` over all N samples, no weight decay.
    Chunks, and the shards of several processes, weigh by their sample counts: uneven ones give the same L.

    Entering the context runs one forward and one differentiable gradient for all blocks and keeps the graph;
    each product is one more backward through it (half the cost of building it anew, a third of
    forward-over-reverse). Leaving drops the graph. It spans private copies of the parameters: frozen ones
    take part, an optimiser step in between does not matter, and the module's tensors, ``.grad``, train/eval
    flags and all RNG states stay as they are. Inside: eval mode, no autocast, no TF32, attention by its twice
    differentiable math kernel, torch.compile bypassed.

    Cost: a *gradient-equivalent* is the wall time of one plain gradient (forward and backward, all
    parameters, local samples): the faster of two that are timed on entry, on the first chunk, and scaled to
    all. Divide ``seconds[block]`` by it for the products alone, the seconds of an eigenvalue solver for
    everything.

    Args:
        net: The network; DistributedDataParallel, DataParallel and torch.compile wrappers are taken off.
        tokens: int64, shape (N_local, L): whatever ``net`` takes, sample axis first.
        labels: int64, shape (N_local,). Only a shard of several may be empty.
        blocks: Block name → parameter names (``net.blocks()``); tied parameters count once.
        loss: Mean loss over the samples it is given.
        dtype: float32, or float64 to verify.
        chunk_size: Samples per graph; ``None`` takes all in one.
        n_total: N over all processes; ``None`` means that the samples given are all there are.
        all_reduce: Sums a flat tensor in place over processes that hold a shard each. Called once on entry,
            once per product: all have to ask for the same products, and get the same bits.

    Attributes:
        loss_value: L, once entered.
        grad_norms: Block → Euclidean norm ‖∂L/∂θ_b‖, once entered.
        sizes: Block → number of parameters n_b.
        n_hvp: Block → products taken so far.
        seconds: Block → wall time of these products.
        gradient_seconds: Wall time of one plain gradient (see above), once entered.

    Raises:
        ConfigError: On sparse embeddings, half-precision parameters, or unknown names.
    """

    loss_value: float
    grad_norms: dict[str, float]
    gradient_seconds: float

    def __init__(
        self,
        net: nn.Module,
        tokens: Tensor,
        labels: Tensor,
        blocks: Mapping[str, Sequence[str]],
        *,
        loss: Loss = cross_entropy,
        dtype: torch.dtype = torch.float32,
        chunk_size: int | None = None,
        n_total: int | None = None,
        all_reduce: Callable[[Tensor], None] | None = None,
    ) -> None:
        require(dtype in (torch.float32, torch.float64), "hessian.dtype", dtype, "must be float32 or float64")
        require(chunk_size is None or chunk_size >= 1, "hessian.chunk_size", chunk_size, "must be 1 or more")
        require(bool(all_reduce) or len(labels) > 0, "hessian samples", len(labels), "must be 1 or more")
        require(not all_reduce or n_total is not None, "hessian.n_total", n_total, "is needed with all_reduce")
        self._net = unwrap(net)
        self._blocks = _resolve(self._net, blocks)
        self._tokens, self._labels, self._loss, self._all_reduce = tokens, labels, loss, all_reduce
        self._n_total = n_total or len(labels)
        self._chunk_size = chunk_size or max(1, len(labels))
        self._params: dict[str, Tensor] = {}
        self._graphs: list[dict[str, Tensor]] = []  # per chunk: parameter name → its part of the gradient
        self.dtype, self.device = dtype, next(self._net.parameters()).device
        self._numels = {name: p.numel() for name, p in self._net.named_parameters()}
        self.sizes = {block: sum(self._numels[name] for name in names) for block, names in self._blocks.items()}
        self.n_hvp = dict.fromkeys(self._blocks, 0)
        self.seconds = dict.fromkeys(self._blocks, 0.0)

    def __enter__(self) -> Self:
        with exact(self.device):
            total = torch.zeros(1 + self.sizes[ALL], dtype=self.dtype, device=self.device)  # loss and gradient
            buffers = self._copies(self._net.named_buffers())
            self._params = self._copies(self._net.named_parameters())
            for param in self._params.values():
                param.requires_grad_()
            for start in range(0, len(self._labels), self._chunk_size):
                value, gradient = self._gradient(buffers, start, create_graph=True)
                self._graphs.append(gradient)
                total += torch.cat([x.detach().reshape(-1) for x in (value, *gradient.values())])
            if self._all_reduce is not None:
                self._all_reduce(total)
            self.gradient_seconds = min(self._time_gradient(buffers) for _ in range(2))
        parts = torch.split(total[1:].double(), list(self._numels.values()))
        squares = {name: float(part @ part) for name, part in zip(self._numels, parts, strict=True)}
        self.loss_value = float(total[0])
        self.grad_norms = {b: sum(squares[name] for name in names) ** 0.5 for b, names in self._blocks.items()}
        return self

    def __exit__(self, *error: object) -> None:
        self._graphs, self._params = [], {}

    def hvp(self, block: str, v: Tensor) -> Tensor:
        """``H_bb v``.

        Args:
            block: A name in ``sizes``.
            v: Any floating dtype, shape (n_b,): parameters flattened and joined in the order of the block.

        Returns:
            ``dtype``, shape (n_b,), without a graph.

        Raises:
            RuntimeError: Outside the ``with`` block.
            ConfigError: If an operation of the network has no second derivative.
        """
        if not self._params:
            raise RuntimeError("HessianOperator: products are taken inside its with block")
        start, names = now(self.device), self._blocks[block]
        with exact(self.device):
            parts = torch.split(v.detach().to(self.dtype), [self._numels[name] for name in names])
            vs = {name: x.view_as(self._params[name]) for name, x in zip(names, parts, strict=True)}
            total = torch.zeros(self.sizes[block], dtype=self.dtype, device=self.device)
            for gradient in self._graphs:
                self._add_product(total, gradient, vs)
            if self._all_reduce is not None:
                self._all_reduce(total)
        self.n_hvp[block] += 1
        self.seconds[block] += now(self.device) - start
        return total

    def matvec(self, block: str) -> Callable[[Tensor], Tensor]:
        """The product with one block as a function of v alone, for the eigenvalue solvers."""
        return lambda v: self.hvp(block, v)

    def _add_product(self, total: Tensor, gradient: dict[str, Tensor], vs: dict[str, Tensor]) -> None:
        live = [name for name in vs if gradient[name].requires_grad]  # an unused parameter's zeros have no graph
        if not live:
            return
        outputs, inputs = [gradient[name] for name in live], [self._params[name] for name in vs]
        weights = [vs[name] for name in live]
        try:
            found = torch.autograd.grad(outputs, inputs, weights, retain_graph=True, materialize_grads=True)
        except RuntimeError as error:
            if not any(words in str(error) for words in ("is not implemented", "once_differentiable")):
                raise
            raise ConfigError(f"hessian: the network has no second derivative ({error})") from error
        total += torch.cat([x.reshape(-1) for x in found])

    def _copies(self, named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        # Clones made here are no inference tensors, and no optimiser step can reach them.
        copies = {name: x.detach().clone() for name, x in named}
        return {name: x.to(self.dtype) if x.is_floating_point() else x for name, x in copies.items()}

    def _gradient(self, buffers: dict[str, Tensor], start: int, create_graph: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and gradient of one chunk, in units of L: (its mean) · (its samples) / N."""
        tokens, labels = (x[start : start + self._chunk_size].clone() for x in (self._tokens, self._labels))
        with undisturbed(self._net, self.device):
            logits = torch.func.functional_call(self._net, self._params | buffers, (tokens,))
            value = self._loss(logits, labels) * (len(labels) / self._n_total)
        inputs = list(self._params.values())
        found = torch.autograd.grad(value, inputs, create_graph=create_graph, materialize_grads=True)
        sparse = any(x.is_sparse for x in found)
        require(not sparse, "hessian", "sparse gradient", "has no second derivative; use dense embeddings")
        return value, dict(zip(self._params, found, strict=True))

    def _time_gradient(self, buffers: dict[str, Tensor]) -> float:
        start, n = now(self.device), min(self._chunk_size, len(self._labels))
        if n == 0:
            return 0.0
        self._gradient(buffers, 0, create_graph=False)
        return (now(self.device) - start) * len(self._labels) / n


def _resolve(net: nn.Module, blocks: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Check net and blocks; block → names as ``named_parameters`` has them, each tensor once, and all."""
    for name, module in net.named_modules():
        sparse = isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
        require(not sparse, f"model {name}.sparse", True, "has no second derivative; use a dense embedding")
    for name, p in net.named_parameters():
        full = p.dtype in (torch.float32, torch.float64)
        require(full, f"model {name}.dtype", p.dtype, "a Hessian needs float32 or float64 parameters")
    first = {p: name for name, p in net.named_parameters()}
    known = {alias: first[p] for alias, p in net.named_parameters(remove_duplicate=False)}
    require(ALL not in blocks, "hessian block", ALL, "is the name of the block of all parameters")
    for block, members in blocks.items():
        require(len(members) > 0, "hessian block", block, "has no parameters")
        for name in members:
            require(name in known, f"hessian block {block}", name, "is no parameter of the network")
    found = {block: list(dict.fromkeys(known[name] for name in members)) for block, members in blocks.items()}
    return found | {ALL: list(first.values())}
