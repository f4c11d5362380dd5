"""Verdicts on B1 on runs that were made to carry them, or not to."""

import json
import math

import pytest
from synthetic import write_run

from grok_lightning.compare.comparison import compare

SGD = {"model__optimizer": "sgd", "model__lr": 0.1, "model__c": None}
LAMBDAS = (0.01, 0.003, 0.001, 0.0003)
SPREAD = (0.9, 0.95, 1.0, 1.05, 1.1)


def write(root, times, bound=0.5, t_mem=50, last=400_000, **changed):
    """Runs from λ → T_grok by seed; each ends there, or at ``last``. t_mem: one step, or by λ."""
    for decay, by_seed in times.items():
        memorised = t_mem[decay] if isinstance(t_mem, dict) else t_mem
        for seed, t_grok in enumerate(by_seed):
            stop = last if t_grok is None else t_grok
            path = write_run(
                root / f"l{decay}-s{seed}", t_grok, t_mem=memorised, last=stop, seed=seed, model__weight_decay=decay,
                **(SGD | changed),
            )  # fmt: skip
            if bound is not None:
                with (path / "metrics.jsonl").open("a") as file:
                    file.write(json.dumps({"step": stop, "two_phase/bound": bound}) + "\n")
    return root


def judged(root, **options):
    claims = compare([root], ["model.weight_decay"], n_draws=2000, **options).claims
    (found,) = [claim for claim in claims if claim.name == "B1"]
    return found


def power(exponent, scale=10.0, lambdas=LAMBDAS):
    return {d: [50 * round(s * scale * d**exponent / 50) for s in SPREAD] for d in lambdas}


def test_supported(tmp_path):
    found = judged(write(tmp_path, power(-1)))
    assert found.verdict == "supported"
    assert found.numbers["slope"] == pytest.approx(-1, abs=0.02)
    assert found.numbers["slope_low"] == pytest.approx(-1, abs=0.05)
    assert found.numbers["slope_high"] == pytest.approx(-1, abs=0.05)
    assert found.numbers["bound"] == 0.5
    assert "λ·lr·T_grok 1, 1, 1.01, 1" in found.estimate
    assert found.n == {"0.0003": 5, "0.001": 5, "0.003": 5, "0.01": 5}


def test_the_slope_is_that_of_least_squares(tmp_path):
    times = {0.01: [1000] * 5, 0.003: [4000] * 5, 0.001: [9000] * 5}
    found = judged(write(tmp_path, times))
    x, y = [math.log(d) for d in times], [math.log(t[0]) for t in times.values()]
    middle = sum(x) / 3
    expected = sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)
    assert found.numbers["slope"] == found.numbers["slope_low"] == pytest.approx(expected)


@pytest.mark.parametrize(("exponent", "scale"), [(-0.5, 100.0), (-1.5, 1.0)])
def test_contradicted_by_another_power(tmp_path, exponent, scale):
    found = judged(write(tmp_path, power(exponent, scale)))
    assert found.verdict == "contradicted"
    assert found.numbers["slope"] == pytest.approx(exponent, abs=0.03)


def test_undetermined_where_the_interval_crosses_the_edge(tmp_path):
    assert judged(write(tmp_path, power(-0.905, 20.0))).verdict == "undetermined"


def test_undetermined_where_it_is_no_power(tmp_path):
    times = {0.01: [1000] * 5, 0.003: [2000] * 5, 0.001: [14_000] * 5, 0.0003: [30_000] * 5}
    found = judged(write(tmp_path, times))
    assert found.verdict == "undetermined"
    assert "is no power of λ" in found.why


def test_large_decay_and_few_runs_are_not_fitted(tmp_path):
    times = power(-1) | {0.1: [50] * 5, 0.0001: [100_000] * 4}
    found = judged(write(tmp_path, times))
    assert found.verdict == "supported"
    assert (found.numbers["lambda_low"], found.numbers["lambda_high"]) == (0.0003, 0.01)
    assert "not fitted: λ = 0.0001, 0.1" in found.why


def test_runs_without_t_grok_are_censored_and_speak_only_if_watched_for_long(tmp_path):
    times = power(-1) | {0.0001: [None] * 5}
    short = judged(write(tmp_path / "short", times, last=150_000))  # the fit predicts 100 000
    assert short.verdict == "supported"
    found = judged(write(tmp_path / "long", times, last=250_000))
    assert found.verdict == "undetermined"
    assert "at λ = 0.0001 do not grok in 250000 steps" in found.why


def test_a_minority_of_censored_runs_enters_as_censored(tmp_path):
    times = power(-1)
    times[0.0003] = [*times[0.0003][:3], None, None]
    found = judged(write(tmp_path, times, last=34_000))
    assert found.numbers["slope"] == pytest.approx(-1, abs=0.02)  # the median of 30 000, 31 650 … is known
    assert found.numbers["slope_low"] == -math.inf
    assert found.verdict == "undetermined"
    assert "in some resamples" in found.why


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model__optimizer": "adam"}, "gradient flow"),
        ({"model__momentum": 0.9}, "gradient flow"),
        ({"bound": None}, "no run recorded two_phase/bound"),
        ({"bound": 0.02}, "needs 3 values of λ up to 0.002"),
        ({"t_mem": {0.01: 50, 0.003: 50, 0.001: 50, 0.0003: 20_000}}, "no second phase to time"),
    ],
)
def test_what_cannot_be_judged_is_undetermined(tmp_path, changed, why):
    found = judged(write(tmp_path, power(-1), **changed))
    assert found.verdict == "undetermined"
    assert why in found.why


def test_it_is_printed_with_its_setting(tmp_path, cli):
    write(tmp_path / "runs", power(-1))
    done = cli("compare", tmp_path / "runs", "--by", "model.weight_decay", "--draws", 2000, "--json", "out.json")
    assert done.status == 0, done.err
    assert "B1 T_grok ∝ 1/λ" in done.out
    assert "5 with λ = 0.0003" in done.out
    (claim,) = json.loads((tmp_path / "out.json").read_text())["claims"]
    assert (claim["name"], claim["verdict"]) == ("B1", "supported")
