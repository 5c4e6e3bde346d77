#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=1-8
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=sweep-%A_%a.log
# Runs a grid of build/sweep as a Slurm job array, each task one share of the cells:
#
#     sbatch sweep/slurm.sh DIR --calibration FILE --window 16,32,64 --group 1,8 --ratio 0.1,1
#     sbatch --array=1-32 sweep/slurm.sh DIR ...          more shares
#     build/sweep --calibration FILE --window ... --merge DIR --out FILE     when all tasks have ended
#
# Submit it from the repository's root. DIR must be seen by all nodes. A task that was cut off does not run its
# finished cells again, so that the same command may be given again, also with another number of tasks. For --backend cpu
# give the threads too (--threads, at most cpus-per-task), and use nodes of one kind: --merge takes no cells that were
# measured on another processor.
# From the environment: B (the build folder), and Slurm's variables, which may be set by hand where there is no Slurm.
set -euo pipefail
if [ $# = 0 ] || [[ $1 == -* ]]; then
    echo "slurm.sh: usage: sbatch sweep/slurm.sh DIR [options of build/sweep]" >&2
    exit 2
fi
share=${SLURM_ARRAY_TASK_ID:-} count=${SLURM_ARRAY_TASK_COUNT:-}
if [ -z "$share" ] || [ -z "$count" ]; then
    echo "slurm.sh: not a task of a job array: use sbatch, or set SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT" >&2
    exit 2
fi
if [ "${SLURM_ARRAY_TASK_MIN:-1}" != 1 ] || [ "${SLURM_ARRAY_TASK_MAX:-$count}" != "$count" ]; then
    echo "slurm.sh: the array must be 1-N: its tasks are shares of the grid, and finished cells cost nothing" >&2
    exit 2
fi
cd "${SLURM_SUBMIT_DIR:-.}"
folder=$1
shift
exec "${B:-build}/sweep" --threads "${SLURM_CPUS_PER_TASK:-1}" "$@" --cells "$folder" --cell "$share/$count"
