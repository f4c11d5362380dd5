#!/bin/bash
# One run as a Slurm job of one task per device, e.g. two GPUs of one node; what follows is handed on to `fit`:
#
#   sbatch configs/trainer/slurm.sh --config configs/addition.yaml --trainer.strategy ddp --trainer.devices 2
#
# from the root of the project, with the environment activated. Two minutes before the time limit the run writes a
# checkpoint and is requeued; started again, it goes on from there.
#SBATCH --job-name=grok
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.out
run=runs/slurm/$SLURM_JOB_ID
if [ -e "$run/config.yaml" ]; then
  srun python -u -m grok_lightning fit --resume "$run"
else
  srun python -u -m grok_lightning fit "$@" --record.experiment slurm --record.run_id "$SLURM_JOB_ID"
fi
