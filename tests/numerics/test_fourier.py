"""Fourier measurements against numpy, hand-made waves, group characters and the authors' projection."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from grok_lightning.data.tasks import Addition, Multiplication, build_table
from grok_lightning.errors import ConfigError
from grok_lightning.numerics.fourier import (
    dft_norms,
    discrete_log_order,
    discrete_log_spectrum,
    fourier_summary,
    gini,
    inverse_participation_ratio,
    key_frequencies,
    natural_spectrum,
    primitive_root,
    progress_losses,
    sum_spectrum,
)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("p", [2, 5, 12, 97])
def test_natural_spectrum_equals_numpy_and_keeps_the_energy(p):
    E = random(p + 2, 16)
    found = natural_spectrum(E, p)
    reference = np.linalg.norm(np.fft.fft(E[:p].double().numpy(), axis=0), axis=1) / math.sqrt(p)
    np.testing.assert_allclose(found.numpy(), reference[: p // 2 + 1], rtol=1e-12)
    once = found[0] ** 2 + (found[p // 2] ** 2 if p % 2 == 0 else 0)
    twice = (found[1 : (p + 1) // 2] ** 2).sum()
    assert float(once + 2 * twice) == pytest.approx(float(E[:p].double().square().sum()))


def test_pure_waves_give_the_peaks_worked_out_by_hand():
    p, amplitude = 31, 3.0
    a = torch.arange(p, dtype=torch.float64)
    E = torch.zeros(p + 2, 3, dtype=torch.float64)
    E[:p, 0] = 2.0  # constant: F_0 = 2 √p
    E[:p, 1] = amplitude * torch.cos(2 * math.pi * 4 * a / p + 0.3)  # F_4 = 3 √p / 2, whatever the phase
    E[:p, 2] = amplitude * torch.sin(2 * math.pi * 4 * a / p)  # adds in quadrature
    E[p:] = 1e6  # OP and EQ have to be left out
    expected = torch.zeros(p // 2 + 1, dtype=torch.float64)
    expected[0] = 2 * math.sqrt(p)
    expected[4] = amplitude * math.sqrt(p) / 2 * math.sqrt(2)
    torch.testing.assert_close(natural_spectrum(E, p), expected, rtol=1e-12, atol=1e-12)
    summary = fourier_summary(natural_spectrum(E, p))
    assert summary["n_key_freqs"] == 1
    assert summary["ipr"] == pytest.approx(1.0)
    assert summary["gini"] == pytest.approx(1 - 1 / (p // 2))


@pytest.mark.parametrize("p", [2, 3, 5, 7, 23, 41, 97, 113])
def test_powers_of_the_root_run_through_all_units_and_the_root_is_smallest(p):
    order = discrete_log_order(p).tolist()
    assert sorted(order) == list(range(1, p))
    g = primitive_root(p)
    assert order == [pow(g, i, p) for i in range(p - 1)]
    for smaller in range(1, g):
        assert len({pow(smaller, i, p) for i in range(p - 1)}) < p - 1


@pytest.mark.parametrize("p", [0, 1, 4, 91])
def test_no_discrete_logarithm_without_a_prime(p):
    for f in (discrete_log_order, primitive_root, lambda p: discrete_log_spectrum(random(100, 2), p)):
        with pytest.raises(ConfigError, match="prime"):
            f(p)


def test_a_multiplicative_character_is_one_peak_in_discrete_log_order_only():
    p, k = 41, 6
    # the definition of a character, χ(xy) = χ(x) χ(y), fixes it by brute force from its value on a generator
    chi, g = np.zeros(p, dtype=complex), primitive_root(p)
    for i in range(p - 1):
        chi[pow(g, i, p)] = np.exp(2j * np.pi * k * i / (p - 1))
    x = np.arange(1, p)
    np.testing.assert_allclose(chi[np.outer(x, x) % p], np.outer(chi[1:], chi[1:]), atol=1e-12)
    E = torch.from_numpy(np.stack([chi.real, chi.imag], axis=1))
    E = torch.cat([E, torch.zeros(2, 2)])
    found = discrete_log_spectrum(E, p)
    expected = torch.zeros((p - 1) // 2 + 1, dtype=torch.float64)
    expected[k] = math.sqrt((p - 1) / 2)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    # In natural order its transform is a Gauss sum: |F_m|² = 1 for every m ≠ 0, for the two columns together.
    natural = natural_spectrum(E, p)
    torch.testing.assert_close(natural[1:], torch.full_like(natural[1:], 1.0), rtol=1e-12, atol=0)
    assert fourier_summary(natural)["gini"] == pytest.approx(0.0, abs=1e-12)


def test_discrete_logarithm_turns_multiplication_into_addition_and_carries_the_spectrum_over():
    p = 23
    order = discrete_log_order(p)
    table, sums = build_table(Multiplication(exclude_zero=True), p), build_table(Addition(), p - 1)
    product = torch.zeros(p, p, dtype=torch.int64)
    product[table.tokens[:, 0], table.tokens[:, 2]] = table.labels
    i, j = sums.tokens[:, 0], sums.tokens[:, 2]
    assert torch.equal(product[order[i], order[j]], order[sums.labels])
    # so an embedding for addition mod p-1, moved to the units, has the spectrum it had
    E_add = random(p - 1, 8)
    E_mul = random(p + 2, 8, seed=1)
    E_mul[order] = E_add
    torch.testing.assert_close(discrete_log_spectrum(E_mul, p), natural_spectrum(E_add, p - 1), rtol=1e-12, atol=0)


def test_another_primitive_root_changes_no_summary_number():
    p, other = 23, 7
    assert primitive_root(p) == 5
    order = torch.tensor([pow(other, i, p) for i in range(p - 1)])
    assert sorted(order.tolist()) == list(range(1, p))  # 7 is a root as well
    E = random(p + 2, 3)
    ours, theirs = discrete_log_spectrum(E, p), dft_norms(E[order])
    assert not torch.allclose(ours, theirs, rtol=0.01)
    torch.testing.assert_close(ours.sort().values, theirs.sort().values, rtol=1e-12, atol=0)
    assert fourier_summary(ours) == pytest.approx(fourier_summary(theirs), rel=1e-12)


def test_gini_of_known_vectors():
    assert float(gini(torch.ones(9))) == pytest.approx(0.0)
    assert float(gini(torch.eye(9)[4])) == pytest.approx(1 - 1 / 9)
    # 1 … n: (n² − 1)/3n ÷ (n + 1) = (n − 1)/3n
    assert float(gini(torch.arange(10, 0, -1))) == pytest.approx(9 / 30)
    x = random(40).abs().double().numpy()
    pairs = np.abs(x[:, None] - x[None]).mean() / (2 * x.mean())  # half the relative mean absolute difference
    assert float(gini(torch.from_numpy(x))) == pytest.approx(pairs, rel=1e-12)
    assert math.isnan(float(gini(torch.zeros(4))))


def test_ipr_of_known_vectors():
    assert float(inverse_participation_ratio(torch.full((8,), 0.3))) == pytest.approx(1 / 8)
    assert float(inverse_participation_ratio(torch.eye(8)[2] * 7)) == pytest.approx(1.0)
    # x = (1, 2): P = (1, 4), ΣP² = 17, (ΣP)² = 25
    assert float(inverse_participation_ratio(torch.tensor([1.0, 2.0]))) == pytest.approx(17 / 25)


def test_key_frequencies_follow_their_threshold_and_skip_the_constant():
    spectrum = torch.tensor([100.0, 1.0, 4.0, 2.0, 1.9, 0.0])
    assert key_frequencies(spectrum).tolist() == [2, 3]
    assert key_frequencies(spectrum, 1.0).tolist() == [2]
    assert key_frequencies(spectrum, 0.2).tolist() == [1, 2, 3, 4]
    assert key_frequencies(torch.tensor([5.0, 0.0, 0.0])).tolist() == []
    for threshold in (0.0, 1.1):
        with pytest.raises(ConfigError, match=r"fourier\.threshold"):
            key_frequencies(spectrum, threshold)


def test_a_flat_spectrum_has_all_frequencies_as_keys_and_nan_stays_nan():
    flat = fourier_summary(natural_spectrum(random(99, 128), 97))
    assert flat["n_key_freqs"] == 48
    assert flat["gini"] < 0.1
    broken = fourier_summary(torch.tensor([1.0, math.nan, 2.0]))
    assert all(math.isnan(x) for x in broken.values())


class HandBuilt(torch.nn.Module):
    """Adds mod p by trigonometry: E holds cos and sin, products give those of the sum, E reads out."""

    def __init__(self, p, freqs, sharpness):
        super().__init__()
        w = 2 * math.pi * torch.tensor(freqs, dtype=torch.float64) / p
        phase = torch.arange(p, dtype=torch.float64)[:, None] * w
        self.E = torch.cat([phase.cos(), phase.sin()], dim=1)
        self.sharpness = sharpness

    def forward(self, a, b):
        cos_a, sin_a = self.E[a].chunk(2, dim=1)
        cos_b, sin_b = self.E[b].chunk(2, dim=1)
        of_sum = torch.cat([cos_a * cos_b - sin_a * sin_b, sin_a * cos_b + cos_a * sin_b], dim=1)
        return self.sharpness * of_sum @ self.E.T


P, FREQS = 23, [2, 5, 9]


@pytest.fixture
def table():
    made = build_table(Addition(), P)
    train = torch.rand(P * P, generator=torch.Generator().manual_seed(3)) < 0.4
    return made.tokens[:, 0], made.tokens[:, 2], made.labels, train


def test_a_hand_built_network_lives_on_its_key_frequencies(table):
    a, b, labels, train = table
    net = HandBuilt(P, FREQS, sharpness=4.0)
    logits = net(a, b)
    assert (logits.argmax(1) == labels).all()
    keys = key_frequencies(natural_spectrum(net.E, P)).tolist()
    assert keys == FREQS == key_frequencies(sum_spectrum(logits)).tolist()
    found = progress_losses(logits, labels, train, keys)
    assert found["table_loss"] == pytest.approx(float(cross_entropy(logits, labels)))
    assert found["table_loss"] < 0.2
    assert found["restricted_loss"] == pytest.approx(found["table_loss"], rel=1e-9)
    assert found["excluded_loss"] == pytest.approx(math.log(P), rel=1e-9)
    # without one of its frequencies it does worse, and the wrong ones hold nothing
    assert progress_losses(logits, labels, train, keys[1:])["restricted_loss"] > 1.5 * found["table_loss"]
    wrong = progress_losses(logits, labels, train, [1, 3])
    assert wrong["restricted_loss"] == pytest.approx(math.log(P), rel=1e-9)
    assert wrong["excluded_loss"] == pytest.approx(float(cross_entropy(logits[train], labels[train])), rel=1e-9)


def test_memorised_training_pairs_survive_exclusion_but_not_restriction(table):
    _, _, labels, train = table
    logits = 12.0 * train[:, None] * one_hot(labels, P)
    found = progress_losses(logits, labels, train, FREQS)
    assert found["excluded_loss"] < 0.01
    assert found["restricted_loss"] > 1.0


def test_losses_equal_the_explicit_two_dimensional_projection_of_the_authors_code(table):
    a, b, labels, train = table
    logits = random(P * P, P, seed=4).double() * 3 + random(P, seed=5)
    key_part = torch.zeros_like(logits)
    for k in FREQS:  # unit vectors over the table, one projection after the other
        for wave in (torch.cos, torch.sin):
            direction = wave(2 * math.pi * k * (a + b).double() / P)
            direction = direction / direction.norm()
            key_part += torch.outer(direction, direction @ logits)
    restricted = key_part + (logits - key_part).mean(0)  # bias correction: the mean over the table is kept
    found = progress_losses(logits, labels, train, reversed(FREQS))
    assert found["restricted_loss"] == pytest.approx(float(cross_entropy(restricted, labels)), rel=1e-12)
    excluded = float(cross_entropy((logits - key_part)[train], labels[train]))
    assert found["excluded_loss"] == pytest.approx(excluded, rel=1e-12)


def test_sum_spectrum_sees_functions_of_the_sum_only(table):
    a, b, _, _ = table
    of_sum = random(P, 4)
    torch.testing.assert_close(sum_spectrum(of_sum[(a + b) % P]), dft_norms(of_sum), rtol=1e-12, atol=0)
    difference = torch.cos(2 * math.pi * 3 * (a - b).double() / P)[:, None]
    assert float(sum_spectrum(difference).max()) < 1e-12


def test_the_nyquist_frequency_of_an_even_modulus_is_projected_once():
    p = 6
    made = build_table(Addition(), p)
    signs = (1 - 2 * (made.labels % 2)).double()  # cos(2π·3·(a+b)/6)
    logits = torch.outer(signs, random(p).double())
    found = progress_losses(logits, made.labels, torch.ones(p * p, dtype=torch.bool), [3])
    assert found["restricted_loss"] == pytest.approx(found["table_loss"], rel=1e-12)
    assert found["excluded_loss"] == pytest.approx(math.log(p), rel=1e-12)


def test_unusable_tables_are_refused(table):
    _, _, labels, train = table
    logits = random(P * P, P)
    with pytest.raises(ValueError, match="all p² pairs"):
        progress_losses(logits[1:], labels[1:], train[1:], FREQS)
    with pytest.raises(ValueError, match="non-empty mask"):
        progress_losses(logits, labels, torch.zeros_like(train), FREQS)
    with pytest.raises(ValueError, match="non-empty mask"):
        progress_losses(logits[:, 1:], labels, train, FREQS)
    for freqs in ([0], [P // 2 + 1]):
        with pytest.raises(ValueError, match="frequencies"):
            progress_losses(logits, labels, train, freqs)
