#!/bin/bash
# Figure 12: P99 latency and recomputed tokens over window W and group G (ShareGPT, 12 queries a second, 4,096
# requests, all deterministic). The paper leaves out passes of more than 512 rows.
#
# At G = 1 the paper recomputes fewer tokens with W = 512 (42.3%) than with W = 256 (46.4%): sweep/reference/README.md
# says why.
source "$(dirname "$0")/common.sh"
grid() { cells --workload sharegpt-served --requests 4096 --qps 12 --ratio 1 --seed $seeds --group "$1" --window "$2"; }
grid 1 16,32,64,128,256,512
grid 2 16,32,64,128,256
grid 4 16,32,64,128
grid 8 16,32,64
grid 16 16,32
grid 32 16
collect

# Series = G, x = W.
rows "$raw" group window seed e2e_p99_s recompute_pct | awk -F '\t' -v OFS='\t' '
    { print "p99_latency_s", "G=" $1, $2, $3, $4; print "recompute_pct", "G=" $1, $2, $3, $5 }' | by_seed >"$work/ours"
for metric in p99_latency_s recompute_pct; do
    rows $reference/fig12_$metric.tsv group window $metric |
        awk -F '\t' -v OFS='\t' -v metric=$metric '{ print metric, "G=" $1, $2, $3 }' >>"$work/published"
done
compare "$work/ours" "$work/published" "simulated, means over seeds $seeds"
latency=$(tell "Simulated: P99 latency is %.1f s at best (W = %d, G = %d), but at least %.1f s with one window in a pass" '
    $2 == "p99_latency_s" {
        if (best == "" || $5 < best) { best = $5; w = $4; g = substr($3, 3) }
        if ($3 == "G=1") one = smaller(one, $5)
    }
    END { print best, w, g, one }')
recomputed=$(tell "Fitted to the marks: windows of 16 recompute %.1f to %.1f%% of the returned tokens, windows of 256 %.0f to %.0f%%" '
    $2 == "recompute_pct" { least[$4] = smaller(least[$4], $5); most[$4] = larger(most[$4], $5) }
    END { print least[16], most[16], least[256], most[256] }')
common=(--x window --y group --mean seed --reference-name "authors' file (Figure 12)" --grey "more than 512 rows")
plot_sweep a "$raw" "${common[@]}" --value e2e_p99_s --title "$latency" \
    --reference $reference/fig12_p99_latency_s.tsv --reference-value p99_latency_s
plot_sweep b "$raw" "${common[@]}" --value recompute_pct \
    --title "$recomputed" --reference $reference/fig12_recompute_pct.tsv
# Cells that are overloaded in any seed do not count, because their latencies grow with the number of requests.
rows "$raw" window group overloaded recompute_pct e2e_p99_s >"$work/cells"
against=$(tell "Simulated: windows of 16 recompute %.1f to %.1f%% of the tokens, but P99 latency is %.0f to %.0f s where no run is overloaded: G decides" '
    $1 == 16 { bad[$2] += $3 != 0; n[$2]++; pct[$2] += $4; s[$2] += $5 }
    END {
        for (g in n) if (!bad[g]) {
            few = smaller(few, pct[g] / n[g]); many = larger(many, pct[g] / n[g])
            least = smaller(least, s[g] / n[g]); most = larger(most, s[g] / n[g])
        }
        print few, many, least, most
    }' "$work/cells")
plot_sweep c "$raw" --x recompute_pct --y e2e_p99_s --over group --mean seed --log xy --title "$against" \
    --note "on each line W doubles from point to point, from 16 at the left"
