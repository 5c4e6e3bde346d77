#!/bin/bash
# Does the cost of simulating grow in line with the requests? ShareGPT at 12 queries/s, W=64, G=8, one core, from 1,000 to
# 1,000,000 requests: TSV on standard output. FLEET=64 serves them on a fleet of 64 replicas behind the router ROUTER
# (default: least_tokens), at 12 queries/s for each replica. Timings are of this machine and differ from run to run.
set -euo pipefail
cd "$(dirname "$0")/../.."
B=${B:-build} CALIBRATION=${CALIBRATION:-sweep/calibration/h100-pcie-paper.tsv}
FLEET=${FLEET:-}
cpu=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)
options="--workload sharegpt --qps $((12 * ${FLEET:-1})) --preset paper --threads 1"
[ -z "$FLEET" ] || options+=" --replicas $FLEET --router ${ROUTER:-least_tokens}"
echo "# build/sweep $options --requests N, measured on ${cpu:-this machine}"
printf 'requests\tprocessor_s\trequests_per_s_and_core\tpeak_mb\n'
for requests in 1000 3000 10000 30000 100000 300000 1000000; do
    # shellcheck disable=SC2086  # a list of options
    "$B/sweep" --calibration "$CALIBRATION" $options --requests $requests --quiet --timing \
        --out /dev/null 2>&1 >/dev/null |
        sed -E 's/^1 cells, ([0-9]+) requests, ([0-9.]+) s .*, ([0-9]+) requests.s and core, ([0-9.]+) MB.*/\1\t\2\t\3\t\4/'
done
