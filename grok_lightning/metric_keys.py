"""Every key that is logged is built here, and nowhere else.

Keys are ``<group>/<quantity>``, lower snake case, with the unit last where there is one.
"""

PARTS = ("train_full", "val", "test")
"""Parts of the table that are evaluated as a whole; ``train_full`` is the training set (``train`` is a batch)."""

TRAIN_LOSS = "train/loss"
"""Mean loss of the batch of this step, before its update."""

TRAIN_ACC = "train/acc"
"""Accuracy on the batch of this step, before its update."""

GRADIENT_MEMORY = "gradient/memory_norm"
"""‖μ‖₂ of Grokfast's memory after so many updates."""

GROKKED = "clock/grokked"
"""1 if the run reached T_grok, 0 if it ended before."""


def loss(part: str) -> str:
    """Mean loss over a part of the table."""
    return f"{part}/loss"


def acc(part: str) -> str:
    """Accuracy over a part of the table."""
    return f"{part}/acc"


def perplexity(part: str) -> str:
    """Exponential of the mean loss over a part of a text, per token."""
    return f"{part}/perplexity"


def gap(quantity: str) -> str:
    """Generalisation gap: what training and test set differ by in ``acc`` or ``loss``, positive where test is worse."""
    return f"gap/{quantity}"


def lr(group: str) -> str:
    """Learning rate of a parameter group."""
    return f"lr/{group}"


def seconds(group: str) -> str:
    """Wall time that a measurement has taken so far."""
    return f"time/{group}_seconds"


def clock(name: str) -> str:
    """A clock in optimiser steps: ``t_mem``, ``t_grok``, their ``…_sustained`` forms, ``delay``, ``t_gf``, ``t_wd``."""
    return f"clock/{name}_steps"


BLOCK_LABELS = {"embedding": "E", "first_layer": "W", "rest": "rest"}
"""Block of a network (``Net.blocks``) → the field's name for it, which its keys carry."""


def hessian(quantity: str) -> str:
    """About the Hessian of the training loss as a whole: ``loss``, ``n_samples``, ``gradient_seconds``."""
    return f"hessian/{quantity}"


def curvature(block: str, quantity: str, subset: int | None = None) -> str:
    """About the Hessian's diagonal block of E, W, rest or all; a subset of the training set shows in the key."""
    return f"hessian/{block}{'' if subset is None else f'_of_{subset}'}/{quantity}"


def spectrum(matrix: str, quantity: str) -> str:
    """About the singular values of a matrix: ``sigma``, ``sigma_max`` … or a rank notion by its own name.

    Dots in names (``W_Q.0``, layer 0) become underscores, because W&B reads a dot as nesting.
    """
    return f"spectrum/{matrix.replace('.', '_')}/{quantity}"


def balance(quantity: str) -> str:
    """A quantity in eq. 22–24 of arXiv:2505.15624, or one value per token (``token_…``)."""
    return f"balance/{quantity}"


def tokens(quantity: str) -> str:
    """About token rows of E by how often the tokens occur: ``decile_…`` has ten values, ``token_…`` one per token."""
    return f"tokens/{quantity}"


def adaptive_c(quantity: str) -> str:
    """About c where it adapts: ``predicted`` by eq. 24 with factor 1, and ``used`` from this step on."""
    return f"adaptive_c/{quantity}"


def sampler(quantity: str) -> str:
    """About the entropy-regularised sampler: ``entropy`` of its p_i, and ``token_probability``, one per token."""
    return f"sampler/{quantity}"


def fourier(order: str, quantity: str) -> str:
    """About the Fourier spectrum of E with its rows in ``natural`` or ``discrete_log`` order."""
    return f"fourier/{order}/{quantity}"


def progress(quantity: str) -> str:
    """A progress measure of arXiv:2301.05217: ``restricted_loss``, ``excluded_loss``; and ``table_loss``."""
    return f"fourier/{quantity}"


def ntk(block: str, quantity: str) -> str:
    """About the empirical neural tangent kernel of a block (E, W, rest or all)."""
    return f"ntk/{block}/{quantity}"


NTK_REFERENCE = "ntk/reference_step"
"""Step of the kernel that drifts are measured against; 0 unless the diagnostic was switched on in a resumed run."""


def figure(name: str) -> str:
    """A figure of ``report`` as an image of the W&B run; the name is that of its file."""
    return f"figures/{name}"


def health(quantity: str) -> str:
    """About numerical health: ``softmax_collapse``, ``logit_norm``, non-finite counts, spikes, ``skipped_steps``."""
    return f"health/{quantity}"


def param_norm(block: str) -> str:
    """Euclidean norm of the parameters of a block (E, W, rest or all)."""
    return f"health/{block}/param_norm"


def grad_norm(block: str) -> str:
    """Euclidean norm of the gradient of the full training loss in a block (E, W, rest or all)."""
    return f"two_phase/{block}/grad_norm"


def two_phase(quantity: str) -> str:
    """About weight decay against the gradient (arXiv:2505.20172)."""
    return f"two_phase/{quantity}"


def interpolator(quantity: str) -> str:
    """About a linear function that is learned, against the least interpolator and the truth."""
    return f"interpolator/{quantity}"
