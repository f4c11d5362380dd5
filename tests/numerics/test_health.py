"""Numerical health against float64, hand-made tensors and hand-made loss curves."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from grok_lightning.errors import ConfigError
from grok_lightning.nets.mlp import EmbeddingMLPNet
from grok_lightning.nets.transformer import TransformerNet
from grok_lightning.numerics.health import (
    LossSpikeDetector,
    block_norms,
    logit_norm,
    nonfinite_count,
    softmax_collapse_fraction,
)

C = 97


def margin(m, dtype, label=0):
    """One sample: logit m on class 0, 0 elsewhere; exact loss log(1 + (C − 1) e^{−m}) for label 0."""
    logits = torch.zeros(1, C, dtype=dtype)
    logits[0, 0] = m
    return logits, torch.tensor([label])


def test_logits_of_a_thousand_collapse_in_float32_and_in_float64_and_moderate_ones_only_in_float32():
    for dtype, m, collapsed in [
        (torch.float32, 1e3, 1.0),
        (torch.float64, 1e3, 1.0),
        (torch.float32, 30.0, 1.0),
        (torch.float64, 30.0, 0.0),
        (torch.float32, 15.0, 0.0),
    ]:
        assert float(softmax_collapse_fraction(*margin(m, dtype))) == collapsed, (dtype, m)
    # the samples called healthy do have the loss of the closed form
    logits, label = margin(30.0, torch.float64)
    assert float(cross_entropy(logits, label)) == pytest.approx(math.log1p(96 * math.exp(-30)), rel=1e-3, abs=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_collapse_starts_where_the_tail_of_the_softmax_falls_below_half_an_ulp(dtype):
    # two classes: 1 + e^{−m} rounds to 1 from e^{−m} < eps/2 on
    edge = -math.log(torch.finfo(dtype).eps / 2)
    for m, collapsed in [(edge - 0.1, 0.0), (edge + 0.1, 1.0)]:
        logits = torch.tensor([[m, 0.0]], dtype=dtype)
        assert float(softmax_collapse_fraction(logits, torch.tensor([0]))) == collapsed
        assert (float((logits - logits.max()).exp().sum()) == 1) == bool(collapsed)  # the authors' test


def test_the_fraction_counts_samples_without_gradient():
    logits = torch.randn(64, C, generator=torch.Generator().manual_seed(0)) * 50
    labels = logits.argmax(1)
    labels[::3] = 0
    logits.requires_grad_(True)
    cross_entropy(logits, labels, reduction="sum").backward()
    dead = logits.grad.gather(1, labels[:, None]).flatten() == 0
    assert 0.1 < float(dead.float().mean()) < 0.9
    found = softmax_collapse_fraction(logits, labels)
    assert float(found) == pytest.approx(float(dead.float().mean()))
    assert not found.requires_grad


def test_a_confident_mistake_and_a_nan_are_not_collapsed():
    for logits, label in (margin(1e3, torch.float32, label=1), margin(math.nan, torch.float32)):
        assert float(softmax_collapse_fraction(logits, label)) == 0.0


def test_logit_norm_is_the_mean_of_row_norms_and_survives_half_precision():
    logits = torch.tensor([[3.0, 4.0], [0.0, 0.0], [5.0, 12.0]])
    assert float(logit_norm(logits)) == pytest.approx(6.0)
    assert float(logit_norm(torch.full((2, 100), 6e4, dtype=torch.float16))) == pytest.approx(6e5, rel=1e-3)
    assert logit_norm(logits.double()).dtype == torch.float64


@pytest.mark.parametrize("net", [EmbeddingMLPNet(9, 7, 4, 6), TransformerNet(9, 7, 4, 1, 2, 6)])
def test_block_norms_are_those_of_the_flattened_blocks(net):
    params = dict(net.named_parameters())
    found = block_norms(params, net.blocks())
    assert set(found) == {"embedding", "first_layer", "rest"}
    for block, names in net.blocks().items():
        flat = [x for name in names for x in params[name].flatten().tolist()]
        assert float(found[block]) == pytest.approx(math.sqrt(math.fsum(x * x for x in flat)), rel=1e-5)
    whole = torch.nn.utils.parameters_to_vector(net.parameters()).detach().norm()
    assert math.hypot(*(float(x) for x in found.values())) == pytest.approx(float(whole), rel=1e-5)


def test_nonfinite_entries_are_counted_over_all_tensors():
    a = torch.tensor([1.0, math.nan, math.inf])
    b = torch.tensor([[-math.inf, 0.0]], dtype=torch.float16)
    assert int(nonfinite_count([a, b, torch.arange(3)])) == 3
    assert int(nonfinite_count([torch.ones(2)])) == int(nonfinite_count([])) == 0


def alarms(losses, **settings):
    detector = LossSpikeDetector(**settings)
    return [i for i, loss in enumerate(losses) if detector.update(loss)]


def test_a_slingshot_is_a_spike_and_a_falling_loss_is_none():
    falling = [4.0 * 0.8**i for i in range(30)]
    assert alarms(falling, window=5) == []
    assert alarms([*falling, 2.0, *falling[-5:]], window=5) == [30]


def test_the_bound_is_factor_times_the_median_of_the_losses_before():
    before = [1.0, 9.0, 2.0, 3.0, 100.0]  # median 3
    assert alarms([*before, 30.0], factor=10, window=5) == []
    assert alarms([*before, 30.001], factor=10, window=5) == [5]
    assert alarms([*before, 1e9], factor=10, window=6) == []  # history still too short for a verdict
    assert alarms([5000.0, *before, 30.001], factor=10, window=5) == [
        5,
        6,
    ]  # 5000 has left the window by then
    assert alarms([5000.0, *before, 30.001], factor=10, window=6) == []  # and here it has not: median 6


def test_nan_and_infinity_are_spikes_from_the_first_loss_on_and_leave_the_median_alone():
    assert alarms([math.nan, 1.0, math.inf, 1.0, 1.0, 11.0], window=3) == [0, 2, 5]


def test_rounding_noise_below_the_floor_is_no_spike():
    quiet = [1e-8] * 10
    assert alarms([*quiet, 9e-4]) == []
    assert alarms([*quiet, 1.1e-3]) == [10]
    assert alarms([*quiet, 9e-4], floor=1e-7) == [10]


def test_a_lasting_rise_stops_being_a_spike_once_it_fills_half_the_window():
    assert alarms([1.0] * 5 + [100.0] * 8, window=5) == [5, 6, 7]


def test_the_detector_continues_from_its_state_and_owns_its_history():
    losses = [1.0, 2.0, 1.5, 1.0, 50.0, 1.0, 40.0]
    whole, first = LossSpikeDetector(window=3), LossSpikeDetector(window=3)
    expected = [whole.update(x) for x in losses]
    assert [i for i, spike in enumerate(expected) if spike] == [4, 6]
    for x in losses[:4]:
        first.update(x)
    state = first.state_dict()
    first.update(1e6)
    second = LossSpikeDetector(window=3)
    second.load_state_dict(state)
    assert [second.update(x) for x in losses[4:]] == expected[4:]
    short = LossSpikeDetector(window=2)
    short.load_state_dict(state)
    assert short.history == [1.5, 1.0]


@pytest.mark.parametrize("bad", [{"factor": 1.0}, {"window": 0}, {"floor": -1.0}, {"factor": math.nan}])
def test_settings_out_of_range_are_refused_by_name(bad):
    with pytest.raises(ConfigError, match=rf"health\.{next(iter(bad))}"):
        LossSpikeDetector(**bad)
