"""Binary operations on a finite set, each one small pure function with its domain (arXiv:2505.15624, sec. 3.2).

Every task is a table of pairs ``(a, b)`` with a label. The token sequence of a pair has length 4,
``[a, OP, b, EQ]``, with ``OP = n_symbols`` and ``EQ = n_symbols + 1``: for (3 + 2) mod 5 it is
``[3, 5, 2, 6]`` with label 0.
"""

import math
from dataclasses import dataclass
from itertools import permutations
from typing import Literal, get_args

import torch
from torch import Tensor

from grok_lightning.errors import ConfigError, require

MAX_SYMBOLS = 4096
"""Largest operand set: the whole table (16.8 million pairs at this size) is held in memory."""


@dataclass(frozen=True)
class Table:
    """All labelled pairs of a task.

    Attributes:
        tokens: int64, shape (N, 4), rows ``[a, OP, b, EQ]`` in lexicographic order of (a, b).
        labels: int64, shape (N,), values in [0, n_classes).
        n_symbols: Number of operand tokens; the vocabulary is ``n_symbols + 2``.
        n_classes: Number of labels.
    """

    tokens: Tensor
    labels: Tensor
    n_symbols: int
    n_classes: int

    @property
    def vocab_size(self) -> int:
        """V = n_symbols + 2 (the operands, OP and EQ)."""
        return self.n_symbols + 2


