"""Tensors of which a process holds a part (DTensor), as plain tensors."""

from torch import Tensor


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor; a plain tensor as it is."""
    part: Tensor = tensor.to_local() if is_shared(tensor) else tensor  # type: ignore[attr-defined]  # DTensor's
    return part


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, which every process has to ask for; a plain tensor as it is."""
    full: Tensor = tensor.full_tensor() if is_shared(tensor) else tensor  # type: ignore[attr-defined]  # DTensor's
    return full


def is_shared(tensor: Tensor) -> bool:
    """Whether a tensor is dealt out over processes; told by its placements, as the class takes long to import."""
    return getattr(tensor, "placements", None) is not None
