"""Claims of arXiv:2505.15624 about c, judged from the runs at hand.

A verdict is supported, contradicted or undetermined. It is computed from the runs every time; where they do not
hold what a claim is about, it is undetermined and says what is lacking. Claims read the first-cross clock.
"""

from collections.abc import Sequence

from grok_lightning.compare.c3 import judge_c3
from grok_lightning.compare.c4 import judge_c4
from grok_lightning.compare.cells import Bootstrap
from grok_lightning.compare.evidence import GROUPING, C, Claim, group_runs
from grok_lightning.compare.runs import Run


def judge(
    runs: Sequence[Run], by: Sequence[str], pool: Sequence[str], alpha: float, bootstrap: Bootstrap
) -> list[Claim]:
    """Every claim about c; none if c is not in --by, and none about runs on other data than modular arithmetic.

    Args:
        runs: Runs that count.
        by: Full names of the settings that make cells.
        pool: Full names of the pooled settings.
        alpha: Level of the tests.
        bootstrap: How intervals are made.
    """
    if C not in by:
        return []
    groups = group_runs([run for run in runs if "data" not in run.settings], by)  # of modular arithmetic
    pooled = [name for name in pool if name not in GROUPING]
    return judge_c3(groups, pooled, alpha, bootstrap) + [judge_c4(group, pooled, alpha, bootstrap) for group in groups]
