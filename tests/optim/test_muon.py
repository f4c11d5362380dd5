"""Muon with Adam against the two of torch side by side."""

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.errors import ConfigError
from grok_lightning.nets.mlp import EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.nets.transformer import TransformerNet
from grok_lightning.optim.recipe import Recipe, build_optimizer, parameter_groups, warmup

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")

TOKENS = torch.randint(0, 9, (40, 4), generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 7


def make_net():
    torch.manual_seed(0)
    return EmbeddingMLPNet(9, 7, 8, 32, depth=3)


def test_muon_with_adam_is_both_of_torch_side_by_side_under_a_scheduler():
    ours, theirs = make_net(), make_net()
    one = build_optimizer(ours, Recipe(lr=0.01, c=4.0, optimizer="muon", muon_lr=0.05, weight_decay=0.1))
    hidden = [theirs.first.weight, theirs.stack.layers[0].weight]
    others = [p for p in theirs.parameters() if p is not theirs.E and not any(p is h for h in hidden)]
    groups = [{"params": [theirs.E], "lr": 0.04}, {"params": others, "lr": 0.01}]
    two = [
        torch.optim.Muon(hidden, lr=0.05, weight_decay=0.1),
        torch.optim.Adam(groups, weight_decay=0.1, fused=True),
    ]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: warmup(step, 4)) for o in (one, *two)]
    for _ in range(6):
        for net, optimizers in ((ours, [one]), (theirs, two)):
            net.zero_grad()
            F.cross_entropy(net(TOKENS), LABELS).backward()
            for optimizer in optimizers:
                optimizer.step()
        for schedule in schedules:
            schedule.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_muon_moves_hidden_matrices_only():
    groups = {group["name"]: group for group in parameter_groups(make_net(), Recipe(c=4.0, optimizer="muon"))}
    assert list(groups) == ["embedding", "first_layer", "first_layer_muon", "rest", "rest_muon"]
    assert [tuple(p.shape) for p in groups["first_layer_muon"]["params"]] == [(32, 32)]
    assert [tuple(p.shape) for p in groups["rest_muon"]["params"]] == [(32, 32)]
    hidden = TransformerNet(9, 7, 8, 2, 2, 16).hidden_matrices()
    assert len(hidden) == 12
    assert not {"E", "positions", "unembedding.weight"} & hidden


def test_muon_without_a_hidden_matrix_is_refused():
    with pytest.raises(ConfigError, match="no hidden matrix"):
        parameter_groups(EmbeddingFreeMLPNet(9, 7, 8), Recipe(optimizer="muon"))
    assert len(parameter_groups(EmbeddingFreeMLPNet(9, 7, 8, depth=3), Recipe(optimizer="muon"))) == 3


def test_an_older_torch_is_named(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ConfigError, match=r"needs torch 2\.9 or newer"):
        build_optimizer(make_net(), Recipe(optimizer="muon"))


def test_a_learning_rate_of_muon_needs_muon():
    with pytest.raises(ConfigError, match=r"model\.muon_lr = 0\.1: model\.optimizer is 'adam'"):
        Recipe(muon_lr=0.1)
