"""Singular-value spectra over time, and every rank notion with its T_compress."""

import math
import re
from collections.abc import Iterable, Sequence

from grok_lightning.compare.clocks import Definition
from grok_lightning.metric_keys import acc, spectrum
from grok_lightning.numerics.compression import CompressionClock, compression_clock
from grok_lightning.numerics.compression_rule import CompressionRule
from grok_lightning.report.drawn import Drawn, NotRecorded, Outcome, Subject, gaps
from grok_lightning.report.style import (
    STYLES,
    curve,
    grid,
    legend,
    log_values,
    mark_clocks,
    printable,
    step_axis,
    thousands,
)

NOTIONS = ("erank", "erank_sq", "stable_rank", "participation_ratio", "numerical_rank")
FORMULAS = {
    "erank": "exp(−Σ q ln q), q = σ/Σσ",
    "erank_sq": "exp(−Σ q ln q), q = σ²/Σσ²",
    "stable_rank": "Σσ² / σ₁²",
    "participation_ratio": "(Σσ²)² / Σσ⁴",
    "numerical_rank": "#{σ > σ₁ · max(m, n) · 2⁻²³}",
}
MAX_MATRICES = 6
"""Beyond so many curves nobody can tell them apart: the others get a figure of their own."""

_RANK = re.compile(rf"spectrum/([^/]+)/({'|'.join(NOTIONS)})")
_SIGMA = re.compile(r"spectrum/([^/]+)/sigma")


def figures(subject: Subject) -> list[Outcome]:
    """Spectra and ranks of every recorded matrix."""
    spectra = _matrices(subject.recorded.arrays, _SIGMA)
    ranks = _matrices(subject.recorded.scalars, _RANK)
    outcomes: list[Outcome] = []
    title = "Singular values over time"
    outcomes += [_spectra(subject, title, part, n) for n, part in _parts(spectra)]
    outcomes += [] if spectra else [NotRecorded(title, "spectrum/<matrix>/sigma")]
    title = "Ranks and T_compress"
    outcomes += [_ranks(subject, title, part, n) for n, part in _parts(ranks)]
    return outcomes if ranks else [*outcomes, NotRecorded(title, f"spectrum/<matrix>/{{{', '.join(NOTIONS)}}}")]


