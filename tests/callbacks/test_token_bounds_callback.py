"""The entropy-regularised sampler in a run, against gradients computed from scratch."""

import pytest
import torch
from short_run import fit, net_after
from torch.nn.functional import cross_entropy

from grok_lightning.data.datamodule import ModularDataModule

SAMPLER = {"sampler": "entropy", "sampler_gamma": 1e-3}
FLAGS = [*(f"--data.{name}={value}" for name, value in SAMPLER.items()), "--trainer.val_check_interval=10"]


def test_probabilities_come_from_the_gradients_of_the_batches():
    run = fit(*FLAGS, "--trainer.log_every_n_steps=1", steps=2)
    data = ModularDataModule(p=11, batch_size=16, **SAMPLER)
    L = torch.zeros(11, dtype=torch.float64)
    for step in range(2):
        rows = data.split.train[data.batch_order().rows(step)]
        net = net_after(step, *FLAGS)
        net.zero_grad()
        cross_entropy(net(data.table.tokens[rows]), data.table.labels[rows]).backward()
        norms = net.E.grad[:11].double().norm(dim=1)
        L = torch.where(norms > 0, torch.maximum(0.99 * L, norms), L)
        found = run.series("sampler/token_probability")[step + 1]
        assert found == pytest.approx((L.square() / 1e-3).softmax(0).tolist(), rel=1e-4)
        data.bounds.bounds = L


@pytest.mark.parametrize("flags", [["--model.embedding.rank=2"], ["--model.embedding.inputs=one_hot"]])
def test_tokens_without_a_row_of_their_own_are_refused(cli, flags):
    done = cli("fit", "--model", "EmbeddingMLP", *flags, "--data.sampler=entropy", "--data.sampler_gamma=1")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "data.sampler = 'entropy': needs one trained row per token" in done.err


def test_a_full_batch_on_the_command_line():
    run = fit("--data.batch_size=full", steps=3)
    assert "batch_size: full" in (run.path / "config.yaml").read_text()
