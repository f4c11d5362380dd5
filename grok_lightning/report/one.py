"""The report of a single run."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from grok_lightning.compare.settings import show
from grok_lightning.compare.tables import Sheet
from grok_lightning.report import balance, curvature, features, learning, norms, ranks
from grok_lightning.report.drawn import Outcome, Subject
from grok_lightning.report.page import Page, Section

FAMILIES = (learning.figures, curvature.figures, ranks.figures, balance.figures, features.figures, norms.figures)
NONE = "not recorded"


def outcomes(subject: Subject) -> list[Outcome]:
    """Every figure of a run, or that it was not recorded."""
    return [outcome for family in FAMILIES for outcome in family(subject)]


def page(subject: Subject) -> Page:
    """Texts and tables of a run."""
    recorded = subject.recorded
    reason = " ".join(str(recorded.summary.get("reason", "")).split())
    last = recorded.last_step
    lead = f"last recorded step: {NONE if last is None else last}{f'; reason: {reason}' if reason else ''}."
    if recorded.status == "unfinished":
        lead += " There is no summary.json: the run still goes on, or was killed. Everything below may be partial."
    elif recorded.status != "completed":
        lead += " Everything below is partial."
    sections = [
        _section("Configuration", recorded.settings, "config.yaml"),
        _section("Provenance", dict(_flat(_without_lists(recorded.provenance))), "provenance.json"),
        _section("Summary", dict(_flat(recorded.summary)), "summary.json"),
    ]
    title = f"{subject.name}: {_task(subject)}"
    return Page(title, recorded.status, lead, (_key_facts(subject),), tuple(sections))


def _task(subject: Subject) -> str:
    settings = subject.recorded.settings
    task, p, model = (settings.get(name) for name in ("data.task", "data.p", "model"))
    words = [NONE + " task" if task is None else show(task), "" if p is None else f"mod {show(p)}"]
    return " ".join(word for word in words if word) + ("" if model is None else f", {show(model)}")


def _key_facts(subject: Subject) -> Sheet:
    settings, judged = subject.recorded.settings, subject.judged
    rows: list[tuple[str, str]] = []
    if judged is None:
        rows.append(("clocks", f"unknown: {subject.unjudged}"))
    else:
        definition, clocks = judged.definition, judged.clocks
        for name, kind, part, limit in (
            ("T_mem", clocks.t_mem, "training", definition.mem),
            ("T_grok", clocks.t_grok, definition.part, definition.grok),
        ):
            meaning = f"{part} accuracy ≥ {'?' if limit is None else f'{limit:g}'}"
            by = f"not reached by step {clocks.last_step}"
            first = by if kind["first"] is None else f"{kind['first']} steps"
            kept = "never sustained" if kind["sustained"] is None else f"sustained from {kind['sustained']}"
            rows.append((name, f"{first}, {kept}; {meaning}"))
        rows += [(f"final {part} accuracy", _number(value)) for part, value in judged.final_acc.items()]
    names = ("model.c", "model.lr", "model.weight_decay", "model.optimizer", "data.batch_size", "data.frac_train")
    rows += [(name, show(settings[name]) if name in settings else NONE) for name in names]
    return Sheet("", ("quantity", "value"), tuple(rows))


def _number(value: float | None) -> str:
    return NONE if value is None else "not a number" if math.isnan(value) else f"{value:.4f}"


def _section(title: str, values: Mapping[str, Any], file: str) -> Section:
    if not values:
        return Section(title, (), (f"{file}: {NONE}",))
    rows = tuple((name, show(value)) for name, value in values.items())
    return Section(title, (Sheet("", ("name", "value"), rows),))


def _without_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without the token probabilities, which have a figure."""
    data = values.get("data")
    kept = dict(data) if isinstance(data, Mapping) else data
    if isinstance(kept, dict):
        kept.pop("token_probabilities", None)
    return {name: kept if name == "data" else value for name, value in values.items()}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", " ".join(map(str, value))
        else:
            yield f"{prefix}{name}", value
