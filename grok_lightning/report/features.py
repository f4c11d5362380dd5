"""The Fourier spectrum of E before and after, and the drift of the tangent kernel."""

import re

from grok_lightning.metric_keys import fourier, ntk, progress
from grok_lightning.report.drawn import Drawn, NotRecorded, Outcome, Subject, gaps
from grok_lightning.report.style import curve, grid, legend, log_values, mark_clocks, step_axis, thousands

ORDERS = {"natural": "rows of E in natural order", "discrete_log": "units in discrete-log order"}
_NUMBERS = (("gini", "Gini coefficient"), ("ipr", "inverse participation ratio"))
_LOSSES = ("restricted_loss", "excluded_loss", "table_loss")
_BLOCK = re.compile(r"ntk/([^/]+)/(relative_drift|one_minus_cka)")


def figures(subject: Subject) -> list[Outcome]:
    """Fourier spectra, their summary over time, and the tangent kernel."""
    return [_spectra(subject), _summary(subject), _kernel(subject)]


def _spectra(subject: Subject) -> Outcome:
    title = "Fourier spectrum of E before and after training"
    orders = [order for order in ORDERS if fourier(order, "spectrum") in subject.recorded.arrays]
    if not orders:
        return NotRecorded(title, "fourier/<order>/spectrum")
    figure, panels = grid(len(orders), 2, 2.3)
    notes = []
    for row, order in enumerate(orders):
        steps, arrays = subject.recorded.arrays[fourier(order, "spectrum")]
        moments = (0, len(steps) - 1) if len(steps) > 1 else (0,)
        for axes, i in zip(panels[2 * row :], moments, strict=False):
            axes.bar(range(len(arrays[i])), arrays[i], width=0.75, color="0.35")
            axes.set_title(f"step {thousands(steps[i])}, {order}")
            axes.set(xlabel="frequency k", ylabel="F_k")
        if len(moments) == 1:
            panels[2 * row + 1].axis("off")
            notes.append(f"{fourier(order, 'spectrum')}: one measurement only, at step {steps[0]}")
    caption = (
        "F_k = ‖p^{-1/2} Σ_a e_a exp(−2πi k a/p)‖₂, the norm over the embedding dimension of the Fourier "
        "transform of E along its tokens, at the first (left) and the last measurement (right), each on a "
        "scale of its own."
    )
    keys = tuple(fourier(order, "spectrum") for order in orders)
    return Drawn("fourier", title, figure, caption, keys, "arXiv:2505.15624, Fig. 11 and C.3", tuple(notes))


def _summary(subject: Subject) -> Outcome:
    title = "Concentration of the Fourier spectrum, and progress measures"
    numbers = [(fourier(order, name), f"{words}, {order}") for order in ORDERS for name, words in _NUMBERS]
    losses = [(progress(name), name.replace("_", " ")) for name in _LOSSES]
    here = [(key, words) for key, words in numbers if subject.series(key) is not None]
    measures = [(key, words) for key, words in losses if subject.series(key) is not None]
    if not here and not measures:
        return NotRecorded(title, ", ".join(key for key, _ in [*numbers, *losses]))
    figure, (left, right) = grid(1, 2, 2.6)
    for axes, chosen in ((left, here), (right, measures)):
        steps, values = [], []
        for style, (key, words) in enumerate(chosen):
            series = subject.recorded.scalars[key]
            curve(axes, series, words, style)
            steps += series[0]
            values += series[1]
        if not chosen:
            axes.axis("off")
            axes.text(0.5, 0.5, "not recorded", ha="center", transform=axes.transAxes)
            continue
        step_axis(axes, steps)
        mark_clocks(axes, subject)
        if axes is right:
            log_values(axes, values)
        legend(axes, loc="best")
    left.set(ylabel="share", ylim=(0, 1)) if here else None
    right.set_ylabel("cross-entropy (nats)")
    caption = (
        "Left: Gini coefficient and inverse participation ratio Σ F⁴/(Σ F²)² of F_1, F_2, …; both near 1 where "
        "few frequencies carry E. Right: loss over all pairs (table), of the key frequencies alone "
        "(restricted), and of the training pairs without them (excluded); addition only."
    )
    keys = tuple(key for key, _ in [*here, *measures])
    absent = [key for key, _ in losses if key not in keys]
    notes = ((f"not recorded: {', '.join(absent)}",) if absent else ()) + gaps(subject, keys)
    source = "arXiv:2505.15624, C.3; arXiv:2301.05217, 5.1"
    return Drawn("fourier_progress", title, figure, caption, keys, source, notes)


def _kernel(subject: Subject) -> Outcome:
    title = "Drift of the tangent kernel"
    names = [match[1] for key in subject.recorded.scalars if (match := _BLOCK.fullmatch(key))]
    blocks = list(dict.fromkeys(names))
    if not blocks:
        return NotRecorded(title, "ntk/<block>/relative_drift, ntk/<block>/one_minus_cka")
    figure, panels = grid(1, 2, 2.6)
    keys = []
    for axes, (quantity, words) in zip(
        panels, (("relative_drift", "‖K_t − K_0‖ / ‖K_0‖"), ("one_minus_cka", "1 − CKA")), strict=True
    ):
        steps = []
        for style, block in enumerate(blocks):
            if (series := subject.series(ntk(block, quantity))) is not None:
                curve(axes, series, block, style)
                steps += series[0]
                keys.append(ntk(block, quantity))
        axes.set_ylabel(words)
        axes.set_ylim(bottom=0)
        step_axis(axes, steps)
        mark_clocks(axes, subject)
    legend(panels[0], loc="best", ncols=2)
    caption = (
        "Change of the empirical neural tangent kernel of each block on a few training pairs against its first "
        "measurement: Frobenius norm, and 1 − CKA of the centred kernels. Near 0: the block is lazy."
    )
    source = "arXiv:2206.12543, arXiv:1905.00414"
    return Drawn("tangent_kernel", title, figure, caption, tuple(keys), source, gaps(subject, keys))
