import math
import random
from dataclasses import replace

import pytest

from grok_lightning.errors import ConfigError
from grok_lightning.numerics.compression import CompressionRule, compression_clock

STEPS = list(range(0, 30_001, 100))  # 301 points: the window is the last 31, from step 27 000
T_GROK, T_COMPRESS = 5_000, 15_000


def accuracy_at(step):
    return 1.0 if step >= T_GROK else 0.3


def rank_at(step):
    """50 at the start, 30 at T_grok, 7 at the end; floor + 0.1·drop = 9.3 is first reached at T_COMPRESS."""
    if step < T_GROK:
        return 50 - 20 * step / T_GROK
    if step < T_COMPRESS:
        return 30 - 20 * (step - T_GROK) / (T_COMPRESS - T_GROK)
    return 9.2 if step < 20_000 else 7.0


def built(steps=STEPS, accuracy=accuracy_at, rank=rank_at):
    return list(steps), [accuracy(s) for s in steps], [rank(s) for s in steps]


def codes(clock):
    return list(dict.fromkeys(reason.split(":")[0] for reason in clock.reasons))


def test_known_answer():
    clock = compression_clock(*built())
    assert (clock.t_grok, clock.t_compress, clock.lag) == (5_000, 15_000, 10_000)
    assert clock.lag_interval == (9_900, 10_100)
    assert (clock.r_init, clock.r_grok, clock.floor, clock.floor_start) == (50, 30, 7, 27_000)
    assert clock.frac_pre == pytest.approx((50 - 30) / (50 - 7))
    assert (clock.plateau, clock.censored_grok, clock.censored_compress, clock.boundary) == (
        True,
        False,
        False,
        False,
    )
    assert (clock.verdict, clock.reasons) == ("large_lag", ())


def test_small_lag():
    clock = compression_clock(*built(rank=lambda s: 50 if s < T_GROK else 30 if s < 6_000 else 7))
    assert (clock.t_compress, clock.lag, clock.verdict) == (6_000, 1_000, "small_lag")


def test_epsilon_moves_t_compress():
    # from 30, 20 per 10 000 steps: floor + 0.2·23 = 11.6 after 9 200 steps, floor + 0.5·23 = 18.5 after 5 750
    for epsilon, t_compress in ((0.2, 14_200), (0.5, 10_800)):
        assert compression_clock(*built(), rule=CompressionRule(epsilon=epsilon)).t_compress == t_compress


def test_threshold_moves_t_grok():
    steps, accuracy, rank = built(accuracy=lambda s: min(1.0, s / 10_000))
    assert compression_clock(steps, accuracy, rank).t_grok == 9_500
    assert compression_clock(steps, accuracy, rank, rule=CompressionRule(threshold=0.9)).t_grok == 9_000


def test_floor_ignores_a_spike():
    steps, accuracy, rank = built()
    rank[-5] = 8.5
    assert compression_clock(steps, accuracy, rank).floor == 7


def test_exponential_fall_against_its_closed_form():
    tau = 1_500
    steps, accuracy, rank = built(rank=lambda s: 50 if s < T_GROK else 7 + 43 * math.exp(-(s - T_GROK) / tau))
    clock = compression_clock(steps, accuracy, rank)
    exact = T_GROK + tau * math.log(10)  # 43·exp(-t/τ) = 4.3
    assert clock.t_compress == 100 * math.ceil(exact / 100)
    assert clock.frac_pre == pytest.approx(0, abs=1e-6)


def test_noise_does_not_move_the_clock_by_much():
    draw = random.Random(0)
    steps, accuracy, rank = built()
    clock = compression_clock(steps, accuracy, [r + draw.gauss(0, 0.1) for r in rank])
    assert clock.verdict == "large_lag"
    assert clock.t_compress == pytest.approx(T_COMPRESS, abs=300)


def test_accuracy_and_rank_on_their_own_steps():
    at = list(range(50, 30_001, 150))
    clock = compression_clock(STEPS, [accuracy_at(s) for s in at], [rank_at(s) for s in STEPS], accuracy_steps=at)
    assert clock.t_grok == 5_000  # 50 + 33·150
    assert (clock.r_grok, clock.lag, clock.lag_interval) == (30, 10_000, (9_900, 10_150))
    late = [s + 10 for s in at]
    clock = compression_clock(STEPS, [accuracy_at(s) for s in late], [rank_at(s) for s in STEPS], accuracy_steps=late)
    assert (clock.t_grok, clock.r_grok) == (5_010, rank_at(5_100))


