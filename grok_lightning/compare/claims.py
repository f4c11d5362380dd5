"""Claims of arXiv:2505.15624 about c and of arXiv:2505.20172 about weight decay, judged from the runs at hand.

A verdict is supported, contradicted or undetermined. It is computed from the runs every time; where they do not
hold what a claim is about, it is undetermined and says what is lacking. Claims read the first-cross clock.
"""

from collections.abc import Sequence

from grok_lightning.compare import b1
from grok_lightning.compare.c3 import judge_c3
from grok_lightning.compare.c4 import judge_c4
from grok_lightning.compare.cells import Bootstrap
from grok_lightning.compare.evidence import GROUPING, C, Claim, group_runs
from grok_lightning.compare.runs import Run

ADAPTS = "adaptive_c.every_n_steps"


def judge(
    runs: Sequence[Run], by: Sequence[str], pool: Sequence[str], alpha: float, bootstrap: Bootstrap
) -> list[Claim]:
    """Every claim about a setting in --by: C3 and C4 about a fixed c on modular arithmetic, B1 about weight decay.

    Args:
        runs: Runs that count.
        by: Full names of the settings that make cells.
        pool: Full names of the pooled settings.
        alpha: Level of the tests.
        bootstrap: How intervals are made.
    """
    found: list[Claim] = []
    if C in by:
        modular = [run for run in runs if "data" not in run.settings]  # other data are named
        modular = [run for run in modular if not run.settings.get(ADAPTS)]  # model.c is only where it starts
        groups, pooled = group_runs(modular, by), [name for name in pool if name not in GROUPING]
        found += judge_c3(groups, pooled, alpha, bootstrap)
        found += [judge_c4(group, pooled, alpha, bootstrap) for group in groups]
    if b1.LAMBDA in by:
        pooled = [name for name in pool if name not in b1.GROUPING]
        found += [b1.judge_b1(g, pooled, bootstrap) for g in group_runs(runs, by, b1.LAMBDA, b1.GROUPING)]
    return found
