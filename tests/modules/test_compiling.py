"""torch.compile for training steps; minutes, most of them spent by the C++ compiler."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
SHORT = ["--data.p", 23, "--data.batch_size", 64, "--trainer.max_steps", 12, "--trainer.val_check_interval", 6]
SHORT += ["--model.optimizer", "sgd"]  # Adam makes a whole step of a gradient that is rounding and nothing else
MODELS = {
    "EmbeddingMLP": [],
    "EmbeddingFreeMLP": ["--model.c", 1],
    "Transformer": ["--model.c", 1, "--model.n_layers", 1, "--model.d_model", 16],
}


def record(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {key: value for key, value in line.items() if not key.endswith(("seconds", "_timestamp"))} for line in lines
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", MODELS)
def test_compiled_steps_are_the_eager_ones(cli, model):
    for compile_, run in ((True, "compiled"), (False, "eager")):
        flags = ["--model", model, *MODELS[model], *SHORT, "--model.compile", compile_, "--record.run_id", run]
        done = cli("fit", "--config", ROOT / "configs" / "addition.yaml", *flags)
        assert done.status == 0, done.err
    compiled, eager = (next(Path("runs").glob(f"*/{run}")) for run in ("compiled", "eager"))
    assert yaml.safe_load((compiled / "config.yaml").read_text())["model"]["init_args"]["compile"] is True
    states = [
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for run in (compiled, eager)
    ]
    assert list(states[0]) == list(states[1])
    for name, value in states[0].items():
        assert torch.allclose(value, states[1][name], atol=1e-5), name
    assert [list(line) for line in record(compiled)] == [list(line) for line in record(eager)]
    assert any("hessian/W/lambda_max" in line for line in record(compiled))


def test_what_is_missing_is_named(cli, monkeypatch):
    config = pytest.importorskip("torch._inductor.config")
    monkeypatch.setattr(config.cpp, "cxx", (None, "/nonexistent"))
    torch.compiler.reset()
    done = cli("fit", "--config", ROOT / "configs" / "addition.yaml", *SHORT, "--model.compile", True)
    assert done.status == 2
    assert "model.compile = True" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not Path("runs").exists()
