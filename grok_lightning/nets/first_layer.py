"""The first layer of the embedding MLP, ``W [e_a; e_OP; e_b; e_EQ] + b``, in the forms that save work."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from grok_lightning.nets.base import SEQUENCE_LENGTH, SYMBOL_SLOTS, same_symbols

OPERAND_SLOTS = {"a": 0, "b": 2}
"""Positions of the operands in ``[a, OP, b, EQ]``."""

FEW = 16
"""Rows up to which the layer is computed as it is written: less work would not be quicker."""

Tables = list[tuple[int, Tensor]]
"""Slot → what each token adds to the pre-activations there, shape (V, hidden)."""


def first_layer(tokens: Tensor, E: Tensor, W: Tensor, b: Tensor, n_read: int) -> Tensor:
    """The layer in the form that is quickest here; the arguments are those of :func:`concatenated`."""
    if len(tokens) <= FEW:
        return concatenated(tokens, E, W, b, n_read)
    same = same_symbols(tokens)
    # SlotBySlot knows no torch.func, which autograd.Function itself looks for in this way, and no autocast.
    transformed = torch._C._are_functorch_transforms_active() or torch.is_autocast_enabled("cpu")
    if same and n_read > 1 and torch.is_grad_enabled() and not transformed:
        rows: Tensor = SlotBySlot.apply(tokens, E, W, b)  # type: ignore[no-untyped-call]  # torch's
        return rows
    if len(tokens) < len(E):
        return concatenated(tokens, E, W, b, n_read)
    return gathered(tokens, products(tokens, E, W, b, n_read, same))


def concatenated(tokens: Tensor, E: Tensor, W: Tensor, b: Tensor, n_read: int) -> Tensor:
    """The layer as its formula says.

    Args:
        tokens: int64, shape (B, 4).
        E: Embedding, shape (V, d).
        W: Weight, shape (hidden, n_read · d).
        b: Bias, shape (hidden,).
        n_read: 4 where W reads the four embeddings one after the other, 1 where it reads their sum.

    Returns:
        float, shape (B, hidden).
    """
    found = F.embedding(tokens, E)  # (B, 4, d)
    return F.linear(found.flatten(1) if n_read > 1 else found.sum(1), W, b)


def products(tokens: Tensor, E: Tensor, W: Tensor, b: Tensor, n_read: int, same: bool) -> Tables:
    """``E W_sᵀ`` per slot; the first one with the bias, and with OP and EQ if they are the same in every row.

    Args:
        tokens: See :func:`concatenated`, whose other arguments these are too.
        E: Embedding.
        W: Weight.
        b: Bias.
        n_read: 4 or 1.
        same: Whether OP and EQ are the same tokens in every row.
    """
    # One contiguous matrix per slot: gradients of strided ones would be put together element by element.
    slots = W.view(-1, n_read, E.shape[1]).transpose(0, 1).contiguous().unbind()
    slots *= SEQUENCE_LENGTH // n_read
    first, *others = OPERAND_SLOTS.values()
    if same:
        for slot in SYMBOL_SLOTS:  # one row of E·W_sᵀ serves all rows
            b = torch.addmv(b, slots[slot], E[tokens[0, slot]])
    else:
        others += SYMBOL_SLOTS
    return [(first, torch.addmm(b, E, slots[first].T)), *((slot, E @ slots[slot].T) for slot in others)]


def gathered(tokens: Tensor, tables: Tables) -> Tensor:
    """Sum over slots of the rows of tables, float, shape (B, hidden)."""
    # Not embedding_bag, which would sum in one pass: it has no second derivative, and the Hessian needs one.
    (first, table), *others = tables
    rows = F.embedding(tokens[:, first], table)
    for slot, table in others:
        rows.add_(F.embedding(tokens[:, slot], table))
    return rows


class SlotBySlot(torch.autograd.Function):
    """The layer where W reads four embeddings and OP and EQ are the same in every row, for training steps.

    Products with OP and EQ are taken once, those with the operands once per token or per row, whichever is fewer, and
    the gradient of W is written slot by slot where it belongs. Where a second derivative is asked for, the first one
    is that of :func:`products` and :func:`gathered`.
    """

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, E: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """Pre-activations, shape (B, hidden), of the arguments of :func:`concatenated`."""
        ctx.save_for_backward(tokens, E, W, b)
        W_a, W_op, W_b, W_eq = torch.split(W, E.shape[1], dim=1)
        _, op, _, eq = tokens[0]
        fixed = torch.addmv(b, W_op, E[op]).addmv_(W_eq, E[eq])
        if len(tokens) < len(E):
            return torch.addmm(fixed, F.embedding(tokens[:, 0], E), W_a.T).addmm_(F.embedding(tokens[:, 2], E), W_b.T)
        return gathered(tokens, [(0, torch.addmm(fixed, E, W_a.T)), (2, E @ W_b.T)])

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients by E, W and b."""
        tokens, E, W, b = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable(tokens, E, W, b, outer, ctx.needs_input_grad)
        by_row, V = len(tokens) < len(E), len(E)
        W_a, W_op, W_b, W_eq = torch.split(W, E.shape[1], dim=1)
        _, op, _, eq = tokens[0]
        upstream, inputs = [outer[0]] * 2, [E] * 2
        if by_row:
            inputs = [F.embedding(tokens[:, slot], E) for slot in OPERAND_SLOTS.values()]
        else:
            upstream = [_sum_by_token(outer[0], tokens[:, slot], V) for slot in OPERAND_SLOTS.values()]
        grad_b, grad_W = outer[0].sum(0), torch.empty_like(W)
        to_a, to_op, to_b, to_eq = torch.split(grad_W, E.shape[1], dim=1)
        torch.mm(upstream[0].T, inputs[0], out=to_a)
        torch.mm(upstream[1].T, inputs[1], out=to_b)
        torch.outer(grad_b, E[op], out=to_op)
        torch.outer(grad_b, E[eq], out=to_eq)
        if not ctx.needs_input_grad[1]:
            return None, None, grad_W, grad_b
        if by_row:
            grad_E = _sum_by_token(upstream[0] @ W_a, tokens[:, 0], V)
            grad_E += _sum_by_token(upstream[1] @ W_b, tokens[:, 2], V)
        else:
            grad_E = (upstream[0] @ W_a).addmm_(upstream[1], W_b)
        grad_E[op] += grad_b @ W_op
        grad_E[eq] += grad_b @ W_eq
        return None, grad_E, grad_W, grad_b


def _sum_by_token(rows: Tensor, tokens: Tensor, n_tokens: int) -> Tensor:
    """Row i of the result is the sum of the rows whose token is i, shape (n_tokens, …)."""
    summed: Tensor = torch.ops.aten.embedding_dense_backward(rows, tokens, n_tokens, -1, False)
    return summed


def _differentiable(
    tokens: Tensor, E: Tensor, W: Tensor, b: Tensor, outer: tuple[Tensor, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    rows = gathered(tokens, products(tokens, E, W, b, SEQUENCE_LENGTH, same=True))
    inputs = [x for x, is_wanted in zip((E, W, b), wanted[1:], strict=True) if is_wanted]
    found = iter(torch.autograd.grad(rows, inputs, outer, create_graph=True))
    return None, *(next(found) if is_wanted else None for is_wanted in wanted[1:])
