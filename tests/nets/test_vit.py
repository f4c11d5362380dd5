"""The Vision Transformer against its formula written out, and its second derivatives against differences."""

import math

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.errors import ConfigError
from grok_lightning.nets.vit import ViTNet, patches
from grok_lightning.numerics.hvp import HessianOperator
from grok_lightning.optim.recipe import Recipe, parameter_groups

SIZES = {"n_classes": 5, "image_size": 6, "channels": 2, "patch_size": 3, "d_model": 8, "n_layers": 2, "n_heads": 2}
IMAGES = torch.randn(7, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 2, 3, 4, 0, 1])


def vit(**settings):
    torch.manual_seed(0)
    return ViTNet(**{**SIZES, "d_mlp": 16, **settings}).double()


def test_patches_row_by_row():
    images = torch.arange(2 * 4 * 4).view(1, 2, 4, 4)
    cut = patches(images, 2)
    assert cut.shape == (1, 4, 8)
    # second patch of the first row: columns 2 and 3 of rows 0 and 1, channel 0 then channel 1
    assert cut[0, 1].tolist() == [2, 3, 6, 7, 18, 19, 22, 23]


@pytest.mark.parametrize("pool", ["class_token", "mean"])
def test_logits_are_the_formula_written_out(pool):
    net = vit(pool=pool)
    p = dict(net.named_parameters())
    unfolded = F.unfold(IMAGES, kernel_size=3, stride=3).transpose(1, 2)  # channel, row, column
    x = unfolded @ p["E"] + p["E_bias"]
    if pool == "class_token":
        x = torch.cat([p["class_token"].expand(7, 1, 8), x], dim=1)
    x = x + p["positions"]

    def norm(y, name):
        centred = y - y.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * p[f"{name}.weight"] + p[f"{name}.bias"]

    for i in range(2):
        y, heads = norm(x, f"layers.{i}.norm_attention"), []
        q, k, v = (y @ p[f"layers.{i}.attention.W_{name}.weight"].T for name in "QKV")
        for h in range(2):
            part = slice(4 * h, 4 * h + 4)
            weights = (q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(4)).softmax(-1)
            heads.append(weights @ v[..., part])
        x = x + torch.cat(heads, -1) @ p[f"layers.{i}.attention.W_O.weight"].T
        hidden = norm(x, f"layers.{i}.norm_mlp") @ p[f"layers.{i}.W_in.weight"].T + p[f"layers.{i}.W_in.bias"]
        hidden = 0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))
        x = x + hidden @ p[f"layers.{i}.W_out.weight"].T + p[f"layers.{i}.W_out.bias"]
    read = norm(x, "norm_final")
    read = read.mean(1) if pool == "mean" else read[:, 0]
    assert torch.allclose(net(IMAGES), read @ p["head.weight"].T + p["head.bias"], atol=1e-12)


def test_no_image_sees_another():
    net = vit()
    assert torch.allclose(torch.cat([net(image[None]) for image in IMAGES]), net(IMAGES), atol=1e-12)


def test_c_moves_projection_positions_and_class_token():
    net = vit()
    blocks = net.blocks()
    assert blocks["embedding"] == ["E", "E_bias", "class_token", "positions"]
    assert blocks["first_layer"] == [f"layers.0.attention.W_{name}.weight" for name in "QKV"]
    assert sorted(name for names in blocks.values() for name in names) == sorted(
        name for name, _ in net.named_parameters()
    )
    rates = {group["name"]: group["lr"] for group in parameter_groups(net, Recipe(lr=0.01, c=10.0))}
    assert rates == {"embedding": 0.1, "first_layer": 0.01, "rest": 0.01}
    assert "class_token" not in vit(pool="mean").blocks()["embedding"]


def test_matrices_are_live_and_named():
    net = vit()
    found = net.matrices()
    assert found["E"] is net.E
    assert found["E"].shape == (2 * 9, 8)
    assert {"positions", "W_Q.0", "W_O.1", "W_in.1", "W_out.0", "W_U"} < found.keys()
    assert len(found) == 3 + 6 * 2


def test_the_authors_size():
    net = ViTNet(10, 32, 3)
    d, per_layer = 384, 4 * 384**2 + 2 * 4 * 384**2 + 4 * 384 + 384 + 4 * 384
    others = 3 * 64 * d + d + d + 17 * d + 2 * d + 10 * d + 10  # projection, token, positions, norm, head
    assert sum(p.numel() for p in net.parameters()) == 7 * per_layer + others


@pytest.mark.parametrize("block", ["embedding", "first_layer", "all"])
def test_hessian_products_are_differences_of_gradients(block):
    net = vit()
    names = net.blocks().get(block) or [name for name, _ in net.named_parameters()]
    params = dict(net.named_parameters())
    v = torch.randn(sum(params[n].numel() for n in names), generator=torch.Generator().manual_seed(2)).double()
    with HessianOperator(net, IMAGES, LABELS, net.blocks(), dtype=torch.float64, chunk_size=3) as operator:
        product = operator.hvp(block, v)
    step, sides = 1e-7, []  # the error falls with its square: 3e-4 at 1e-5, 4e-8 here, of entries to 88
    for sign in (1, -1):
        moved, start = dict(params), 0
        for name in names:
            part = v[start : start + params[name].numel()].view_as(params[name])
            moved[name], start = params[name] + sign * step * part, start + part.numel()
        moved = {name: p.detach().requires_grad_() for name, p in moved.items()}
        loss = F.cross_entropy(torch.func.functional_call(net, moved, (IMAGES,)), LABELS)
        gradient = torch.autograd.grad(loss, [moved[name] for name in names])
        sides.append(torch.cat([g.flatten() for g in gradient]))
    assert (product - (sides[0] - sides[1]) / (2 * step)).abs().max() < 1e-7 * product.abs().max()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patch_size": 4}, "model.patch_size = 4: must divide the images' 6 pixels per side"),
        ({"n_heads": 3}, "model.d_model = 8: must be a multiple of n_heads = 3"),
        ({"n_layers": 0}, "model.n_layers = 0: must be 1 or more"),
        ({"pool": "max"}, "model.pool = 'max': must be class_token or mean"),
    ],
)
def test_what_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        vit(**settings)
