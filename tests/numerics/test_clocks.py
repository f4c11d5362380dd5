"""Clocks on series whose answers can be read off."""

import pytest
import torch

from grok_lightning.numerics.clocks import GrokClocks, crossing

STEPS = [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize(
    ("values", "n", "first", "sustained"),
    [
        ([0, 0, 1, 1, 1, 1], None, 20, 20),
        ([0, 1, 0, 1, 1, 1], None, 10, 30),
        ([0, 1, 0, 1, 1, 0], None, 10, None),
        ([0, 1, 0, 1, 1, 0], 2, 10, 30),
        ([0, 1, 0, 1, 0, 1], 2, 10, None),
        ([0, 0, 0, 0, 0, 1], 2, 50, None),
        ([1, 1, 1, 1, 1, 1], None, 0, 0),
        ([0, 0, 0, 0, 0, 0], None, None, None),
        ([0, float("nan"), 1, float("nan"), 1, 1], None, 20, 40),
    ],
)
def test_first_and_sustained_crossings(values, n, first, sustained):
    found = crossing(STEPS, values, 0.95, n)
    assert (found.first, found.sustained) == (first, sustained)


def test_reaching_the_threshold_exactly_counts():
    assert crossing([1, 2], [0.94, 0.95], 0.95).first == 2


def test_resolution_is_the_distance_to_the_evaluation_before():
    assert crossing([0, 7, 50], [0, 0, 1], 0.5).resolution == 43
    assert crossing([0, 7], [1, 1], 0.5).resolution == 0
    assert crossing([0, 7], [0, 0], 0.5).resolution is None


@pytest.mark.parametrize(
    ("steps", "values", "n"),
    [([0, 1], [0.0], None), ([0, 0], [0.0, 1.0], None), ([2, 1], [0.0, 1.0], None), ([0, 1], [0.0, 1.0], 0)],
)
def test_malformed_series_are_refused(steps, values, n):
    with pytest.raises(ValueError, match=r"steps|n_evaluations"):
        crossing(steps, values, 0.5, n)


def test_delay_needs_both():
    mem, grok = crossing(STEPS, [0, 1, 1, 1, 1, 1], 0.99), crossing(STEPS, [0, 0, 0, 0, 1, 1], 0.95)
    assert GrokClocks(mem, grok).delay == 30
    assert GrokClocks(grok, mem).delay == -30
    assert GrokClocks(mem, crossing(STEPS, [0] * 6, 0.95)).delay is None


def test_a_threshold_that_is_met_exactly_is_met_in_float32():
    exactly = float(torch.tensor(38) / 40)
    assert exactly < 0.95  # what an evaluation logs
    assert crossing([0, 10], [0.5, exactly], 0.95).first == 10
    assert crossing([0, 10], [0.5, 0.949999], 0.95).first is None
