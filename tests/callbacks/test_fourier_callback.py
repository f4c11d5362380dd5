"""Fourier keys against numpy, an explicit basis, and the right order of the units."""

import math

import numpy as np
import pytest
import torch
from short_run import fit, net_after
from torch.nn.functional import cross_entropy

from grok_lightning.data.datamodule import ModularDataModule

EVERY = ["--fourier.every_n_steps", 20]


def norms(rows):
    full = np.abs(np.fft.fft(rows, axis=0)) / math.sqrt(len(rows))
    return np.sqrt((full**2).sum(1))[: len(rows) // 2 + 1]


def test_natural_order_and_its_summary():
    run = fit(*EVERY, "--data.task", "subtraction")
    found, E = run.group("fourier")[20], run.weights["E"].double().numpy()
    expected = norms(E[:11])
    assert found["natural/spectrum"] == pytest.approx(expected.tolist(), rel=1e-9)
    power = expected[1:] ** 2
    assert found["natural/ipr"] == pytest.approx((power**2).sum() / power.sum() ** 2)
    pairs = np.abs(expected[1:, None] - expected[None, 1:])
    assert found["natural/gini"] == pytest.approx(pairs.sum() / (2 * 5 * expected[1:].sum()))
    assert found["natural/n_key_freqs"] == (expected[1:] >= 0.5 * expected[1:].max()).sum()
    assert {key.split("/")[0] for key in found} == {"natural"}


@pytest.mark.parametrize("task", ["multiplication", "division"])
def test_discrete_log_order(task):
    run = fit(*EVERY, "--data.task", task)
    powers_of_2 = [1, 2, 4, 8, 5, 10, 9, 7, 3, 6]  # 2 generates the units mod 11
    expected = norms(run.weights["E"].double().numpy()[powers_of_2])
    assert run.group("fourier")[20]["discrete_log/spectrum"] == pytest.approx(expected.tolist(), rel=1e-9)


def test_progress_losses_by_an_explicit_basis():
    run = fit(*EVERY, "--fourier.threshold", 0.8)
    found = run.group("fourier")[20]
    net, data = net_after(20), ModularDataModule(p=11, batch_size=16)
    with torch.no_grad():
        logits = net(data.table.tokens).double()
    spectrum = np.array(found["natural/spectrum"])
    keys = [k for k in range(1, 6) if spectrum[k] >= 0.8 * spectrum[1:].max()]
    assert 0 < len(keys) < 5
    s = (data.table.tokens[:, 0] + data.table.tokens[:, 2]).double()
    waves = [f(2 * math.pi * k * s / 11) for k in keys for f in (torch.cos, torch.sin)]
    part = sum(w[:, None] * (w @ logits) / (w @ w) for w in waves)
    labels, train = data.table.labels, data.split.train
    restricted = cross_entropy(part + logits.mean(0), labels)
    excluded = cross_entropy((logits - part)[train], labels[train])
    assert found["restricted_loss"] == pytest.approx(float(restricted), rel=1e-6)
    assert found["excluded_loss"] == pytest.approx(float(excluded), rel=1e-6)
    assert found["table_loss"] == pytest.approx(float(cross_entropy(logits, labels)), rel=1e-6)


def test_progress_losses_can_be_left_out():
    found = fit(*EVERY, "--fourier.progress_losses", "false").group("fourier")[20]
    assert not any(key.endswith("_loss") for key in found)


def test_no_embedding_or_no_modulus_means_no_keys():
    free = fit(*EVERY, model="EmbeddingFreeMLP", run_id="free")
    group = fit(*EVERY, "--data.task", "s5", "--data.p", "null", "--trainer.limit_val_batches", 0, steps=1, run_id="s5")
    for run in (free, group):
        assert not [key for line in run.lines for key in line if "fourier" in key]
