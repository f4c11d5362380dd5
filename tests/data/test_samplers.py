"""Samplers against their definitions."""

import io
import math

import numpy as np
import pytest
import torch

from grok_lightning.data.batches import BatchLoader, BatchOrder
from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.data.samplers import Balanced, Entropy, Replacement, TokenBounds
from grok_lightning.errors import ConfigError

PAIRS = torch.tensor([[0, 1], [1, 2], [2, 2], [3, 0], [0, 3]])  # token 4 is in none
BATCH = 512


def data(**settings):
    return ModularDataModule(**{"p": 97, "batch_size": BATCH} | settings)


def operands(module, step):
    rows = module.split.train[module.batch_order().rows(step)]
    return module.table.tokens[rows][:, [0, 2]]


def test_shuffled_epochs_are_the_default():
    assert type(data().batch_order()) is BatchOrder
    assert torch.equal(data().batch_order().rows(3), BatchOrder(2822, BATCH).rows(3))


def test_full_batch_is_the_training_set():
    order = data(batch_size="full").batch_order()
    assert len(order) == 1
    assert sorted(order.rows(5).tolist()) == list(range(2822))


@pytest.mark.parametrize("sampler", ["replacement", "balanced"])
def test_a_batch_is_a_function_of_seed_rank_and_step(sampler):
    module = data(sampler=sampler)
    order = module.batch_order()
    assert torch.equal(order.rows(9), data(sampler=sampler).batch_order().rows(9))
    assert not torch.equal(order.rows(9), order.rows(8))
    assert not torch.equal(order.rows(9), data(sampler=sampler, order_seed=1).batch_order().rows(9))
    shards = [module.batch_order(rank, 2).rows(9) for rank in range(2)]
    assert sorted(torch.cat(shards).tolist()) == sorted(order.rows(9).tolist())


def test_draws_with_replacement_are_uniform_and_repeat():
    order = Replacement(50, 50)
    counts = torch.bincount(torch.cat([order.rows(step) for step in range(400)]), minlength=50)
    assert len(torch.unique(order.rows(0))) < 50
    assert float(((counts - 400) ** 2 / 400).sum()) < 100  # χ² with 49 degrees of freedom: mean 49, s.d. 9.9


def test_balanced_batches_hold_every_token_about_equally_often():
    module, plain = data(sampler="balanced"), data()
    for step in range(12):
        pairs = operands(module, step)
        rows = module.batch_order().rows(step)
        assert len(rows) == len(torch.unique(rows)) == (BATCH if step % 6 < 5 else 2822 - 5 * BATCH)
        if len(rows) == BATCH:
            for slot in range(2):
                counts = torch.bincount(pairs[:, slot], minlength=97)
                usual = torch.bincount(operands(plain, step)[:, slot], minlength=97)
                assert int(counts.max()) <= math.ceil(BATCH / 97) + 1
                assert float(counts.double().std()) < 0.5 * float(usual.double().std())


def test_a_balanced_batch_by_hand():
    diagonal = torch.tensor([[a, (a + s) % 3] for a in range(3) for s in range(3)])  # all nine pairs
    order = Balanced(9, 9, operands=diagonal)
    assert sorted(order.rows(0).tolist()) == list(range(9))
    one_token = Balanced(4, 3, operands=torch.tensor([[0, 0], [0, 1], [0, 2], [1, 0]]))
    assert all(3 in one_token.rows(2 * step).tolist() for step in range(20))  # the only pair that starts with 1


def bounds(gamma, norms=(), decay=0.5):
    tokens = TokenBounds(PAIRS, 5, gamma, decay)
    for norm in norms:
        tokens.observe(torch.tensor(norm))
    return tokens


def test_probabilities_are_equation_19():
    found = bounds(2.0, [[1.0, 2.0, 0.0, 0.5, 0.0]]).probabilities
    weights = np.exp(np.array([1.0, 4.0, 0.0, 0.25]) / 2.0)
    assert found[:4].tolist() == pytest.approx((weights / weights.sum()).tolist(), rel=1e-12)
    assert found[4] == 0  # in no training pair


def test_large_gamma_is_uniform_and_small_gamma_the_argmax():
    norms = [[1.0, 2.0, 0.1, 0.5, 9.0]]
    for gamma in (1e30, math.inf):
        assert bounds(gamma, norms).probabilities[:4].tolist() == pytest.approx([0.25] * 4, rel=1e-12)
    assert bounds(1e-30, norms).probabilities.tolist() == [0, 1, 0, 0, 0]
    drawn = bounds(1e-30, norms).draw(200, torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {0, 1}  # the pairs that hold token 1, both of them
    drawn = bounds(math.inf).draw(40_000, torch.Generator().manual_seed(0))
    shares = torch.bincount(drawn, minlength=5).double() / 40_000
    # Token 0 is in pairs 0, 3, 4; token 1 in 0, 1; token 2 in 1, 2; token 3 in 3, 4; each token has 1/4.
    expected = np.array([1 / 3 + 1 / 2, 1 / 2 + 1 / 2, 1 / 2, 1 / 3 + 1 / 2, 1 / 3 + 1 / 2]) / 4
    assert shares.tolist() == pytest.approx(expected.tolist(), abs=0.012)


def test_bounds_run():
    seen = bounds(1.0, [[4.0, 1.0, 0.0, 0.0, 0.0], [1.0, float("inf"), 3.0, 0.0, 0.0], [0.0, 0.2, 0.0, 0.0, 0.0]])
    # max(4/2, 1) and then absent; not finite, then max(1/2, 0.2); absent after its first; never there.
    assert seen.bounds.tolist() == pytest.approx([2.0, 0.5, 3.0, 0.0, 0.0])


def take(loader, tokens, n):
    found = []
    while len(found) < n:
        for batch in loader:
            found.append(batch.labels.tolist())
            tokens.observe(torch.rand(5, generator=torch.Generator().manual_seed(len(found))))
            if len(found) == n:
                break
    return found


@pytest.mark.parametrize("cut", [1, 3, 4])
def test_a_restored_sampler_goes_on_where_it_stopped(cut):
    def make():
        tokens = bounds(0.05)
        return BatchLoader(torch.arange(20).view(5, 4), torch.arange(5), Entropy(5, 3, 7, tokens=tokens)), tokens

    loader, tokens = make()
    take(loader, tokens, cut)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    file.seek(0)
    rest = take(loader, tokens, 4)
    other, fresh = make()
    other.load_state_dict(torch.load(file, weights_only=True))
    assert take(other, fresh, 4) == rest


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("sampler", {"sampler": "lucky"}),
        ("sampler_gamma", {"sampler": "entropy"}),
        ("sampler_gamma", {"sampler": "entropy", "sampler_gamma": 0.0}),
        ("sampler_gamma", {"sampler": "entropy", "sampler_gamma": float("nan")}),
        ("sampler_gamma", {"sampler_gamma": 1.0}),
        ("sampler_decay", {"sampler": "entropy", "sampler_gamma": 1.0, "sampler_decay": 1.5}),
    ],
)
def test_bad_values_name_their_field(field, settings):
    with pytest.raises(ConfigError, match=f"data.{field} = "):
        data(**settings)


def test_the_entropy_sampler_runs_in_one_process():
    with pytest.raises(ConfigError, match="one process"):
        data(sampler="entropy", sampler_gamma=1.0).batch_order(0, 2)
