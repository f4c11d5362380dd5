"""Measurements as pure functions: tensors in, numbers and frozen dataclasses out."""
