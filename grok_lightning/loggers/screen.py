"""Printing."""

import os
import sys


def print_safely(*lines: str) -> None:
    """Print lines; a reader that has gone away (``fit … | head``) is no reason for a run to fail."""
    try:
        print(*lines, sep="\n", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush would fail again
