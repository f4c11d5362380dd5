"""The three networks as their formulas say, without any form that saves work; what fit_speed.py compares against."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(99, 128)
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 97)

    def forward(self, tokens):
        return self.second(F.relu(self.first(self.embedding(tokens).flatten(1))))


class Free(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 512), nn.Linear(512, 97)

    def forward(self, tokens):
        return self.second(F.relu(self.first(tokens.float())))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(128, 384, bias=False), nn.Linear(128, 128, bias=False)
        self.norms = nn.ModuleList([nn.LayerNorm(128), nn.LayerNorm(128)])
        self.mlp = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, 4, 32).permute(2, 0, 3, 1, 4)
        future = torch.ones(4, 4, dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(32)).masked_fill(future, float("-inf")).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(99, 128), nn.Parameter(0.02 * torch.randn(4, 128))
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.norm, self.unembedding = nn.LayerNorm(128), nn.Linear(128, 97, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.unembedding(self.norm(x[:, -1]))


PLAIN = {"embedding": Embedding, "free": Free, "transformer": Transformer}
