"""What measurements ask a running trainer for."""

from collections.abc import Iterator

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from grok_lightning.data.datamodule import ModularDataModule
from grok_lightning.metric_keys import BLOCK_LABELS
from grok_lightning.modules.base import GrokModule
from grok_lightning.nets.base import Blocks, Net
from grok_lightning.numerics.quiet import undisturbed
from grok_lightning.optim.losses import Loss

CHUNK = 2048
"""Rows per forward; on a CPU their activations stay in the cache."""


def datamodule_of(trainer: Trainer) -> ModularDataModule:
    """The datamodule of the run."""
    datamodule = getattr(trainer, "datamodule")  # noqa: B009 - lightning sets it untyped
    assert isinstance(datamodule, ModularDataModule)
    return datamodule


def net_of(pl_module: LightningModule) -> Net:
    """The bare network, never a wrapper of it."""
    assert isinstance(pl_module, GrokModule)
    return pl_module.net


def loss_of(pl_module: LightningModule) -> Loss:
    """The training loss (``model.loss``)."""
    assert isinstance(pl_module, GrokModule)
    return pl_module.loss


def labelled_blocks(net: Net) -> Blocks:
    """Blocks of parameters under the field's names: E, W, rest; only those that the network has."""
    return {BLOCK_LABELS[block]: names for block, names in net.blocks().items()}


def pairs(trainer: Trainer, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (n, 4) and labels (n,) of rows of the table, on the device of the run."""
    table, device = datamodule_of(trainer).table, trainer.strategy.root_device
    return table.tokens[rows].to(device), table.labels[rows].to(device)


def logits_by_chunk(trainer: Trainer, net: Net, tokens: Tensor) -> Iterator[Tensor]:
    """Logits in the precision of the run, at most :data:`CHUNK` rows at a time, without gradients."""
    for chunk in torch.split(tokens, CHUNK):
        with torch.no_grad(), undisturbed(net, tokens.device), trainer.precision_plugin.forward_context():
            logits = net(chunk)
        yield logits
