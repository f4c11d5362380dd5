"""Both sides of eq. 22–24, token probabilities, and what each token's row of E goes through."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from grok_lightning.metric_keys import PARTS, balance
from grok_lightning.report.drawn import Drawn, NotRecorded, Outcome, Subject, gaps, lacking
from grok_lightning.report.learning import NAMES
from grok_lightning.report.style import (
    curve,
    grid,
    legend,
    log_values,
    mark_clocks,
    plain_log,
    step_axis,
    thousands,
)

_PANELS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "ratio E : W",
        (
            ("predicted_c", "predicted c (eq. 24)"),
            ("update_ratio", "‖ΔE‖ / ‖ΔW‖"),
            ("grad_ratio", "‖∇_E L‖ / ‖∇_W L‖"),
        ),
    ),
    ("σ_max", (("sigma_E", "E"), ("sigma_W", "W"))),
    ("frequency f", (("f_E", "f_E"), ("f_OP", "f_OP"), ("f_EQ", "f_EQ"))),
)


def figures(subject: Subject) -> list[Outcome]:
    """Balance, token probabilities and the heat map per token."""
    return [_balance(subject), _probabilities(subject), _heat_map(subject)]


def _balance(subject: Subject) -> Outcome:
    title = "Balance between E and W"
    keys = [balance(name) for _, names in _PANELS for name, _ in names]
    here = [key for key in keys if subject.series(key) is not None]
    if not here:
        return NotRecorded(title, ", ".join(keys))
    figure = Figure(figsize=(7.0, 4.8), layout="constrained")
    spaces = figure.add_gridspec(2, 2, height_ratios=(1.3, 1))
    panels = [figure.add_subplot(spaces[0, :]), figure.add_subplot(spaces[1, 0]), figure.add_subplot(spaces[1, 1])]
    steps = [step for key in here for step in subject.recorded.scalars[key][0]]
    for axes, (label, names) in zip(panels, _PANELS, strict=True):
        values = []
        for style, (name, words) in enumerate(names):
            if (series := subject.series(balance(name))) is not None:
                curve(axes, series, words, style)
                values += series[1]
        axes.set_ylabel(label)
        if axes is not panels[2]:
            log_values(axes, [*values, *([c] if axes is panels[0] and (c := _used_c(subject)) else [])])
        step_axis(axes, steps)
        mark_clocks(axes, subject)
    c = _used_c(subject)
    if c is not None:
        panels[0].axhline(c, color="0.3", linewidth=2.2, alpha=0.5, label=f"c used: {c:g}")
    for axes in panels:
        legend(axes, loc="best", ncols=2 if axes is panels[0] else 1)
    panels[2].set_ylim(-0.03, 1.06)
    caption = (
        "Above: the c that eq. 24 predicts, (σ_max(E)/σ_max(W)) · (f_W/f_E) with f_W = 1; the ratio of the "
        "Frobenius norms of the optimiser's real updates; that of the gradients of the batch; and the c that "
        "was used. Below: the largest singular values, and the share of steps whose batch contains a token "
        "(f_E: mean over operands)."
    )
    notes = (*lacking(subject, keys), *(() if c is not None else ("not recorded: model.c",)), *gaps(subject, here))
    return Drawn("balance", title, figure, caption, tuple(here), "arXiv:2505.15624, eq. 22–24", notes)


def _used_c(subject: Subject) -> float | None:
    c = subject.recorded.settings.get("model.c")
    return float(c) if isinstance(c, int | float) and not isinstance(c, bool) and c > 0 else None


def _probabilities(subject: Subject) -> Outcome:
    title = "Token probabilities"
    data = subject.recorded.provenance.get("data")
    stated = data.get("token_probabilities") if isinstance(data, Mapping) else None
    parts = {part: stated[part] for part in PARTS_OF_SPLIT if part in stated} if isinstance(stated, Mapping) else {}
    parts = {part: slots for part, slots in parts.items() if _numbers(slots, "a") and _numbers(slots, "b")}
    if not parts:
        return NotRecorded(title, "provenance.json: data.token_probabilities")
    figure, panels = grid(len(parts), 2, 1.6)
    top = max(max(slots[slot]) for slots in parts.values() for slot in ("a", "b"))
    for row, (part, slots) in enumerate(parts.items()):
        for axes, slot in zip(panels[2 * row : 2 * row + 2], ("a", "b"), strict=True):
            values = slots[slot]
            axes.bar(range(len(values)), values, width=1.0, color="0.55", edgecolor="0.25", linewidth=0.2)
            axes.axhline(1 / len(values), color="black", linestyle="--", linewidth=0.9)
            axes.set(ylim=(0, 1.08 * top), xlim=(-0.5, len(values) - 0.5))
            axes.set_title(f"operand {slot}, {PARTS_OF_SPLIT[part]}")
            axes.set_ylabel("p_i" if slot == "a" else "")
            axes.set_xlabel("token i" if row == len(parts) - 1 else "")
    caption = (
        "Share of the pairs of a part of the table in which operand a, or b, is token i, as the split was "
        "realised. Dashed: all tokens alike."
    )
    absent = [PARTS_OF_SPLIT[part] for part in PARTS_OF_SPLIT if part not in parts]
    notes = (f"not recorded: {', '.join(absent)}",) if absent else ()
    keys = ("provenance.json: data.token_probabilities",)
    return Drawn("token_probabilities", title, figure, caption, keys, "arXiv:2505.15624, Fig. 8", notes)


PARTS_OF_SPLIT = {part.removesuffix("_full"): NAMES[part] for part in PARTS}
"""Part of the split as provenance names it → words."""


def _numbers(slots: Any, slot: str) -> bool:
    values = slots.get(slot) if isinstance(slots, Mapping) else None
    return isinstance(values, list) and len(values) > 0 and all(isinstance(value, int | float) for value in values)


_TOKENS = (("token_grad_norm", "gradient ‖∂L/∂E_i‖"), ("token_update_norm", "update ‖ΔE_i‖"))


def _heat_map(subject: Subject) -> Outcome:
    title = "Gradient and update of every token's embedding, in step order"
    arrays = subject.recorded.arrays
    here = [(balance(name), words) for name, words in _TOKENS if balance(name) in arrays]
    if not here:
        return NotRecorded(title, ", ".join(balance(name) for name, _ in _TOKENS))
    figure, panels = grid(1, len(here), 3.6)
    for axes, (key, words) in zip(panels, here, strict=True):
        _heat(figure, axes, *arrays[key])
        axes.set(title=words, xlabel="optimiser step of the measurement", ylabel="token i")
    caption = (
        "Euclidean norm of the gradient of the batch with respect to each row of E, and of the optimiser's "
        "update of it, one column a measurement, in the order of steps (not to scale). The last two rows are "
        "OP and EQ. White: exactly 0, as for a token that no pair of the batch contains."
    )
    absent = [balance(name) for name, _ in _TOKENS if balance(name) not in arrays]
    notes = (f"not recorded: {', '.join(absent)}",) if absent else ()
    keys = tuple(key for key, _ in here)
    return Drawn("token_gradients", title, figure, caption, keys, "arXiv:2505.15624, Fig. 3", notes)


def _heat(figure: Figure, axes: Axes, steps: list[int], rows: list[list[float]]) -> None:
    width = max(map(len, rows))
    table = np.full((width, len(rows)), math.nan)
    for column, row in enumerate(rows):
        table[: len(row), column] = row
    colors = mpl.colormaps["viridis"].with_extremes(under="white", bad="0.8")
    positive = table[np.isfinite(table) & (table > 0)]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (0.1, 1.0)
    shown = np.where(table == 0, low / 10, table)  # below the scale, where white stands for it
    high = high if high > low else low * 1.01
    image = axes.imshow(
        np.ma.masked_invalid(shown),
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        cmap=colors,
        norm=LogNorm(low, high),
    )
    axes.grid(visible=False)
    every = max(1, -(-len(steps) // 7))
    places = list(range(0, len(steps), every))
    axes.set_xticks(places, [thousands(steps[i]) for i in places])
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    plain_log(bar.ax.yaxis, (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,))
    bar.ax.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
