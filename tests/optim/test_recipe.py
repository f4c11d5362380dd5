"""The optimiser against torch's own, step by step."""

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.errors import ConfigError
from grok_lightning.nets.mlp import EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.nets.transformer import TransformerNet
from grok_lightning.optim.recipe import Recipe, build_optimizer, describe_groups, parameter_groups, warmup

TOKENS = torch.randint(0, 9, (40, 4), generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 7


def make_net():
    torch.manual_seed(0)
    return EmbeddingMLPNet(9, 7, 8, 32)


def train(net, optimizer, steps=20):
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(TOKENS), LABELS).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def torch_optimizer(name, groups):
    if name == "sgd":
        return torch.optim.SGD(groups, momentum=0.9)
    cls = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return cls(groups, betas=(0.9, 0.98))


def recipe(name, **other):
    settings = {"momentum": 0.9} if name == "sgd" else {"betas": (0.9, 0.98)}
    return Recipe(lr=0.01, weight_decay=0.1, optimizer=name, **settings, **other)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_c_is_a_two_group_torch_optimiser(name):
    ours, theirs = make_net(), make_net()
    others = [parameter for key, parameter in theirs.named_parameters() if key != "E"]
    groups = [
        {"params": [theirs.E], "lr": 0.1, "weight_decay": 0.1},
        {"params": others, "lr": 0.01, "weight_decay": 0.1},
    ]
    expected = train(theirs, torch_optimizer(name, groups))
    assert torch.allclose(train(ours, build_optimizer(ours, recipe(name, c=10.0))), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_c_1_is_a_single_group(name):
    ours, theirs = make_net(), make_net()
    groups = [{"params": list(theirs.parameters()), "lr": 0.01, "weight_decay": 0.1}]
    expected = train(theirs, torch_optimizer(name, groups))
    assert torch.allclose(train(ours, build_optimizer(ours, recipe(name))), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("scales", [True, False])
def test_decay_of_the_embedding_in_one_step_without_gradient(name, scales):
    net = make_net()
    before = net.E.detach().clone()
    optimizer = build_optimizer(net, recipe(name, c=10.0, decay_scales_with_c=scales))
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    rate = 0.1 * 0.1 if scales else 0.01 * 0.1  # lr_E times the decay, or lr times it
    assert torch.allclose(net.E, before * (1 - rate), atol=1e-7)


def test_groups_are_the_blocks():
    groups = {group["name"]: group for group in parameter_groups(make_net(), Recipe(lr=0.01, c=3.0))}
    assert list(groups) == ["embedding", "first_layer", "rest"]
    assert [group["lr"] for group in groups.values()] == pytest.approx([0.03, 0.01, 0.01])
    assert sum(p.numel() for group in groups.values() for p in group["params"]) == sum(
        p.numel() for p in make_net().parameters()
    )


def test_positions_of_a_transformer_are_no_embedding():
    net = TransformerNet(9, 7, 8, 1, 2, 16)
    assert net.blocks()["embedding"] == ["E"]
    assert "positions" in net.blocks()["rest"]


def test_groups_are_described_in_one_line():
    text = describe_groups(build_optimizer(make_net(), Recipe(lr=0.01, c=10.0)))
    assert "embedding: 72 parameters, lr 0.1, decay 0.001" in text
    assert "\n" not in text


def test_warmup_is_linear_and_ends_at_one():
    assert [warmup(step, 4) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert warmup(0, 0) == 1.0


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("lr", {"lr": -0.1}),
        ("lr", {"lr": 0.0}),
        ("lr", {"lr": float("nan")}),
        ("c", {"c": 0.0}),
        ("c", {"c": -1.0}),
        ("c", {"c": float("inf")}),
        ("weight_decay", {"weight_decay": -1.0}),
        ("optimizer", {"optimizer": "lion"}),
        ("momentum", {"momentum": 1.0, "optimizer": "sgd"}),
        ("momentum", {"momentum": 0.9}),
        ("betas", {"betas": (0.9, 1.0)}),
        ("warmup_steps", {"warmup_steps": -1}),
        ("decay_scales_with_c", {"decay_scales_with_c": False}),
    ],
)
def test_bad_values_name_their_field(field, settings):
    with pytest.raises(ConfigError, match=f"model.{field} = "):
        Recipe(**settings)


def test_c_without_an_embedding_is_refused():
    net = EmbeddingFreeMLPNet(9, 7, 8)
    with pytest.raises(ConfigError, match="no embedding"):
        parameter_groups(net, Recipe(c=10.0))
    assert [group["name"] for group in parameter_groups(net, Recipe())] == ["first_layer", "rest"]
