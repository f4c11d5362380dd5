"""Loss and accuracy over a part of the table against plain torch."""

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.modules.score import TableScore
from grok_lightning.optim.losses import Loss


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_chunks_do_not_matter(chunk):
    torch.manual_seed(0)
    logits, labels = torch.randn(100, 5, dtype=torch.float64), torch.randint(0, 5, (100,))
    score = TableScore()
    for part, target in zip(logits.split(chunk), labels.split(chunk), strict=True):
        score.update(part, target)
    loss, acc = score.compute()
    assert float(loss) == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-12)
    assert float(acc) == pytest.approx(float((logits.argmax(1) == labels).double().mean()))
    score.reset()
    score.update(logits[:1], logits[:1].argmax(1))
    assert float(score.compute()[1]) == 1.0


def test_several_predictions_a_row_count_one_by_one():
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 5, 3, dtype=torch.float64), torch.randint(0, 5, (6, 3))
    score = TableScore()
    for part, target in zip(logits.split(4), labels.split(4), strict=True):
        score.update(part, target)
    loss, acc = score.compute()
    flat = logits.permute(0, 2, 1).reshape(18, 5)
    assert float(loss) == pytest.approx(float(F.cross_entropy(flat, labels.reshape(18))), rel=1e-12)
    assert float(acc) == pytest.approx(float((flat.argmax(1) == labels.reshape(18)).double().mean()))


@pytest.mark.parametrize("name", ["cross_entropy", "stablemax", "mse"])
def test_a_loss_of_several_predictions_is_that_of_the_flattened_ones(name):
    torch.manual_seed(0)
    logits, labels = torch.randn(6, 5, 3, dtype=torch.float64), torch.randint(0, 5, (6, 3))
    loss, flat = Loss(name), logits.permute(0, 2, 1).reshape(18, 5)
    torch.testing.assert_close(loss(logits, labels), loss(flat, labels.reshape(18)))
    torch.testing.assert_close(loss(logits, labels, "none").reshape(18), loss(flat, labels.reshape(18), "none"))
