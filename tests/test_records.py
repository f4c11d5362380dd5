import json
import math
import subprocess
import sys

import pytest

from grok_lightning.errors import ConfigError
from grok_lightning.records import columns, groups, names, read_csv, read_jsonl, read_metrics


def write(path, *lines, end="\n"):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)
    return path


def test_columns_have_steps_of_their_own(tmp_path):
    write(
        tmp_path / "metrics.jsonl",
        {"step": 0, "val/acc": 0.1, "spectrum/E/erank_sq": 9.5, "spectrum/E/sigma": [2.0, 1.0]},
        {"step": 10, "val/acc": 0.2, "phase": "fit", "hessian/converged": True},
        {"step": 20, "spectrum/E/erank_sq": 8},
        {"step": None, "summary": 1},
    )
    expected = {
        "val/acc": ([0, 10], [0.1, 0.2]),
        "spectrum/E/erank_sq": ([0, 20], [9.5, 8.0]),
        "hessian/converged": ([10], [1.0]),
    }
    assert read_metrics(tmp_path) == expected
    assert read_metrics(tmp_path / "metrics.jsonl") == expected


@pytest.mark.parametrize("torn", ['{"step": 20, "a"', '{"step": 20, "a": 3.', "{", '{"step": 2"\n', '{"a": "é'])
def test_a_torn_last_line_is_left_out(tmp_path, torn):
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'{"step": 0, "a": 1}\n{"step": 10, "a": 2}\n' + torn.encode()[: -1 if torn[-1] == "é" else None])
    assert read_metrics(path) == {"a": ([0, 10], [1.0, 2.0])}


def test_a_corrupt_middle_line_is_named(tmp_path):
    path = write(tmp_path / "m.jsonl", {"step": 0, "a": 1}, "", '{"step": 5, "a', {"step": 10, "a": 2})
    with pytest.raises(ConfigError, match=r"m\.jsonl: line 3 is not JSON"):
        read_metrics(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "line 2 is not a JSON object"),
        ('{"a": 1}', "line 2 has no whole number in column 'step': None"),
        ('{"step": 1.5, "a": 1}', "line 2 has no whole number"),
        ('{"step": "x", "a": 1}', "line 2 has no whole number"),
        ('{"step": true, "a": 1}', "line 2 has no whole number"),
        ('{"step": NaN, "a": 1}', "line 2 has no whole number"),
    ],
)
def test_other_bad_lines_are_named(tmp_path, line, message):
    path = write(tmp_path / "m.jsonl", {"step": 0, "a": 1}, line, {"step": 10, "a": 2})
    with pytest.raises(ConfigError, match=message):
        read_metrics(path)


def test_a_file_that_is_no_json_at_all(tmp_path):
    with pytest.raises(ConfigError, match="line 1 is not JSON"):
        read_metrics(write(tmp_path / "m.jsonl", "step,a"))


def test_not_a_number_is_kept(tmp_path):
    path = write(tmp_path / "m.jsonl", '{"step": 0, "a": NaN}', '{"step": 1, "a": null}', '{"step": 2, "a": -Infinity}')
    steps, values = read_metrics(path)["a"]
    assert steps == [0, 1, 2]
    assert [math.isnan(v) for v in values] == [True, True, False]


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"metrics\.jsonl: cannot be read: No such file"):
        read_metrics(tmp_path)


def test_empty_file(tmp_path):
    assert read_metrics(write(tmp_path / "m.jsonl")) == {}


def test_steps_that_go_back(tmp_path):
    path = write(tmp_path / "m.jsonl", *({"step": s, "a": i} for i, s in enumerate([0, 10, 20, 30, 20, 30, 40])))
    assert read_metrics(path)["a"][0] == [0, 10, 20, 30, 20, 30, 40]
    assert read_metrics(path, resumed=True)["a"] == ([0, 10, 20, 30, 40], [0, 1, 4, 5, 6])


def test_the_same_value_written_twice_counts_once(tmp_path):
    path = write(tmp_path / "m.jsonl", *({"step": s, "a": a} for s, a in ((0, 1), (5, 2), (5, 2), (5, 3))))
    assert read_metrics(path)["a"] == ([0, 5, 5], [1, 2, 3])


def test_csv(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text('\ufeff,step,acc,"my rank"\r\n0,0,0.1,\r\n1,10,,3\r\n2,1e2,nan,4.5\r\n', encoding="utf-8")
    lines = read_csv(path)
    assert names(lines) == ["", "step", "acc", "my rank"]
    found = columns(lines, path, wanted=("acc", "my rank"))
    assert found["my rank"] == ([10, 100], [3.0, 4.5])
    assert found["acc"][0] == [0, 100]
    assert math.isnan(found["acc"][1][1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,acc\n0,1,2\n", "line 2 has more cells"),
        ("step,acc,acc\n0,1,2\n", "column 'acc' is there twice"),
        ("step,acc\n0,1\n1,high\n", "line 3, column 'acc': 'high' is not a number"),
        ("step,acc\n0,1\n,0.5\n", "line 3 has no whole number in column 'step'"),
    ],
)
def test_bad_csv(tmp_path, text, message):
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        columns(read_csv(path), path, wanted=("acc",))


def test_text_that_is_no_text(tmp_path):
    path = tmp_path / "m.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        read_csv(path)


def test_groups(tmp_path):
    path = write(tmp_path / "m.jsonl", *({"step": s, "seed": seed, "a": s + seed} for s in (0, 1) for seed in (7, 3)))
    found = {seed: columns(part, path, wanted=("a",))["a"] for seed, part in groups(read_jsonl(path), "seed")}
    assert found == {"7": ([0, 1], [7, 8]), "3": ([0, 1], [3, 4])}


def test_reading_needs_neither_torch_nor_lightning():
    code = "import sys, grok_lightning.records; print({'torch', 'lightning', 'numpy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "set()"
