"""Logits and gradients of the forms that save work against the networks as their formulas say."""

import math

import pytest
import torch
from torch.nn import functional as F

from grok_lightning.nets.embedding import EmbeddingOptions
from grok_lightning.nets.mlp import EmbeddingFreeMLPNet, EmbeddingMLPNet
from grok_lightning.nets.transformer import TransformerNet

P = 23
OP, EQ = P, P + 1


def mlp(net, tokens):
    found = F.embedding(tokens, net.embedding())
    x = F.linear(found.flatten(1) if net.n_read == 4 else found.sum(1), net.first.weight, net.first.bias)
    return layers(net, x)


def free(net, tokens):
    return layers(net, F.linear(net.input_scale * tokens.to(net.first.weight.dtype), net.first.weight, net.first.bias))


def layers(net, x):
    *hidden, output = net.stack.layers
    for layer in hidden:
        x = layer(x.relu()) + (x if net.stack.residual else 0)
    return output(x.relu())


def transformer(net, tokens):
    E, future = net.embedding(), torch.ones(4, 4, dtype=torch.bool).triu(1)
    x = F.embedding(tokens, E) + net.positions
    for layer in net.layers:
        attention, normed = layer.attention, layer.norm_attention(x)
        maps = (attention.W_Q, attention.W_K, attention.W_V)
        q, k, v = (f(normed).unflatten(2, (attention.n_heads, -1)).transpose(1, 2) for f in maps)
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf).softmax(-1)
        x = x + attention.W_O((weights @ v).transpose(1, 2).flatten(2))
        inner = layer.W_in(layer.norm_mlp(x))
        x = x + layer.W_out(inner.relu() if layer.activation is F.relu_ else F.gelu(inner))
    x = net.norm_final(x)[:, -1]
    return x @ E[: net.n_classes].T if net.unembedding is None else net.unembedding(x)


LOW_RANK = EmbeddingOptions(rank=3)
NETS = {
    "mlp": (lambda: EmbeddingMLPNet(P + 2, P, 8, 32), mlp),
    "low rank, summed": (lambda: EmbeddingMLPNet(P + 2, P, 8, 32, embedding=LOW_RANK, combine="sum"), mlp),
    "deep": (lambda: EmbeddingMLPNet(P + 2, P, 8, 16, depth=4), mlp),
    "residual": (lambda: EmbeddingMLPNet(P + 2, P, 8, 16, depth=4, residual=True), mlp),
    "free": (lambda: EmbeddingFreeMLPNet(P + 2, P, 32, input_scale=0.1), free),
    "transformer": (lambda: TransformerNet(P + 2, P, 8, 3, 2, 16), transformer),
    "one layer": (lambda: TransformerNet(P + 2, P, 8, 1, 2, 16, layer_norm=False), transformer),
    "tied": (lambda: TransformerNet(P + 2, P, 8, 2, 4, 16, tied=True, activation="gelu"), transformer),
}


def batch(rows, mixed):
    operands = torch.randint(0, P, (rows, 2), generator=torch.Generator().manual_seed(0))
    tokens = torch.stack([operands[:, 0], torch.full((rows,), OP), operands[:, 1], torch.full((rows,), EQ)], dim=1)
    if mixed:
        tokens[-1, 1], tokens[-2, 3] = EQ, 0
    return tokens, operands.sum(1) % P


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("rows", [5, 20, 50])  # a few, fewer and more than tokens
@pytest.mark.parametrize("name", NETS)
def test_logits_and_gradients_are_those_of_the_formula(name, rows, mixed):
    make, formula = NETS[name]
    tokens, labels = batch(rows, mixed)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        torch.manual_seed(1)
        net = make().to(dtype)
        parameters = list(net.parameters())
        logits, expected = net(tokens), formula(net, tokens)
        assert torch.allclose(logits, expected, atol=tolerance, rtol=tolerance)
        ours, theirs = (
            torch.autograd.grad(F.cross_entropy(x, labels), parameters, create_graph=True) for x in (logits, expected)
        )
        probe = [torch.randn_like(p) for p in parameters]
        seconds = [
            torch.autograd.grad(sum((g * v).sum() for g, v in zip(found, probe, strict=True)), parameters)
            for found in (ours, theirs)
        ]
        for one, other in (*zip(ours, theirs, strict=True), *zip(*seconds, strict=True)):
            assert torch.allclose(one, other, atol=10 * tolerance, rtol=100 * tolerance)
