"""Callbacks: they decide when, fetch tensors, call pure functions and hand numbers to the loggers."""
