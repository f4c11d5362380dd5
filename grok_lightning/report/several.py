"""The report of several runs side by side."""

from collections.abc import Sequence

from grok_lightning.compare.comparison import Comparison, NoRunsError, compare, words_of
from grok_lightning.compare.figure import draw
from grok_lightning.compare.runs import LeftOut
from grok_lightning.compare.settings import show
from grok_lightning.compare.tables import Sheet, sheets
from grok_lightning.errors import ConfigError
from grok_lightning.report import overlays
from grok_lightning.report.differences import by_of
from grok_lightning.report.drawn import Drawn, NotRecorded, Outcome, Subject
from grok_lightning.report.page import Page, Section

FALLBACK = ("model.c", "model", "data.task", "seed_everything")
"""What names the one cell of runs that differ in their seeds alone: the first of these that they have."""


def report(
    subjects: Sequence[Subject], left_out: Sequence[LeftOut], asked: Sequence[str], partial: bool, draws: int
) -> tuple[Page, list[Outcome]]:
    """Page and figures of several runs.

    Args:
        subjects: The runs.
        left_out: Directories that cannot be drawn, and why.
        asked: Settings that make cells; empty for all in which the runs differ.
        partial: Whether the comparison counts runs that did not come to their end.
        draws: Bootstrap resamples of the comparison.

    Raises:
        ConfigError: If the settings that were asked for cannot make cells.
    """
    by = by_of([subject.recorded.settings for subject in subjects], asked)
    cells = overlays.make_cells(subjects, by)
    comparison, why = _compare(subjects, by, bool(asked), partial, draws)
    title = "Kaplan–Meier curves and time to grok"
    outcomes = overlays.figures(cells)
    outcomes.insert(2, NotRecorded(title, why) if comparison is None else _survival(comparison, title))
    sections = [*_compared(comparison, why), _runs(subjects, by)]
    if left_out:
        rows = tuple((run.path, run.reason) for run in left_out)
        sections.append(Section("Not drawn", (Sheet("", ("directory", "reason"), rows),)))
    n_partial = sum(subject.recorded.status != "completed" for subject in subjects)
    differ = f"They differ in {', '.join(by)}." if by else "They differ in no setting but seeds and lengths."
    status = "completed" if not n_partial else f"{n_partial} of {len(subjects)} partial"
    return Page(f"{len(subjects)} runs", status, differ, (), tuple(sections)), outcomes


def _compare(
    subjects: Sequence[Subject], by: Sequence[str], asked: bool, partial: bool, draws: int
) -> tuple[Comparison | None, str]:
    """The comparison, or why there is none; a mistake in what the user asked for is raised."""
    known = {name for subject in subjects for name in subject.recorded.settings}
    keys = list(by) or [name for name in FALLBACK if name in known][:1]
    if not keys:
        return None, "no run has a configuration"
    try:
        return compare([s.recorded.path for s in subjects], keys, partial=partial, n_draws=draws), ""
    except NoRunsError as error:
        return None, words_of(error)
    except ConfigError as error:
        if asked:
            raise
        return None, words_of(error)


def _survival(comparison: Comparison, title: str) -> Drawn:
    caption = (
        "Left: fraction of runs that have not grokked by a step (Kaplan–Meier), +: censored. Right: T_grok of "
        "each run (open triangles: censored at its last evaluation), median (bar) and its "
        f"{comparison.bootstrap.level:.0%} bootstrap interval (line)."
    )
    keys = ("clock/t_grok_steps",)
    return Drawn("time_to_grok", title, draw(comparison), caption, keys, "arXiv:2505.15624, section 5", ())


def _compared(comparison: Comparison | None, why: str) -> list[Section]:
    if comparison is None:
        return [Section("Comparison", (), (f"no comparison: {why}",))]
    parts = sheets(comparison)
    tables = tuple(sheet for sheet, _ in parts if sheet is not None)
    lines = tuple(line.strip() for _, each in parts for line in each)
    return [Section("Comparison", tables, lines)]


def _runs(subjects: Sequence[Subject], by: Sequence[str]) -> Section:
    rows = []
    for subject in subjects:
        settings, judged = subject.recorded.settings, subject.judged
        t_grok = f"unknown: {subject.unjudged}" if judged is None else "not reached"
        final = None if judged is None else judged.final_acc["test"]
        rows.append(
            (
                str(subject.recorded.path),
                subject.recorded.status,
                *(show(settings.get(name)) for name in by),
                show(settings["seed_everything"]) if "seed_everything" in settings else "not recorded",
                t_grok if subject.t_grok is None else str(subject.t_grok),
                "not recorded" if final is None else f"{final:.4f}",
            )
        )
    headers = ("run", "status", *by, "seed", "T_grok", "final test accuracy")
    return Section("Runs", (Sheet("", headers, tuple(rows)),))
