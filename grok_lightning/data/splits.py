"""Training, held-out and test pairs of a table (arXiv:2505.15624, sec. 4.2 and 5.1, Fig. 8).

20 % of all pairs is the test set, drawn at random by ``split_seed`` alone, so it is the same for every
strategy and every ``frac_train``. The training set holds ``frac_train`` of ALL pairs and is drawn from the
remaining 80 %; what is left over is held out and serves as validation set.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from grok_lightning.data.tasks import Table
from grok_lightning.errors import ConfigError, require

FRAC_TEST = 0.2
"""Share of all pairs set aside as test set (arXiv:2505.15624, sec. 4.2)."""

SKEWED_SHARE = 0.2
"""Share of the values of a that the skewed strategy over-represents."""

Strategy = Literal["random", "uniform", "skewed"]


@dataclass(frozen=True)
class Split:
    """Row numbers of a table, disjoint and together exhaustive.

    Attributes:
        train: int64, shape (n_train,), ascending.
        val: int64, shape (n_val,), ascending; may be empty.
        test: int64, shape (n_test,), ascending.
    """

    train: Tensor
    val: Tensor
    test: Tensor

    def digest(self) -> str:
        """SHA-256 over the three row lists: equal digests are equal splits."""
        sha = hashlib.sha256()
        for rows in (self.train, self.val, self.test):
            sha.update(len(rows).to_bytes(8, "little"))
            sha.update(rows.contiguous().numpy().tobytes())
        return sha.hexdigest()


def make_split(
    table: Table,
    strategy: Strategy = "random",
    frac_train: float = 0.3,
    split_seed: int = 0,
    skew: float = 4.0,
) -> Split:
    """Split a table.

    Args:
        table: All pairs.
        strategy: ``random``: training pairs drawn uniformly. ``uniform``: every value of a, and every value
            of b, appears equally often in training (counts differ by at most 1). ``skewed``: a random 20 % of
            the values of a are ``skew`` times as likely to be drawn; the size of the set does not change.
        frac_train: Share of ALL pairs used for training, in (0, 0.8].
        split_seed: Seed of the split; nothing else draws from it.
        skew: Weight of the over-represented values of a (> 1); only read by ``skewed``.

    Raises:
        ConfigError: On values out of range, or if no uniform split of that size exists beside this test set.
    """
    n = len(table.labels)
    n_test = round(FRAC_TEST * n)
    n_train = int(frac_train * n + 1e-9) if 0 < frac_train <= 1 else 0  # rounded down, as the field does
    limit = "must be in (0, 0.8]: 20 % of the pairs is the test set"
    require(0 < frac_train <= 1 - FRAC_TEST + 1e-9, "data.frac_train", frac_train, limit)
    enough = n_train >= 1 and n_test >= 1
    require(enough, "data.frac_train", frac_train, f"gives {n_train} training and {n_test} test pairs of {n}")
    require(split_seed >= 0, "data.split_seed", split_seed, "must be 0 or more")
    generator = torch.Generator().manual_seed(split_seed)
    order = torch.randperm(n, generator=generator)
    test, pool = order[:n_test], order[n_test:]
    n_train = min(n_train, len(pool))
    if strategy == "skewed":
        require(1 < skew < float("inf"), "data.skew", skew, "must be greater than 1 and finite")
        weight = torch.ones(table.n_symbols)
        heavy = torch.randperm(table.n_symbols, generator=generator)
        weight[heavy[: max(1, round(SKEWED_SHARE * table.n_symbols))]] = skew
        chosen = torch.multinomial(weight[table.tokens[pool, 0]], n_train, generator=generator)
    else:
        require(strategy in ("random", "uniform"), "data.split", strategy, "must be random, uniform or skewed")
        chosen = torch.arange(n_train)  # the pool is already in random order
    in_train = torch.zeros(n, dtype=torch.bool)
    in_train[pool[chosen]] = True
    if strategy == "uniform":
        in_pool = torch.zeros(n, dtype=torch.bool)
        in_pool[pool] = True
        in_train = _equalise(table, in_train, in_pool, frac_train)
    in_val = ~in_train
    in_val[test] = False
    return Split(in_train.nonzero()[:, 0], in_val.nonzero()[:, 0], test.sort().values)


def _equalise(table: Table, in_train: Tensor, in_pool: Tensor, frac_train: float) -> Tensor:
    """Move training pairs until the counts of every a, and of every b, differ by at most 1.

    The training set is a bipartite graph between values of a and of b. A path that alternates between a
    training pair to drop and a pool pair to add moves one unit of degree from its first to its last node and
    changes no other degree, so a random start stays as random as the constraint allows.
    """
    a, b = table.tokens[:, 0], table.tokens[:, 2]
    train = torch.zeros(table.n_symbols, table.n_symbols, dtype=torch.bool)
    pool, domain = train.clone(), train.clone()
    train[a, b], pool[a, b], domain[a, b] = in_train, in_pool, True
    for grid, allowed, present in ((train, pool, domain.any(1)), (train.T, pool.T, domain.any(0))):
        low = int(in_train.sum()) // int(present.sum())
        while True:
            counts = grid.sum(1)
            above, below = counts > low + 1, present & (counts < low)
            if not (above.any() or below.any()):
                break
            # A row that is too full may give to any that can take; one that is too empty takes from any that can give.
            giver, taker = (above, present & (counts <= low)) if above.any() else (counts > low, below)
            if not _shift(grid, allowed & ~grid, giver, taker):
                raise ConfigError(
                    f"data.frac_train = {frac_train}: no uniform split of that size was found beside the test set "
                    "of this split_seed; take a smaller frac_train or data.split = random"
                )
    return train[a, b]


def _shift(grid: Tensor, free: Tensor, giver: Tensor, taker: Tensor) -> bool:
    """Move one pair from a giving row to a taking row, in place, by a shortest path; False if there is none.

    Rows are reached from rows over a column: (row, column) leaves the training set, (next row, column) enters.
    """
    via = torch.full((len(giver),), -1)  # the column over which a row was reached
    source = torch.full((len(giver),), -1)  # the row it was reached from
    reached = giver.clone()
    frontier = reached.nonzero()[:, 0].tolist()
    while frontier:
        following: list[int] = []
        for row in frontier:
            hits = free[:, grid[row]] & ~reached[:, None]  # (rows, columns of this row)
            for new in hits.any(1).nonzero()[:, 0].tolist():
                column = int(grid[row].nonzero()[int(hits[new].to(torch.int8).argmax()), 0])
                via[new], source[new], reached[new] = column, row, True
                if taker[new]:
                    _apply(grid, new, via, source)
                    return True
                following.append(new)
        frontier = following
    return False


def _apply(grid: Tensor, row: int, via: Tensor, source: Tensor) -> None:
    while int(source[row]) >= 0:
        previous, column = int(source[row]), int(via[row])
        grid[previous, column], grid[row, column] = False, True
        row = previous


def token_probabilities(table: Table, rows: Tensor) -> dict[str, list[float]]:
    """Realised frequency of every operand token in a part of the table (arXiv:2505.15624, Fig. 8).

    ``p_i = #{rows with operand i} / #rows``, for the left operand (``a``), the right one (``b``) and for a
    token drawn from either slot (``token``); each list sums to 1.

    Args:
        table: All pairs.
        rows: int64, shape (n,), the part to count.
    """
    counts = {
        name: torch.bincount(table.tokens[rows, slot], minlength=table.n_symbols).double()
        for name, slot in (("a", 0), ("b", 2))
    }
    counts["token"] = counts["a"] + counts["b"]
    return {name: (count / count.sum().clamp(min=1)).tolist() for name, count in counts.items()}
