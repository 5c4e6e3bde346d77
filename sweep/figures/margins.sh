#!/bin/bash
# The margin law of flips (sweep/science/margins.py): predicted against counted, from results/science/margins.tsv.
OUT=${OUT_SCIENCE:-sweep/results/science}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
title=$(tell "Margins and errors alone tell how often tokens flip: %.2f-fold off in the median, %.2f-fold at worst" '
    $12 + 0 > 0 && $13 + 0 > 0 && $16 + 0 > 0 { r = $12 > $13 ? $12 / $13 : $13 / $12; v[++n] = r; worst = larger(worst, r) }
    END { print median(v, n), worst }' "$raw")
reading="a mark: one model, temperature, pair of passes and type of logits, on a CPU; bars: 95%"
notes=("margins, errors and counts are of different texts; nothing is fitted")
source=" "
plot
