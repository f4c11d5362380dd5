"""Starts runs from a process that has torch and lightning loaded already."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from grok_lightning.sweep import warm
from grok_lightning.sweep.trials import Claim
from grok_lightning.sweep.worker import SubprocessRun, SubprocessWorker, run_arguments


class WarmWorker:
    """Starts runs as :class:`SubprocessWorker` does, but forked from one process of :mod:`grok_lightning.sweep.warm`.

    Args:
        fresh: Says what a run needs.
    """

    def __init__(self, fresh: SubprocessWorker) -> None:
        self._fresh = fresh
        self._server: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._codes: dict[int, int] = {}

    def start(self, claim: Claim, slot: int) -> SubprocessRun:
        """Start a run, which holds the claim's lock until it ends."""
        trials, environment = self._fresh.trials, self._fresh.environment(slot)
        self._connect(environment)
        arguments = run_arguments(trials, claim.configuration, trials.start(claim))
        path = trials.log(claim.configuration.key)
        with path.open("ab") as log:
            log.write(f"$ {shlex.join(['python', '-m', 'grok_lightning', *arguments])}\n".encode())
            length = log.tell()
        own = {name: environment[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in environment}
        request = json.dumps({"arguments": arguments, "environment": own, "log": str(path.absolute())}).encode()
        try:
            pid = self._ask(request, claim.lock, environment)
        except (OSError, EOFError):  # the process died between two runs: another one
            self.close()
            pid = self._ask(request, claim.lock, environment)
        return SubprocessRun(claim, Forked(pid, self), trials, length)

    def code(self, pid: int) -> int | None:
        """Exit status of a run, negative for a signal; ``None`` while it goes on."""
        while pid not in self._codes and self._connection is not None:
            try:
                self._read(self._connection, wait=False)
            except BlockingIOError:
                return None
            except (OSError, EOFError):
                self.close()
        return self._codes.pop(pid, -signal.SIGKILL)  # they die with the process they came from

    def close(self) -> None:
        """End the process, and runs that it still has."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._server is not None:
            self._server.wait()
            self._server = None

    def _ask(self, request: bytes, lock: int, environment: dict[str, str]) -> int:
        connection = self._connect(environment)
        socket.send_fds(connection, [request], [lock])
        while "pid" not in (answer := self._read(connection)):
            pass
        pid: int = answer["pid"]
        return pid

    def _connect(self, environment: dict[str, str]) -> socket.socket:
        if self._connection is not None:
            return self._connection
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", warm.__name__, str(theirs.fileno()), str(os.getpid())]
        self._server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a Ctrl-C is for the sweep
        )
        theirs.close()
        self._connection = ours
        return ours

    def _read(self, connection: socket.socket, wait: bool = True) -> dict[str, Any]:
        message = connection.recv(warm.LONGEST, 0 if wait else socket.MSG_DONTWAIT)
        if not message:
            raise EOFError
        answer: dict[str, Any] = json.loads(message)
        if "ended" in answer:
            self._codes[answer["ended"]] = answer["code"]
        return answer


@dataclass(frozen=True)
class Forked:
    """A run that another process has forked.

    Attributes:
        pid: Its number, and that of its process group.
        worker: Hears when it ends.
    """

    pid: int
    worker: WarmWorker

    def poll(self) -> int | None:
        """Its exit status; ``None`` while it goes on."""
        return self.worker.code(self.pid)
