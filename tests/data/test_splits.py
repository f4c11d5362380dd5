"""Splits: disjoint, exhaustive, of the size asked for, and as even or uneven as they claim to be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grok_lightning.data.splits import make_split, token_probabilities
from grok_lightning.data.tasks import build_table, get_task
from grok_lightning.errors import ConfigError

ADDITION = build_table(get_task("addition"), 97)


def counts(table, rows, slot):
    found = torch.bincount(table.tokens[rows, slot], minlength=table.n_symbols)
    return found[torch.bincount(table.tokens[:, slot], minlength=table.n_symbols) > 0]


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["random", "uniform", "skewed"]),
    st.floats(0.01, 0.6),
    st.integers(0, 2**40),
    st.sampled_from([("addition", 11), ("division", 13), ("multiplication", 10)]),
)
def test_parts_are_disjoint_exhaustive_and_of_the_right_size(strategy, frac, seed, task):
    table = build_table(get_task(task[0]), task[1])
    n = len(table.labels)
    try:
        split = make_split(table, strategy, frac, seed)
    except ConfigError:
        refusable = strategy == "uniform" or int(frac * n) == 0
        assert refusable
        return
    assert len(split.train) == int(frac * n + 1e-9)
    assert len(split.test) == round(0.2 * n)
    assert torch.equal(torch.cat([split.train, split.val, split.test]).sort().values, torch.arange(n))


@pytest.mark.parametrize("task", ["addition", "division", "multiplication", "s5"])
@pytest.mark.parametrize("frac", [0.01, 0.1, 0.3, 0.6])
def test_a_uniform_split_has_even_counts_in_both_operands(task, frac):
    table = build_table(get_task(task))
    split = make_split(table, "uniform", frac, split_seed=3)
    for slot in (0, 2):
        found = counts(table, split.train, slot)
        assert int(found.max() - found.min()) <= 1


def test_a_random_split_has_not():
    found = counts(ADDITION, make_split(ADDITION, "random").train, 0)
    assert int(found.max() - found.min()) > 5


@pytest.mark.parametrize("skew", [2.0, 8.0])
def test_a_skewed_split_over_represents_a_fifth_of_the_left_operands(skew):
    split = make_split(ADDITION, "skewed", frac_train=0.1, skew=skew)
    found = counts(ADDITION, split.train, 0).sort(descending=True).values.double()
    ratio = float(found[:19].mean() / found[19:].mean())
    assert ratio == pytest.approx(skew, rel=0.35)  # saturation pulls it below skew, selection of the top above
    other = counts(ADDITION, split.train, 2).sort(descending=True).values.double()
    assert float(other[:19].mean() / other[19:].mean()) < 2
    assert len(split.train) == len(make_split(ADDITION, "random", 0.1).train)


def test_the_test_set_depends_on_the_seed_alone():
    first = make_split(ADDITION, "random", 0.3, split_seed=5).test
    for strategy, frac in [("uniform", 0.3), ("skewed", 0.5), ("random", 0.8)]:
        assert torch.equal(make_split(ADDITION, strategy, frac, split_seed=5).test, first)
    assert not torch.equal(make_split(ADDITION, "random", 0.3, split_seed=6).test, first)


def test_the_global_generator_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = make_split(ADDITION, "uniform").digest()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert make_split(ADDITION, "uniform").digest() == first
    assert make_split(ADDITION, "uniform", split_seed=1).digest() != first


def test_30_percent_of_97_squared_is_2822_pairs():
    split = make_split(ADDITION)
    assert [len(split.train), len(split.val), len(split.test)] == [2822, 4705, 1882]


def test_at_80_percent_nothing_is_held_out():
    assert len(make_split(ADDITION, frac_train=0.8).val) == 0


@pytest.mark.parametrize("frac", [0, -0.1, 0.81, 1, 1.2, float("nan"), 1e-9])
def test_impossible_fractions_are_refused(frac):
    with pytest.raises(ConfigError, match=r"data\.frac_train"):
        make_split(ADDITION, frac_train=frac)


def test_a_uniform_split_that_the_test_set_forbids_is_refused():
    with pytest.raises(ConfigError, match="no uniform split"):
        make_split(ADDITION, "uniform", 0.8)


@pytest.mark.parametrize(("field", "value"), [("split_seed", -1), ("skew", 1.0), ("skew", float("inf"))])
def test_other_bad_values(field, value):
    with pytest.raises(ConfigError, match=rf"data\.{field}"):
        make_split(ADDITION, "skewed", **{field: value})


def test_token_probabilities_are_realised_frequencies():
    rows = make_split(ADDITION).train
    found = token_probabilities(ADDITION, rows)
    a = ADDITION.tokens[rows, 0].tolist()
    b = ADDITION.tokens[rows, 2].tolist()
    assert found["a"] == pytest.approx([a.count(i) / len(a) for i in range(97)])
    assert found["token"] == pytest.approx([(a + b).count(i) / (2 * len(a)) for i in range(97)])
