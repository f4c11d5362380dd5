"""The job as a user meets it."""

import csv
import json
from pathlib import Path

import pytest
from short_run import fit
from synthetic import write_run, write_runs

from grok_lightning.compare.job import main

TIMES = {1: [1250, 1300, 1200, 1400, 1250], 10: [700, None, 650, 800, 600], 64: [None] * 5}


def job(capsys, *arguments):
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_screen(capsys):
    root = write_runs("exp", TIMES)
    write_run(root / "going", None, status=None, last=600, c=10, seed=9)
    status, out, err = job(capsys, root, "--by", "model.c")
    assert (status, err) == (0, "")
    row = next(line for line in out.splitlines() if line.startswith("│ 10 "))
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells[:5] == ["10", "5", "first", "4", "0.80 [0.38, 0.96]"]
    assert cells[5].startswith("700 [600, ")
    assert cells[8] == "3000"
    assert "not reached" in next(line for line in out.splitlines() if line.startswith("│ 64 "))
    order = [
        "Time to grok",
        "left out: exp/going: no summary.json",
        "T_grok against model.c = 1",
        "C3 c = 10",
        "C4 test",
    ]
    places = [out.index(text) for text in order]
    assert places == sorted(places)
    assert "resolution: T_grok lies within 50 steps before" in out
    assert "5 pairs cannot go below p = 0.0625 two-sided (0.125 for the smallest of 2 by Holm)" in out


def test_the_files(capsys):
    root = write_runs("exp", TIMES)
    write_run(root / "going", None, status=None, last=600, c=10, seed=9)
    assert job(capsys, root, "--by", "c", "--csv", "o.csv", "--json", "o.json", "--figure", "o.svg")[0] == 0
    rows = list(csv.DictReader(Path("o.csv").read_text().splitlines()))
    assert [(row["model.c"], row["clock"]) for row in rows[:2]] == [("1.0", "first"), ("1.0", "sustained")]
    assert (rows[4]["t_grok"], rows[4]["censored_steps"], rows[4]["delay"]) == (
        "inf",
        "3000 3000 3000 3000 3000",
        "inf",
    )
    content = json.loads(Path("o.json").read_text(), parse_constant=lambda word: pytest.fail(word))
    assert [cell["n"] for cell in content["cells"]] == [5, 5, 5]
    assert content["cells"][2]["clocks"][0]["t_grok"] == "inf"
    assert content["cells"][1]["runs"][1]["clocks"]["t_grok"] == {"first": None, "sustained": None}
    assert content["cells"][1]["runs"][1]["settings"] == {"model.c": 10.0, "seed_everything": 1}
    assert content["shared_settings"]["data.batch_size"] == 512
    assert content["left_out"][0]["path"] == "exp/going"
    assert [claim["name"] for claim in content["claims"]] == ["C3", "C4"]
    svg = Path("o.svg").read_text()
    assert "<svg" in svg
    assert job(capsys, root, "--by", "c", "--figure", "o.svg")[0] == 0
    assert Path("o.svg").read_text() == svg
    assert {path.name for path in Path().iterdir()} == {"exp", "o.csv", "o.json", "o.svg"}


@pytest.mark.parametrize(
    "times", [{1: [500]}, {c: [500, None] for c in range(1, 13)}, {10: [0, None], 64: [None, None]}]
)
@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_figures_of_few_and_many_cells(capsys, times, ending):
    root = write_runs("exp", times)
    assert job(capsys, root, "--by", "model.c", "--figure", f"o.{ending}")[::2] == (0, "")
    head = {"png": b"\x89PNG", "pdf": b"%PDF"}[ending]
    assert Path(f"o.{ending}").read_bytes().startswith(head)


def test_the_figure_shows_every_run():
    from grok_lightning.compare.comparison import compare
    from grok_lightning.compare.figure import draw

    curves, times = draw(compare([write_runs("exp", TIMES)], ["c"], n_draws=2000)).axes
    dots = {marker: sorted(y for line in times.lines if line.get_marker() == marker for y in line.get_ydata())
            for marker in ("o", "^")}  # fmt: skip
    assert dots["o"] == sorted(t for by_seed in TIMES.values() for t in by_seed if t is not None)
    assert dots["^"] == [3000] * 6
    assert (times.get_xscale(), times.get_yscale(), curves.get_xscale()) == ("log", "log", "log")
    assert [text.get_text() for text in curves.get_legend().get_texts()] == ["1 (n = 5)", "10 (n = 5)", "64 (n = 5)"]
    ten = next(line for line in curves.lines if line.get_label().startswith("10 "))
    assert dict(zip(ten.get_xdata(), ten.get_ydata(), strict=True))[800] == pytest.approx(0.2)


