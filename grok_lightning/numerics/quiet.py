"""Differentiating a live module exactly and without a trace, for the measurements that need derivatives."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

_PER_BACKEND = torch.__version__ >= "2.9"


def unwrap(net: nn.Module) -> nn.Module:
    """The module inside torch.compile and data-parallel wrappers, which allow no second derivative."""
    while True:
        if isinstance(net, nn.parallel.DistributedDataParallel | nn.DataParallel):
            net = net.module
        elif "_orig_mod" in dict(net.named_children()):  # torch.compile's wrapper, without importing dynamo
            net = net.get_submodule("_orig_mod")
        else:
            return net


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Gradients on; autocast, reduced-precision matrix products and torch.compile off.

    Everything is restored on leaving, also inside somebody's ``inference_mode`` or ``no_grad``.

    Args:
        device: Device of the computation, whose autocast is switched off.
    """
    # torch.compile imports dynamo, which takes seconds; without it nothing can be compiled.
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    autocast = torch.autocast(device.type, enabled=False)
    with torch.inference_mode(False), torch.enable_grad(), autocast, eager, _float32():
        yield


@contextmanager
def _float32() -> Iterator[None]:
    """Matrix products of float32 in full float32; both generations of torch's settings are set and restored.

    Torch 2.9 added one per backend, and raises where the older one is read after they have been set apart.
    """
    backends = [getattr(torch.backends, name).matmul for name in ("cuda", "mkldnn")] if _PER_BACKEND else []
    precisions = [backend.fp32_precision for backend in backends]
    try:
        overall = torch.get_float32_matmul_precision()
    except RuntimeError:
        overall = None
    try:
        if overall is not None:
            torch.set_float32_matmul_precision("highest")
        for backend in backends:
            backend.fp32_precision = "ieee"
        yield
    finally:
        if overall is not None:
            torch.set_float32_matmul_precision(overall)
        for backend, precision in zip(backends, precisions, strict=True):
            backend.fp32_precision = precision


@contextmanager
def kept(net: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore the train/eval flag of every module and the global RNGs on leaving.

    Args:
        net: The module.
        device: Its device, whose RNG is kept beside the CPU's; those of other devices are not looked at.
    """
    flags = [(module, module.training) for module in net.modules()]
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            for module, training in flags:
                module.training = training


@contextmanager
def undisturbed(net: nn.Module, device: torch.device) -> Iterator[None]:
    """Around a forward: eval mode, twice differentiable attention, and no draw from the global RNGs.

    Train/eval flags are set and restored module by module (``net.eval()`` may be overridden); the RNG is
    forked, because a module may draw in eval mode too; attention uses the math kernel, the only one with a
    second derivative.

    Args:
        net: The unwrapped module.
        device: Its device, whose RNG is forked beside the CPU's.
    """
    with kept(net, device), sdpa_kernel(SDPBackend.MATH):
        for module in net.modules():
            module.training = False
        yield


def now(device: torch.device) -> float:
    """Wall clock in seconds, after all work on the device is done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()
