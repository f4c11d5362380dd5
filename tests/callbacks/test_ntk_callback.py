"""Kernel drift against per-sample gradients by autograd, one at a time."""

import pytest
import torch
from short_run import fit, net_after

from grok_lightning.data.datamodule import ModularDataModule

EVERY = ["--ntk.every_n_steps", 10, "--ntk.n_probe", 1000]  # more than there are: the whole training set
LABELS = {"E": "embedding", "W": "first_layer", "rest": "rest"}


def kernels(net, tokens):
    params, rows = dict(net.named_parameters()), []
    for token in tokens:
        logits = net(token[None])[0]
        grads = torch.autograd.grad(logits.sum() / len(logits) ** 0.5, list(params.values()))
        rows.append(dict(zip(params, (g.flatten().double() for g in grads), strict=True)))
    blocks = {label: net.blocks()[name] for label, name in LABELS.items() if name in net.blocks()}
    blocks["all"] = list(params)
    J = {block: torch.stack([torch.cat([row[n] for n in names]) for row in rows]) for block, names in blocks.items()}
    return {block: j @ j.T for block, j in J.items()}


@pytest.mark.parametrize("model", ["EmbeddingMLP", "EmbeddingFreeMLP"])
def test_drift_per_block(model):
    found = fit(*EVERY, model=model).group("ntk")
    data = ModularDataModule(p=11, batch_size=16)
    tokens = data.table.tokens[data.split.train]
    K0, K = (kernels(net_after(step, model=model), tokens) for step in (0, 20))
    H = torch.eye(len(tokens), dtype=torch.float64) - 1 / len(tokens)
    for block in K:
        drift = (K[block] - K0[block]).norm() / K0[block].norm()
        assert found[20][f"{block}/relative_drift"] == pytest.approx(float(drift), rel=1e-4)
        A, B = H @ K[block] @ H, H @ K0[block] @ H
        cka = float((A * B).sum() / (A.norm() * B.norm()))
        assert found[20][f"{block}/one_minus_cka"] == pytest.approx(1 - cka, rel=1e-3, abs=1e-7)
        assert found[0][f"{block}/relative_drift"] == 0
    assert found[20]["reference_step"] == 0


def test_a_resumed_run_keeps_the_kernel_of_step_0():
    whole = fit(*EVERY).group("ntk")
    fit(*EVERY, steps=10, run_id="half")
    checkpoint = ["--ckpt_path", "runs/x/half/checkpoints/last.ckpt"]
    assert fit(*EVERY, *checkpoint, run_id="rest").group("ntk")[20] == whole[20]
    fit(steps=10, run_id="without")
    late = fit(*EVERY, "--ckpt_path", "runs/x/without/checkpoints/last.ckpt", run_id="late").group("ntk")
    assert late[20]["reference_step"] == 10  # and the record says so


def test_off_unless_asked_for():
    run = fit(off=False, steps=3)
    assert not run.group("ntk")
