import csv
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from grok_lightning.audit import audit, main
from grok_lightning.audit_sources import Source
from grok_lightning.errors import ConfigError

STEPS = np.arange(0, 30_001, 100)


def accuracy(t_grok=5_000):
    return np.where(t_grok <= STEPS, 1.0, 0.2)


def rank(t_grok=5_000, t_compress=15_000, floor=7.0):
    """50 → 30 at T_grok → floor at t_compress, in two jumps."""
    return np.where(t_compress <= STEPS, floor, np.where(t_grok <= STEPS, 30.0, 50.0))


def lines_of(acc, r, a="acc", b="rank", **more):
    return [{"step": int(s), a: float(x), b: float(y), **more} for s, x, y in zip(STEPS, acc, r, strict=True)]


def write_jsonl(path, lines, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(line) for line in lines) + end)
    return path


def write_csv(path, lines):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return path


def the_clock(path, *args, **kwargs):
    (found,) = audit([path], *args, **kwargs)
    return found.clock


def check_known_answer(clock):
    assert (clock.t_grok, clock.t_compress, clock.lag, clock.floor) == (5_000, 15_000, 10_000, 7)
    assert clock.frac_pre == pytest.approx(20 / 43)
    assert clock.verdict == "large_lag"


def write_run(folder, acc=None, r=None, every=2, tail=""):
    """A run as it is recorded: evaluations every 100 steps, ranks every 200, on lines of their own."""
    acc, r = accuracy() if acc is None else acc, rank() if r is None else r
    lines = []
    for i, step in enumerate(STEPS.tolist()):
        lines.append({"step": step, "val/acc": float(acc[i]), "train/loss": 0.1, "_timestamp": 1.0})
        if i % every == 0:
            lines.append({"step": step, "spectrum/E/erank_sq": float(r[i]), "spectrum/E/singular_values": [1.0, 2.0]})
    write_jsonl(folder / "metrics.jsonl", lines, end="\n" + tail)
    return folder


def test_run_directory(tmp_path):
    run = write_run(tmp_path / "run", tail='{"step": 30100, "val/a')
    check_known_answer(the_clock(run))
    check_known_answer(the_clock(run / "metrics.jsonl"))


def test_csv(tmp_path):
    check_known_answer(the_clock(write_csv(tmp_path / "a.csv", lines_of(accuracy(), rank()))))


def test_csv_with_cells_left_empty(tmp_path):
    lines = [line | ({"rank": ""} if i % 2 else {"acc": ""}) for i, line in enumerate(lines_of(accuracy(), rank()))]
    clock = the_clock(write_csv(tmp_path / "a.csv", lines))
    assert (clock.t_grok, clock.t_compress, clock.lag_interval) == (5_100, 15_000, (9_700, 10_100))


def test_jsonl(tmp_path):
    check_known_answer(the_clock(write_jsonl(tmp_path / "a.jsonl", lines_of(accuracy(), rank()))))


def test_column_names(tmp_path):
    lines = lines_of(accuracy(), rank(), "test acc", "srank")
    path = write_csv(tmp_path / "a.csv", [{"Step": line.pop("step"), **line} for line in lines])
    check_known_answer(the_clock(path, Source("Step", "test acc", "srank")))


@pytest.mark.parametrize("write", [write_csv, write_jsonl])
def test_seeds_in_long_form(tmp_path, write):
    lines = lines_of(accuracy(), rank(), seed=3) + lines_of(accuracy(), rank(t_compress=20_000), seed=4)
    path = write(tmp_path / f"a.{write.__name__[6:]}", lines)
    found = audit([path], Source(seed="seed"))
    assert [(row.seed, row.clock.t_compress) for row in found] == [("3", 15_000), ("4", 20_000)]
    assert the_clock(path).reasons[0].startswith("non_monotone_steps")  # without the option they are one series


def test_npz_of_one_run(tmp_path):
    np.savez(tmp_path / "a.npz", step=STEPS, acc=accuracy(), rank=rank())
    check_known_answer(the_clock(tmp_path / "a.npz"))


