"""Signals that ask a run to stop, kept until it can stop without losing anything."""

import signal
import threading
from types import FrameType

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException

from grok_lightning import slurm
from grok_lightning.loggers.screen import print_safely


class StopSignals:
    """SIGTERM, SIGINT and SIGUSR1 (Slurm's warning): the first is kept, a second of its kind takes effect at once.

    Lightning raises SIGTERM between a step and its evaluation, and writes on SIGUSR1 from inside the handler, which
    hangs with several processes. Here all processes agree at the end of a step.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def install(self) -> None:
        """Take the signals over, in the main thread; elsewhere they stay as they are."""
        self.received = None
        if threading.current_thread() is not threading.main_thread():
            return
        wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        self._before = {signum: signal.signal(signum, self._keep) for signum in wanted}

    def restore(self) -> None:
        """Give the signals back."""
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]  # what signal.signal returned
        self._before = {}

    def agreed(self, trainer: Trainer) -> int | None:
        """The signal that some process has received; the same on all of them."""
        if trainer.world_size == 1:
            return self.received
        number = torch.tensor(self.received or 0, device=trainer.strategy.root_device)
        torch.distributed.all_reduce(number, torch.distributed.ReduceOp.MAX)
        return int(number) or None

    def _keep(self, signum: int, frame: FrameType | None) -> None:
        self.received = signum
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)


def stop(signum: int, trainer: Trainer) -> None:
    """End the run as the signal asks, once everything is saved.

    Raises:
        KeyboardInterrupt: On SIGINT.
        SIGTERMException: On SIGTERM, and on SIGUSR1, in a Slurm job after putting it back into its queue.
    """
    if signum == signal.SIGINT:
        raise KeyboardInterrupt
    if signum == signal.SIGUSR1 and slurm.job_id() is not None and trainer.is_global_zero:
        print_safely(slurm.requeue())
    raise SIGTERMException
