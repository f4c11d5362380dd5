"""In which settings runs differ."""

from collections.abc import Sequence

from grok_lightning.compare.settings import CLOCKS, LENGTH, SEEDS, Settings, differing, is_neutral, resolve

_CLASSES = ("model", "data.task")
_FIRST = ("model.c", "model.lr", "data.batch_size", "data.split")
"""What is compared first where several settings differ."""


def by_of(all_settings: Sequence[Settings], asked: Sequence[str]) -> list[str]:
    """Names of the settings that make cells.

    Args:
        all_settings: Settings of every run.
        asked: What the user named; nothing for every setting that differs and can change a clock, seeds, length of
            the run and definitions of the clocks aside.

    Raises:
        ConfigError: If a name that was asked for fits no setting, or several.
    """
    names = {name for settings in all_settings for name in settings}
    if asked:
        return [resolve(key, names | set(CLOCKS.values()) | set(LENGTH), "by") for key in asked]
    apart = {*SEEDS, *LENGTH, *CLOCKS.values()}
    counting = [name for name in names if name not in apart and not is_neutral(name)]
    found = differing(all_settings, counting)
    classes = [name for name in _CLASSES if name in found]
    arguments = {name for name, values in found.items() if classes and len(values) == 2 and None in values}
    kept = [name for name in found if name not in arguments]  # what only one of the classes has says no more than it
    return sorted(kept, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
