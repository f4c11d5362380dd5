"""The page: figures, tables and captions in one file that needs nothing else."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from grok_lightning import __version__
from grok_lightning.compare.tables import Sheet
from grok_lightning.report.drawn import Drawn, NotRecorded

NAME = "report.html"
"""File name of the page."""


@dataclass(frozen=True)
class Section:
    """Tables and lines under one heading."""

    title: str
    sheets: tuple[Sheet, ...]
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """Everything on a page but the figures.

    Attributes:
        title: Its heading.
        status: How the run ended; completed, or what else it is.
        lead: One sentence that follows the status.
        head: Tables above the figures.
        sections: Sections below the figures.
    """

    title: str
    status: str
    lead: str
    head: tuple[Sheet, ...]
    sections: tuple[Section, ...]


def render(
    page: Page, figures: Sequence[Drawn], images: Mapping[str, Mapping[str, bytes]], missing: Sequence[NotRecorded]
) -> str:
    """The page as HTML; whatever comes from a file is escaped.

    Args:
        page: Texts and tables.
        figures: The figures, in order.
        images: Name of a figure → format → content; ``png`` goes into the page.
        missing: What could not be drawn.
    """
    # Every value goes through the escaping of the template engine; none is marked as safe.
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    source = resources.files("grok_lightning.report").joinpath("page.html").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        version=__version__,
        title=page.title,
        status=page.status,
        lead=page.lead,
        head=page.head,
        sections=page.sections,
        figures=[_figure(drawn, images[drawn.name]) for drawn in figures],
        missing=missing,
    )


def _figure(drawn: Drawn, content: Mapping[str, bytes]) -> dict[str, Any]:
    width, height = drawn.figure.get_size_inches()
    return {
        "name": drawn.name,
        "title": drawn.title,
        "caption": drawn.caption,
        "notes": drawn.notes,
        "keys": drawn.keys,
        "source": drawn.source,
        "png": base64.b64encode(content["png"]).decode("ascii"),
        "files": [f"{drawn.name}.{kind}" for kind in content],
        "width": round(96 * width),
        "height": round(96 * height),
    }
