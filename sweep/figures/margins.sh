#!/bin/bash
# The margin law of flips (sweep/science/margins.py): predicted against counted, from results/science/margins.tsv (a CPU)
# and margins_h200.tsv. Cases of the H200 with the same numbers are one.
OUT=${OUT_SCIENCE:-sweep/results/science}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
rows "$raw" model logits backend predicted measured low high flips temperature >"$work/cases"
# The null model of a case of the CPU: the mean share of the others with its model, type of logits and temperature.
null=$(tell "on the CPU %.2f-fold off in the median and %.2f-fold at worst, while the mean of a model's other cases is %.2f and %.2f" '
    function fold(a, b) { return a > b ? a / b : b / a }
    $8 > 0 { of[++n] = $1 FS $2 FS $9; p[n] = $4; c[n] = $5; sum[of[n]] += $5; many[of[n]]++ }
    END {
        for (i = 1; i <= n; i++) {
            ours[i] = fold(p[i], c[i]); null[i] = fold((sum[of[i]] - c[i]) / (many[of[i]] - 1), c[i])
            worst = larger(worst, ours[i]); worst_null = larger(worst_null, null[i])
        }
        print median(ours, n), worst, median(null, n), worst_null
    }' "$work/cases")
rows "${raw%.tsv}_h200.tsv" model logits backend predicted measured low high flips temperature error_sd |
    awk -F '\t' '!seen[$0]++' >>"$work/cases"
title=$(tell "Margins and errors alone predict how often tokens flip: %.2f-fold off in the median, %.2f-fold at worst, \
and too often in %d of %d" '
    $8 > 0 { r = $4 > $5 ? $4 / $5 : $5 / $4; v[++n] = r; worst = larger(worst, r); high += $4 > $5 }
    END { print median(v, n), worst, high, n }' "$work/cases")
reading="a mark: one model, temperature, pair of passes and type of logits; bars: 95% intervals of the count"
notes=("margins, errors and counts are of different texts; nothing is fitted; 8B has random weights"
    "$null, which needs counted flips")
source=" "
plot cases="$work/cases"
