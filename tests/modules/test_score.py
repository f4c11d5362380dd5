"""Loss and accuracy over a part of the table against plain torch."""

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.modules.score import TableScore


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
