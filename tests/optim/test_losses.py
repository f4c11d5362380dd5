"""Losses against their formulas, value by value."""

import math

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.errors import ConfigError
from grok_lightning.optim.losses import Loss, log_stablemax


def s(x):
    return x + 1 if x >= 0 else 1 / (1 - x)


def test_stablemax_of_three_logits_by_hand():
    # s(1) = 2, s(0) = 1, s(−1) = 1/2: the shares are 4/7, 2/7 and 1/7.
    logits = torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.float64)
    for label, share in enumerate((4 / 7, 2 / 7, 1 / 7)):
        assert float(Loss("stablemax")(logits, torch.tensor([label]))) == pytest.approx(-math.log(share), rel=1e-14)


def test_log_stablemax_and_its_derivatives():
    x = torch.tensor([-1e6, -3.0, -1e-3, 0.0, 1e-3, 2.0, 1e6], dtype=torch.float64, requires_grad=True)
    values = x.tolist()
    assert log_stablemax(x).tolist() == pytest.approx([math.log(s(v)) for v in values], rel=1e-13, abs=1e-15)
    (slope,) = torch.autograd.grad(log_stablemax(x).sum(), x, create_graph=True)
    assert slope.tolist() == pytest.approx([1 / (1 + abs(v)) for v in values], rel=1e-13)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    assert torch.isfinite(bend).all()


def test_mse_is_torchs_own_on_one_hot_labels():
    logits, labels = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 1, 1, 2])
    one_hot = torch.eye(4, dtype=torch.float64)[labels]
    assert float(Loss("mse")(logits, labels)) == pytest.approx(float(F.mse_loss(logits, one_hot)), rel=1e-14)


@pytest.mark.parametrize("name", ["cross_entropy", "stablemax", "mse"])
def test_reductions_agree(name):
    logits, labels = torch.randn(5, 4), torch.tensor([0, 3, 1, 1, 2])
    loss = Loss(name)
    rows = loss(logits, labels, "none")
    assert rows.shape == (5,)
    assert float(loss(logits, labels, "sum")) == pytest.approx(float(rows.sum()), rel=1e-6)
    assert float(loss(logits, labels)) == pytest.approx(float(rows.mean()), rel=1e-6)


def test_float64_sees_what_float32_rounds_away():
    logits, labels = torch.tensor([[40.0, 0.0]]), torch.tensor([0])
    assert float(Loss(dtype="float32")(logits, labels)) == 0
    assert float(Loss(dtype="float64")(logits, labels)) == pytest.approx(math.exp(-40), rel=1e-12)
    assert Loss("stablemax")(logits.bfloat16(), labels).dtype == torch.float32
    assert Loss()(logits.double(), labels).dtype == torch.float64


def test_bad_values_name_their_field():
    with pytest.raises(ConfigError, match=r"model\.loss = 'hinge'"):
        Loss("hinge")
    with pytest.raises(ConfigError, match=r"model\.loss_dtype = 'float16'"):
        Loss(dtype="float16")
