"""Verdicts on runs that were made to carry them, or not to."""

import pytest
from synthetic import settings, write_run, write_runs

from grok_lightning.compare.comparison import compare

SLOW = [1000, 1100, 1200, 1300, 1150, 1250, 1050, 1350]
FAST = [500, 600, 700, 650, 550, 600, 500, 700]


def claims(root, by=("model.c",), **options):
    return compare([root], by, n_draws=2000, **options).claims


def claim(name, times, **common):
    (found,) = [c for c in claims(write_runs("exp", times, **common)) if c.name == name]
    return found


def test_c3_supported():
    found = claim("C3", {1: SLOW, 10: FAST})
    assert found.verdict == "supported"
    assert found.n == {"10": 8, "1": 8}
    assert found.numbers["p_sooner_holm"] == pytest.approx(1 / 256)
    assert found.numbers["ratio_low"] == found.numbers["ratio_high"] == pytest.approx(0.5, abs=0.05)
    assert "8 of 8 grok with c = 10" in found.why


def test_c3_contradicted_by_the_opposite():
    found = claim("C3", {1: FAST, 10: SLOW})
    assert (found.verdict, found.why.split(":")[0]) == ("contradicted", "the opposite holds")


def test_c3_contradicted_by_the_grok_rate_although_most_pairs_are_sooner():
    found = claim("C3", {1: SLOW * 2, 10: FAST + [550] * 2 + [None] * 6})
    assert found.numbers["sooner"] == 10
    assert (found.verdict, found.why.split(":")[0]) == ("contradicted", "fewer runs grok")
    assert found.numbers["p_lower_rate_holm"] == pytest.approx(0.0088, abs=1e-4)  # C(16,6)/C(32,6) = 8008/906192


def test_c3_a_run_that_never_groks_counts_as_later():
    found = claim("C3", {1: SLOW, 10: [*FAST[:5], None, None, None]})
    assert (found.numbers["sooner"], found.numbers["later"]) == (5, 3)
    assert found.verdict == "undetermined"


def test_c3_pairs_left_open_by_censoring_count_on_neither_side():
    root = write_runs("exp", {1: SLOW, 10: FAST[:3]})
    for seed in range(3, 8):
        write_run(root / f"short-{seed}", None, c=10, seed=seed, last=400, trainer__max_steps=400)
    (found,) = [c for c in claims(root) if c.name == "C3"]
    assert (found.numbers["sooner"], found.numbers["open"], found.numbers["horizon"]) == (3, 5, 400)
    assert (found.verdict, found.numbers["p_sooner_holm"]) == ("undetermined", 0.125)


def test_c3_says_when_the_pairs_are_too_few():
    found = claim("C3", {1: SLOW[:4], 10: FAST[:4]})
    assert found.verdict == "undetermined"
    assert "4 pairs cannot go below p = 0.062" in found.why


@pytest.mark.parametrize(
    ("common", "lacking"),
    [
        ({"model__lr": 0.001}, "model.lr = 0.01, these runs have 0.001"),
        ({"data__batch_size": 64}, "data.batch_size = 512, these runs have 64"),
        ({"model__optimizer": "sgd"}, "model.optimizer = adam, these runs have sgd"),
        ({"data__task": "s5"}, "the claim is about addition, multiplication, division, sum_of_squares"),
    ],
)
def test_c3_is_not_judged_from_other_settings(common, lacking):
    found = claim("C3", {1: SLOW, 10: FAST}, **common)
    assert found.verdict == "undetermined"
    assert lacking in found.why


def test_runs_in_which_c_adapts_are_no_evidence_about_a_fixed_one():
    root = write_runs("exp", {1: SLOW, 10: FAST})
    for seed in range(8):
        for c in (1, 10):
            config = settings(c=c, seed=seed) | {"adaptive_c": {"every_n_steps": 100}}
            write_run(root / f"adaptive-{c}-{seed}", 900, config=config)
    found = [c for c in claims(root, ["model.c", "adaptive_c.every_n_steps"]) if c.name == "C3"]
    assert [(c.verdict, dict(c.context)["adaptive_c.every_n_steps"]) for c in found] == [("supported", None)]


def test_c3_needs_both_values_of_c():
    assert claim("C3", {1: SLOW, 4: FAST}).why == "there are no runs with c = 10"


