"""The thresholds of the compression clock."""

import math
from dataclasses import dataclass, fields

from grok_lightning.errors import require
from grok_lightning.numerics.clocks import check_threshold


@dataclass(frozen=True)
class CompressionRule:
    """What the clock and its checks are measured against (defaults: arXiv:2607.06639 unless said).

    Attributes:
        threshold: Accuracy that counts as grokked, in (0, 1] (ours 0.95; the source 0.90 on test).
        epsilon: Share of the drop that may be left at T_compress, in (0, 1).
        floor_share: Share of the logged points in the window, in (0, 0.25].
        min_floor_points: Fewest points of a window, 2 or more (3 is ours).
        min_drop: Smallest drop with a clock, in units of rank.
        max_floor_cv: Largest standard deviation / mean within the window.
        min_relative_drop: Boundary gate: smallest drop / r_grok.
        max_floor_ratio: Boundary gate: largest floor / median floor of the group.
        large_lag: Lag / T_grok from which the lag is large.
    """

    threshold: float = 0.95
    epsilon: float = 0.10
    floor_share: float = 0.10
    min_floor_points: int = 3
    min_drop: float = 1.0
    max_floor_cv: float = 0.15
    min_relative_drop: float = 0.25
    max_floor_ratio: float = 3.0
    large_lag: float = 0.5

    def __post_init__(self) -> None:
        """Refuse values without a meaning.

        Raises:
            ConfigError: With the field, the value and what is allowed.
        """
        require(check_threshold(self.threshold), "threshold", self.threshold, "must be in (0, 1]")
        require(0 < self.epsilon < 1, "epsilon", self.epsilon, "must be in (0, 1)")
        require(0 < self.floor_share <= 0.25, "floor_share", self.floor_share, "must be in (0, 0.25]")
        require(self.min_floor_points >= 2, "min_floor_points", self.min_floor_points, "must be 2 or more")
        for field in fields(self)[4:]:
            value = getattr(self, field.name)
            require(math.isfinite(value) and value > 0, field.name, value, "must be a positive number")