LOG_SPACED = sorted(
    {0} | {round(10 ** (i / 40)) for i in range(201)}
)  # to 100 000; the window is the last 17, from 39 811


def test_log_spaced_points():
    def rank(step):
        return 50 if step < T_GROK else 30 if step < T_COMPRESS else 7

    clock = compression_clock(*built(LOG_SPACED, rank=rank))
    after = [step for step in LOG_SPACED if step >= T_COMPRESS]
    assert (clock.t_compress, clock.plateau) == (after[0], True)
    assert clock.verdict == "large_lag"
    falling = compression_clock(*built(LOG_SPACED, rank=lambda s: rank(s) + 5 * (1 - s / 100_000)))
    assert codes(falling) == ["floor_falling"]


def with_value(series, i, value):
    return [*series[:i], value, *series[i + 1 :]]


S, A, R = built()
SHORT = built(range(0, 5_001, 100))
ADVERSARIAL = {
    "never_groks": built(accuracy=lambda s: 0.9 if s > 5_000 else 0.3),
    "stopped_at_grok": SHORT,
    "grokked_at_start": built(accuracy=lambda s: 1.0),
    "floor_falling": built(rank=lambda s: 50 - 40 * s / 30_000),
    "floor_rising": built(rank=lambda s: rank_at(s) + max(0, s - 22_000) / 4_000),
    "rank_rises": built(rank=lambda s: 20 if s < 8_000 else 40),
    "drop_too_small": built(rank=lambda s: 20 if s < 8_000 else 19.5),
    "single_point": ([5_000], [1.0], [30.0]),
    "no_points": ([], [], []),
    "not_finite": (S, A, with_value(R, 100, math.nan)),
    "non_monotone_steps": ([*S[:100], S[101], S[100], *S[102:]], A, R),
    "out_of_range": (S, [100 * a for a in A], R),
    "few_floor_points": built(range(0, 30_001, 2_000)),
    "boundary": built(accuracy=lambda s: 0.97 if s == 5_000 else 0.7),
    "floor_noisy": (S, A, [r * (1.5 if i % 3 == 0 and i > 230 else 1) for i, r in enumerate(R)]),
    "coarse_logging": built(rank=lambda s: 30 if s < 7_500 else 7),
}


@pytest.mark.parametrize("code", ADVERSARIAL)
def test_refused_with_its_own_reason(code):
    clock = compression_clock(*ADVERSARIAL[code])
    assert clock.verdict == "refused"
    assert codes(clock) == [code]


@pytest.mark.parametrize("extra", [0, 100, 400])
def test_a_run_stopped_at_or_just_after_t_grok_has_no_converged_rank(extra):
    clock = compression_clock(*built(range(0, T_GROK + extra + 1, 100)))
    assert (clock.t_grok, clock.floor, clock.t_compress, clock.frac_pre) == (5_000, None, None, None)
    assert clock.censored_compress
    assert "cannot report a converged rank" in clock.reasons[0]


def test_a_run_stopped_at_any_moment_never_reports_a_wrong_lag():
    for last in range(T_GROK, 30_001, 100):
        clock = compression_clock(*built(range(0, last + 1, 100)))
        if clock.verdict != "refused":
            # the rank rested at 9.2 for a while: 9.2 + 0.1·20.8 was reached 9 360 steps after T_grok
            assert 14_400 <= clock.t_compress <= T_COMPRESS, last
    assert clock.verdict == "large_lag"


def test_censored_never_carries_numbers():
    # the fall ends inside the window: its median calls itself a floor
    clock = compression_clock(*built(rank=lambda s: 30 if s < 28_000 else 7))
    assert clock.floor == 7
    assert clock.censored_compress
    assert (clock.t_compress, clock.lag, clock.frac_pre, clock.plateau) == (None, None, None, False)
    assert codes(clock) == ["floor_falling", "floor_noisy", "t_compress_censored"]


