"""Becomes the process of a run, and sees to it that no run outlives its sweep. Run as a file: standard library only.

``python launch.py PARENT WORD…`` asks the kernel (Linux) to kill this process when its parent dies, however it dies,
and then replaces itself with the command. On other systems a run that lost its sweep ends by itself, and keeps its lock
until then.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Replace this process with a command.

    Args:
        parent: Number of the process that started this one.
        command: Words of the command.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
        if os.getppid() != parent:  # it died before the kernel was asked
            sys.exit("the sweep has ended")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
