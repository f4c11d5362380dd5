"""Batches are a pure function of (order_seed, rank, step)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from grok_lightning.data.batches import BatchLoader, BatchOrder, TableLoader, token_coverage
from grok_lightning.errors import ConfigError


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 9), st.integers(1, 3))
def test_an_epoch_sees_every_pair_once_over_all_processes(n, batch_size, seed, world):
    try:
        orders = [BatchOrder(n, batch_size, seed, rank, world) for rank in range(world)]
    except ConfigError:
        assert batch_size > n or (n % batch_size or batch_size) < world
        return
    for step in range(len(orders[0])):
        shards = [order.rows(step) for order in orders]
        sizes = [len(shard) for shard in shards]
        assert max(sizes) - min(sizes) <= 1
        alone = BatchOrder(n, batch_size, seed).rows(step)
        assert sorted(torch.cat(shards).tolist()) == sorted(alone.tolist())
    everything = torch.cat([order.rows(step) for order in orders for step in range(len(order))])
    assert sorted(everything.tolist()) == list(range(n))


def test_epochs_and_seeds_differ():
    order = BatchOrder(100, 100)
    assert not torch.equal(order.rows(0), order.rows(1))
    assert not torch.equal(order.rows(0), BatchOrder(100, 100, order_seed=1).rows(0))
    assert torch.equal(order.rows(7), BatchOrder(100, 100).rows(7))


def test_weights_make_the_mean_over_processes_the_mean_over_the_batch():
    values = torch.rand(23, dtype=torch.float64)
    orders = [BatchOrder(23, 7, 0, rank, 2) for rank in range(2)]
    for step in range(4):
        whole = BatchOrder(23, 7).rows(step)
        means = []
        for order in orders:
            rows, weight = order.take(order.epoch(0), step)
            means.append(values[rows].mean() * weight)
        assert float(sum(means) / 2) == pytest.approx(float(values[whole].mean()))


def make_loader():
    tokens = torch.arange(40).view(10, 4)
    return BatchLoader(tokens, torch.arange(10), BatchOrder(10, 3))


def take(loader, n):
    found = []
    while len(found) < n:
        for batch in loader:
            found.append(batch.labels.tolist())
            if len(found) == n:
                break
    return found


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 9])
def test_a_restored_loader_goes_on_where_it_stopped(cut):
    whole = take(make_loader(), 12)
    first = make_loader()
    head = take(first, cut)
    second = make_loader()
    second.load_state_dict(first.state_dict())
    assert head + take(second, 12 - cut) == whole


def test_tokens_and_labels_stay_together():
    for batch in make_loader():
        assert torch.equal(batch.tokens[:, 0] // 4, batch.labels)


@pytest.mark.parametrize("batch_size", [0, -1, 11])
def test_a_batch_size_outside_the_training_set_is_refused(batch_size):
    with pytest.raises(ConfigError, match=r"data.batch_size.*1 to 10"):
        BatchOrder(10, batch_size)


def test_more_processes_than_pairs_in_the_last_batch_are_refused():
    with pytest.raises(ConfigError, match="2 processes"):
        BatchOrder(10, 3, world_size=2)


def test_a_table_loader_gives_its_part_at_once():
    tokens, labels = torch.arange(28).view(7, 4), torch.arange(7)
    loader = TableLoader(tokens, labels, "val")
    (batch,) = loader
    assert len(loader) == 1
    assert (batch.tokens is tokens, batch.labels is labels, batch.weight, batch.part) == (True, True, 1.0, "val")


def test_token_coverage_counts_operands_of_both_slots():
    tokens = torch.tensor([[0, 5, 1, 6], [1, 5, 3, 6]])
    assert token_coverage(tokens, 5) == 3 / 5
