#!/bin/bash
# The margin law of flips (sweep/science/margins.py): predicted against counted, from results/science/margins.tsv (a CPU)
# and margins_h200.tsv. Cases of the H200 with the same numbers are one.
OUT=${OUT_SCIENCE:-sweep/results/science}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
rows "$raw" model logits backend predicted measured low high flips >"$work/cases"
rows "${raw%.tsv}_h200.tsv" model logits backend predicted measured low high flips temperature error_sd |
    awk -F '\t' '!seen[$0]++' >>"$work/cases"
title=$(tell "Margins and errors alone predict how often tokens flip: %.2f-fold off in the median, %.2f-fold at worst, \
and too often in %d of %d" '
    $8 > 0 { r = $4 > $5 ? $4 / $5 : $5 / $4; v[++n] = r; worst = larger(worst, r); high += $4 > $5 }
    END { print median(v, n), worst, high, n }' "$work/cases")
reading="a mark: one model, temperature, pair of passes and type of logits; bars: 95% intervals of the count"
notes=("circles: a CPU; squares: an H200" "margins, errors and counts are of different texts; nothing is fitted")
source=" "
plot cases="$work/cases"
