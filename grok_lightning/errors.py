"""The errors that become one line on the command line."""


class ConfigError(ValueError):
    """A value given by the user cannot be used.

    The message is one line that names the field, the value and what is allowed. The command line prints
    it as it is and exits with status 2, without a traceback.
    """


class NonFiniteError(ArithmeticError):
    """The numbers of a run are NaN or infinite, and it cannot go on.

    The message is one line; the command line prints it and exits with status 1.
    """


def require(condition: bool, field: str, value: object, allowed: str) -> None:
    """Raise :class:`ConfigError` in the project's standard wording unless ``condition`` holds.

    Args:
        condition: What has to be true.
        field: Name of the field as the user writes it.
        value: The value that was given.
        allowed: What is allowed, and why where that is not plain.

    Raises:
        ConfigError: If ``condition`` is false.
    """
    if not condition:
        raise ConfigError(f"{field} = {value!r}: {allowed}")
