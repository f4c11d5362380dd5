"""What a notebook imports: records, networks and measurements, against the record and other libraries."""

import builtins
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import short_run
import torch
from conftest import ROOT

import grok_lightning
from grok_lightning import fit, lambda_max, load_data, load_net, load_run, spectrum
from grok_lightning.errors import ConfigError

HESSIAN = ["--hessian.every_n_steps", "20", "--hessian.tol", "1e-4", "--spectrum.every_n_steps", "10"]


def test_importing_the_package_or_reading_a_record_loads_no_torch():
    code = "import sys, grok_lightning; grok_lightning.load_run; sys.exit(bool({'torch', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_every_public_name_is_there_and_no_other():
    for name in grok_lightning.__all__:
        assert getattr(grok_lightning, name) is not None
    assert set(grok_lightning.__all__) <= set(dir(grok_lightning))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = grok_lightning.nonsense


def test_load_run_gives_what_the_files_say():
    run = short_run.fit("--balance.every_n_steps", "10")
    loaded = load_run(run.path)
    steps, values = loaded.scalars["val/acc"]
    assert dict(zip(steps, values, strict=True)) == run.series("val/acc")
    assert dict(zip(*loaded.arrays["balance/token_count"], strict=True)) == run.series("balance/token_count")
    assert loaded.settings["model.d_model"] == 4
    assert loaded.summary == json.loads((run.path / "summary.json").read_text())
    assert (loaded.status, loaded.last_step, loaded.absent) == ("completed", 20, ())


def test_frame_is_the_metrics_with_gaps_where_nothing_was_logged():
    run = short_run.fit()
    frame = load_run(run.path).frame()
    assert frame.index.name == "step"
    assert frame.index.is_monotonic_increasing
    assert frame.index.is_unique
    for key in ("val/acc", "train/loss"):
        assert frame[key].dropna().to_dict() == run.series(key)
    assert np.isnan(frame.loc[0, "train/loss"])
    assert str(frame.dtypes.unique()[0]) == "float64"


