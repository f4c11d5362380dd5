"""docs/measurements.md lists what runs log, and nothing else."""

import re
from pathlib import Path

import pytest
from conftest import ROOT
from short_run import OFF, Run, fit

from grok_lightning.__main__ import run

TEXT = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| `")]
DOCUMENTED = [row[0].strip("`") for row in ROWS if "/" in row[0]]
TWO_PHASES = [
    "--two_phase.every_n_steps=20", "--two_phase.epsilon=0.9", "--model.optimizer=sgd", "--model.lr=0.1", "--model.c=1",
    "--model.weight_decay=0.05",
]  # fmt: skip
INTERVENTIONS = [
    "--data.sampler=entropy", "--data.sampler_gamma=1", "--adaptive_c.every_n_steps=5", "--model.gradient.grokfast=ema",
]  # fmt: skip
BROKEN = ["--numerics.nonfinite=skip", "--model.optimizer=sgd", "--model.lr=1e30"]
LINEAR = [
    ["--data=SparseRegression", "--model=DiagonalLinear"],
    ["--data=MatrixCompletion", "--model=MatrixFactorization"],
]
PLAIN = {"step", "_timestamp", "epoch"}


def matches(documented, key):
    return re.fullmatch(re.sub(r"<\w+>", "[A-Za-z0-9_]+", documented), key) is not None


def language_model():
    small = ["--data.vocab_size=300", "--data.context_length=16", "--model.d_model=8", "--trainer.max_steps=2"]
    quiet = ["--trainer.logger=false", "--record.experiment=x", "--record.run_id=text"]
    assert run(["fit", "--config", f"{ROOT}/configs/text_small.yaml", *small, *quiet]) == 0
    return Run(Path("runs/x/text"))


@pytest.fixture
def logged():
    dense = ["--config", ROOT / "configs" / "diagnostics" / "dense.yaml", "--grokking.grok_threshold", 0.001]
    short = {"off": False, "steps": 10}
    runs = [
        fit(*dense, "--grokking.mem_threshold", 0.001, run_id="mlp", **short),
        fit(*dense, "--data.task", "multiplication", model="Transformer", run_id="transformer", **short),
        fit("--hessian.every_n_steps", 10, "--hessian.subset", 9, steps=10, run_id="subset"),
        fit(*INTERVENTIONS, steps=10, run_id="interventions"),
        fit(*TWO_PHASES, steps=100, run_id="two_phases"),
        language_model(),
    ]
    for at, kind in enumerate(LINEAR):
        flags = ["--interpolator.every_n_steps=5", "--trainer.max_steps=5", "--trainer.val_check_interval=5"]
        name = [f"--record.run_id=linear-{at}", "--record.experiment=x", "--trainer.logger=false"]
        assert run(["fit", *OFF, *kind, *flags, *name]) == 0
        runs.append(Run(Path(f"runs/x/linear-{at}")))
    with pytest.warns(match="is left out"):
        runs.append(fit(*BROKEN, steps=3, run_id="broken"))
    return {key for one in runs for line in one.lines for key in line} - PLAIN


def test_every_key_is_documented_and_every_documented_key_exists(logged):
    missing = sorted(key for key in logged if not any(matches(documented, key) for documented in DOCUMENTED))
    assert not missing
    stale = [documented for documented in DOCUMENTED if not any(matches(documented, key) for key in logged)]
    assert not stale


def test_every_row_says_formula_unit_cost_and_source():
    rows = [row for row in ROWS if "/" in row[0]]
    assert len(rows) == len(set(DOCUMENTED)) > 60
    assert all(len(row) == 5 and all(row) for row in rows)


def test_every_audit_code_is_documented():
    numerics = Path(ROOT) / "grok_lightning" / "numerics"
    source = "".join((numerics / name).read_text() for name in ("compression.py", "series_checks.py"))
    listed = re.findall(r"``([a-z]+(?:_[a-z]+)*)``", " ".join(re.findall(r"[Cc]odes[^.]*\.", source)))
    used = set(re.findall(r'"([a-z]+(?:_[a-z]+)+): ', source)) | {name for name in listed if "." not in name}
    codes = {row[0].strip("`") for row in ROWS if "/" not in row[0]}
    assert used - {"series_checks"} <= codes
    assert len(codes) == 19
