#!/bin/bash
# P99 latency over window W, group G and the share of deterministic requests on one H200, where requests arrive at 12 a
# second: the 8B shape with random weights, FIXED verification. Needs grid_online.tsv (sweep/h200/run.sh grid-online).
# shellcheck disable=SC2034  # h200.inc looks for it
needs="grid_online"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"
rows "$H200/grid_online.tsv" ratio group window e2e_p99_s overloaded >"$work/cells"
title=$(tell "8B: P99 latency in seconds, with 4 or 16 windows in a pass, is %.1f to %.1f where 10%% is deterministic and %.1f to %.1f where all is" '
    $2 > 1 && $1 == 0.1 { few = smaller(few, $4); many = larger(many, $4) }
    $2 > 1 && $1 == 1 { least = smaller(least, $4); most = larger(most, $4) }
    END { print few, many, least, most }' "$work/cells")
ordinary=$(rows "$H200/grid_online.tsv" mode e2e_p99_s | awk '$1 == "nondeterministic" { printf "%.1f", $2 }')
plot_sweep "" "$H200/grid_online.tsv" --x window --y group --over ratio --value e2e_p99_s --title "$title" \
    --note "$(model_name 8b), FIXED verification; $ordinary s where none is deterministic; P99 is the third slowest request"
