"""Muon for hidden matrices and Adam for the rest, as one optimiser."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from grok_lightning.errors import ConfigError


class MuonWithAdam(Optimizer):
    """torch's Muon on some parameter groups and its Adam on the others, behind one list of groups and one state.

    Muon steps along the orthogonalised momentum, ``θ ← (1 − lr·λ) θ − lr·√max(1, out/in) · NS(g + μ B)``, so its
    learning rate is the spectral norm of an update (up to the shape factor) and its decay is decoupled; Adam couples
    the decay (L2), as ``torch.optim.Adam`` does. It is made for hidden matrices: not for embeddings, output layers,
    biases or gains.

    Args:
        muon: Groups of 2-D parameters.
        adam: The other groups.
        momentum: Of Muon (0.95, torch's default).
        betas: Of Adam.
        fused: Of Adam.

    Raises:
        ConfigError: If torch has no Muon (it has from 2.9 on).
    """

    def __init__(
        self,
        muon: list[dict[str, Any]],
        adam: list[dict[str, Any]],
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        fused: bool = True,
    ) -> None:
        kind = getattr(torch.optim, "Muon", None)
        if kind is None:
            raise ConfigError(f"model.optimizer = 'muon': needs torch 2.9 or newer, this is {torch.__version__}")
        self._parts: list[Optimizer] = [kind(muon, momentum=momentum)]
        self._parts.append(torch.optim.Adam(adam, betas=betas, fused=fused))
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        """Let the parts work on the groups and the state of the whole, which schedulers and checkpoints know."""
        n = len(self._parts[0].param_groups)
        self._parts[0].param_groups, self._parts[1].param_groups = self.param_groups[:n], self.param_groups[n:]
        for part in self._parts:
            part.state = self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both parts.

        Args:
            closure: Computes the gradients and returns the loss.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss
