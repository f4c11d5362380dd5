"""The whole report as one call, ``make(paths, out)``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grok_lightning.compare.comparison import MIN_DRAWS
from grok_lightning.errors import require
from grok_lightning.report import one, several
from grok_lightning.report.drawn import Drawn, NotRecorded
from grok_lightning.report.job import SEVERAL
from grok_lightning.report.page import NAME, render
from grok_lightning.report.reading import read_subject, read_subjects
from grok_lightning.report.save import FORMATS, SCREEN_DPI, as_bytes, check_directory, write_all
from grok_lightning.report.style import house_style


@dataclass(frozen=True)
class Made:
    """A report that was written.

    Attributes:
        page: The page.
        figures: Its figures, with what they show.
        missing: What could not be drawn.
        left_out: Number of directories that could not be read.
    """

    page: Path
    figures: tuple[Drawn, ...]
    missing: tuple[NotRecorded, ...]
    left_out: int

    @property
    def lines(self) -> list[str]:
        """What the command prints."""
        lines = [f"{len(self.figures)} figures in {self.page.parent}"]
        lines += [f"not recorded: {'; '.join(item.title for item in self.missing)}"] if self.missing else []
        lines += [f"left out: {self.left_out} directories, named on the page"] if self.left_out else []
        return [*lines, f"page: {self.page}"]


def make(
    paths: Iterable[Path | str],
    out: Path | None = None,
    *,
    by: Sequence[str] = (),
    partial: bool = False,
    draws: int = 10_000,
    formats: Sequence[str] = FORMATS,
) -> Made:
    """Draw runs and write the page; nothing is written before everything is drawn.

    Args:
        paths: Run directories, and directories of run directories.
        out: Directory to write to; ``None`` for ``figures`` in the run, or ``report`` for several runs.
        by: Settings that tell several runs apart; empty for all that differ.
        partial: Whether the comparison of several runs counts partial ones.
        draws: Bootstrap resamples of the comparison.
        formats: File formats of the figures; png is always among them.

    Raises:
        ConfigError: If a value, a run or the directory cannot be used.
    """
    for kind in formats:
        require(kind in FORMATS, "formats", kind, f"must be of {', '.join(FORMATS)}")
    require(draws >= MIN_DRAWS, "draws", draws, f"must be {MIN_DRAWS} or more")
    if out is not None:
        check_directory(out)
    subjects, left_out = read_subjects(paths)
    single = len(subjects) == 1
    require(not (single and by), "by", list(by), "needs several runs")
    folder = out or (subjects[0].recorded.path / "figures" if single else SEVERAL)
    check_directory(folder)
    with house_style():
        if single:
            page, outcomes = one.page(subjects[0]), one.outcomes(subjects[0])
        else:
            page, outcomes = several.report(subjects, left_out, by, partial, draws)
        figures = tuple(outcome for outcome in outcomes if isinstance(outcome, Drawn))
        images = as_bytes(figures, list(dict.fromkeys(["png", *formats])))
    missing = tuple(outcome for outcome in outcomes if isinstance(outcome, NotRecorded))
    write_all(folder, images, render(page, figures, images, missing), NAME)
    return Made(folder / NAME, figures, missing, len(left_out))


def pictures(run: Path) -> dict[str, bytes]:
    """Every figure that the record of a run gives, for the screen; nothing is written.

    Args:
        run: The run directory.

    Returns:
        Name of the figure → PNG.

    Raises:
        ConfigError: If the record cannot be read.
    """
    with house_style():
        figures = [outcome for outcome in one.outcomes(read_subject(run)) if isinstance(outcome, Drawn)]
        return {name: kinds["png"] for name, kinds in as_bytes(figures, ["png"], SCREEN_DPI).items()}