@pytest.mark.parametrize("two_dimensional_steps", [False, True])
def test_npz_of_seeds(tmp_path, two_dimensional_steps):
    acc = np.stack([accuracy(5_000), accuracy(6_000), accuracy(40_000)])
    r = np.stack([rank(), rank(6_000, 16_000), rank()]).astype(np.float32)
    steps = np.tile(STEPS.astype(float), (3, 1)) if two_dimensional_steps else STEPS
    np.savez_compressed(tmp_path / "a.npz", t=steps, acc=acc, rank=r, seed=np.array([10, 11, 12]))
    found = audit([tmp_path / "a.npz"], Source(step="t"))
    assert [row.seed for row in found] == ["0", "1", "2"]
    assert [(row.clock.t_grok, row.clock.t_compress) for row in found] == [
        (5_000, 15_000),
        (6_000, 16_000),
        (None, None),
    ]
    assert [row.seed for row in audit([tmp_path / "a.npz"], Source(step="t", seed="seed"))] == [
        "10",
        "11",
        "12",
    ]


def test_group_gate(tmp_path):
    floors = [5.0, 5.0, 5.0, 16.0]
    r = np.stack([rank(floor=floor) for floor in floors])
    np.savez(tmp_path / "a.npz", step=STEPS, acc=np.stack([accuracy()] * 4), rank=r)
    assert [row.clock.boundary for row in audit([tmp_path / "a.npz"])] == [False, False, False, True]
    assert [row.clock.boundary for row in audit([tmp_path / "a.npz"], group=False)] == [False] * 4


def test_a_resumed_run(tmp_path):
    lines = lines_of(accuracy(), rank())
    path = write_jsonl(tmp_path / "a.jsonl", lines[:220] + lines[200:])
    assert the_clock(path).reasons[0].startswith("non_monotone_steps")
    check_known_answer(the_clock(path, Source(resumed=True)))


def test_json_output(tmp_path, capsys):
    np.savez(
        tmp_path / "a.npz",
        step=STEPS,
        acc=np.stack([accuracy()] * 2),
        rank=np.stack([rank(), rank() + 50 * np.nan]),
    )
    assert main([str(tmp_path / "a.npz"), "--json", "--threshold", "0.9"]) == 0
    good, bad = json.loads(capsys.readouterr().out)
    assert (good["seed"], good["t_grok"], good["lag"], good["verdict"]) == ("0", 5_000, 10_000, "large_lag")
    assert (bad["verdict"], bad["t_grok"], bad["floor"]) == ("refused", None, None)
    assert bad["reasons"][0].startswith("not_finite")


def test_threshold_option(tmp_path, capsys):
    acc = np.where(STEPS >= 5_000, 0.92, 0.2)
    np.savez(tmp_path / "a.npz", step=STEPS, acc=acc, rank=rank())
    for options, t_grok in ((["--threshold", "0.9"], 5_000), ([], None)):
        assert main([str(tmp_path / "a.npz"), "--json", *options]) == 0
        assert json.loads(capsys.readouterr().out)[0]["t_grok"] == t_grok


def test_table(tmp_path, capsys):
    run = write_run(tmp_path / "run")
    np.savez(tmp_path / "b[1].npz", step=STEPS, acc=accuracy() * 0.5, rank=rank())
    assert main([str(run), str(tmp_path / "b[1].npz"), "--no_group"]) == 0
    out = capsys.readouterr().out
    for text in (
        "T_grok",
        "T_compress",
        "frac_pre",
        "plateau",
        "censored",
        "15000",
        "0.465",
        "large_lag",
        "b[1].npz",
    ):
        assert text in out
    assert "b[1].npz: refused: never_groks: accuracy stays below 0.95 (highest 0.5)" in out


