"""Which tokens the steps of a run contain."""

import torch
from lightning.pytorch import Trainer
from torch import Tensor

from grok_lightning.callbacks.lookup import datamodule_of
from grok_lightning.numerics.balance import BalanceMeter

COUNT_EVERY = 100
"""Steps whose tokens are counted at once: each takes a tenth of the time it would take between training steps."""


class TokenCounter:
    """Shows a meter the tokens of every optimiser step, gathered over micro-batches and processes.

    Args:
        trainer: The trainer.
        n_tokens: Number of tokens; ``None`` for the operands of the data and the two tokens beside them.
    """

    def __init__(self, trainer: Trainer, n_tokens: int | None = None) -> None:
        self._trainer = trainer
        n_symbols = datamodule_of(trainer).n_symbols if n_tokens is None else n_tokens - 2
        assert n_symbols is not None  # whoever counts has asked
        self._meter = BalanceMeter(n_symbols, trainer.strategy.root_device)
        self._tokens: list[Tensor] = []  # of the micro-batches of one step
        self._steps: list[Tensor] = []  # of whole steps, not yet counted
        self.step = 0
        """The last whole step."""

    def meter(self) -> BalanceMeter:
        """The meter, once it has counted every whole step."""
        for tokens in self._steps:
            self._meter.count_tokens(tokens)
        self._steps = []
        return self._meter

    def add(self, tokens: Tensor) -> bool:
        """Take the tokens of a batch; whether they complete a step (gradients may be accumulated)."""
        self._tokens.append(self._of_all_processes(tokens))
        if self._trainer.global_step == self.step:
            return False
        self.step = self._trainer.global_step
        self._steps.append(torch.cat(self._tokens) if len(self._tokens) > 1 else self._tokens[0])
        self._tokens = []
        if len(self._steps) >= COUNT_EVERY:
            self.meter()
        return True

    def _of_all_processes(self, tokens: Tensor) -> Tensor:
        """The order of batches says what the other processes have, so nobody asks."""
        if self._trainer.world_size == 1:
            return tokens
        data = datamodule_of(self._trainer)
        rows = data.batch_order().rows(self._trainer.fit_loop.total_batch_idx)
        return data.inputs[data.rows("train_full")[rows]].to(tokens.device)
