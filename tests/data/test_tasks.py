"""Tasks against brute force and against group theory."""

from itertools import permutations
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grok_lightning.data.tasks import Addition, Task, TaskName, build_table, get_task, is_prime
from grok_lightning.errors import ConfigError

FORMULAS = {
    "addition": lambda a, b, p: (a + b) % p,
    "subtraction": lambda a, b, p: (a - b) % p,
    "multiplication": lambda a, b, p: a * b % p,
    "division": lambda a, b, p: next((x for x in range(p) if x * b % p == a), None),
    "sum_of_squares": lambda a, b, p: (a**2 + b**2) % p,
    "quadratic": lambda a, b, p: (a**2 + a * b + b**2) % p,
    "cubic": lambda a, b, p: (a**3 + a * b) % p,
}


def as_dict(table):
    return {(row[0], row[2]): label for row, label in zip(table.tokens.tolist(), table.labels.tolist(), strict=True)}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("p", [2, 5, 13, 97])
def test_labels_are_what_python_integers_say(name, p):
    expected = {(a, b): FORMULAS[name](a, b, p) for a in range(p) for b in range(p) if name != "division" or b}
    table = build_table(get_task(name), p)
    assert as_dict(table) == expected
    assert table.vocab_size == p + 2


def test_token_sequence_of_the_paper():
    table = build_table(get_task("addition"), 5)
    row = table.tokens.tolist().index([3, 5, 2, 6])
    assert table.labels[row] == 0


def test_rows_are_in_lexicographic_order():
    tokens = build_table(get_task("division"), 7).tokens
    pairs = tokens[:, [0, 2]].tolist()
    assert pairs == sorted(pairs)
    assert len(pairs) == 7 * 6


def test_s5_composes_permutations():
    table = build_table(get_task("s5"))
    perms = list(permutations(range(5)))
    assert len(table.labels) == 120**2
    assert table.n_classes == 120
    for a, b in [(0, 7), (7, 0), (3, 111), (119, 119), (64, 23)]:
        assert perms[as_dict(table)[a, b]] == tuple(perms[a][perms[b][i]] for i in range(5))


def test_s5_is_a_group():
    label = build_table(get_task("s5")).labels.view(120, 120)
    assert torch.equal(label[0], torch.arange(120))  # the identity comes first
    assert all(len(set(row)) == 120 for row in label.tolist())
    x, y, z = torch.randint(0, 120, (3, 500), generator=torch.Generator().manual_seed(0))
    assert torch.equal(label[label[x, y], z], label[x, label[y, z]])


def test_exclude_zero_leaves_the_units():
    table = build_table(get_task("multiplication", exclude_zero=True), 11)
    assert len(table.labels) == 100
    assert int(table.tokens[:, [0, 2]].min()) == 1
    assert int(table.labels.min()) == 1


@pytest.mark.parametrize(("p", "g"), [(11, 2), (13, 2), (97, 5)])
def test_the_discrete_logarithm_maps_units_onto_addition_mod_p_minus_1(p, g):
    units = as_dict(build_table(get_task("multiplication", exclude_zero=True), p))
    sums = as_dict(build_table(get_task("addition"), p - 1))
    power = [pow(g, i, p) for i in range(p - 1)]
    assert sorted(power) == list(range(1, p))  # g generates the group
    for (i, j), k in sums.items():
        assert units[power[i], power[j]] == power[k]


@pytest.mark.parametrize(
    ("name", "p", "reason"),
    [
        ("division", 4, "prime"),
        ("division", 91, "prime"),
        ("addition", 1, "from 2"),
        ("addition", 0, "from 2"),
        ("addition", 5000, "4096"),
        ("s5", 97, "no modulus"),
    ],
)
def test_an_undefined_modulus_is_refused(name, p, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        build_table(get_task(name), p)
    assert f"data.p = {p}" in str(caught.value)


def test_exclude_zero_needs_a_prime_and_multiplication():
    with pytest.raises(ConfigError, match="prime"):
        build_table(get_task("multiplication", exclude_zero=True), 6)
    with pytest.raises(ConfigError, match="only multiplication"):
        get_task("addition", exclude_zero=True)


def test_composite_p_is_fine_where_everything_is_defined():
    assert as_dict(build_table(get_task("multiplication"), 6))[2, 3] == 0


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match="sum_of_squares"):
        get_task("nonsense")


class Bad(Task):
    def __init__(self, value):
        self.value = value

    def label(self, a, b, p):
        return self.value(a, b, p)


@pytest.mark.parametrize(
    "value",
    [lambda a, b, p: a + b, lambda a, b, p: a / 2, lambda a, b, p: a[:3], lambda a, b, p: a - b],
    ids=["too large", "float", "wrong shape", "negative"],
)
def test_unusable_labels_of_a_users_task_are_refused(value):
    with pytest.raises(ConfigError, match="label"):
        build_table(Bad(value), 5)


def test_a_task_without_label_says_so():
    with pytest.raises(ConfigError, match="has to define label"):
        build_table(Task(), 5)


@given(st.integers(-3, 5000))
def test_is_prime(n):
    assert is_prime(n) == (n > 1 and not any(n % d == 0 for d in range(2, n)))


def test_default_modulus_is_97():
    assert build_table(Addition()).n_symbols == 97
    assert len(get_args(TaskName)) == 8