def test_c3_is_judged_per_task_and_adjusted_over_them():
    root = write_runs("exp", {1: SLOW[:6], 10: FAST[:6]})
    for seed in range(6):
        for c, t in ((1, SLOW[seed]), (10, FAST[seed] if seed < 4 else 2000)):
            write_run(root / f"mul-{c}-{seed}", t, config=settings(c=c, seed=seed, data__task="multiplication"))
    found = {dict(c.context)["data.task"]: c for c in claims(root, ["model.c", "data.task"]) if c.name == "C3"}
    assert found["addition"].numbers["p_sooner_holm"] == pytest.approx(2 / 64)
    assert found["multiplication"].numbers["p_sooner_holm"] == pytest.approx(22 / 64)
    assert [found[task].verdict for task in ("addition", "multiplication")] == ["supported", "undetermined"]
    pooled = [c for c in claims(root, pool=["data.task"]) if c.name == "C3"]
    assert [c.verdict for c in pooled] == ["supported", "undetermined"]  # pooling does not merge tasks in a claim


def accuracies(by_c, root="exp", **common):
    for c, values in by_c.items():
        for seed, acc in enumerate(values):
            write_run(f"{root}/c{c}-s{seed}", None if acc < 0.95 else 500, c=c, seed=seed, final=acc, **common)
    (found,) = [claim for claim in claims(root) if claim.name == "C4"]
    return found


GOOD, FAIR, NONE = [0.999, 1.0, 0.998, 1.0, 0.999], [0.96, 0.97, 0.96, 0.98, 0.97], [0.1] * 5


def test_c4_supported():
    found = accuracies({1: FAIR, 8: GOOD, 64: NONE})
    assert found.verdict == "supported"
    assert found.numbers["share_optimum_interior"] == 1.0
    assert found.numbers["c_near"] == 8
    assert found.numbers["difference"] == pytest.approx(0.1 - 0.9992)


def test_c4_contradicted_by_the_place_of_the_optimum():
    found = accuracies({1: GOOD, 8: FAIR, 64: NONE})
    assert (found.verdict, found.numbers["share_optimum_interior"]) == ("contradicted", 0.0)


def test_c4_contradicted_by_a_stable_large_c():
    found = accuracies({1: FAIR, 8: GOOD, 64: GOOD})  # a tie of the best leaves the optimum open, not the stability
    assert found.numbers["share_optimum_interior"] == pytest.approx(0.5)
    assert found.verdict == "contradicted"
    assert "large c is not unstable here" in found.why


def test_c4_undetermined_when_nothing_groks_anywhere():
    found = accuracies({1: NONE, 8: NONE, 64: NONE})
    assert found.verdict == "undetermined"
    assert found.numbers["share_optimum_interior"] == pytest.approx(1 / 3)


def test_c4_undetermined_when_seeds_disagree():
    found = accuracies({1: [0.99, 1.0, 0.99, 1.0, 0.97], 8: [1.0, 0.99, 0.99, 0.98, 1.0], 64: NONE})
    assert found.verdict == "undetermined"
    assert 0.05 < found.numbers["share_optimum_interior"] < 0.95


@pytest.mark.parametrize(
    ("by_c", "why"),
    [
        ({1: GOOD, 8: GOOD}, "needs 5 runs each of a c in 4–16, a smaller and a larger one"),
        ({1: FAIR[:4], 8: GOOD[:4], 64: [0.1] * 4}, "runs by c: 1 (4), 8 (4), 64 (4)"),
        ({1: FAIR, 8: GOOD, 16: FAIR}, "there are not 5 runs of a c ≥ 32"),
        ({1: FAIR, 2: GOOD, 64: FAIR}, "needs 5 runs each of a c in 4–16"),
    ],
)
def test_c4_says_what_is_lacking(by_c, why):
    found = accuracies(by_c)
    assert found.verdict == "undetermined"
    assert why in found.why


def test_c4_compares_at_a_step_that_every_run_has_reached():
    # all of c = 1 end higher than c = 8, but none of them had grokked when the first run ended
    for c, t_grok, last, final in ((1, 1500, 2000, 1.0), (8, 500, 1000, 0.99), (64, None, 3000, 0.1)):
        for seed in range(5):
            write_run(f"exp/c{c}-s{seed}", t_grok, c=c, seed=seed, last=last, final=final)
    (found,) = [claim for claim in claims("exp") if claim.name == "C4"]
    assert (found.verdict, found.numbers["step"]) == ("supported", 1000)
    assert found.numbers["difference"] == pytest.approx(0.1 - 0.99)
    assert "the first of these runs ends at step 1000, others go on to step 3000" in found.why


def test_c4_without_shared_seeds_resamples_inside_each_c():
    for c, values in {1: FAIR, 8: GOOD, 64: NONE}.items():
        for seed, acc in enumerate(values):
            write_run(f"exp/c{c}-{seed}", None if acc < 0.95 else 500, c=c, seed=seed + 100 * c, final=acc)
    (found,) = [claim for claim in claims("exp") if claim.name == "C4"]
    assert found.verdict == "supported"


def test_no_claim_without_c_among_the_keys():
    root = write_runs("exp", {10: FAST})
    assert claims(root, ["data.batch_size"]) == ()
