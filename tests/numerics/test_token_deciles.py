"""Tokens by frequency decile, against counting by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from grok_lightning.numerics.tokens import (
    TokenMeter,
    frequency_deciles,
    log_log_slope,
    predicted_by_group,
    required_ratio,
    rms_by_group,
)


def test_deciles_are_equal_groups_from_rare_to_frequent():
    counts = torch.tensor([0, 5, *range(100, 0, -1), 0])
    deciles = frequency_deciles(counts)
    assert sorted(len(decile) for decile in deciles) == [10] * 9 + [11]
    assert sorted(torch.cat(deciles).tolist()) == list(range(1, 102))
    assert all(counts[low].max() <= counts[high].min() for low, high in pairwise(deciles))
    assert [len(decile) for decile in frequency_deciles(torch.tensor([3, 0, 1]))].count(0) == 8


def test_slope():
    x = [1.0, 2.0, 4.0, math.nan, 8.0, 0.0, math.inf]
    assert log_log_slope(x, [3 * v**0.5 for v in x]) == pytest.approx(0.5)
    assert math.isnan(log_log_slope([1.0, 2.0], [1.0, 2.0]))
    assert math.isnan(log_log_slope([2.0] * 4, [1.0, 2.0, 3.0, 4.0]))


def test_meter_is_the_mean_square_over_steps():
    generator = torch.Generator().manual_seed(0)
    steps = [(torch.randn(6, 3, generator=generator), torch.randn(4, 3, generator=generator)) for _ in range(5)]
    meter = TokenMeter(6, torch.device("cpu"))
    for grad_e, grad_w in steps:
        meter.add(grad_e, [grad_w[:1], grad_w[1:]])
    rows = np.mean([(e.numpy() ** 2).sum(1) for e, _ in steps], axis=0)
    assert meter.rows.numpy() == pytest.approx(rows)
    assert meter.first == pytest.approx(np.mean([(w.numpy() ** 2).sum() for _, w in steps]))
    groups = [torch.tensor([0, 5]), torch.tensor([1])]
    assert rms_by_group(meter.rows, groups) == pytest.approx([np.sqrt((rows[0] + rows[5]) / 2), np.sqrt(rows[1])])
    other = TokenMeter(6, torch.device("cpu"))
    other.load_state_dict(meter.state_dict())
    other.add(*steps[0])
    assert (other.steps, meter.steps) == (6, 5)
    meter.reset()
    assert bool(meter.rows.isnan().all())


def test_ratios():
    # entries of W of size 6, entries of a row of size 2: three times
    assert required_ratio(float(torch.full((4,), 2.0).norm()), 4, float(torch.full((3, 3), 6.0).norm()), 9) == 3
    assert math.isnan(required_ratio(0.0, 4, 1.0, 9))
    assert predicted_by_group(6.0, 2.0, [0.5, 1.0]) == [6.0, 3.0]
    assert math.isnan(predicted_by_group(6.0, 2.0, [0.0])[0])
