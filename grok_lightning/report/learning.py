"""Accuracy and loss, with the clocks."""

from grok_lightning.metric_keys import PARTS, TRAIN_ACC, TRAIN_LOSS, acc, loss
from grok_lightning.report.drawn import Drawn, NotRecorded, Outcome, Subject, gaps, lacking
from grok_lightning.report.style import curve, grid, legend, log_values, mark_clocks, step_axis

NAMES = {"train_full": "training pairs", "val": "held-out pairs", "test": "test pairs"}


def figures(subject: Subject) -> list[Outcome]:
    """Accuracy and loss of one run."""
    title = "Accuracy and loss"
    keys = [make(part) for make in (acc, loss) for part in PARTS]
    batch = [key for key in (TRAIN_ACC, TRAIN_LOSS) if subject.series(key) is not None]
    here = [key for key in keys if subject.series(key) is not None]
    if not here and not batch:
        return [NotRecorded(title, ", ".join([*keys, TRAIN_ACC, TRAIN_LOSS]))]
    figure, panels = grid(1, 2, 2.9)
    steps, losses = [], []
    for axes, make, of_batch in zip(panels, (acc, loss), (TRAIN_ACC, TRAIN_LOSS), strict=True):
        for style, part in enumerate(PARTS):
            if (series := subject.series(make(part))) is not None:
                curve(axes, series, NAMES[part], style)
                steps += series[0]
                losses += series[1] if make is loss else []
        if (series := subject.series(of_batch)) is not None:
            curve(axes, series, "batch", 3, marker="", color="0.6", linewidth=0.8, zorder=1)
            steps += series[0]
            losses += series[1] if make is loss else []
    for axes in panels:
        step_axis(axes, steps)
        mark_clocks(axes, subject)
    panels[0].set(ylabel="accuracy", ylim=(-0.03, 1.03))
    panels[1].set_ylabel("cross-entropy (nats)")
    log_values(panels[1], losses)
    legend(panels[0], loc="best")
    caption = (
        "Share of pairs with argmax = label, and mean cross-entropy without weight decay, over whole parts of "
        "the table and (grey) over single batches before their update. Vertical lines: T_mem (dashed), T_grok "
        "(solid). Steps are on a logarithmic axis; step 0 stands at its left."
    )
    notes = (*_clock_notes(subject), *lacking(subject, keys), *gaps(subject, [*here, *batch]))
    source = "arXiv:2505.15624, section 5"
    return [Drawn("accuracy", title, figure, caption, tuple([*here, *batch]), source, notes)]


def _clock_notes(subject: Subject) -> tuple[str, ...]:
    if subject.judged is None:
        return (f"clocks unknown: {subject.unjudged}",)
    names = [name for name, step in (("T_mem", subject.t_mem), ("T_grok", subject.t_grok)) if step is None]
    return tuple(f"{name} was not reached by step {subject.judged.clocks.last_step}" for name in names)
