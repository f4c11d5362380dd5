"""Fourier spectra of the embedding, and the progress measures of arXiv:2301.05217 for addition.

The group behind a task decides the right order of the tokens: 0, 1, …, p-1 for addition and subtraction, the
powers of a primitive root for multiplication and division (then ``x ↦ log x`` turns products into sums mod
p-1).
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from grok_lightning.data.tasks import is_prime
from grok_lightning.errors import require
from grok_lightning.numerics.spectra import as_float64

KEY_THRESHOLD = 0.5
"""From which fraction of the largest norm on a frequency is key (our choice, see :func:`key_frequencies`)."""


def dft_norms(rows: Tensor) -> Tensor:
    """``F_k = ‖ n^{-1/2} Σ_a x_a exp(−2πi k a / n) ‖₂`` for k = 0 … ⌊n/2⌋, the norm taken over d.

    Unitary and one-sided: ``Σ_a ‖x_a‖² = F_0² + 2 Σ_{k≥1} F_k²`` for odd n (for even n, F_{n/2}² counts
    once).

    Args:
        rows: Shape (n, d), one row per token, in the order of the transform.

    Returns:
        float64, shape (⌊n/2⌋ + 1,), in the unit of ``rows``.
    """
    spectrum: Tensor = torch.fft.rfft(as_float64(rows), dim=0, norm="ortho")
    return spectrum.abs().square().sum(1).sqrt()


def natural_spectrum(E: Tensor, p: int) -> Tensor:
    """:func:`dft_norms` of rows 0 … p-1 of E in their natural order (arXiv:2505.15624, app. C.3).

    Args:
        E: Embedding matrix, shape (V, d), V ≥ p; the rows of OP and EQ come after p and are left out.
        p: Number of operand tokens.

    Returns:
        float64, shape (⌊p/2⌋ + 1,).
    """
    return dft_norms(E[:p])


def primitive_root(p: int) -> int:
    """The smallest generator of the multiplicative group mod p.

    Raises:
        ConfigError: If p is not prime.
    """
    require(is_prime(p), "data.p", p, "the discrete logarithm of every unit needs a prime p")
    factors = [q for q in range(2, p) if (p - 1) % q == 0 and is_prime(q)]
    return next(g for g in range(1, p) if all(pow(g, (p - 1) // q, p) != 1 for q in factors))


def discrete_log_order(p: int) -> Tensor:
    """The units mod p as ``g⁰, g¹, …, g^{p-2}``, g the smallest primitive root: position log x holds x.

    Args:
        p: A prime.

    Returns:
        int64, shape (p - 1,), a permutation of 1 … p-1.

    Raises:
        ConfigError: If p is not prime.
    """
    g, x, order = primitive_root(p), 1, []
    for _ in range(p - 1):
        order.append(x)
        x = x * g % p
    return torch.tensor(order)


def discrete_log_spectrum(E: Tensor, p: int) -> Tensor:
    """:func:`dft_norms` of the rows of the units in the order of :func:`discrete_log_order`.

    The components are those along the characters of the multiplicative group, so this is for multiplication
    and division what :func:`natural_spectrum` is for addition. Row 0 is no unit and is left out. Another
    primitive root permutes the components among those of equal gcd(k, p - 1); it changes no summary number.

    Args:
        E: Embedding matrix, shape (V, d), V ≥ p.
        p: A prime.

    Returns:
        float64, shape (⌊(p - 1)/2⌋ + 1,).

    Raises:
        ConfigError: If p is not prime.
    """
    return dft_norms(E[discrete_log_order(p).to(E.device)])


def gini(x: Tensor) -> Tensor:
    """``Σ_i (2i − n − 1) x_(i) / (n Σ x)``, x_(1) ≤ … ≤ x_(n): 0 if all are equal, 1 − 1/n for a single peak.

    Args:
        x: Shape (n,), at least 0.

    Returns:
        float64 scalar; NaN if x has a NaN or is all zero.
    """
    x = as_float64(x).sort().values
    n = len(x)
    weights = 2 * torch.arange(1, n + 1, dtype=torch.float64, device=x.device) - n - 1
    return (weights * x).sum() / (n * x.sum())


def inverse_participation_ratio(x: Tensor) -> Tensor:
    """``Σ P² / (Σ P)²`` with ``P = x²``: 1/n if all are equal, 1 for a single peak.

    This is ``Σ (x_j/‖x‖₂)^{2r}`` at r = 2, the form of Doshi et al. (their ``calculate_ipr``).

    Args:
        x: Norms, shape (n,).

    Returns:
        float64 scalar; NaN if x has a NaN or is all zero.
    """
    P = as_float64(x).square()
    return P.square().sum() / P.sum().square()


def key_frequencies(spectrum: Tensor, threshold: float = KEY_THRESHOLD) -> Tensor:
    """``{k ≥ 1 : F_k ≥ threshold · max_{j≥1} F_j}``, the constant component k = 0 left out.

    arXiv:2301.05217 takes the components of largest norm and reports five, without a printed rule for how
    many; this rule and its threshold are ours. An untrained embedding has a flat spectrum, so nearly every
    frequency is key before anything is learned.

    Args:
        spectrum: Norms from k = 0 on, shape (K + 1,).
        threshold: In (0, 1].

    Returns:
        int64, shape (n_key,), ascending; empty if the spectrum is zero beyond k = 0, or not finite.

    Raises:
        ConfigError: If ``threshold`` is out of range.
    """
    require(0 < threshold <= 1, "fourier.threshold", threshold, "must be above 0 and at most 1")
    tail = as_float64(spectrum)[1:]
    if not len(tail) or not bool(torch.isfinite(tail).all()):
        return torch.empty(0, dtype=torch.int64, device=tail.device)
    return ((tail >= threshold * tail.max()) & (tail > 0)).nonzero().flatten() + 1


def fourier_summary(spectrum: Tensor, threshold: float = KEY_THRESHOLD) -> dict[str, float]:
    """Sparsity of a spectrum in three numbers, all without the constant component k = 0.

    Args:
        spectrum: Norms from k = 0 on, shape (K + 1,).
        threshold: See :func:`key_frequencies`.

    Returns:
        ``gini`` (of the norms), ``ipr`` (inverse participation ratio of the norms) and ``n_key_freqs``; each
        NaN if the spectrum is not finite.

    Raises:
        ConfigError: If ``threshold`` is out of range.
    """
    tail = as_float64(spectrum)[1:]
    n_key = float(len(key_frequencies(spectrum, threshold))) if bool(torch.isfinite(tail).all()) else float("nan")
    return {"gini": float(gini(tail)), "ipr": float(inverse_participation_ratio(tail)), "n_key_freqs": n_key}


def _sum_means(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Mean logits ``m_s`` over the p pairs with a + b ≡ s, shape (p, C), and s of every row, shape (p²,)."""
    p = round(len(logits) ** 0.5)
    if logits.ndim != 2 or p * p != len(logits) or p < 2:
        raise ValueError(f"logits have to cover all p² pairs (rows) in (a, b) order, got {tuple(logits.shape)}")
    symbols = torch.arange(p, device=logits.device)
    sums = ((symbols[:, None] + symbols) % p).flatten()
    return logits.new_zeros(p, logits.shape[1]).index_add_(0, sums, logits) / p, sums


