"""torch.compile, tried before anything depends on it."""

from collections.abc import Callable

import torch
from torch import Tensor

from grok_lightning.errors import ConfigError
from grok_lightning.nets.base import Net


def compiled(net: Net) -> Callable[[Tensor], Tensor]:
    """The forward of a network through torch.compile; its first calls take a while.

    Args:
        net: The network, which stays as it is.

    Raises:
        ConfigError: If a compiled function cannot be made here, with what is missing.
    """
    try:
        torch.compile(torch.sin)(torch.ones(2))
    except Exception as error:  # a compiler, its headers or triton may be missing, each with an exception of its own
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[0] if lines else type(error).__name__
        raise ConfigError(
            f"model.compile = True: torch.compile does not work here, it needs a C++ compiler on a CPU and triton on a "
            f"GPU ({reason})"
        ) from error
    forward: Callable[[Tensor], Tensor] = torch.compile(net.forward)
    return forward
