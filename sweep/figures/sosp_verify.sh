#!/bin/bash
# What a verification pass costs in the camera-ready paper (its Fig. 9a, read off the curve) beside our calibration and
# beside passes that we measured on an H200. These are three devices: only the shape of the curves can be compared, so
# the published points and ours are also given as multiples of a pass of 64 rows.
source "$(dirname "$0")/common.sh"
rows $reference/sosp_verify_cost.tsv tokens pass_ms_8B_H100SXM >"$work/verify"
cut -f 1 "$work/verify" | window_ms >"$work/ms"
to_64='
    { row[NR] = $1; ms[NR] = $2; if ($1 == 64) base = $2 }
    END { for (i = 1; i <= NR; i++) if (row[i] != 64) print "times_64_rows", "8B", row[i], ms[i] / base }'
awk -F '\t' -v OFS='\t' "$to_64" "$work/ms" >"$work/ours"
awk -F '\t' -v OFS='\t' "$to_64" "$work/verify" >"$work/published"
compare "$work/ours" "$work/published" "the calibration of the H100 PCIe; published: H100 SXM"

# The curves of the figure: series, rows, ms.
h200=sweep/results/h200/passes.tsv
{
    printf 'series\trows\tms\n'
    sed 's/^/calibration\t/' "$work/ms"
    rows $reference/verify_cost.tsv tokens pass_ms | sed 's/^/published_pcie\t/'
    sed 's/^/published_sxm\t/' "$work/verify"
    rows $reference/sosp_verify_cost.tsv tokens pass_ms_70B_TP8 | sed 's/^/published_70b\t/'
    rows $h200 case rows ms | sed -n 's/^fixed_replay/h200/p'
} >"$work/curves"
mv "$work/curves" "$OUT/${figure}_curves.tsv"
title=$(tell "With 256 instead of 128 rows a verification pass takes %.0f%% longer on the published H100 PCIe, %.0f%% on the SXM, \
%.0f%% on our H200" '
    $2 == 128 { base[$1] = $3 }
    $2 == 256 { grown[$1] = 100 * $3 / base[$1] - 100 }
    END { print grown["published_pcie"], grown["published_sxm"] + 0.0001, grown["h200"] }' "$OUT/${figure}_curves.tsv")
reading="time of a pass by its rows; hollow marks: published; filled marks: measured by us"
notes=("camera-ready Figure 9a; one window; on the H200, windows of 32 rows with 512 tokens of context; $(made_of $h200)"
    "the H200 was measured from 128 rows on; windows and contexts of the curves differ, so compare only their shapes")
source="calibration: $(basename "$CALIBRATION" .tsv), $(device_of "$CALIBRATION")"
plot curves="$OUT/${figure}_curves.tsv" h200="$(device_of $h200)"
