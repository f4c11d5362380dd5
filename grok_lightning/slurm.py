"""Putting a Slurm job back into its queue."""

import os
import re
import subprocess


def job_id() -> str | None:
    """Number of the Slurm job that this process belongs to, with that of its array task; ``None`` outside of one."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}" if array else os.environ.get("SLURM_JOB_ID")


def requeue() -> str:
    """Put the job of this process back into its queue; Slurm then ends it, and starts it again as it was submitted.

    Returns:
        What happened, in one line. A job that cannot be requeued is no reason to lose what is in memory.
    """
    job = job_id()
    if job is None or not re.fullmatch(r"[0-9_]+", job):
        return f"Slurm job {job!r} is not requeued: that is no job number"
    try:
        command = ["scontrol", "requeue", job]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"Slurm job {job} is not requeued: {error}"
    return f"Slurm job {job} is not requeued: {done.stderr.strip()}" if done.returncode else f"Slurm job {job} requeued"