def test_the_first_point_of_the_window_belongs_to_it():
    start = STEPS[-31]
    stopped = compression_clock(*built(accuracy=lambda s: float(s >= start)))
    assert codes(stopped) == ["stopped_at_grok"]
    assert codes(compression_clock(*built(accuracy=lambda s: float(s >= start - 100)))) != ["stopped_at_grok"]
    assert compression_clock(*built(rank=lambda s: 30 if s < start else 7)).censored_compress
    assert not compression_clock(*built(rank=lambda s: 30 if s < start - 100 else 7)).censored_compress
    until = STEPS.index(start) + 1
    assert compression_clock(S, A[:until], R, accuracy_steps=S[:until]).boundary is False


def test_never_grokking_is_censored():
    clock = compression_clock(*ADVERSARIAL["never_groks"])
    assert clock.censored_grok
    assert clock.t_grok is None
    assert "highest 0.9" in clock.reasons[0]


def test_noise_is_seldom_called_a_trend():
    # 2 standard errors: 5 % of stationary series at most, since the change has to be large as well
    found = []
    for seed in range(200):
        draw = random.Random(seed)
        rank = [r + (draw.gauss(0, 0.5) if s >= 20_000 else 0) for s, r in zip(S, R, strict=True)]
        found += codes(compression_clock(S, A, rank))
    assert found.count("floor_falling") + found.count("floor_rising") <= 20
    assert found.count("floor_unclear") > 0


def test_coarse_logging_is_about_the_distance_of_points():
    # the lag is 0.5·T_grok exactly on the grid, so the data do not say on which side of it the lag is
    clock = compression_clock(*ADVERSARIAL["coarse_logging"])
    assert (clock.lag, clock.lag_interval) == (2_500, (2_400, 2_600))


def test_boundary_gate_on_a_weak_drop_and_on_the_group():
    weak = compression_clock(*built(rank=lambda s: 30 if s < 12_000 else 24))
    assert weak.boundary
    assert codes(weak) == ["boundary"]
    assert weak.t_compress == 12_000
    assert compression_clock(S, A, R, group_floor=2.4).verdict == "large_lag"
    assert codes(compression_clock(S, A, R, group_floor=2.3)) == ["boundary"]


def test_frac_pre_survives_where_nothing_is_left_to_compress():
    clock = compression_clock(*built(rank=lambda s: 50 if s < 3_000 else 7))
    assert clock.frac_pre == 1
    assert codes(clock) == ["drop_too_small"]


def test_accuracy_that_ends_before_the_window():
    clock = compression_clock(S, A[:200], R, accuracy_steps=S[:200])
    assert codes(clock) == ["no_final_accuracy"]
    assert clock.boundary is None


def test_infinite_and_negative_values():
    assert codes(compression_clock(S, A, with_value(R, 3, math.inf))) == ["not_finite"]
    assert codes(compression_clock(S, with_value(A, 3, math.nan), R)) == ["not_finite"]
    assert codes(compression_clock(S, A, with_value(R, 3, -1.0))) == ["out_of_range"]
    assert codes(compression_clock([*S[:5], S[4], *S[6:]], A, R)) == ["non_monotone_steps"]


def test_several_reasons_are_all_given():
    clock = compression_clock([100, 0], [math.nan, 1.0], [3.0, math.nan])
    assert len(clock.reasons) == 4
    assert sorted(codes(clock)) == sorted(["non_monotone_steps", "not_finite"])


def test_lengths_have_to_agree():
    with pytest.raises(ConfigError, match="rank = 300"):
        compression_clock(S, A, R[1:])
    with pytest.raises(ConfigError, match="accuracy = 300"):
        compression_clock(S, A[1:], R)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("threshold", 0.0),
        ("threshold", 1.1),
        ("threshold", math.nan),
        ("epsilon", 1.0),
        ("floor_share", 0.3),
        ("min_floor_points", 1),
        ("min_drop", 0.0),
        ("large_lag", math.inf),
    ],
)
def test_rule_refuses_what_has_no_meaning(field, value):
    with pytest.raises(ConfigError, match=field):
        replace(CompressionRule(), **{field: value})


def test_inputs_are_left_alone():
    steps, accuracy, rank = built()
    compression_clock(steps, accuracy, rank)
    assert (steps, accuracy, rank) == built()
