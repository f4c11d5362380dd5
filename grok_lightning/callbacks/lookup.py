"""What measurements ask a running trainer for."""

from collections.abc import Iterator
from typing import TypeVar

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import Logger
from torch import Tensor

from grok_lightning.data.table import TableDataModule
from grok_lightning.metric_keys import BLOCK_LABELS
from grok_lightning.modules.base import GrokModule
from grok_lightning.modules.score import CHUNK
from grok_lightning.nets.base import Blocks, Net
from grok_lightning.numerics.quiet import undisturbed
from grok_lightning.optim.losses import Loss

L = TypeVar("L", bound=Logger)


def logger_of(trainer: Trainer, kind: type[L]) -> L | None:
    """The run's logger of a kind, if it has one."""
    return next((logger for logger in trainer.loggers if isinstance(logger, kind)), None)


def datamodule_of(trainer: Trainer) -> TableDataModule:
    """The datamodule of the run."""
    datamodule = getattr(trainer, "datamodule")  # noqa: B009 - lightning sets it untyped
    assert isinstance(datamodule, TableDataModule)
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
    """Inputs and labels of rows of the data, on the device of the run."""
    return datamodule_of(trainer).on_device(rows)


def logits_by_chunk(trainer: Trainer, net: Net, tokens: Tensor, rows: int = CHUNK) -> Iterator[Tensor]:
    """Logits in the precision of the run, at most so many rows at a time, without gradients."""
    for chunk in torch.split(tokens, rows):
        with torch.no_grad(), undisturbed(net, tokens.device), trainer.precision_plugin.forward_context():
            logits = net(chunk)
        yield logits
