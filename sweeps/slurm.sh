#!/bin/bash
# A sweep as a Slurm job array; every task takes the next free configuration until none is left:
#
#   sbatch --array=0-9 sweeps/slurm.sh sweeps/c.yaml
#
# from the root of the project, with the environment activated. What follows the file is handed on to `sweep`. Two minutes
# before the time limit, and on preemption where the cluster signals it, runs write a checkpoint and the task is requeued;
# it goes on from there. The directory of the runs must be on a file system that all nodes share.
#SBATCH --job-name=grok
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=01:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%A_%a.out
srun python -u -m grok_lightning sweep --workers "${SLURM_CPUS_PER_TASK:-1}" "$@"