def _matrices(keys: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    names = [match[1] for key in keys if (match := pattern.fullmatch(key))]
    return sorted(dict.fromkeys(names), key=lambda name: (name != "E", name != "W", not name.startswith("EW")))


def _parts(matrices: Sequence[str]) -> list[tuple[int, Sequence[str]]]:
    return [(i // MAX_MATRICES, matrices[i : i + MAX_MATRICES]) for i in range(0, len(matrices), MAX_MATRICES)]


def _spectra(subject: Subject, title: str, matrices: Sequence[str], part: int) -> Drawn:
    columns = min(2, len(matrices))
    figure, panels = grid(-(-len(matrices) // columns), columns, 2.3)
    for axes in panels[len(matrices) :]:
        axes.remove()
    below, keys = 0, []
    for axes, matrix in zip(panels, matrices, strict=False):
        key = spectrum(matrix, "sigma")
        keys.append(key)
        steps, arrays = subject.recorded.arrays[key]
        chosen = _moments(steps, [subject.t_mem, subject.t_grok])
        top = max((value for i in chosen for value in arrays[i] if math.isfinite(value)), default=0.0)
        for style, i in enumerate(chosen):
            sigma = arrays[i]
            below += sum(value < 1e-9 * top for value in sigma)
            place = range(1, len(sigma) + 1)
            curve(axes, (place, sigma), f"step {thousands(steps[i])}", style, markevery=max(1, len(sigma) // 8))
        log_values(axes, [value for i in chosen for value in arrays[i] if value >= 1e-9 * top > 0])
        if top > 0:
            axes.set_ylim(bottom=max(axes.get_ylim()[0], 0.5e-9 * top))
        axes.set(title=printable(matrix), xlabel="index i", ylabel="σ_i")
        legend(axes, loc="best", fontsize=7)
    caption = (
        "All singular values σ₁ ≥ σ₂ ≥ …, in float64, at the first, middle and last measurement and those next "
        "to T_mem and T_grok. E: embedding; W: first layer; EW_a, EW_b: E times the columns of W that read an "
        "operand."
    )
    notes = (f"{below} singular values lie below the axis, which ends near 10⁻⁹ of the largest",) if below else ()
    name = "singular_values" + (f"_{part + 1}" if part else "")
    source = "arXiv:2505.15624, Fig. 10"
    return Drawn(name, title + (f" ({part + 1})" if part else ""), figure, caption, tuple(keys), source, notes)


def _moments(steps: Sequence[int], clocks: Sequence[int | None]) -> list[int]:
    """Places of at most five measurements that tell the story: both ends, the clocks, and what lies between."""
    last = len(steps) - 1
    wanted = {0, last // 2, last}
    for clock in clocks:
        if clock is not None and steps[0] <= clock <= steps[-1]:
            wanted.add(min(range(len(steps)), key=lambda i: abs(steps[i] - clock)))
    return sorted(wanted)


def _ranks(subject: Subject, title: str, matrices: Sequence[str], part: int) -> Drawn:
    figure, panels = grid(3, 2, 2.1)
    notes: list[str] = []
    keys: list[str] = []
    for axes, notion in zip(panels, NOTIONS, strict=False):
        steps: list[int] = []
        for style, matrix in enumerate(matrices):
            key = spectrum(matrix, notion)
            if (series := subject.series(key)) is None:
                continue
            keys.append(key)
            steps += series[0]
            curve(axes, series, printable(matrix), style)
            clock = _clock(subject, series)
            if clock.t_compress is not None:
                height = series[1][series[0].index(clock.t_compress)]
                axes.plot(
                    [clock.t_compress], [height], "*", markersize=11, color=STYLES[style][0], mec="white", mew=0.5
                )
            notes.append(_words(key, clock))
        step_axis(axes, steps, label=notion in NOTIONS[-2:])
        log_values(
            axes, [value for matrix in matrices for value in (subject.series(spectrum(matrix, notion)) or ([], []))[1]]
        )
        axes.set_title(notion, pad=11)
        mark_clocks(axes, subject)
    handles, labels = panels[0].get_legend_handles_labels()
    panels[-1].axis("off")
    panels[-1].legend(handles, labels, loc="center", ncols=2, title="matrix (star: T_compress)")
    formulas = "; ".join(f"{name} = {formula}" for name, formula in FORMULAS.items())
    caption = (
        f"{formulas}. Stars: T_compress (arXiv:2607.06639), the first logged step from T_grok on at which the "
        "rank is within a tenth of its drop after T_grok of its floor; where there is none, the reason is "
        "below."
    )
    notes += gaps(subject, keys)
    name = "ranks" + (f"_{part + 1}" if part else "")
    shown = title + (f" ({part + 1})" if part else "")
    return Drawn(name, shown, figure, caption, tuple(keys), "arXiv:2505.15624, Fig. 10", tuple(notes))


def _clock(subject: Subject, series: tuple[list[int], list[float]]) -> CompressionClock:
    definition = Definition() if subject.judged is None else subject.judged.definition
    evaluations = subject.series(acc(definition.part or "val"))
    if evaluations is None or definition.grok is None:
        return CompressionClock(reasons=("unknown: the record does not say when the run grokked",))
    at, values = evaluations
    rule = CompressionRule(threshold=definition.grok)
    return compression_clock(series[0], values, series[1], accuracy_steps=at, rule=rule)


def _words(key: str, clock: CompressionClock) -> str:
    if clock.t_compress is not None:
        doubts = f" (verdict refused: {'; '.join(_codes(clock))})" if clock.reasons else ""
        return f"{key}: T_compress = {clock.t_compress}, floor {clock.floor:.3g}{doubts}"
    return f"{key}: no T_compress: {'; '.join(_codes(clock)) or 'not reached'}"


def _codes(clock: CompressionClock) -> list[str]:
    return [reason.split(":")[0] for reason in clock.reasons]
