#!/bin/bash
# The margin law of flips (sweep/science/margins.py): predicted against counted, from results/science/margins.tsv.
OUT=${OUT_SCIENCE:-sweep/results/science}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
plot source=
