"""The balance of embedding and first layer in arXiv:2505.15624, eq. 22–24, as measured quantities."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

F_W = 1.0
"""Update frequency of W: every sample passes through W, so it gets a gradient at every step."""

_NORMS = ("grad_norm_E", "grad_norm_W", "update_norm_E", "update_norm_W")


def predicted_c(sigma_E: float, sigma_W: float, f_E: float, f_W: float = F_W) -> float:
    """``c = (σ_max(E) / σ_max(W)) · (f_W / f_E)``, the predicted ratio η_E / η_W (arXiv:2505.15624, eq. 24).

    The paper states proportionality only; this is the right-hand side with factor 1.

    Args:
        sigma_E: Largest singular value of E.
        sigma_W: Largest singular value of W, the first-layer weight.
        f_E: Mean fraction of steps in which an operand token is present.
        f_W: The same for W, 1.

    Returns:
        c; NaN unless all four are finite and above 0.
    """
    values = (sigma_E, sigma_W, f_E, f_W)
    if not all(math.isfinite(x) and x > 0 for x in values):
        return math.nan
    return sigma_E / sigma_W * (f_W / f_E)


def row_norms(matrix: Tensor) -> Tensor:
    """``‖matrix_i‖₂`` of each row (one row per token), shape (V,)."""
    norms: Tensor = torch.linalg.vector_norm(matrix.detach(), dim=1)
    return norms


def group_norm(tensors: Iterable[Tensor]) -> Tensor:
    """``√Σ ‖t‖²`` over all tensors of a group, a scalar; 0 if there are none."""
    norms = [torch.linalg.vector_norm(t.detach()) for t in tensors]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())


class BalanceMeter:
    """Accumulates token frequencies and gradient and update norms over optimiser steps.

    Everything stays on the device until a property or :meth:`summary` is read. Two things are accumulated,
    each with its own count of steps: :meth:`count_tokens` belongs to every optimiser step, :meth:`add_norms`
    to the steps at which the caller measures. :meth:`reset` opens a new window.

    A token is *present* at a step if it occurs in the batch of that step, in either operand slot. This is the
    frequency of loss gradients. It is not the frequency with which row i of E changes: coupled weight decay
    and Adam's momentum move absent rows too, which ``token_update_norms`` shows.

    Args:
        n_symbols: Number of operand tokens; OP = n_symbols and EQ = n_symbols + 1 follow them.
        device: Where the batches live.
    """

    def __init__(self, n_symbols: int, device: torch.device | str = "cpu") -> None:
        self.n_symbols = n_symbols
        # Sums over many steps want float64, which MPS lacks.
        self._dtype = torch.float32 if torch.device(device).type == "mps" else torch.float64
        self._device = device
        self.reset()

    def reset(self) -> None:
        """Forget everything and open a new window."""
        V = self.n_symbols + 2
        self.steps = self.measured = 0
        self._present = torch.zeros(V, dtype=torch.int64, device=self._device)
        self._occurrences = torch.zeros(V, dtype=torch.int64, device=self._device)
        self._grad_rows, self._update_rows = (torch.zeros(V, dtype=self._dtype, device=self._device) for _ in range(2))
        self._groups = torch.zeros(len(_NORMS), dtype=self._dtype, device=self._device)

    def count_tokens(self, tokens: Tensor) -> None:
        """Count one optimiser step.

        Args:
            tokens: int64, shape (B, 4) or any other, values in [0, n_symbols + 2): all tokens that entered
                the step (with gradient accumulation or several processes, those of every micro-batch and
                process).
        """
        flat = tokens.flatten()
        # Not bincount, which waits for the device to learn the largest token.
        found = torch.zeros_like(self._occurrences).scatter_add_(0, flat, torch.ones_like(flat))
        self._occurrences += found
        self._present += found > 0
        self.steps += 1

    def add_norms(self, grad_E: Tensor, grad_W: Iterable[Tensor], delta_E: Tensor, delta_W: Iterable[Tensor]) -> None:
        """Add the norms of one measured step.

        Args:
            grad_E: ∇_E as the optimiser got it, shape (V, d).
            grad_W: Gradients of the tensors that make up W.
            delta_E: E after minus E before the optimiser step, shape (V, d).
            delta_W: The same for W.
        """
        self._grad_rows += row_norms(grad_E)
        self._update_rows += row_norms(delta_E)
        norms = [group_norm(g) for g in ([grad_E], grad_W, [delta_E], delta_W)]
        self._groups += torch.stack([x.to(self._device) for x in norms])
        self.measured += 1

    @property
    def token_counts(self) -> Tensor:
        """Occurrences of each token in the window: int64, shape (V,)."""
        return self._occurrences.clone()

    @property
    def token_frequencies(self) -> Tensor:
        """``f_i = (steps at which token i is present) / steps``: shape (V,); NaN before the first step."""
        return self._present.to(self._dtype) / (self.steps or math.nan)

    @property
    def token_grad_norms(self) -> Tensor:
        """Mean of ``‖∇_{E_i}‖₂`` over measured steps: shape (V,) (heat map of arXiv:2505.15624, Fig. 3)."""
        return self._grad_rows / (self.measured or math.nan)

    @property
    def token_update_norms(self) -> Tensor:
        """Mean of ``‖ΔE_i‖₂`` over measured steps: shape (V,)."""
        return self._update_rows / (self.measured or math.nan)

    def summary(self, sigma_E: float, sigma_W: float) -> dict[str, float]:
        """Both sides of eq. 22–24 as numbers, with one transfer from the device.

        * ``f_E``: mean of f_i over the operand tokens, which is also the mean share of operand tokens that a
          batch contains; ``f_OP``, ``f_EQ``: those of the two other tokens (1 for every built-in task);
          ``f_W``: 1.
        * ``grad_norm_E``, ``grad_norm_W``, ``update_norm_E``, ``update_norm_W``: ‖∇_E‖, ‖∇_W‖, ‖ΔE‖, ‖ΔW‖
          (Frobenius), each averaged over the measured steps of the window.
        * ``grad_ratio`` = grad_norm_E / grad_norm_W, ``update_ratio`` = update_norm_E / update_norm_W: ratios
          of those averages (with one measured step, of the norms themselves).
        * ``sigma_E``, ``sigma_W`` as given, and ``predicted_c`` from them (:func:`predicted_c`).

        Args:
            sigma_E: σ_max(E).
            sigma_W: σ_max(W).

        Returns:
            The numbers; NaN where nothing was measured or a ratio is undefined.
        """
        n = self.n_symbols
        f = self.token_frequencies
        parts = torch.cat([f[:n].mean()[None], f[n:], self._groups / (self.measured or math.nan)]).tolist()
        numbers = dict(zip(("f_E", "f_OP", "f_EQ", *_NORMS), parts, strict=True))
        for kind in ("grad", "update"):
            below = numbers[f"{kind}_norm_W"]
            numbers[f"{kind}_ratio"] = numbers[f"{kind}_norm_E"] / below if below else math.nan
        c = predicted_c(sigma_E, sigma_W, numbers["f_E"])
        return numbers | {"f_W": F_W, "sigma_E": sigma_E, "sigma_W": sigma_W, "predicted_c": c}

    def state_dict(self) -> dict[str, Any]:
        """Counts and sums as plain numbers and tensors (loadable with ``weights_only=True``)."""
        return {
            "steps": self.steps,
            "measured": self.measured,
            "present": self._present.clone(),
            "occurrences": self._occurrences.clone(),
            "grad_rows": self._grad_rows.clone(),
            "update_rows": self._update_rows.clone(),
            "groups": self._groups.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue a window.

        Raises:
            ValueError: If the state belongs to another vocabulary.
        """
        if state["present"].shape != self._present.shape:
            sizes = f"{len(state['present'])} tokens, this run has {len(self._present)}"
            raise ValueError(f"the saved balance window has {sizes}")
        self.steps, self.measured = state["steps"], state["measured"]
        for name in ("present", "occurrences", "grad_rows", "update_rows", "groups"):
            getattr(self, f"_{name}").copy_(state[name])
