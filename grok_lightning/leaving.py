"""How the program ends on a signal while no run is under way that could save something."""

import os
import signal

_state = {"at_once": True}


def install() -> None:
    """End on SIGINT with 130 and on SIGTERM with 143, at once or, while a job works, through its ``finally`` blocks.

    At once, because an exception that is raised inside the import of torch can crash the interpreter.
    """
    through_exceptions(False)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _leave)


def too_late() -> None:
    """Ignore both signals: the work is done, and what is left of the interpreter would die of them as of a crash."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)


def through_exceptions(job_works: bool) -> None:
    """Whether a signal is to raise, because files may be half written, or to end the program at once."""
    _state["at_once"] = not job_works


def _leave(signum: int, frame: object) -> None:
    if _state["at_once"]:
        os._exit(128 + signum)
    if signum == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + signum)
