"""Every key that is logged is built here, and nowhere else.

Keys are ``<group>/<quantity>``, lower snake case, with the unit last where there is one.
"""

PARTS = ("train_full", "val", "test")
"""Parts of the table that are evaluated as a whole; ``train_full`` is the training set (``train`` is a batch)."""

TRAIN_LOSS = "train/loss"
"""Mean loss of the batch of this step, before its update."""

TRAIN_ACC = "train/acc"
"""Accuracy on the batch of this step, before its update."""

GROKKED = "clock/grokked"
"""1 if the run reached T_grok, 0 if it ended before."""


def loss(part: str) -> str:
    """Mean loss over a part of the table."""
    return f"{part}/loss"


def acc(part: str) -> str:
    """Accuracy over a part of the table."""
    return f"{part}/acc"


def lr(group: str) -> str:
    """Learning rate of a parameter group."""
    return f"lr/{group}"


def seconds(group: str) -> str:
    """Wall time that a measurement has taken so far."""
    return f"time/{group}_seconds"


def clock(name: str) -> str:
    """A clock in optimiser steps: ``t_mem``, ``t_grok``, their ``…_sustained`` forms and ``delay``."""
    return f"clock/{name}_steps"
