import math

import pytest
from synthetic import write_run, write_runs

from grok_lightning.compare.comparison import compare
from grok_lightning.errors import ConfigError


def by_c(root, by=("model.c",), **options):
    return compare([root], by, n_draws=2000, **options)


def test_a_cell_by_hand():
    root = write_runs("exp", {1: [400, 600, None]})
    write_run(root / "short", None, c=1, seed=9, last=500, t_mem=None, trainer__max_steps=500)
    cell = by_c(root).cells[0]
    stats = cell.clocks[0]
    assert (len(cell.runs), stats.grokked, stats.rate) == (4, 2, 0.5)
    assert stats.rate_interval == pytest.approx((0.1500, 0.8500), abs=5e-5)  # Wilson, 2 of 4
    assert stats.t_grok == 600  # S: 3/4 after 400, then one of two left after the run censored at 500: 3/4 · 1/2
    assert stats.censored_steps == (500, 3000)
    assert (stats.t_mem, stats.delay) == (200, 400)  # delays 200, 400 and > 2800 of those that memorised
    assert cell.resolution == 50
    assert cell.final_test_acc == pytest.approx(0.55)  # 1, 1, 0.1, 0.1


def test_a_median_that_is_not_reached_is_infinite_and_no_mean_is_made():
    cell = by_c(write_runs("exp", {64: [None, None, 500]})).cells[0]
    assert (cell.clocks[0].t_grok, cell.clocks[0].t_grok_interval) == (math.inf, (500, math.inf))


def test_a_single_run_has_no_interval():
    cell = by_c(write_runs("exp", {1: [500]})).cells[0]
    assert (cell.clocks[0].t_grok, cell.clocks[0].t_grok_interval) == (500, None)


def test_cells_are_in_the_order_of_numbers():
    found = by_c(write_runs("exp", {10: [500], 2: [600], 1: [900], 100: [None]}))
    assert [cell.key[0][1] for cell in found.cells] == [1, 2, 10, 100]
    assert found.baseline == 1


@pytest.mark.parametrize(("asked", "chosen"), [(None, 2.0), ("10", 10.0), ("1e1", 10.0), ("2.0", 2.0)])
def test_the_baseline(asked, chosen):
    assert by_c(write_runs("exp", {10: [500], 2: [600]}), baseline=asked).baseline == chosen


def test_a_baseline_that_no_cell_has_is_refused():
    with pytest.raises(ConfigError, match=r"baseline = '3': model\.c is one of 2, 10"):
        by_c(write_runs("exp", {10: [500], 2: [600]}), baseline="3")


def test_pairs_share_all_three_seeds():
    root = write_runs("exp", {1: [1000, 1100, 1200], 10: [500, 600]})
    write_run(root / "split", 700, c=10, seed=2, data__split_seed=1)
    contrast = by_c(root).contrasts[0]
    assert (contrast.n, contrast.n_baseline, contrast.paired.n, contrast.unpaired) == (3, 3, 2, 2)
    assert contrast.paired.ratio == pytest.approx(((500 / 1000 + 600 / 1100) / 2,) * 2)


def test_pooled_settings_pair_with_their_like():
    root = write_runs("exp", {1: [1000], 10: [500]})
    for c, t in ((1, 2000), (10, 1900)):
        write_run(root / f"low-{c}", t, c=c, seed=0, model__lr=0.001)
    paired = by_c(root, pool=["lr"]).contrasts[0].paired
    assert (paired.n, paired.ratio) == (2, pytest.approx(((0.5 + 0.95) / 2,) * 2))


def test_holm_is_over_the_cells_of_a_clock():
    times = {1: [1000 + 50 * i for i in range(8)], 4: [500] * 8, 10: [600] * 8, 16: [700] * 7 + [2000]}
    found = by_c(write_runs("exp", times))
    contrasts = [contrast for contrast in found.contrasts if contrast.clock == "first"]
    assert [c.paired.sign_p for c in contrasts] == pytest.approx([2 / 256, 2 / 256, 18 / 256])
    assert [c.sign_holm for c in contrasts] == pytest.approx([6 / 256, 6 / 256, 18 / 256])
    assert [c.logrank_holm >= c.logrank_p for c in contrasts] == [True] * 3
    assert len(found.contrasts) == 6


def test_further_keys_are_context():
    root = write_runs("exp", {1: [1000], 10: [500]})
    for c, t in ((1, 2000), (10, 1500), (4, 900)):
        write_run(root / f"b64-{c}", t, c=c, seed=0, data__batch_size=64)
    found = by_c(root, by=["model.c", "data.batch_size"])
    rows = [
        (c.value, dict(c.context)["data.batch_size"], c.paired.ratio[0]) for c in found.contrasts if c.clock == "first"
    ]
    assert rows == [(4, 64, 0.45), (10, 64, 0.75), (10, 512, 0.5)]


def test_a_seed_may_be_what_is_compared():
    root = write_runs("exp", {10: [500, 600]})
    for order, t in ((1, 700), (2, 800)):
        for seed in (0, 1):
            write_run(root / f"o{order}-s{seed}", t, c=10, seed=seed, data__order_seed=order)
    found = by_c(root, by=["order_seed"])
    assert [contrast.paired.n for contrast in found.contrasts] == [2] * 4


def test_the_same_runs_give_the_same_intervals():
    root = write_runs("exp", {1: [1000, 1400, 1200, 800], 10: [500, None, 700, 650]})
    assert by_c(root) == by_c(root)
    other = by_c(root, seed=1).cells[0].clocks[0].t_grok_interval
    assert other[0] >= 800
    assert other[1] <= 1400
