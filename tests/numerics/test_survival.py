import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm, wilcoxon

from grok_lightning.numerics.inference import (
    holm,
    lower_rate_p,
    median_of_values,
    percentile_interval,
    sign_test,
    signed_rank,
    smallest_sign_p,
    wilson,
)
from grok_lightning.numerics.paired import Pair, paired_test
from grok_lightning.numerics.survival import (
    Times,
    logrank_p,
    median_interval,
    median_time,
    medians_of_draws,
    survival_curve,
)

# Freireich et al. 1963, weeks of remission of acute leukaemia (Kalbfleisch & Prentice, table 1.1; + is censored)
DRUG = Times(
    (6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35), (True,) * 9 + (False,) * 12
)
PLACEBO = Times((1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23), (True,) * 21)


def test_kaplan_meier_of_the_leukaemia_trial_is_the_published_one():
    at, share = survival_curve(DRUG)
    known = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    found = dict(zip(at.tolist(), share.tolist(), strict=True))
    assert {t: round(found[t], 3) for t in known} == known
    assert found[35] == pytest.approx(0.448, abs=5e-4)
    assert (median_time(DRUG), median_time(PLACEBO)) == (23, 8)


def test_logrank_of_the_leukaemia_trial_is_the_published_one():
    p = logrank_p(DRUG, PLACEBO)
    assert norm.isf(p / 2) ** 2 == pytest.approx(16.79, abs=0.005)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Times((5,), (True,)), PLACEBO),
        (Times((5, 6), (False, False)), Times((5, 7), (False, False))),
        (Times((5, 5), (True, True)), Times((5, 5), (True, True))),
    ],
    ids=["one run", "no event", "all at once"],
)
def test_logrank_says_nothing_rather_than_something(one, other):
    assert logrank_p(one, other) is None


def test_the_median_is_the_first_time_at_which_half_is_gone():
    assert median_time(Times((1, 2, 3, 4), (True,) * 4)) == 2
    assert median_time(Times((1, 2, 3, 4), (True, False, False, False))) == math.inf
    assert median_time(Times((1, 1, 2), (False, False, True))) == 2
    # S = 1, 2/3, 1/3 after three events, one of three left: 1/2 in floating point must not be missed
    assert median_time(Times((1, 2, 3, 4, 5, 6), (True,) * 6)) == 3


def test_medians_of_resamples_are_those_of_scipy_one_by_one():
    generator = np.random.default_rng(3)
    times = Times(tuple(map(float, generator.integers(0, 8, 12))), tuple(map(bool, generator.integers(0, 2, 12))))
    draws = generator.integers(12, size=(300, 12))
    for median, draw in zip(medians_of_draws(times, draws), draws, strict=True):
        drawn = Times(tuple(times.times[i] for i in draw), tuple(times.observed[i] for i in draw))
        assert median == median_time(drawn)


def test_bootstrap_interval_of_two_runs_is_the_two_runs():
    generator = np.random.default_rng(0)
    assert median_interval(Times((5, 9), (True, True)), 2000, 0.95, generator) == (5, 9)
    assert median_interval(Times((5, 9), (True, False)), 2000, 0.95, generator) == (5, math.inf)
    assert median_interval(Times((5,), (True,)), 2000, 0.95, generator) is None


def test_bootstrap_interval_covers_the_median_about_as_often_as_it_says():
    generator, hits = np.random.default_rng(1), 0
    for _ in range(300):
        events = generator.exponential(100, 25)
        ends = generator.exponential(300, 25)
        drawn = Times(tuple(np.minimum(events, ends)), tuple(map(bool, events <= ends)))
        low, high = median_interval(drawn, 2000, 0.95, generator)
        hits += low <= 100 * math.log(2) <= high
    assert 0.91 <= hits / 300 <= 0.99


def test_times_refuse_what_is_no_time():
    with pytest.raises(ValueError, match="2 times but 1 marks"):
        Times((1, 2), (True,))
    with pytest.raises(ValueError, match="finite"):
        Times((math.inf,), (True,))
    with pytest.raises(ValueError, match="no times"):
        survival_curve(Times((), ()))


def test_wilson_is_the_closed_form():
    z = norm.isf(0.025)
    for k, n in ((0, 10), (3, 10), (10, 10), (7, 8)):
        centre, half = k + z**2 / 2, z * math.sqrt(k * (n - k) / n + z**2 / 4)
        assert wilson(k, n) == pytest.approx(((centre - half) / (n + z**2), (centre + half) / (n + z**2)))
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)  # Newcombe 1998, table I


def test_holm_is_the_textbook_example():
    # 0.01, 0.04, 0.03, 0.005 at m = 4: 0.005·4, 0.01·3, 0.03·2, then 0.04·1 raised to the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([None, 0.02, None, 0.03]) == [None, pytest.approx(0.04), None, pytest.approx(0.04)]
    assert holm([]) == []