def test_one_cell_makes_no_comparison_and_says_so(capsys):
    status, out, _ = job(capsys, write_runs("exp", {10: [500, 600]}), "--by", "model.c")
    assert status == 0
    assert "no comparison: all runs have model.c = 10" in out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["exp", "--by", "nothing"], 2, "by = 'nothing': no run has such a setting"),
        (["exp", "--by", "data.task"], 2, "settings differ between the runs: model.c (1, 10)"),
        (["exp", "--by", "c", "--pool", "c"], 2, "a setting is either in --by or pooled"),
        (["exp", "--by", "c", "c"], 2, "must be one or more different settings"),
        (["nowhere", "--by", "c"], 2, "paths = 'nowhere'"),
        (["exp/plots", "--by", "c"], 1, "no run can be compared: exp/plots: is no run directory and holds none"),
        (["exp", "--by", "c", "--json", "nowhere/o.json"], 2, "json = 'nowhere/o.json': there is no directory"),
        (["exp", "--by", "c", "--csv", "exp"], 2, "csv = 'exp': is a directory"),
        (["exp", "--by", "c", "--figure", "o.gif"], 2, "figure = 'o.gif': must end in .png, .svg, .pdf"),
        (["exp", "--by", "c", "--csv", "o", "--json", "o"], 2, "must be different files"),
        (["exp", "--by", "c", "--draws", "10"], 2, "draws = 10: must be 2000 or more"),
        (["exp", "--by", "c", "--alpha", "1"], 2, "alpha = 1.0: must be in (0, 1)"),
        (["exp", "--by", "c", "--seed", "-1"], 2, "seed = -1: must be from 0"),
        (["exp", "--by", "c", "--threshold", "95"], 2, "threshold = 95.0: must be in (0, 1]"),
        (["exp", "--by", "c", "--part", "train"], 2, "part = 'train': must be val or test"),
        (["exp", "--by", "c", "--sustain_evaluations", "0"], 2, "sustain_evaluations = 0: must be 1 or more"),
        (["exp", "--by", "c", "--baseline", "3"], 2, "baseline = '3': model.c is one of 1, 10"),
        (["exp"], 2, "by"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(capsys, arguments, status, message):
    write_runs("exp", {1: [900], 10: [500]})
    Path("exp/plots").mkdir()
    before = sorted(Path().rglob("*"))
    found, out, err = job(capsys, *arguments)
    assert (found, out) == (status, "")
    assert err.startswith("grok_lightning: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


def test_real_runs(capsys):
    """Four short fits of which some cross 0.1 (chance is 0.04); the numbers are those of their own summaries."""
    flags = ["--data.p", 23, "--data.batch_size", 128, "--data.frac_train", 0.7, "--model.d_model", 32]
    flags += ["--grokking.grok_threshold", 0.1, "--trainer.val_check_interval", 25]
    for c in (1, 8):
        for seed in (0, 1):
            own = ["--model.c", c, "--seed_everything", seed]
            fit(*flags, *own, run_id=f"c{c}-s{seed}", steps=400)
    files = ["--json", "o.json", "--csv", "o.csv", "--figure", "o.png"]
    status, out, err = job(capsys, "runs/x", "--by", "model.c", *files)
    assert (status, err) == (0, "")
    assert "left out" not in out
    content = json.loads(Path("o.json").read_text())
    runs = [run for cell in content["cells"] for run in cell["runs"]]
    assert {run["clocks"]["t_grok"]["first"] is None for run in runs} == {True, False}
    for run in runs:
        summary = json.loads((Path(run["path"]) / "summary.json").read_text())
        clocks = {f"{t}{tail}": run["clocks"][t][clock] for t in ("t_mem", "t_grok")
                  for clock, tail in (("first", ""), ("sustained", "_sustained"))}  # fmt: skip
        assert clocks | {"delay": summary["clocks_steps"]["delay"]} == summary["clocks_steps"]
        assert run["clocks"]["last_step"] == summary["steps"] == 400
        assert run["final_acc"] == summary["final_acc"]
    assert [cell["settings"] for cell in content["cells"]] == [{"model.c": 1.0}, {"model.c": 8.0}]
    assert {contrast["paired"]["n"] for contrast in content["contrasts"]} == {2}
    for run in runs:  # without summaries the metrics have to give the same
        (Path(run["path"]) / "summary.json").unlink()
    assert job(capsys, "runs/x", "--by", "c", "--partial", "--json", "again.json")[0] == 0
    again = json.loads(Path("again.json").read_text())
    assert [cell["clocks"] for cell in again["cells"]] == [cell["clocks"] for cell in content["cells"]]
    assert job(capsys, "runs/x", "--by", "c", "--partial", "--threshold", "0.9")[0] == 0