def test_a_resumed_branch_replaces_what_was_abandoned(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    lines = [(0, 1.0), (10, 2.0), (20, 3.0), (10, 4.0)]
    text = "".join(json.dumps({"step": t, "a": x, "b": [x, x]}) + "\n" for t, x in lines)
    (run / "metrics.jsonl").write_text(text)
    loaded = load_run(run)
    assert loaded.scalars["a"] == ([0, 10], [1.0, 4.0])
    assert loaded.arrays["b"] == ([0, 10], [[1.0, 1.0], [4.0, 4.0]])
    assert loaded.frame()["a"].tolist() == [1.0, 4.0]
    assert (loaded.status, loaded.absent) == ("unfinished", ("config.yaml", "provenance.json", "summary.json"))


def test_without_pandas_the_error_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "a": 1.0}\n')
    run, load = load_run(tmp_path), builtins.__import__

    def no_pandas(name, *rest, **more):
        if name.split(".")[0] == "pandas":
            raise ImportError(name)
        return load(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", no_pandas)
    with pytest.raises(ConfigError, match=r"grok_lightning\[notebook\]"):
        run.frame()


@pytest.mark.parametrize("model", ["EmbeddingMLP", "EmbeddingFreeMLP", "Transformer"])
def test_load_net_has_the_weights_of_the_checkpoint_and_load_data_the_pairs_of_the_run(model):
    run = short_run.fit(model=model)
    net, data = load_net(run.path), load_data(run.path)
    assert {key: w.tolist() for key, w in net.state_dict().items()} == {k: w.tolist() for k, w in run.weights.items()}
    rows = data.rows("val")
    accuracy = (net(data.table.tokens[rows]).argmax(1) == data.table.labels[rows]).double().mean()
    assert float(accuracy) == pytest.approx(run.series("val/acc")[20], abs=1e-6)
    assert not net.training


def test_lambda_max_of_a_loaded_net_is_what_the_run_logged():
    run = short_run.fit(*HESSIAN)
    net, data = load_net(run.path), load_data(run.path)
    rows = data.rows("train_full")
    tokens, labels = data.table.tokens[rows], data.table.labels[rows]
    found = lambda_max(net, tokens, labels, ["E"], tol=1e-4)
    assert found.converged
    assert found.residual <= 1e-4
    assert found.value == pytest.approx(run.series("hessian/E/lambda_max")[20], rel=1e-3)
    assert found.loss == pytest.approx(run.series("hessian/loss")[20], rel=1e-5)
    assert lambda_max(net, tokens, labels).value >= found.value * (1 - 1e-3)  # interlacing: a block is below the whole


def test_lambda_max_of_any_module_is_that_of_the_dense_hessian():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    x, y = torch.randn(16, 3, dtype=torch.float64), torch.randint(2, (16,))
    names, shapes = zip(*[(name, p.shape) for name, p in net.named_parameters()], strict=True)
    sizes = [shape.numel() for shape in shapes]

    def loss(flat):
        parts = zip(names, shapes, flat.split(sizes), strict=True)
        values = {name: part.reshape(shape) for name, shape, part in parts}
        return torch.nn.functional.cross_entropy(torch.func.functional_call(net, values, (x,)), y)

    flat = torch.cat([p.detach().reshape(-1) for p in net.parameters()])
    hessian = torch.autograd.functional.hessian(loss, flat)
    exact = torch.linalg.eigvalsh(hessian)
    found = lambda_max(net, x, y, dtype=torch.float64, tol=1e-8)
    assert found.value == pytest.approx(float(exact[-1]), rel=1e-8)
    first = torch.linalg.eigvalsh(hessian[: sizes[0], : sizes[0]])
    assert lambda_max(net, x, y, ["0.weight"], dtype=torch.float64, tol=1e-8).value == pytest.approx(float(first[-1]))
    with pytest.raises(ConfigError, match="nonsense"):
        lambda_max(net, x, y, ["nonsense"])


def test_spectrum_against_numpy_and_by_hand():
    matrix = np.diag([3.0, 2.0, 1.0])
    found = spectrum(matrix)
    assert found.sigma.tolist() == pytest.approx(np.linalg.svd(matrix, compute_uv=False).tolist())
    assert found.stable_rank == pytest.approx(14 / 9)
    assert found.participation_ratio == pytest.approx(14**2 / (81 + 16 + 1))
    assert found.numerical_rank == 3
    q = np.array([9, 4, 1]) / 14
    assert found.erank_sq == pytest.approx(float(np.exp(-(q * np.log(q)).sum())))
    with pytest.raises(ConfigError, match="two axes"):
        spectrum(np.ones(3))


def test_fit_returns_the_record_and_refuses_as_the_command_line_does():
    run = fit(*short_run.arguments()[1:])
    assert run.status == "completed"
    assert run.last_step == 20
    with pytest.raises(ConfigError, match=r"^model\.c = -1\.0: must be greater than 0 and finite$"):
        fit(*short_run.arguments("--model.c", "-1", run_id="other")[1:])
    with pytest.raises(ConfigError, match="nonsense"):
        fit(*short_run.arguments("--nonsense", "1", run_id="third")[1:])
    assert not Path("runs/x/other").exists()


def test_what_is_no_run_is_refused_in_one_line(tmp_path):
    run = short_run.fit()
    (tmp_path / "empty").mkdir()
    for call, path, words in (
        (load_run, "nowhere", "there is no such directory"),
        (load_run, "empty", "is no run directory"),
        (load_run, str(run.path / "config.yaml"), "is no directory"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            call(path)
        assert "\n" not in str(caught.value)
    (run.path / "checkpoints" / "last.ckpt").write_bytes(b"PK\x03\x04")
    with pytest.raises(ConfigError, match="checkpoint"):
        load_net(run.path)
    (run.path / "checkpoints" / "last.ckpt").unlink()
    with pytest.raises(ConfigError, match=r"has no checkpoint last\.ckpt"):
        load_net(run.path)
    (run.path / "config.yaml").unlink()
    with pytest.raises(ConfigError, match="names no data"):
        load_data(run.path)


def test_a_net_of_a_class_that_is_not_ours_is_refused():
    run = short_run.fit()
    text = (run.path / "config.yaml").read_text()
    for path, words in (("os.path.join", "must be a GrokModule"), ("no_such_module.Net", "cannot be imported")):
        (run.path / "config.yaml").write_text(text.replace("grok_lightning.modules.mlp.EmbeddingMLP", path))
        with pytest.raises(ConfigError, match=words):
            load_net(run.path)


def test_the_code_of_the_documentation_runs(tmp_path, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 5
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    flags = '"--trainer.max_steps", 4, "--trainer.val_check_interval", 2, "--trainer.logger", "false"'
    off = f'"--config", "{ROOT}/configs/diagnostics/off.yaml", '
    code = "\n".join(blocks).replace('"--trainer.max_steps", 3000', off + flags)
    assert off in code
    names: dict[str, object] = {}
    exec(compile(code, "python.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[-1]
    assert names["top"].converged
