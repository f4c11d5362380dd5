"""The process that runs of a sweep are forked from, with torch and lightning loaded once. Linux only.

It trains nothing itself and starts no thread, so that every run begins with the same memory as the first: a run cannot
find anything that another one has left. ``python -m grok_lightning.sweep.warm SOCKET PARENT`` reads one request a
message (JSON: ``arguments``, ``environment``, ``log``; the lock of the claim comes with it as a file descriptor), and
answers with ``{"pid": …}``; whenever a run ends it says ``{"ended": pid, "code": …}``.
"""

import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

LOADED = ("grok_lightning.cli", "grok_lightning.jobs", "wandb", "torch._dynamo", "lightning.pytorch.loggers.wandb")
"""What every run would load."""

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.05
LONGEST = 2**20
"""Bytes of a message."""


def main(connection: socket.socket, parent: int) -> list[str]:
    """Serve until the sweep hangs up.

    Args:
        connection: Other end of the sweep's socket (SOCK_SEQPACKET).
        parent: Number of the sweep's process.

    Returns:
        In a process forked for a run: the run's arguments.
    """
    die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # a scheduler may signal all processes; the sweep decides about its runs
    for name in LOADED:
        importlib.import_module(name)
    running: set[int] = set()
    while True:
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.discard(pid)
                _send(connection, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})
        if not select.select([connection], [], [], POLL_SECONDS)[0]:
            continue
        message, fds, _, _ = socket.recv_fds(connection, LONGEST, 1)
        if not message:
            sys.exit(0)
        request: dict[str, Any] = json.loads(message)
        ready, at_fork = os.pipe()
        server, pid = os.getpid(), os.fork()
        if pid == 0:
            os.setsid()
            die_with(server)
            connection.close()
            _become(request)
            os.write(at_fork, b"1")
            os.close(at_fork)
            os.close(ready)
            return list(request["arguments"])
        for fd in (*fds, at_fork):
            os.close(fd)
        os.read(ready, 1)  # a signal to its group finds it from here on
        os.close(ready)
        running.add(pid)
        _send(connection, {"pid": pid})


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies, however it dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it died before the kernel was asked
        sys.exit("the sweep has ended")


def _become(request: dict[str, Any]) -> None:
    """Take on what a process started for the run would have."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)
    os.environ.update(request["environment"])


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.send(json.dumps(message).encode())


def serve() -> NoReturn:
    """Serve, and in a forked process become the run."""
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        arguments = main(connection, int(sys.argv[2]))
    from grok_lightning import __main__ as program

    sys.argv = [str(program.__file__), *arguments]
    sys.exit(program.run(arguments))


if __name__ == "__main__":
    serve()