def bad_inputs(folder):
    np.savez(folder / "shapes.npz", step=STEPS, acc=accuracy()[:-1], rank=rank())
    np.savez(folder / "steps.npz", step=STEPS[:-1], acc=accuracy(), rank=rank())
    np.savez(folder / "cube.npz", step=STEPS, acc=accuracy()[None, None], rank=rank()[None, None])
    np.savez(folder / "half.npz", step=STEPS + 0.5, acc=accuracy(), rank=rank())
    np.savez(folder / "nan.npz", step=STEPS * np.nan, acc=accuracy(), rank=rank())
    np.savez(folder / "text.npz", step=STEPS, acc=accuracy(), rank=rank().astype(str))
    np.savez(folder / "empty.npz", step=STEPS[:0], acc=STEPS[:0], rank=STEPS[:0])
    np.savez(folder / "object.npz", step=STEPS, acc=accuracy(), rank=np.array([None, {}], dtype=object))
    np.savez(folder / "seeds.npz", step=STEPS, acc=accuracy(), rank=rank(), seed=np.arange(2))
    (folder / "broken.npz").write_bytes(b"PK\x03\x04nothing")
    (folder / "none.npz").write_bytes(b"")
    np.save(folder / "single.npy", STEPS)
    (folder / "single.npy").rename(folder / "single.npz")
    write_jsonl(folder / "lists.jsonl", [{"step": 0, "acc": [0.5], "rank": 1}])
    write_jsonl(folder / "middle.jsonl", [{"step": 0, "acc": 0.5, "rank": 1}], end='\n{"st\n{"step": 1}\n')
    (folder / "a.txt").write_text("x")
    (folder / "a.csv").write_text("step,acc\n0,1\n")
    (folder / "empty.csv").write_text("")
    (folder / "sweep").mkdir()
    write_run(folder / "sweep" / "one")
    write_jsonl(folder / "norank" / "metrics.jsonl", [{"step": 0, "val/acc": 0.5}])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such file or run directory"),
        (["sweep"], "sweep: no run directory, it holds no metrics.jsonl; below it: sweep/one"),
        (["norank"], "no column 'spectrum/E/erank_sq'; available: step, val/acc"),
        (["sweep/one", "--acc", "test/acc"], "no column 'test/acc'; available: step, val/acc, train/loss"),
        (["a.csv"], "a.csv: no column 'rank'; available: step, acc"),
        (["empty.csv"], "empty.csv: no column 'step'; available: none"),
        (["a.txt"], "a.txt: must be a run directory or end in .csv, .jsonl or .npz"),
        (["shapes.npz"], "shapes.npz: 'acc' has shape (300,), 'rank' has shape (301,)"),
        (["steps.npz"], "steps.npz: 'step' has shape (300,), 'rank' has shape (301,)"),
        (["cube.npz"], "'rank' is float64 of shape (1, 1, 301); numbers of shape (steps,) or (seeds, steps)"),
        (["half.npz"], "half.npz: 'step' holds values that are not whole numbers"),
        (["nan.npz"], "nan.npz: 'step' holds values that are not whole numbers"),
        (["text.npz"], "text.npz: 'rank' is <U"),
        (["empty.npz"], "empty.npz: 'rank' is int64 of shape (0,)"),
        (["object.npz"], "object.npz: cannot be read as NPZ"),
        (["seeds.npz", "--seed", "seed"], "seeds.npz: 'seed' names 2 seeds, 'rank' holds 1"),
        (["seeds.npz", "--seed", "sed"], "seeds.npz: no column 'sed'; available: step, acc, rank, seed"),
        (["broken.npz"], "broken.npz: cannot be read as NPZ"),
        (["none.npz"], "none.npz: cannot be read as NPZ"),
        (["single.npz"], "single.npz: cannot be read as NPZ: it is no archive of arrays"),
        (["lists.jsonl"], "lists.jsonl: line 1, column 'acc': [0.5] is not a number"),
        (["middle.jsonl"], "middle.jsonl: line 2 is not JSON"),
        (["sweep/one", "--threshold", "1.5"], "threshold = 1.5: must be in (0, 1]"),
        (["sweep/one", "--threshold", "high"], "threshold"),
        (["sweep/one", "--epsilon", "0"], "epsilon = 0.0"),
        (["sweep/one", "--treshold", "0.9"], "--treshold"),
        ([], "paths"),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    bad_inputs(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("grok_lightning: error: ")
    assert err.count("\n") == 1
    assert message in err


def test_the_function_raises(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        audit([tmp_path / "x.csv"])


def test_a_bad_file_among_good_ones_is_not_passed_over(tmp_path, capsys):
    assert main([str(write_run(tmp_path / "run")), str(tmp_path / "x.csv")]) == 2
    assert "x.csv" in capsys.readouterr().err


def test_help_exits_with_0(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "--threshold" in capsys.readouterr().out


def test_nan_in_a_run_is_refused_not_crashed(tmp_path):
    r = rank()
    r[10] = math.nan
    assert the_clock(write_run(tmp_path / "run", r=r)).reasons[0].startswith("not_finite")


def test_auditing_does_not_load_lightning():
    code = "import sys, grok_lightning.audit; print({'lightning', 'wandb'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "set()"
