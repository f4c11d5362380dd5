"""Health against the weights that a run leaves."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from short_run import Run, arguments, fit, net_after

from grok_lightning.__main__ import run as main
from grok_lightning.data.datamodule import ModularDataModule

EVERY = ["--health.every_n_steps", 10]


@pytest.mark.filterwarnings("ignore:health. the training loss spiked")  # rounding decides whether it does
def test_collapse_and_norms():
    flags = ["--model.lr", 0.1, "--model.weight_decay", 0, "--trainer.val_check_interval", 400]
    found = fit("--health.every_n_steps", 400, *flags, steps=400).group("health")[400]  # some losses are 0 by then
    net, data = net_after(400, *flags), ModularDataModule(p=11, batch_size=16)
    tokens, labels = data.table.tokens[data.split.train], data.table.labels[data.split.train]
    with torch.no_grad():
        z = net(tokens)
    top = z.max(1).values
    collapsed = ((z - top[:, None]).exp().sum(1) == 1) & (z.argmax(1) == labels)
    assert collapsed.any()
    assert found["softmax_collapse"] == pytest.approx(float(collapsed.float().mean()))
    assert found["logit_norm"] == pytest.approx(float(z.double().norm(dim=1).mean()), rel=1e-5)
    params = dict(net.named_parameters())
    blocks = {"E": ["E"], "W": ["first.weight", "first.bias"], "all": list(params)}
    for block, names in blocks.items():
        norm = torch.cat([params[name].detach().double().flatten() for name in names]).norm()
        assert found[f"{block}/param_norm"] == pytest.approx(float(norm), rel=1e-6)
    assert found["nonfinite_logits"] == found["nonfinite_params"] == 0


def test_nan_is_counted_and_said_once():
    flags = ["--model.optimizer", "sgd", "--model.lr", "3e38", "--model.c", 10, "--trainer.log_every_n_steps", 1]
    flags += ["--numerics.nonfinite", "skip"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert main(arguments(*EVERY, *flags)) == 1  # such weights are no checkpoint, but the record is kept
    run = Run(Path("runs/x/run"))
    assert len([w for w in caught if str(w.message).startswith("health:")]) == 1
    last = run.group("health")[20]
    assert last["nonfinite_params"] > 0
    assert last["nonfinite_logits"] > 0
    losses = run.series("train/loss")
    assert last["loss_spikes"] == sum(not abs(loss) < float("inf") for loss in losses.values())
    assert last["loss_spikes"] > 10
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary["loss_spikes"] == last["loss_spikes"]
    assert run.group("health")[0]["loss_spikes"] == 0
