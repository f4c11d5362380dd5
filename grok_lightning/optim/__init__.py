"""Optimisers and parameter groups, pure torch."""
