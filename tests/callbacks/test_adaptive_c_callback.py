"""c as eq. 24 would have it, computed from what the run leaves."""

import numpy as np
import pytest
import torch
from short_run import fit, net_after
from test_balance_callback import batches, frequencies, top

from grok_lightning.optim.adaptive_c import next_c, set_c

EVERY = ["--adaptive_c.every_n_steps=10", "--trainer.log_every_n_steps=1", "--trainer.val_check_interval=10"]


def test_next_c_by_hand():
    assert next_c(10.0, 2.0, 3.0, 0.0, 0.5, 32.0) == 6.0
    assert next_c(10.0, 2.0, 3.0, 0.25, 0.5, 32.0) == 7.0
    assert next_c(10.0, 200.0, 1.0, 0.0, 0.5, 32.0) == 32.0
    assert next_c(10.0, 0.01, 1.0, 0.0, 0.5, 32.0) == 0.5
    assert next_c(10.0, float("nan"), 1.0, 0.0, 0.5, 32.0) == 10.0


def test_c_is_set_under_a_schedule_and_the_decay_follows_if_asked():
    E, W = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    groups = [
        {"name": "embedding", "params": [E], "lr": 0.4, "weight_decay": 0.25},
        {"name": "rest", "params": [W], "lr": 0.1, "weight_decay": 1.0},
    ]
    optimizer = torch.optim.SGD(groups)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 4)
    set_c(optimizer, [schedule], 0.1, 4.0, 8.0, decay_scales_with_c=False)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.2, 0.025])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.125, 1.0]
    optimizer.step()
    schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.4, 0.05])


def test_predicted_and_used_c_are_those_of_equation_24():
    flags = [*EVERY, "--adaptive_c.kappa=3", "--adaptive_c.smoothing=0.5", "--adaptive_c.max_c=4", "--model.c=2"]
    run = fit(*flags, steps=25)
    c, used = 2.0, {}
    for step in (10, 20):
        net = net_after(step, *flags)
        f = frequencies([tokens for tokens, _ in batches(20)[step - 10 : step]])[:11].mean()
        predicted = top(net.E.detach()) / top(net.first.weight.detach()) / f
        assert run.series("adaptive_c/predicted")[step] == pytest.approx(predicted, rel=1e-6)
        used[step] = c = 0.5 * c + 0.5 * np.clip(3 * predicted, 0.5, 4.0)
    assert run.series("adaptive_c/used") == pytest.approx(used, rel=1e-6)
    rates = run.series("lr/embedding")
    assert rates[9] == pytest.approx(0.02)
    assert rates[10] == pytest.approx(0.01 * used[10], rel=1e-6)
    assert rates[24] == pytest.approx(0.01 * used[20], rel=1e-6)
    assert list(run.series("lr/rest").values()) == pytest.approx([0.01] * 25)


def test_c_stays_up_to_the_start():
    run = fit(*EVERY, "--adaptive_c.start_step=15", steps=25)
    assert list(run.series("adaptive_c/used")) == [20]


def test_the_transformer_and_low_rank_embeddings_adapt_too():
    assert 10 in fit(*EVERY, model="Transformer", steps=12).series("adaptive_c/used")
    assert 10 in fit(*EVERY, "--model.embedding.rank=2", run_id="low", steps=12).series("adaptive_c/used")


@pytest.mark.parametrize(
    ("model", "flags"), [("EmbeddingFreeMLP", []), ("EmbeddingMLP", ["--model.embedding.inputs=one_hot"])]
)
def test_a_model_without_a_trained_embedding_is_refused(cli, model, flags):
    done = cli("fit", "--model", model, *flags, "--adaptive_c.every_n_steps=10")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert "adaptive_c.every_n_steps = 10" in done.err
    assert "has no trained embedding" in done.err


@pytest.mark.parametrize(
    "flag", ["every_n_steps=-1", "kappa=0", "min_c=0", "max_c=0.1", "smoothing=1", "start_step=-1"]
)
def test_bad_values_name_their_field(cli, flag):
    done = cli("fit", "--model", "EmbeddingMLP", f"--adaptive_c.{flag}")
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert f"adaptive_c.{flag.split('=')[0]} = " in done.err
