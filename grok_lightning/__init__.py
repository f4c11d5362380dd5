"""Grokking experiments on PyTorch Lightning: run, measure and judge them."""

__version__ = "0.1.0"
