"""Figures as bytes, and files written whole or not at all."""

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from grok_lightning.compare.export import write_whole
from grok_lightning.errors import ConfigError
from grok_lightning.report.drawn import Drawn

FORMATS = ("png", "svg", "pdf")
DPI = 170
"""Of PNG: sharp in print at the width of a page."""

SCREEN_DPI = 100
"""Of PNG that is only looked at on a screen."""


def check_directory(path: Path) -> None:
    """Refuse a directory that cannot be written to, without making it.

    Raises:
        ConfigError: With the reason.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"out = {str(path)!r}: is not a directory")
    there = next(folder for folder in [path.absolute(), *path.absolute().parents] if folder.exists())
    if not there.is_dir():
        raise ConfigError(f"out = {str(path)!r}: {there} is not a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"out = {str(path)!r}: {there} cannot be written to")


def as_bytes(figures: Iterable[Drawn], formats: Sequence[str], dpi: int = DPI) -> dict[str, dict[str, bytes]]:
    """Name of a figure → format → content; ``dpi`` is that of PNG."""
    content = {}
    for drawn in figures:
        drawn.figure.draw_without_rendering()
        drawn.figure.set_layout_engine("none")  # what was laid out once stays, in every format
        content[drawn.name] = {kind: _one(drawn, kind, dpi) for kind in formats}
    return content


def _one(drawn: Drawn, kind: str, dpi: int) -> bytes:
    buffer = io.BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same run gives the same file
    drawn.figure.savefig(buffer, format=kind, dpi=dpi, metadata=dates.get(kind, {}))
    return buffer.getvalue()


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def write_all(folder: Path, images: Mapping[str, Mapping[str, bytes]], page: str, name: str) -> None:
    """Write every figure, and the page last.

    Args:
        folder: Made if it is not there.
        images: Name of a figure → format → content.
        page: The page.
        name: Its file name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = {f"{figure}.{kind}": content for figure, kinds in images.items() for kind, content in kinds.items()}
    for file, content in {**contents, name: page.encode("utf-8")}.items():
        write_whole(folder / file, partial(_write, content))
