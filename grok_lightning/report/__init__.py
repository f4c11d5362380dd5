"""Figures and pages of finished and unfinished runs."""
