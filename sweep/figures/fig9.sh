#!/bin/bash
# Figure 9: what a verification costs (a: from the calibration) and how often it rolls back (b-d: ShareGPT, 12 queries
# a second, all deterministic, G = 1; rollbacks per verification pass of each request, and recomputed tokens).
source "$(dirname "$0")/common.sh"
windows="32 64 128 256"
for w in $windows; do
    for seed in ${seeds//,/ }; do
        cells --workload sharegpt-served --requests 4096 --qps 12 --ratio 1 --group 1 --window "$w" --seed "$seed" \
            --per-request "$work/requests_${w}_$seed"
    done
done
collect

# a: a pass of one window, at the shortest context of the calibration, between whose rows we interpolate.
rows "$CALIBRATION" schedule kind rows context_tokens ms |
    awk -F '\t' -v OFS='\t' '$1 == "fixed" && $2 == "window"' >"$work/window"
rows $reference/verify_cost.tsv tokens pass_ms >"$work/verify"
awk -F '\t' -v OFS='\t' '
    NR == FNR {
        if (!n || $4 < least) { n = 0; least = $4 }
        if ($4 == least) { row[++n] = $3; ms[n] = $5 }
        next
    }
    {
        for (i = 1; i < n - 1 && row[i + 1] < $1; i++) ;
        print "verify_pass_ms", "G=1", $1, ms[i] + (ms[i + 1] - ms[i]) * ($1 - row[i]) / (row[i + 1] - row[i])
    }' "$work/window" "$work/verify" >"$work/ours"
awk -F '\t' -v OFS='\t' '{ print "verify_pass_ms", "G=1", $1, $2 }' "$work/verify" >"$work/published"

# b-d: share of requests with at most this many rollbacks per verification, over the requests of all seeds.
cdf=$OUT/${figure}_cdf.tsv
if [ -z "$KEEP" ]; then
    printf 'window\trollbacks_per_verification\trequests_pct\n' >"$work/cdf"
    for w in $windows; do
        for seed in ${seeds//,/ }; do
            rows "$work/requests_${w}_$seed" rollbacks verifications
        done | awk -F '\t' '$2 > 0 { printf "%.3f\n", $1 / $2 }' | sort -n >"$work/ratio"
        awk -v OFS='\t' -v w="$w" -v n="$(wc -l <"$work/ratio")" '
            NR > 1 && $1 != last { print w, last, 100 * (NR - 1) / n }
            { last = $1 }
            END { print w, last, 100 }' "$work/ratio" >>"$work/cdf"
    done
    mv "$work/cdf" "$cdf"
fi
awk -F '\t' -v OFS='\t' '
    BEGIN { split("0 0.2 0.4", at, " ") }
    NR > 1 { for (i = 1; i <= 3; i++) if ($2 <= at[i]) share[$1, i] = $3; if (!seen[$1]++) window[++n] = $1 }
    END {
        for (w = 1; w <= n; w++)
            for (i = 1; i <= 3; i++) print "cdf_pct", "W=" window[w], at[i], share[window[w], i] + 0
    }
    ' "$cdf" >>"$work/ours"
rows "$raw" window recompute_pct |
    awk -F '\t' -v OFS='\t' '{ print "recompute_pct", "G=1", $1, $2 }' | mean >>"$work/ours"
rows $reference/fig9_rollback_cdf.tsv window fraction_with_no_rollback cdf_at_0.2 cdf_at_0.4 recompute_pct |
    awk -F '\t' -v OFS='\t' '{
        print "cdf_pct", "W=" $1, 0, 100 * $2
        print "cdf_pct", "W=" $1, 0.2, 100 * $3
        print "cdf_pct", "W=" $1, 0.4, 100 * $4
        print "recompute_pct", "G=1", $1, $5
    }' >>"$work/published"
compare "$work/ours" "$work/published" "verify_pass_ms from the calibration; the others simulated, over seeds $seeds"
published_in=$reference/verify_cost.tsv
plot cdf="$cdf" flips="$(awk '/^# flip_rate:/ { printf "%.2g", 100 * $3 }' "$CALIBRATION")"
