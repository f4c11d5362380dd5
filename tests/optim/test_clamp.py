"""The held weight norm, decay per block, and a frozen embedding."""

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.errors import ConfigError
from grok_lightning.nets.mlp import EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.optim.clamp import NormClamp, rescale
from grok_lightning.optim.recipe import Recipe, build_hooks, build_optimizer, parameter_groups

TOKENS = torch.randint(0, 9, (40, 4), generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 7


def train(recipe, steps):
    torch.manual_seed(0)
    net = EmbeddingMLPNet(9, 7, 8, 32).double()
    optimizer = build_optimizer(net, recipe)
    build_hooks(optimizer, recipe)
    states = [[p.detach().clone() for p in net.parameters()]]
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(TOKENS), LABELS).backward()
        optimizer.step()
        states.append([p.detach().clone() for p in net.parameters()])
    return net, states


def test_rescale_by_hand():
    a, b = torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])  # of norm 5 together
    rescale([a, b], 10.0)
    assert a.tolist() == [6.0, 0.0]
    assert b.tolist() == [[8.0]]


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon"])
def test_the_norm_is_held_and_the_direction_is_the_optimisers(optimizer):
    _, free = train(Recipe(lr=0.01, optimizer=optimizer), 1)
    _, held = train(Recipe(lr=0.01, optimizer=optimizer, clamp=NormClamp(rho=1.5, norm=4.0)), 5)
    norms = [float(torch.cat([p.flatten() for p in state]).norm()) for state in held]
    assert norms[1:] == pytest.approx([6.0] * 5, rel=1e-12)
    ratio = 6.0 / float(torch.cat([p.flatten() for p in free[1]]).norm())
    for a, b in zip(held[1], free[1], strict=True):
        assert torch.allclose(a, ratio * b, rtol=1e-12)


def test_decay_per_block():
    net = EmbeddingMLPNet(9, 7, 8, 32)
    recipe = Recipe(weight_decay=0.1, weight_decay_embedding=0.0, weight_decay_rest=0.4, optimizer="sgd", lr=0.5, c=2.0)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    build_optimizer(net, recipe).step()
    factors = {"E": 1.0, "first.weight": 0.95, "first.bias": 0.95}  # 1 − lr·λ
    for name, p in net.named_parameters():
        assert torch.allclose(p, factors.get(name, 0.8) * before[name]), name


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "muon"])
@pytest.mark.parametrize("at", [0, 3])
def test_a_frozen_embedding_stands_still_and_the_rest_moves(optimizer, at):
    momentum = {"momentum": 0.9} if optimizer == "sgd" else {}
    _, states = train(Recipe(lr=0.01, optimizer=optimizer, freeze_embedding_at=at, **momentum), 6)
    _, free = train(Recipe(lr=0.01, optimizer=optimizer, **momentum), 6)
    for step in range(6):
        assert torch.equal(states[step][0], states[step + 1][0]) == (step >= at)
        assert all(not torch.equal(a, b) for a, b in zip(states[step][1:], states[step + 1][1:], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(states[at], free[at], strict=True))  # the same until then


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("clamp.rho", {"clamp": NormClamp(rho=0.0)}),
        ("clamp.norm", {"clamp": NormClamp(norm=-1.0)}),
        ("weight_decay_rest", {"weight_decay_rest": -0.1}),
        ("freeze_embedding_at", {"freeze_embedding_at": -1}),
        ("freeze_embedding_at", {"freeze_embedding_at": 1, "clamp": NormClamp(norm=1.0)}),
    ],
)
def test_bad_values_name_their_field(field, settings):
    with pytest.raises(ConfigError, match=f"model.{field} = "):
        Recipe(**settings)


@pytest.mark.parametrize("settings", [{"weight_decay_embedding": 0.1}, {"freeze_embedding_at": 3}])
def test_settings_of_a_block_that_is_missing_are_refused(settings):
    with pytest.raises(ConfigError, match="has no"):
        parameter_groups(EmbeddingFreeMLPNet(9, 7, 8), Recipe(**settings))