def test_sign_test_counts_coin_tosses():
    assert sign_test(5, 5) == pytest.approx(2 / 32)
    assert sign_test(5, 5, "greater") == pytest.approx(1 / 32)
    assert sign_test(7, 8) == pytest.approx(2 * 9 / 256)
    assert sign_test(4, 8) == 1.0
    assert sign_test(0, 0) is None
    assert [smallest_sign_p(n) for n in (0, 1, 5, 6)] == [1.0, 1.0, 0.0625, 0.03125]


def test_fisher_is_the_lady_tasting_tea():
    assert lower_rate_p(0, 4, 4, 4) == pytest.approx(1 / 70)
    assert lower_rate_p(4, 4, 0, 4) == 1.0


@pytest.mark.parametrize(
    "differences", [[3, -1, 2, 2, -5, 7], [50, 50, 50, -50], [-1, -2, -3, -4, -5], [0, 0, 4, -4, 4]]
)
def test_signed_rank_is_the_count_over_all_signs(differences):
    kept = np.array([d for d in differences if d != 0], dtype=float)
    order = np.sort(np.abs(kept))
    ranks = np.array([np.mean(np.flatnonzero(order == abs(d)) + 1) for d in kept])
    observed = abs(ranks[kept > 0].sum() - ranks[kept < 0].sum())
    signs = np.array(list(product((-1, 1), repeat=len(kept))))
    expected = np.mean(np.abs(signs @ ranks) >= observed - 1e-9)
    found = signed_rank(differences)
    assert found.p_value == pytest.approx(expected)
    assert found.rank_biserial == pytest.approx((ranks[kept > 0].sum() - ranks[kept < 0].sum()) / ranks.sum())
    assert found.n == len(kept)


def test_signed_rank_without_ties_is_scipys():
    differences = [1.5, -0.5, 3, 4.5, -2, 6, 7.25, 8]
    assert signed_rank(differences).p_value == pytest.approx(wilcoxon(differences, method="exact").pvalue)
    assert signed_rank([0.0, 0.0]) is None


def test_percentile_interval_keeps_infinite_ends():
    values = np.array([1.0] * 10 + [2.0] * 80 + [math.inf] * 10)
    assert percentile_interval(values, 0.9) == (1.0, math.inf)
    assert percentile_interval(values, 0.7) == (2.0, 2.0)
    assert median_of_values([1.0], 2000, 0.95, np.random.default_rng(0)) is None
    assert median_of_values([1.0, 3.0], 2000, 0.95, np.random.default_rng(0)) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("pair", "order", "ratio"),
    [
        (Pair(500, True, 1000, True), "sooner", (0.5, 0.5)),
        (Pair(1000, True, 500, True), "later", (2.0, 2.0)),
        (Pair(500, True, 500, True), "tied", (1.0, 1.0)),
        (Pair(500, True, 1000, False), "sooner", (0.0, 0.5)),
        (Pair(500, True, 500, False), "sooner", (0.0, 1.0)),
        (Pair(500, True, 300, False), "undetermined", (0.0, 5 / 3)),
        (Pair(1000, False, 500, True), "later", (2.0, math.inf)),
        (Pair(500, False, 500, True), "later", (1.0, math.inf)),
        (Pair(300, False, 500, True), "undetermined", (0.6, math.inf)),
        (Pair(900, False, 500, False), "undetermined", (0.0, math.inf)),
        (Pair(50, True, 0, True), "later", (0.0, math.inf)),
        (Pair(0, True, 50, True), "sooner", (0.0, 0.0)),
    ],
)
def test_what_a_pair_says(pair, order, ratio):
    assert pair.order == order
    assert pair.ratio == pytest.approx(ratio)


def test_paired_test_of_five_whole_pairs():
    pairs = [Pair(t, True, base, True) for t, base in ((500, 1000), (600, 1000), (700, 1000), (800, 1000), (400, 1000))]
    found = paired_test(pairs, 2000, 0.95, np.random.default_rng(0))
    assert (found.n, found.sooner, found.later, found.tied, found.undetermined) == (5, 5, 0, 0, 0)
    assert found.sign_p == found.smallest_p == found.wilcoxon_p == pytest.approx(0.0625)
    assert (found.sooner_p, found.later_p) == (pytest.approx(1 / 32), 1.0)
    assert found.rank_biserial == -1.0
    assert found.ratio == pytest.approx((0.6, 0.6))
    assert found.ratio_interval == pytest.approx((0.4, 0.8))


def test_paired_test_with_censoring_bounds_the_ratio():
    pairs = [Pair(500, True, 1000, True), Pair(3000, False, 1000, True), Pair(3000, False, 1000, True)]
    found = paired_test(pairs, 2000, 0.95, np.random.default_rng(0))
    assert (found.sooner, found.later) == (1, 2)
    assert (found.wilcoxon_p, found.rank_biserial) == (None, None)
    assert found.ratio == (3.0, math.inf)
    assert found.ratio_interval == (0.5, math.inf)
    nothing = paired_test([], 2000, 0.95, np.random.default_rng(0))
    assert (nothing.n, nothing.sign_p, nothing.ratio, nothing.ratio_interval) == (0, None, None, None)
