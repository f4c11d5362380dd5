"""What a family of figures hands to the page: figures, and the names of what could not be drawn."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from grok_lightning.compare.runs import Run
from grok_lightning.recorded import RecordedRun


@dataclass(frozen=True)
class Subject:
    """One run to be drawn.

    Attributes:
        recorded: Its record.
        judged: Its clocks as ``compare`` reads them; ``None`` where they cannot be known.
        unjudged: Why not.
    """

    recorded: RecordedRun
    judged: Run | None
    unjudged: str = ""

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.recorded.path.resolve().name

    def series(self, key: str) -> tuple[list[int], list[float]] | None:
        """Steps and values of a scalar; ``None`` if it was not recorded."""
        return self.recorded.scalars.get(key)

    @property
    def t_mem(self) -> int | None:
        """First crossing; ``None`` if not reached or not known."""
        return None if self.judged is None else self.judged.clocks.t_mem["first"]

    @property
    def t_grok(self) -> int | None:
        """First crossing; ``None`` if not reached or not known."""
        return None if self.judged is None else self.judged.clocks.t_grok["first"]


@dataclass(frozen=True)
class Drawn:
    """One figure.

    Attributes:
        name: File name without its ending.
        title: What it shows, in the field's terms.
        figure: The figure.
        caption: What is shown, and how to read it.
        keys: Keys of the record behind it.
        source: Figure or equation that shows the same quantity.
        notes: What a reader has to know about these data: gaps, what was not recorded.
    """

    name: str
    title: str
    figure: Figure
    caption: str
    keys: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class NotRecorded:
    """A figure that cannot be drawn: its title, and what is not on record."""

    title: str
    reason: str


Outcome = Drawn | NotRecorded


def gaps(subject: Subject, keys: Iterable[str]) -> tuple[str, ...]:
    """A note for every series with values that are not finite, which leave gaps in a curve."""
    notes = []
    for key in keys:
        found = subject.series(key)
        n = 0 if found is None else sum(not math.isfinite(value) for value in found[1])
        if n and found is not None:
            notes.append(f"{key}: {n} of {len(found[1])} values are not finite and leave gaps")
    return tuple(notes)


def lacking(subject: Subject, keys: Iterable[str]) -> tuple[str, ...]:
    """A note that names those of the keys that were not recorded."""
    names = [key for key in keys if subject.series(key) is None]
    return (f"not recorded: {', '.join(names)}",) if names else ()
