"""Claim C3 of arXiv:2505.15624: a larger learning rate of the embedding lowers T_grok."""

import math
from collections.abc import Mapping, Sequence

from grok_lightning.compare.cells import Bootstrap
from grok_lightning.compare.evidence import Claim, Group, Verdict, rates_by
from grok_lightning.compare.pairs import make_pair, pair_up
from grok_lightning.compare.runs import Run
from grok_lightning.compare.settings import Value, show
from grok_lightning.numerics.inference import holm, lower_rate_p
from grok_lightning.numerics.paired import PairedTest, paired_test

CONDITIONS: Mapping[str, Value] = {"model.optimizer": "adam", "model.lr": 0.01, "data.batch_size": 512}
TASKS = ("addition", "multiplication", "division", "sum_of_squares")
TEXT = "c = 10 lowers T_grok against c = 1 (Adam, lr 0.01, batch 512)"


def judge_c3(groups: Sequence[Group], pool: Sequence[str], alpha: float, bootstrap: Bootstrap) -> list[Claim]:
    """C3: c = 10 lowers T_grok against c = 1, per task; Adam, lr 0.01, batch 512.

    Supported: a one-sided exact sign test over pairs of equal seeds says "sooner" at alpha. Contradicted: the test
    of the other side says "later" at alpha, or fewer runs grok with c = 10 (one-sided Fisher test at alpha, by a
    step up to which all runs are known), whatever the pairs say. Each of the three tests is Holm-adjusted over the
    settings judged. A pair in which c = 10 never groks and c = 1 does counts as "later"; a pair that censoring
    leaves open does not count, and is reported.
    """
    judged: list[tuple[Group, PairedTest, tuple[int, int, int], float]] = []
    found: list[Claim] = []
    for group in groups:
        context, cells = group
        lacking = _lacks(dict(context), cells)
        if lacking:
            n = {show(c): len(cells.get(c, [])) for c in (1, 10)}
            found.append(Claim("C3", TEXT, context, "undetermined", n, "none", lacking, {}))
            continue
        pairs = [make_pair(*pair, "first") for pair in pair_up(cells[10], cells[1], without=(), pool=pool)]
        test = paired_test(pairs, bootstrap.n_draws, bootstrap.level, bootstrap.generator())
        rates = rates_by(cells[10], cells[1])
        lower = lower_rate_p(rates[0], len(cells[10]), rates[1], len(cells[1]))
        judged.append((group, test, rates, lower))
    sooner = holm([test.sooner_p for _, test, _, _ in judged])
    later = holm([test.later_p for _, test, _, _ in judged])
    lower_rate = holm([lower for *_, lower in judged])
    for (group, test, rates, _), *adjusted in zip(judged, sooner, later, lower_rate, strict=True):
        found.append(_claim(group, test, rates, adjusted, alpha))
    return found


def _lacks(context: Mapping[str, Value], cells: Mapping[Value, Sequence[Run]]) -> str:
    """What the claim needs and the runs do not have; empty if nothing."""
    if context["data.task"] not in TASKS:
        return f"the claim is about {', '.join(TASKS)}"
    if not str(context["model"]).endswith(".EmbeddingMLP"):
        return "the claim is about EmbeddingMLP"
    for name, value in CONDITIONS.items():
        if context[name] != value:
            return f"the claim is about {name} = {show(value)}, these runs have {show(context[name])}"
    absent = [str(c) for c in (1, 10) if c not in cells]
    return f"there are no runs with c = {' and c = '.join(absent)}" if absent else ""


def _claim(
    group: Group,
    test: PairedTest,
    rates: tuple[int, int, int],
    adjusted: Sequence[float | None],
    alpha: float,
) -> Claim:
    context, cells = group
    n10, n1 = len(cells[10]), len(cells[1])
    sooner, later, lower = adjusted
    counts = f"c = 10 is sooner in {test.sooner} and later in {test.later} of {test.n} pairs"
    counts += f", {test.tied} tied, {test.undetermined} left open by censoring"
    grokked = f"{rates[0]} of {n10} grok with c = 10 and {rates[1]} of {n1} with c = 1 by step {rates[2]}"
    verdict: Verdict = "undetermined"
    if lower is not None and lower <= alpha:
        verdict, why = "contradicted", f"fewer runs grok: {grokked} (p = {lower:.2g})"
    elif later is not None and later <= alpha:
        verdict, why = "contradicted", f"the opposite holds: {counts} (p = {later:.2g})"
    elif sooner is not None and sooner <= alpha:
        verdict, why = "supported", f"{counts} (p = {sooner:.2g}); {grokked}"
    elif sooner is None:
        why = f"no pair of equal seeds says which is sooner: {counts}; {grokked}"
    else:
        reach = "" if 0.5**test.n <= alpha else f"; {test.n} pairs cannot go below p = {0.5**test.n:.2g}"
        why = f"{counts} (p = {sooner:.2g}){reach}; {grokked}"
    numbers: dict[str, float | int | None] = {
        "pairs": test.n, "sooner": test.sooner, "later": test.later, "tied": test.tied,
        "open": test.undetermined, "p_sooner_holm": sooner, "p_later_holm": later, "p_lower_rate_holm": lower,
        "grokked_10": rates[0], "grokked_1": rates[1], "horizon": rates[2],
    }  # fmt: skip
    for name, ends in (("ratio", test.ratio), ("ratio_interval", test.ratio_interval)):
        numbers |= {f"{name}_low": None, f"{name}_high": None} if ends is None else {
            f"{name}_low": ends[0], f"{name}_high": ends[1]
        }  # fmt: skip
    return Claim("C3", TEXT, context, verdict, {"10": n10, "1": n1}, show_ratio(test), why, numbers)


def show_ratio(test: PairedTest) -> str:
    """The median of T / T_base with its interval, in words."""
    if test.ratio is None:
        return "no pairs"
    middle = f"{test.ratio[0]:.2f}" if test.ratio[0] == test.ratio[1] else _between(*test.ratio)
    interval = "no interval" if test.ratio_interval is None else f"interval {_between(*test.ratio_interval)}"
    return f"median ratio {middle} ({interval})"


def _between(low: float, high: float) -> str:
    if math.isinf(high):
        return "unbounded" if low == 0 else f"≥ {low:.2f}"
    return f"{low:.2f}–{high:.2f}"
