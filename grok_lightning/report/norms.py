"""Gradient against weight decay, and numerical health."""

import re

from grok_lightning.audit_sources import read_two_phase
from grok_lightning.metric_keys import grad_norm, health, two_phase
from grok_lightning.numerics.two_phase import TwoPhaseClock
from grok_lightning.report.drawn import Drawn, NotRecorded, Outcome, Subject, gaps, lacking
from grok_lightning.report.style import curve, grid, legend, log_values, mark, mark_clocks, step_axis

BLOCKS = ("E", "W", "rest", "all")
_PARAM_NORM = re.compile(r"health/([^/]+)/param_norm")
_HEALTH = ("softmax_collapse", "logit_norm", "nonfinite_logits", "nonfinite_params", "loss_spikes")


def figures(subject: Subject) -> list[Outcome]:
    """Two-phase norms and health."""
    return [_two_phase(subject), _health(subject)]


def _two_phase(subject: Subject) -> Outcome:
    title = "Gradient norms against weight decay"
    keys = [*(grad_norm(block) for block in BLOCKS), two_phase("weight_norm"), two_phase("decay_over_gradient")]
    here = [key for key in keys if subject.series(key) is not None]
    if not here:
        return NotRecorded(title, ", ".join(keys))
    figure, (left, right) = grid(1, 2, 2.8)
    values, steps = [], [step for key in here for step in subject.recorded.scalars[key][0]]
    for style, block in enumerate(BLOCKS):
        if (series := subject.series(grad_norm(block))) is not None:
            curve(left, series, f"‖∂F/∂θ‖, {block}", style)
            values += series[1]
    decay = _decay(subject)
    if decay is not None:
        curve(left, decay, "λ‖w‖", 4)
        values += decay[1]
    log_values(left, values)
    left.set_ylabel("norm (nats/weight)")
    if (series := subject.series(two_phase("weight_norm"))) is not None:
        curve(right, series, "‖w‖", 0)
        right.set_ylim(bottom=0)
    right.set_ylabel("‖w‖, all parameters")
    notes = [*lacking(subject, keys), *gaps(subject, here)]
    clock = None if not {two_phase("decay_over_gradient"), grad_norm("all")} <= set(here) else _clock(subject)
    ends = (None, None) if clock is None else (clock.t_gf, clock.t_wd)
    for name, step in zip(("t_GF", "t_WD"), ends, strict=True):
        if step is not None:
            mark(left, step, name, (0, (1, 1)), "left")
        notes.append(f"{name}: {'not reached or not measurable' if step is None else f'step {step}'}")
    for axes in (left, right):
        step_axis(axes, steps)
    mark_clocks(right, subject)
    legend(left, loc="best")
    caption = (
        "Euclidean norm of the gradient of F, the mean cross-entropy over all training pairs without weight "
        "decay, by block, against λ‖w‖ of all parameters. t_GF: first measured step with ‖∇F‖ ≤ ε‖∇F(w_0)‖; "
        "t_WD: first with ‖∇F‖ ≤ λ‖w‖. Right: the norm of the weights."
    )
    return Drawn("two_phase", title, figure, caption, tuple(here), "arXiv:2505.20172", tuple(notes))


def _decay(subject: Subject) -> tuple[list[int], list[float]] | None:
    """λ‖w‖ = (λ‖w‖/‖∇F‖)·‖∇F‖ at the steps that have both."""
    ratio, gradient = subject.series(two_phase("decay_over_gradient")), subject.series(grad_norm("all"))
    if ratio is None or gradient is None:
        return None
    norms = dict(zip(*gradient, strict=True))
    both = [(step, share * norms[step]) for step, share in zip(*ratio, strict=True) if step in norms]
    return [step for step, _ in both], [value for _, value in both]


def _clock(subject: Subject) -> TwoPhaseClock | None:
    epsilon = subject.recorded.settings.get("two_phase.epsilon", 0.01)
    return read_two_phase(subject.recorded.path, epsilon if isinstance(epsilon, float) else 0.01, resumed=True)


def _health(subject: Subject) -> Outcome:
    title = "Numerical health"
    keys = [health(name) for name in _HEALTH]
    norms = [key for key in subject.recorded.scalars if _PARAM_NORM.fullmatch(key)]
    here = [key for key in keys if subject.series(key) is not None]
    if not here and not norms:
        return NotRecorded(title, ", ".join([*keys, "health/<block>/param_norm"]))
    figure, panels = grid(2, 2, 2.1)
    plan = (
        ("softmax collapse (share)", [(health("softmax_collapse"), "softmax collapse")]),
        ("mean ‖z‖ (nats)", [(health("logit_norm"), "logits")]),
        ("count", [(health(name), name.replace("_", " ")) for name in _HEALTH[2:]]),
        ("‖θ‖", [(key, key.split("/")[1]) for key in norms]),
    )
    for axes, (label, curves) in zip(panels, plan, strict=True):
        steps = []
        for style, (key, words) in enumerate(curves):
            if (series := subject.series(key)) is not None:
                curve(axes, series, words, style)
                steps += series[0]
        axes.set_ylabel(label)
        if not steps:
            axes.text(0.5, 0.5, "not recorded", ha="center", transform=axes.transAxes)
            axes.set(xticks=[], yticks=[])
            continue
        axes.set_ylim(bottom=0, top=max(1.0, axes.get_ylim()[1]) if label == "count" else None)
        step_axis(axes, steps)
        mark_clocks(axes, subject)
        if len(curves) > 1:
            legend(axes, loc="best")
    panels[0].set_ylim(-0.03, 1.03)
    caption = (
        "Share of training pairs whose loss rounds to exactly 0 in the run's precision; mean norm of the "
        "logits z; NaN and infinite logits and parameters, and spikes of the batch loss so far; norm of the "
        "parameters by block."
    )
    notes = (*lacking(subject, keys), *gaps(subject, here))
    return Drawn("health", title, figure, caption, (*here, *norms), "arXiv:2501.04697", notes)
