#!/bin/bash
# The map of mechanisms (sweep/science/winner.py): which one wins, by the share of deterministic requests, the load and
# the cost of INVARIANT passes, from results/science/winner.tsv and winner_measured.tsv.
OUT=${OUT_SCIENCE:-sweep/results/science}
# shellcheck source=sweep/figures/common.sh
source "$(dirname "$0")/common.sh"
# Places on the axes are those of the values in order of appearance. Colour 5 is HYBRID that verifies less than half of
# the tokens of deterministic requests.
rows "$raw" cost share load winner sure lead_pct verified | awk -F '\t' -v OFS='\t' '
    BEGIN { n = split("dvr hybrid invariant apart", name, " "); for (i = 1; i <= n; i++) colour[name[i]] = i }
    function place(axis, value) { if (!((axis, value) in at)) at[axis, value] = ++many[axis]; return at[axis, value] }
    { print place("cost", $1), place("share", $2), place("load", $3),
            $4 == "hybrid" && $7 < 0.5 ? 5 : colour[$4], $5, $6 < 0.5 ? "0" : sprintf("%.0f", $6), $1, $2, $3 }
    ' >"$work/cells"
: >"$work/marks"
measured=${raw%.tsv}_measured.tsv
lead=
[ ! -r "$measured" ] || lead=$(tell ", by at most %.1f%% each" '{ m = larger(m, $1) } END { print m }' \
    <(rows "$measured" lead_pct))
[ ! -r "$measured" ] || rows "$measured" share load winner | awk -F '\t' -v OFS='\t' '
    BEGIN { n = split("dvr hybrid invariant apart", name, " "); for (i = 1; i <= n; i++) colour[name[i]] = i }
    NR == FNR { if ($1 == 1) { column[$8] = $2; row[$9] = $3 }; next }
    { print 1, column[$1], row[$2], colour[$3] }' "$work/cells" - >"$work/marks"
width=1340
title=$(tell "Where INVARIANT passes cost 30%% or more, verification (blue, dark green) wins %d of the %d cells of up to \
25 requests a second" '
    $1 >= 1.3 && $2 + 0 > 0 && $2 <= 25 { n++; won += $3 == "dvr" || ($3 == "hybrid" && $4 >= 0.5) }
    END { print won, n }' <(rows "$raw" cost load winner verified))
reading="colour: the mechanism with the lowest P99 latency; number: how much longer that of the second best is, %"
notes=("hatched: the 95% interval of this lead over five seeds reaches 0"
    "circles: the winner that one H200 measured among DVR, HYBRID and all INVARIANT$lead (two seeds)"
    "a fleet of 8 GPUs; P99 latency of all requests, ShareGPT; without determinism a GPU serves 47 requests/s")
plot cells="$work/cells" marked="$work/marks"
