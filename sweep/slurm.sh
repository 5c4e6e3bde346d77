#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=1-8
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=sweep-%A_%a.log
# Runs a grid of build/sweep as a Slurm job array. Each task runs one share of the cells and leaves them in DIR:
#
#     sbatch --array=1-16 sweep/slurm.sh DIR [options of build/sweep]
#
# Submit it from the repository's root. All nodes must see that folder and DIR. A task that was cut off does not run its
# finished cells again, so the same command may be given again, also with another number of tasks. Options of sbatch
# before the script's name replace those above. sweep/README.md has the whole procedure, with the merge at its end.
# From the environment: B (the build folder), and Slurm's variables, which may be set by hand where there is no Slurm.
set -euo pipefail
fail() {  # fail STATUS MESSAGE
    echo "slurm.sh: $2" >&2
    exit "$1"
}

if [ $# = 0 ] || [[ $1 == -* ]]; then
    fail 2 "usage: sbatch --array=1-N sweep/slurm.sh DIR [options of build/sweep]"
fi
share=${SLURM_ARRAY_TASK_ID:-} count=${SLURM_ARRAY_TASK_COUNT:-}
if [ -z "$share" ] || [ -z "$count" ]; then
    fail 2 "not a task of a job array: use sbatch, or set SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT"
fi
if [ "${SLURM_ARRAY_TASK_MIN:-1}" != 1 ] || [ "${SLURM_ARRAY_TASK_MAX:-$count}" != "$count" ]; then
    fail 2 "--array must be 1-N, because a task is one of N shares of the grid; finished cells are not run again"
fi
cd "${SLURM_SUBMIT_DIR:-.}"
sweep=${B:-build}/sweep
[ -x "$sweep" ] || fail 1 "$PWD: there is no $sweep: run make, and submit from the repository's root"
folder=$1
shift
exec "$sweep" --threads "${SLURM_CPUS_PER_TASK:-1}" "$@" --cells "$folder" --cell "$share/$count"
