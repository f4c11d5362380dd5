import math

import pytest

from grok_lightning.errors import ConfigError
from grok_lightning.numerics.two_phase import two_phase_clock

STEPS = list(range(0, 1001, 10))


def test_exponential_decay_against_its_closed_form():
    # ‖∇F‖ = 8·exp(-t/100), ‖w‖ = 4: 1 % at t = 100·ln 100 = 460.5; 8·exp(-t/100) = 4·λ at t = 100·ln(2/λ)
    grad = [8 * math.exp(-t / 100) for t in STEPS]
    clock = two_phase_clock(STEPS, grad, [4.0] * len(STEPS), weight_decay=1e-3, lr=0.1)
    assert clock.t_gf == 470
    assert clock.t_wd == 770  # 760.1
    assert clock.bound == 2.0
    assert clock.decay_ratio == pytest.approx(5e-4)
    assert clock.predicted_steps == pytest.approx(1e4)
    assert clock.first_step == 0


def test_the_bound_uses_the_weights_at_t_gf():
    clock = two_phase_clock([0, 10, 20], [10.0, 1.0, 0.05], [1.0, 2.0, 5.0], 0.5)
    assert (clock.t_gf, clock.bound, clock.decay_ratio) == (20, 2.0, 0.25)
    assert clock.t_wd == 10  # 1 ≤ 0.5·2
    assert clock.predicted_steps is None


def test_epsilon_moves_t_gf_alone():
    grad = [8 * math.exp(-t / 100) for t in STEPS]
    clock = two_phase_clock(STEPS, grad, [4.0] * len(STEPS), 1e-3, epsilon=0.1)
    assert (clock.t_gf, clock.t_wd) == (240, 770)  # 230.3


def test_a_run_that_gets_nowhere():
    clock = two_phase_clock([0, 10], [1.0, 1.0], [1.0, 1.0], 1e-3)
    assert (clock.t_gf, clock.t_wd, clock.bound, clock.decay_ratio) == (None, None, None, None)


def test_without_decay_there_is_no_second_phase():
    clock = two_phase_clock([0, 10], [1.0, 0.0], [1.0, 1.0], 0.0, lr=0.1)
    assert (clock.t_gf, clock.t_wd, clock.predicted_steps, clock.decay_ratio) == (10, None, None, 0.0)


def test_ridge_regression_by_gradient_descent():
    # F = ½(w₁ - 1)² in two dimensions: w₁ is fitted at rate 1, w₂ is only moved by decay, at rate λ
    lam, lr, w, steps, grad, norm = 1e-3, 0.1, [0.0, 3.0], [], [], []
    for t in range(40_001):
        if t % 10 == 0:
            steps.append(t)
            grad.append(abs(w[0] - 1))
            norm.append(math.hypot(*w))
        w = [w[0] - lr * (w[0] - 1 + lam * w[0]), w[1] * (1 - lr * lam)]
    clock = two_phase_clock(steps, grad, norm, lam, lr)
    assert clock.t_gf < clock.t_wd < 200  # both in the fast phase
    half = next(t for t, n in zip(steps, norm, strict=True) if n < (norm[50] + 1) / 2)
    assert 0.3 < half / clock.predicted_steps < 3  # the norm falls on the scale 1/(λ·η) = 10 000


@pytest.mark.parametrize(
    ("args", "name"),
    [
        (([], [], [], 0.1), "grad_norm"),
        (([0, 1], [1.0], [1.0, 1.0], 0.1), "grad_norm"),
        (([0, 1], [1.0, 1.0], [1.0], 0.1), "weight_norm"),
        (([0, 1], [1.0, math.nan], [1.0, 1.0], 0.1), "grad_norm"),
        (([0, 1], [1.0, 1.0], [1.0, -1.0], 0.1), "weight_norm"),
        (([1, 1], [1.0, 1.0], [1.0, 1.0], 0.1), "steps"),
        (([0, 1], [1.0, 1.0], [1.0, 1.0], -0.1), "weight_decay"),
        (([0, 1], [1.0, 1.0], [1.0, 1.0], 0.1, 0.0), "lr"),
        (([0, 1], [1.0, 1.0], [1.0, 1.0], 0.1, 0.1, 1.0), "epsilon"),
    ],
)
def test_bad_input_names_the_field(args, name):
    with pytest.raises(ConfigError, match=name):
        two_phase_clock(*args)
