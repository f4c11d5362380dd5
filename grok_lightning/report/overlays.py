"""Several runs in one figure: accuracy and what else they share, by the settings in which they differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from grok_lightning.compare.settings import Value, show, sort_key
from grok_lightning.metric_keys import acc, curvature, spectrum
from grok_lightning.report.drawn import Drawn, NotRecorded, Outcome, Subject
from grok_lightning.report.style import STYLES, grid, log_values, printable, step_axis

MAX_PANELS = 24
"""Beyond so many small panels nobody reads them."""

_SHARED = (
    ("lambda_max_E", "λ_max of the Hessian's block E", curvature("E", "lambda_max"), "λ_max(E) (nats)", "Fig. 7"),
    ("lambda_max_W", "λ_max of the Hessian's block W", curvature("W", "lambda_max"), "λ_max(W) (nats)", "Fig. 7"),
    ("rank_E", "Rank of E (erank_sq)", spectrum("E", "erank_sq"), "erank_sq of E", "Fig. 10"),
    ("rank_EW_a", "Rank of EW (erank_sq)", spectrum("EW_a", "erank_sq"), "erank_sq of EW_a", "Fig. 10"),
)


@dataclass(frozen=True)
class Cell:
    """Runs that agree in the settings that differ between runs."""

    label: str
    subjects: tuple[Subject, ...]


def make_cells(subjects: Sequence[Subject], by: Sequence[str]) -> list[Cell]:
    """Group runs by the settings ``by``, in order: numbers, text, null."""
    groups: dict[tuple[Value, ...], list[Subject]] = {}
    for subject in subjects:
        groups.setdefault(tuple(subject.recorded.settings.get(name) for name in by), []).append(subject)
    ordered = sorted(groups.items(), key=lambda item: [sort_key(value) for value in item[0]])
    named = [
        (", ".join(f"{short(n)} = {show(v)}" for n, v in zip(by, key, strict=True)), runs) for key, runs in ordered
    ]
    return [Cell(label or "all runs", tuple(runs)) for label, runs in named]


def short(name: str) -> str:
    """``model.c`` → ``c``."""
    return name.rsplit(".", 1)[-1]


def figures(cells: Sequence[Cell]) -> list[Outcome]:
    """Accuracy of all runs, of each cell, and the measurements that the runs share."""
    part = _part(cells)
    return [_overlay(cells, part), _panels(cells, part), *(_shared(cells, *each) for each in _SHARED)]


def _part(cells: Sequence[Cell]) -> str:
    """The unseen pairs that most runs evaluated: held-out ones, or the test set."""
    subjects = [subject for cell in cells for subject in cell.subjects]
    held_out = sum(subject.series(acc("val")) is not None for subject in subjects)
    return "val" if 2 * held_out >= len(subjects) else "test"


def _lines(axes: Axes, cells: Sequence[Cell], key: str) -> tuple[list[int], list[float], int]:
    """Every run of every cell that has the key: their steps, their values, and how many runs lack it."""
    steps: list[int] = []
    values: list[float] = []
    lacking = 0
    for i, cell in enumerate(cells):
        color, dashes, marker = STYLES[i % len(STYLES)]
        label: str | None = printable(f"{cell.label} (n = {len(cell.subjects)})")
        for subject in cell.subjects:
            if (series := subject.series(key)) is None:
                lacking += 1
                continue
            end = [len(series[0]) - 1]  # the marker stands where the run ends
            width = 0.9 if i < len(STYLES) else 1.7  # styles come round again, thicker
            axes.plot(
                *series,
                color=color,
                linestyle=dashes,
                linewidth=width,
                marker=marker,
                markevery=end,
                markersize=4.5,
                label=label,
            )
            label = None
            steps += series[0]
            values += series[1]
    return steps, values, lacking


def _overlay(cells: Sequence[Cell], part: str) -> Outcome:
    title = "Accuracy of all runs"
    keys = (acc("train_full"), acc(part))
    figure, panels = grid(1, 2, 3.2)
    notes = []
    every: list[int] = []
    for axes, key in zip(panels, keys, strict=True):
        steps, _, lacking = _lines(axes, cells, key)
        every += steps
        if lacking:
            notes.append(f"{key}: not recorded by {lacking} runs")
    if not every:
        return NotRecorded(title, ", ".join(keys))
    for axes, words in zip(panels, ("training accuracy", f"{part} accuracy"), strict=True):
        axes.set(ylabel=words, ylim=(-0.03, 1.03))
        step_axis(axes, every)
    handles, labels = next((pair for axes in panels if (pair := axes.get_legend_handles_labels())[0]), ([], []))
    if len(cells) <= 12:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    else:
        notes.append(f"no legend: {len(cells)} settings cannot be told apart in one panel; see the panels below")
    caption = (
        "One line a run; runs with equal settings share a line style; a marker stands where a run ends. Left: "
        f"training pairs, right: {'held-out' if part == 'val' else 'test'} pairs, evaluated as a whole."
    )
    source = "arXiv:2505.15624, section 5"
    return Drawn("accuracy_overlay", title, figure, caption, keys, source, tuple(notes))


def _panels(cells: Sequence[Cell], part: str) -> Outcome:
    title = "Accuracy by setting"
    keys = (acc("train_full"), acc(part))
    shown = cells[:MAX_PANELS]
    columns = min(3, len(shown))
    figure, panels = grid(-(-len(shown) // columns), columns, 1.9)
    every: list[int] = []
    for axes, cell in zip(panels, shown, strict=False):
        for subject in cell.subjects:
            for key, dashes, color in zip(keys, ("--", "-"), ("0.6", "black"), strict=True):
                if (series := subject.series(key)) is not None:
                    axes.plot(*series, linestyle=dashes, color=color, linewidth=0.9)
                    every += series[0]
        axes.set_title(printable(f"{cell.label} (n = {len(cell.subjects)})"))
    if not every:
        return NotRecorded(title, ", ".join(keys))
    for i, axes in enumerate(panels):
        if i >= len(shown):
            axes.remove()
            continue
        axes.set_ylim(-0.03, 1.03)
        step_axis(axes, every, label=i >= len(shown) - columns, most=3 if columns > 2 else 5)
        if i % columns == 0:
            axes.set_ylabel("accuracy")
    caption = (
        f"Solid black: {'held-out' if part == 'val' else 'test'} pairs; dashed grey: training pairs; one line a run."
    )
    left = len(cells) - len(shown)
    notes = (f"{left} of {len(cells)} settings are not drawn",) if left else ()
    return Drawn("accuracy_by_setting", title, figure, caption, keys, "arXiv:2505.15624, section 5", notes)


def _shared(cells: Sequence[Cell], name: str, title: str, key: str, label: str, source: str) -> Outcome:
    if all(subject.series(key) is None for cell in cells for subject in cell.subjects):
        return NotRecorded(title, key)
    figure, (axes,) = grid(1, 1, 3.0)
    steps, values, lacking = _lines(axes, cells, key)
    step_axis(axes, steps)
    if key.startswith("hessian/"):
        log_values(axes, values)
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel(label)
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) <= 12:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    caption = "One line a run; runs with equal settings share a line style; a marker stands where a run ends."
    notes = (f"{key}: not recorded by {lacking} runs",) if lacking else ()
    return Drawn(name, title, figure, caption, (key,), f"arXiv:2505.15624, {source}", notes)
