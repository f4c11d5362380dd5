"""YAML that people wrote, read safely."""

import json
from typing import Any

import yaml


def parse(text: str) -> Any:
    """Plain values of a YAML text; nothing in it is executed.

    Args:
        text: The YAML.

    Raises:
        yaml.YAMLError: If it is not YAML, or holds what no setting can be: a value that contains itself (which what
            walks over it would never leave), nesting beyond all measure, or a date that is none.
    """
    try:
        content = yaml.safe_load(text)
        json.dumps(content, default=str, skipkeys=True)
    except (ValueError, RecursionError) as error:
        if "Circular" in str(error):
            raise yaml.YAMLError("a value contains itself") from None
        reason = "it nests too deep" if isinstance(error, RecursionError) else str(error)
        raise yaml.YAMLError(reason) from None
    return content