class Task:
    """A binary operation modulo p; subclass it in a file of your own and name it by ``class_path``.

    The default domain is all p² pairs and the default label set is the p residues; :meth:`label` is what
    a new task has to give.
    """

    default_p: int | None = 97
    """Modulus used when ``data.p`` is left out; ``None`` marks a task without a modulus."""

    def n_symbols(self, p: int) -> int:
        """Number of operand tokens (default: p)."""
        return p

    def n_classes(self, p: int) -> int:
        """Number of labels (default: p)."""
        return p

    def domain(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        """Which pairs belong to the task (default: all of them).

        Args:
            a: int64, shape (n_symbols²,), left operands.
            b: int64, shape (n_symbols²,), right operands.
            p: Modulus.

        Returns:
            bool, shape (n_symbols²,).
        """
        del b, p
        return torch.ones_like(a, dtype=torch.bool)

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        """Label of each pair.

        Args:
            a: int64, shape (N,), left operands.
            b: int64, shape (N,), right operands.
            p: Modulus.

        Returns:
            int64, shape (N,), values in [0, n_classes(p)).
        """
        raise ConfigError(f"data.task = {type(self).__name__!r}: a task has to define label(a, b, p)")


class Addition(Task):
    """(a + b) mod p."""

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        return (a + b) % p


class Subtraction(Task):
    """(a - b) mod p."""

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        return (a - b) % p


class Multiplication(Task):
    """(a · b) mod p; with ``exclude_zero`` only the (p - 1)² pairs of units, which form a group.

    Args:
        exclude_zero: Leave out the pairs with a = 0 or b = 0. arXiv:2505.15624 does not say; the default
            keeps them, so that every task there has p² pairs.
    """

    def __init__(self, exclude_zero: bool = False) -> None:
        self.exclude_zero = exclude_zero

    def domain(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        if not self.exclude_zero:
            return super().domain(a, b, p)
        require(is_prime(p), "data.p", p, "exclude_zero keeps the units mod p, which needs a prime p")
        return (a != 0) & (b != 0)

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        return (a * b) % p


class Division(Task):
    """(a · b⁻¹) mod p on the p(p - 1) pairs with b ≠ 0; p has to be prime."""

    def domain(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        require(is_prime(p), "data.p", p, "division needs a prime p: b has no inverse mod p otherwise")
        return b != 0

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        inverse = torch.tensor([0] + [pow(i, -1, p) for i in range(1, p)])
        return (a * inverse[b]) % p


class SumOfSquares(Task):
    """(a² + b²) mod p."""

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        return (a * a + b * b) % p


class Quadratic(Task):
    """(a² + ab + b²) mod p (the x² + xy + y² of arXiv:2201.02177)."""

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        return (a * a + a * b + b * b) % p


class Cubic(Task):
    """(a³ + ab) mod p (the x³ + xy of arXiv:2201.02177)."""

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        return (a * a % p * a + a * b) % p


class S5(Task):
    """Composition a ∘ b in the symmetric group S₅ (arXiv:2201.02177): 120 elements, no modulus.

    Permutations are numbered in lexicographic order and (a ∘ b)(i) = a(b(i)).
    """

    default_p = None

    def n_symbols(self, p: int) -> int:
        return math.factorial(5)

    def n_classes(self, p: int) -> int:
        return math.factorial(5)

    def label(self, a: Tensor, b: Tensor, p: int) -> Tensor:
        perms = torch.tensor(list(permutations(range(5))))  # (120, 5)
        place = 5 ** torch.arange(5)
        code = perms @ place  # every permutation as one number, to look its index up
        index = torch.zeros(5**5, dtype=torch.int64)
        index[code] = torch.arange(len(perms))
        composed = perms[a].gather(1, perms[b])  # row i: a(b(0)), …, a(b(4))
        return index[composed @ place]


TaskName = Literal[
    "addition", "subtraction", "multiplication", "division",
    "sum_of_squares", "quadratic", "cubic", "s5",
]  # fmt: skip
"""Names of the built-in tasks, as ``data.task`` takes them."""

_CLASSES = (Addition, Subtraction, Multiplication, Division, SumOfSquares, Quadratic, Cubic, S5)
_BUILT_IN: dict[str, type[Task]] = dict(zip(get_args(TaskName), _CLASSES, strict=True))


def is_prime(n: int) -> bool:
    """Whether n is a prime number (trial division; n is at most :data:`MAX_SYMBOLS`)."""
    return n >= 2 and all(n % d for d in range(2, math.isqrt(n) + 1))


def get_task(task: TaskName | Task, exclude_zero: bool = False) -> Task:
    """The task object behind a name.

    Args:
        task: A built-in name, or a task of the user's own, which is returned as it is.
        exclude_zero: Passed to multiplication.

    Raises:
        ConfigError: On an unknown name, or on ``exclude_zero`` with any task but multiplication.
    """
    if exclude_zero and task != "multiplication":
        name = task if isinstance(task, str) else type(task).__name__
        raise ConfigError(f"data.exclude_zero = True: only multiplication takes it, data.task is {name!r}")
    if isinstance(task, Task):
        return task
    require(task in _BUILT_IN, "data.task", task, f"must be one of {', '.join(get_args(TaskName))}, or a Task")
    return Multiplication(exclude_zero) if task == "multiplication" else _BUILT_IN[task]()


def build_table(task: Task, p: int | None = None) -> Table:
    """Tabulate a task over its whole domain.

    Args:
        task: The operation.
        p: Modulus; ``None`` takes the task's own default (97).

    Raises:
        ConfigError: If p is out of range or undefined for the task, or the task returns unusable labels.
    """
    name = type(task).__name__
    if task.default_p is None:
        require(p is None, "data.p", p, f"{name} has no modulus: leave data.p out, or set it to null")
        p = 0
    else:
        p = task.default_p if p is None else p
        require(2 <= p <= MAX_SYMBOLS, "data.p", p, f"must be an integer from 2 to {MAX_SYMBOLS}")
    n, n_classes = task.n_symbols(p), task.n_classes(p)
    symbols = torch.arange(n)
    a, b = symbols.repeat_interleave(n), symbols.repeat(n)
    keep = task.domain(a, b, p)
    a, b = a[keep], b[keep]
    labels = task.label(a, b, p)
    usable = labels.shape == a.shape and labels.dtype == torch.int64 and len(a) > 0
    if not usable or int(labels.min()) < 0 or int(labels.max()) >= n_classes:
        raise ConfigError(
            f"data.task = {name!r}: label() has to return int64 values in [0, {n_classes}), one for each of "
            f"{len(a)} pairs; it returned dtype {labels.dtype}, shape {tuple(labels.shape)}"
        )
    op, eq = torch.full_like(a, n), torch.full_like(a, n + 1)
    return Table(torch.stack([a, op, b, eq], dim=1), labels, n, n_classes)
