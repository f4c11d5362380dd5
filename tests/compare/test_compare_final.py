"""Last values of any series: counted and tested by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel, wilcoxon
from synthetic import settings, write_run

from grok_lightning.compare.clocks import Definition
from grok_lightning.compare.comparison import compare
from grok_lightning.compare.job import main
from grok_lightning.compare.runs import Run, read
from grok_lightning.numerics.paired import mean_interval

LOSSES = {1: [4.10, 4.05, 4.15, 4.02, 4.08], 10: [4.00, 4.01, 4.06, 4.03, 3.99]}


def add_losses(run, *values):
    with (run / "metrics.jsonl").open("a") as file:
        for step, value in enumerate(values, start=3001):
            file.write(json.dumps({"step": step, "val/loss": value}) + "\n")


def runs(losses=LOSSES):
    for c, values in losses.items():
        for seed, value in enumerate(values):
            run = write_run(f"exp/c{c}-{seed}", None, c=c, seed=seed)
            add_losses(run, 9.0, value)
    return "exp"


def test_paired_differences():
    one, ten = compare([runs()], ["model.c"], final=["val/loss"]).finals
    assert one.values == tuple(LOSSES[1])
    assert (one.median, ten.median) == (4.08, 4.01)
    assert (one.differences, one.baseline, one.mean, one.sign_p) == ((), None, None, None)
    assert ten.differences == pytest.approx([b - a for a, b in zip(*LOSSES.values(), strict=True)])
    low, high = ttest_rel(LOSSES[10], LOSSES[1]).confidence_interval(0.95)
    assert ten.mean == pytest.approx(np.mean(LOSSES[10]) - np.mean(LOSSES[1]))
    assert ten.mean_interval == pytest.approx((low, high))
    assert ten.sign_p == pytest.approx(2 * (1 + 5) / 32)  # four of five are lower
    assert ten.wilcoxon_p == pytest.approx(wilcoxon(ten.differences, method="exact").pvalue)
    assert ten.sign_holm == ten.sign_p


def test_holm_is_over_the_cells_of_a_series():
    losses = LOSSES | {30: [value - 1 for value in LOSSES[1]]}
    _, ten, thirty = compare([runs(losses)], ["model.c"], final=["val/loss"]).finals
    assert thirty.sign_p == pytest.approx(2 / 32)
    assert thirty.sign_holm == pytest.approx(2 * thirty.sign_p)
    assert ten.sign_holm == pytest.approx(max(ten.sign_p, thirty.sign_holm))


def test_values_that_are_not_finite_are_counted_apart():
    losses = {1: LOSSES[1], 10: [float("nan"), float("inf"), *LOSSES[10][2:]]}
    _, ten = compare([runs(losses)], ["model.c"], final=["val/loss"]).finals
    assert (len(ten.values), len(ten.differences), ten.lost, ten.without) == (5, 3, 2, 0)
    assert ten.median == 4.03


def test_the_screen_and_the_file(capsys):
    assert main([runs(), "--by", "c", "--final", "val/loss", "--json", "o.json"]) == 0
    out = capsys.readouterr().out
    table = out[out.index("Last val/loss of every run") :]
    row = next(line for line in table.splitlines() if line.startswith("│ 10 "))
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[1] == "5"
    assert cells[3].startswith("-0.062 [-0.1")
    assert cells[4:6] == ["5", "4 / 1"]
    assert [final["key"] for final in json.loads(Path("o.json").read_text())["finals"]] == ["val/loss"] * 2


def test_a_series_that_nobody_logged_is_named_with_those_that_are_close(capsys):
    assert main([runs(), "--by", "c", "--final", "vall/loss"]) == 2
    error = capsys.readouterr().err
    assert error == "grok_lightning: error: final = 'vall/loss': no run has logged it; they have val/loss\n"


def test_no_claim_of_modular_arithmetic_is_judged_on_other_data():
    root, other = runs(), {"class_path": "my.Data", "init_args": {"order_seed": 0}}
    assert {claim.name for claim in compare([root], ["model.c"]).claims} == {"C3", "C4"}
    for c, seed in ((1, 0), (1, 1), (10, 0), (10, 1)):
        write_run(f"other/{c}-{seed}", None, config=settings(c=c, seed=seed) | {"data": other})
    assert compare(["other"], ["model.c"]).claims == ()


def test_intervals_of_a_mean():
    assert mean_interval([1.0], 0.95) is None
    assert mean_interval([1.0, 3.0], 0.5) == pytest.approx((1.0, 3.0))  # t of 1 degree of freedom at 0.75 is 1


def test_data_without_a_seed_of_a_split_pair_up_all_the_same():
    other = {"class_path": "my.Data", "init_args": {"order_seed": 0}}
    for seed in (0, 1):
        config = settings(seed=seed) | {"data": other}
        found = read(write_run(f"other/{seed}", None, config=config), Definition(), False)
        assert isinstance(found, Run)
        assert found.replicate() == (seed, 0)
    config = settings()
    del config["data"]["split_seed"]
    found = read(write_run("lacking", None, config=config), Definition(), False)
    assert isinstance(found, Run)
    assert found.replicate() is None
