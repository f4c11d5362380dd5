"""Balance against brute force: batches counted by hand, updates as differences of saved weights."""

import numpy as np
import pytest
import torch
from short_run import fit
from torch.nn.functional import cross_entropy

from grok_lightning.callbacks.checkpoint import LastCheckpoint
from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.modules.mlp import EmbeddingMLP

EVERY = ["--balance.every_n_steps", 10]


def batches(steps):
    """Tokens and labels of every global batch, from the order of batches alone."""
    data = ModularDataModule(p=11, batch_size=16)
    rows = [data.split.train[data.batch_order().rows(step)] for step in range(steps)]
    return [(data.table.tokens[row], data.table.labels[row]) for row in rows]


def frequencies(tokens):
    batches = [set(t.flatten().tolist()) for t in tokens]
    return np.array([[token in batch for token in range(13)] for batch in batches]).mean(0)


def top(matrix):
    return np.linalg.svd(matrix.double().numpy(), compute_uv=False)[0]


def test_frequencies_are_those_of_the_batches():
    found = fit(*EVERY).group("balance")
    tokens = [tokens for tokens, _ in batches(20)]
    for step, window in ((10, tokens[:10]), (20, tokens[10:])):
        f = frequencies(window)
        assert found[step]["token_frequency"] == pytest.approx(f.tolist())
        assert found[step]["f_E"] == pytest.approx(f[:11].mean())
        assert 0 < found[step]["f_E"] < 1
        assert (found[step]["f_OP"], found[step]["f_EQ"], found[step]["f_W"]) == (1, 1, 1)
        counts = torch.bincount(torch.cat(window).flatten(), minlength=13)
        assert found[step]["token_count"] == counts.tolist()


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_updates_and_gradients_are_the_real_ones(optimizer):
    flags = ["--model.optimizer", optimizer, "--model.c", 4]
    run = fit(*EVERY, *flags)
    before, after = fit(*flags, steps=19, run_id="before").weights, run.weights
    found = run.group("balance")[20]
    delta = {name: (after[name] - before[name]).double() for name in ("E", "first.weight")}
    assert found["update_norm_E"] == pytest.approx(float(delta["E"].norm()), rel=1e-5)
    assert found["update_norm_W"] == pytest.approx(float(delta["first.weight"].norm()), rel=1e-5)
    assert found["token_update_norm"] == pytest.approx(delta["E"].norm(dim=1).tolist(), rel=1e-4)
    module = EmbeddingMLP(13, 11, d_model=4)
    module.net.load_state_dict(before)
    tokens, labels = batches(20)[-1]
    cross_entropy(module.net(tokens), labels).backward()
    gradient = {name: p.grad for name, p in module.net.named_parameters()}
    assert found["grad_norm_E"] == pytest.approx(float(gradient["E"].norm()), rel=1e-5)
    assert found["grad_norm_W"] == pytest.approx(float(gradient["first.weight"].norm()), rel=1e-5)
    assert found["token_grad_norm"] == pytest.approx(gradient["E"].norm(dim=1).tolist(), rel=1e-4, abs=1e-9)
    for kind in ("grad", "update"):
        assert found[f"{kind}_ratio"] == pytest.approx(found[f"{kind}_norm_E"] / found[f"{kind}_norm_W"])
    ratio = top(after["E"]) / top(after["first.weight"])
    assert found["sigma_E"] == pytest.approx(top(after["E"]), rel=1e-6)
    assert found["predicted_c"] == pytest.approx(ratio / found["f_E"], rel=1e-6)


def test_step_0_and_an_unmeasured_end():
    found = fit(*EVERY, steps=13).group("balance")
    assert set(found[0]) == {"sigma_E", "sigma_W"}  # nothing has been counted or updated yet
    assert sorted(found) == [0, 10, 13]
    assert "update_norm_E" in found[13]  # max_steps says that it is the last
    early = ["--grokking.grok_threshold", 0.001, "--grokking.stop_after_steps", 5, "--trainer.val_check_interval", 5]
    stopped = fit(*EVERY, *early, run_id="stopped").group("balance")
    last = max(stopped)
    assert last < 10
    assert "f_E" in stopped[last]
    assert "update_norm_E" not in stopped[last]  # nobody knew that it would be the last


def test_a_resumed_run_continues_the_window(monkeypatch):
    flags = ["--balance.every_n_steps", 20, "--checkpoint.every_n_steps", 12]
    whole = fit(*flags, steps=40).group("balance")
    monkeypatch.setattr(LastCheckpoint, "on_train_end", lambda *_: None)  # as if killed after step 12
    killed = fit(*flags, steps=15, run_id="killed")
    assert killed.checkpoint["global_step"] == 12
    resumed = fit(*flags, "--ckpt_path", "runs/x/killed/checkpoints/last.ckpt", steps=40, run_id="rest")
    assert resumed.group("balance") == {step: whole[step] for step in (20, 40)}


def test_the_transformer_stacks_the_maps_that_read_the_embedding():
    run = fit(*EVERY, model="Transformer")
    w = run.weights
    stacked = torch.cat([w[f"layers.0.attention.{name}.weight"] for name in ("W_Q", "W_K", "W_V")])
    assert run.group("balance")[20]["sigma_W"] == pytest.approx(top(stacked), rel=1e-6)


def test_gradient_accumulation_counts_whole_steps():
    flags = ["--balance.every_n_steps", 4, "--trainer.accumulate_grad_batches", 2]
    last = fit(*flags, steps=4).group("balance")[4]
    steps = [t for t, _ in batches(6)]  # two epochs of three batches, and every epoch ends with a step
    whole = [torch.cat(steps[:2]), steps[2], torch.cat(steps[3:5]), steps[5]]
    assert last["token_frequency"] == pytest.approx(frequencies(whole).tolist())
    assert sum(last["token_count"]) == sum(tokens.numel() for tokens in whole)


def test_without_an_embedding_there_is_nothing_to_say():
    run = fit(*EVERY, model="EmbeddingFreeMLP")
    assert not [key for line in run.lines for key in line if "balance" in key]
