"""The two-phase clock of a run against its own weights, and in an audit of its record."""

import json
from pathlib import Path

import pytest
import torch
from short_run import fit, net_after

from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.numerics.gradient import gradient_norms

SGD = ["--model.optimizer", "sgd", "--model.lr", 0.1, "--model.c", 1, "--model.weight_decay", 0.05]


@pytest.fixture
def pairs():
    data = ModularDataModule(p=11, batch_size=16)
    return data.table.tokens[data.split.train], data.table.labels[data.split.train]


@pytest.mark.parametrize("model", ["EmbeddingMLP", "EmbeddingFreeMLP", "Transformer"])
def test_gradient_norms_equal_those_of_backward(model, pairs):
    found = fit("--two_phase.every_n_steps", 10, model=model).series("two_phase/all/grad_norm")
    net = net_after(10, model=model).double()
    torch.nn.functional.cross_entropy(net(pairs[0]), pairs[1]).backward()
    expected = torch.cat([p.grad.flatten() for p in net.parameters()]).norm()
    assert found[10] == pytest.approx(float(expected), rel=1e-5)
    assert set(found) == {0, 10, 20}


def test_uneven_chunks_weigh_by_their_samples(pairs):
    net = net_after(1)
    before = [p.grad.clone() for p in net.parameters()]
    blocks = {"E": ["E"], "all": [name for name, _ in net.named_parameters()]}
    whole = gradient_norms(net, *pairs, blocks, 10_000)
    for size in (1, 7, 35):
        assert gradient_norms(net, *pairs, blocks, size) == pytest.approx(whole, rel=1e-5)
    assert all(torch.equal(p.grad, grad) for p, grad in zip(net.parameters(), before, strict=True))


def test_clocks_are_logged_and_audited(cli):
    flags = ["--two_phase.every_n_steps", 20, "--two_phase.epsilon", 0.4, "--spectrum.every_n_steps", 20]
    run = fit(*flags, *SGD, steps=400)
    grads, weights, shares = (
        run.series(f"two_phase/{name}") for name in ("all/grad_norm", "weight_norm", "decay_over_gradient")
    )
    for step, grad in grads.items():
        assert shares[step] == pytest.approx(0.05 * weights[step] / grad)
    balanced = next(step for step, grad in grads.items() if grad <= 0.05 * weights[step])
    assert run.series("clock/t_wd_steps") == {400: balanced}
    fitted = [step for step, grad in grads.items() if grad <= 0.4 * grads[0]]
    assert run.series("clock/t_gf_steps") == ({400: fitted[0]} if fitted else {})
    assert run.series("two_phase/predicted_steps") == {400: pytest.approx(1 / (0.05 * 0.1))}
    done = cli("audit", run.path, "--json", "--phase_epsilon", 0.4)
    (row,) = json.loads(done.out)
    assert (row["two_phase"]["t_wd"], row["two_phase"]["t_gf"]) == (balanced, fitted[0] if fitted else None)
    assert "t_WD" in cli("audit", run.path).out


def test_the_prediction_is_for_plain_sgd_alone():
    run = fit("--two_phase.every_n_steps", 10, *SGD, "--model.c", 10)
    assert run.series("two_phase/weight_norm")
    assert not run.series("two_phase/predicted_steps")


def test_a_run_without_the_norms_has_no_clock(cli):
    run = fit("--spectrum.every_n_steps", 10)
    (row,) = json.loads(cli("audit", run.path, "--json").out)
    assert row["two_phase"] is None
    assert "t_WD" not in cli("audit", run.path).out
    assert Path(run.path, "metrics.jsonl").exists()


def test_bad_values_are_refused(cli):
    done = cli("fit", "--model", "EmbeddingMLP", "--two_phase.epsilon", 1)
    assert done.status == 2
    assert "two_phase.epsilon = 1.0: must be in (0, 1)" in done.err
    assert cli("audit", ".", "--phase_epsilon", 0).status == 2