def sum_spectrum(logits: Tensor) -> Tensor:
    """:func:`dft_norms` of the logits as a function of a + b: the part of ``cos/sin(2πk(a+b)/p)`` in them.

    A way to choose key frequencies where there is no embedding to read them from.

    Args:
        logits: Shape (p², C), rows in lexicographic order of (a, b).

    Returns:
        float64, shape (⌊p/2⌋ + 1,), the norm taken over classes.

    Raises:
        ValueError: If the rows are not a full table.
    """
    return dft_norms(_sum_means(as_float64(logits))[0])


def progress_losses(logits: Tensor, labels: Tensor, train: Tensor, freqs: Iterable[int]) -> dict[str, float]:
    """Restricted and excluded loss of arXiv:2301.05217 for addition mod p, in nats.

    With Π_k the orthogonal projection of each logit, as a function on the p × p table, on the span of
    ``cos(2πk(a+b)/p)`` and ``sin(2πk(a+b)/p)``, and z̄ its mean over the table,

    * restricted logits ``z̄ + Σ_k Π_k z``, loss averaged over all p² pairs;
    * excluded logits ``z − Σ_k Π_k z`` (all key frequencies removed at once), loss averaged over ``train``.

    As in the authors' code, the projection acts on the function of (a, b), class by class, and z̄ is kept.

    Args:
        logits: Shape (p², p), rows in lexicographic order of (a, b).
        labels: int64, shape (p²,).
        train: bool, shape (p²,), which rows are training pairs.
        freqs: Key frequencies, distinct, each from 1 to ⌊p/2⌋.

    Returns:
        ``restricted_loss``, ``excluded_loss``, and ``table_loss``, the plain loss over all pairs to compare
        with.

    Raises:
        ValueError: If a shape or a frequency is wrong, or ``train`` is empty.
    """
    z = as_float64(logits)
    means, sums = _sum_means(z)
    p, keys = len(means), sorted(set(freqs))
    if z.shape[1] != p or labels.shape != (p * p,) or train.shape != (p * p,) or not bool(train.any()):
        raise ValueError(f"need (p², p) logits, p² labels and a non-empty mask of p² rows, with p = {p}")
    if keys and not 1 <= keys[0] <= keys[-1] <= p // 2:
        raise ValueError(f"frequencies {keys} have to be from 1 to {p // 2}")
    # Π_k z depends on a + b alone: it is bin k of the DFT of the means over the pairs of equal a + b.
    bins = torch.fft.rfft(means, dim=0)
    kept = torch.zeros_like(bins)
    kept[keys] = bins[keys]
    key_part = torch.fft.irfft(kept, n=p, dim=0)[sums]  # (p², p)
    labels, train = labels.to(z.device), train.to(z.device)
    return {
        "restricted_loss": float(cross_entropy(z.mean(0) + key_part, labels)),
        "excluded_loss": float(cross_entropy((z - key_part)[train], labels[train])),
        "table_loss": float(cross_entropy(z, labels)),
    }
