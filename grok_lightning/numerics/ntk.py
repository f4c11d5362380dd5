"""Empirical neural tangent kernel of single parameter blocks, and how far it has moved (lazy or rich)."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from grok_lightning.numerics.spectra import as_float64

Gradients = dict[str, Tensor]


def ntk_gram(
    net: nn.Module,
    tokens: Tensor,
    blocks: Mapping[str, Sequence[str]],
    chunk_size: int = 64,
    direction: Tensor | None = None,
) -> dict[str, Tensor]:
    """``K_ij = ⟨∂(v·f)(x_i)/∂θ_B, ∂(v·f)(x_j)/∂θ_B⟩`` for each block B, by default with ``v = 1/√C``.

    The default is the class-summed "pseudo" NTK of arXiv:2206.12543, ``⟨∂Σ_c f_c(x_i), ∂Σ_c f_c(x_j)⟩ / C``.
    Note that Σ_c f_c is the one direction of the logits that softmax cross-entropy does not see: a layer
    behind which Σ_c cancels has a small kernel for that reason alone. ``direction`` takes another v, for
    instance ±1/√C by a coin, whose expectation is the full NTK averaged over classes. Kernels of disjoint
    blocks add up.

    The state of the network, its mode, its ``.grad`` and the random state are left alone. Per-sample
    gradients are exact, in the dtype of the parameters; memory is that of ``2 · chunk_size`` of them, and
    each is computed up to n / chunk_size times.

    Args:
        net: The bare network (not compiled or wrapped).
        tokens: Fixed probe set, int64, shape (n, L).
        blocks: Block name → parameter names, as :meth:`~grok_lightning.nets.base.Net.blocks` gives them.
        chunk_size: Samples differentiated at a time.
        direction: v, shape (C,).

    Returns:
        Block name → float64, shape (n, n), symmetric positive semidefinite.

    Raises:
        ValueError: If a block names a parameter that the network lacks, or ``chunk_size`` is below 1.
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size = {chunk_size}: must be 1 or more")
    n = len(tokens)
    gradients = _per_sample_gradients(net, {name for names in blocks.values() for name in names}, direction)
    K = {block: torch.zeros(n, n, dtype=torch.float64) for block in blocks}
    # The math kernel of attention is the one that has a rule for vmap.
    with torch.autocast(tokens.device.type, enabled=False), sdpa_kernel(SDPBackend.MATH):
        for i in range(0, n, chunk_size):
            left = gradients(tokens[i : i + chunk_size])
            for j in range(0, i + 1, chunk_size):
                right = left if j == i else gradients(tokens[j : j + chunk_size])
                for block, names in blocks.items():
                    G = _inner(left, right, names)
                    K[block][i : i + len(G), j : j + G.shape[1]] = G
                    K[block][j : j + G.shape[1], i : i + len(G)] = G.T
    return K


def _per_sample_gradients(net: nn.Module, wanted: set[str], direction: Tensor | None) -> Callable[[Tensor], Gradients]:
    """Map tokens (m, L) to name → gradients of v·f, shape (m, …), for the parameters in ``wanted``."""
    params = {name: p.detach() for name, p in net.named_parameters()}
    if missing := wanted - params.keys():
        raise ValueError(f"blocks name parameters that {type(net).__name__} lacks: {', '.join(sorted(missing))}")
    moving = {name: p for name, p in params.items() if name in wanted}
    fixed = {name: p for name, p in params.items() if name not in wanted}

    def output(moving: Gradients, row: Tensor) -> Tensor:
        logits: Tensor = functional_call(net, {**fixed, **moving}, (row[None],))[0]
        return logits.sum() / len(logits) ** 0.5 if direction is None else logits @ direction.to(logits)

    per_sample = vmap(grad(output), in_dims=(None, 0))

    def gradients(rows: Tensor) -> Gradients:
        found: Gradients = per_sample(moving, rows)
        return {name: g.detach().flatten(1) for name, g in found.items()}

    return gradients


def _inner(left: Gradients, right: Gradients, names: Sequence[str]) -> Tensor:
    """Inner products over the parameters of a block: float64 on the CPU, shape (m_left, m_right)."""
    some = next(iter(left.values()))
    total = as_float64(some.new_zeros(len(some), len(next(iter(right.values())))))
    for name in names:
        total = total + as_float64(left[name] @ right[name].T)
    return total.cpu()


def relative_drift(K: Tensor, K0: Tensor) -> float:
    """``‖K − K₀‖_F / ‖K₀‖_F``: 0 for a lazy block; sensitive to the scale of the kernel.

    Args:
        K: Kernel now, shape (n, n).
        K0: Kernel at initialisation on the same probe set, shape (n, n).

    Returns:
        The drift; NaN or infinity if K₀ is zero, NaN if a kernel has a NaN.
    """
    K, K0 = as_float64(K), as_float64(K0)
    return float(torch.linalg.matrix_norm(K - K0) / torch.linalg.matrix_norm(K0))


def one_minus_cka(K: Tensor, K0: Tensor) -> float:
    """``1 − ⟨HKH, HK₀H⟩_F / (‖HKH‖_F ‖HK₀H‖_F)``, H = I − 11ᵀ/n: blind to scale and to a constant added to K.

    Centred kernel alignment of Cortes et al. (JMLR 2012) and arXiv:1905.00414. It is evaluated as
    ``½ ‖HKH/‖HKH‖ − HK₀H/‖HK₀H‖‖_F²``, the same number without cancellation when the kernels are close.

    Args:
        K: Kernel now, shape (n, n), symmetric.
        K0: Kernel at initialisation on the same probe set, shape (n, n), symmetric.

    Returns:
        In [0, 1] for positive semidefinite kernels; NaN if a centred kernel is zero or has a NaN.
    """
    A, B = (_centred(as_float64(M)) for M in (K, K0))
    difference = A / torch.linalg.matrix_norm(A) - B / torch.linalg.matrix_norm(B)
    return 0.5 * float(difference.square().sum())


def _centred(K: Tensor) -> Tensor:
    return K - K.mean(0, keepdim=True) - K.mean(1, keepdim=True) + K.mean()
