#!/bin/bash
# Figure 9: what a verification costs (a: from the calibration, by pass and by token) and how often it rolls back
# (ShareGPT, 12 queries a second, all deterministic, G = 1). b: rollbacks per verification pass of each request; c:
# recomputed tokens of each request, whose published curves are not in sweep/reference; d: recomputed tokens in all,
# which are also in Fig. 12b, as its cells of G = 1.
source "$(dirname "$0")/common.sh"
windows="32 64 128 256"
for w in $windows; do
    by_request "W=$w" --workload sharegpt-served --requests 4096 --qps 12 --ratio 1 --group 1 --window "$w"
done
collect

# a: a pass of one window, and a token of it.
rows $reference/verify_cost.tsv tokens pass_ms ms_per_token >"$work/verify"
by_token='{ print "verify_pass_ms", "G=1", $1, $2; print "verify_token_ms", "G=1", $1, $3 == "" ? $2 / $1 : $3 }'
cut -f 1 "$work/verify" | window_ms | awk -F '\t' -v OFS='\t' "$by_token" >"$work/ours"
awk -F '\t' -v OFS='\t' "$by_token" "$work/verify" >"$work/published"

# b: share of requests with at most this many rollbacks per verification, over the requests of all seeds.
cdf=$OUT/${figure}_cdf.tsv recomputed=$OUT/${figure}_recomputed.tsv
if [ -z "$KEEP" ]; then
    printf 'window\trollbacks_per_verification\trequests_pct\n' >"$work/cdf"
    for w in $windows; do
        : >"$work/ratios"
        for seed in ${seeds//,/ }; do
            rows "$work/requests W=$w $seed" rollbacks verifications |
                awk -F '\t' '$2 > 0 { printf "%.3f\n", $1 / $2 }' >"$work/ratios_seed"
            cat "$work/ratios_seed" >>"$work/ratios"
            awk -v OFS='\t' -v w="$w" -v seed="$seed" '
                { for (at = 0; at <= 2; at++) if ($1 <= at / 5) n[at]++ }
                END { for (at = 0; at <= 2; at++) print "cdf_pct", "W=" w, at / 5, seed, 100 * n[at] / NR }
                ' "$work/ratios_seed" >>"$work/seeds"
        done
        sort -n "$work/ratios" >"$work/ratio"
        awk -v OFS='\t' -v w="$w" -v n="$(wc -l <"$work/ratio")" '
            NR > 1 && $1 != last { print w, last, 100 * (NR - 1) / n }
            { last = $1 }
            END { print w, last, 100 }' "$work/ratio" >>"$work/cdf"
    done
    mv "$work/cdf" "$cdf"
    printf 'metric\tseries\tpercentile\ttokens\n' >"$work/recomputed"
    for w in $windows; do distribution "W=$w" recomputed >>"$work/recomputed"; done
    mv "$work/recomputed" "$recomputed"
fi
awk -F '\t' -v OFS='\t' '
    BEGIN { split("0 0.2 0.4", at, " ") }
    NR > 1 { for (i = 1; i <= 3; i++) if ($2 <= at[i]) share[$1, i] = $3; if (!seen[$1]++) window[++n] = $1 }
    END {
        for (w = 1; w <= n; w++)
            for (i = 1; i <= 3; i++) print "cdf_pct", "W=" window[w], at[i], share[window[w], i] + 0
    }
    ' "$cdf" >>"$work/ours"
rows "$raw" window seed recompute_pct |
    awk -F '\t' -v OFS='\t' '{ print "recompute_pct", "G=1", $1, $2, $3 }' | by_seed >>"$work/ours"
rows $reference/fig9_rollback_cdf.tsv window fraction_with_no_rollback cdf_at_0.2 cdf_at_0.4 recompute_pct |
    awk -F '\t' -v OFS='\t' '{
        print "cdf_pct", "W=" $1, 0, 100 * $2
        print "cdf_pct", "W=" $1, 0.2, 100 * $3
        print "cdf_pct", "W=" $1, 0.4, 100 * $4
        print "recompute_pct", "G=1", $1, $5
    }' >>"$work/published"
compare "$work/ours" "$work/published" "verify_pass_ms and verify_token_ms from the calibration; the others simulated, over seeds $seeds"
published_in=$reference/verify_cost.tsv
# The published curves end where they reach 100%.
rows $reference/fig9_rollback_cdf.tsv window max_rollbacks_per_pass >"$work/ends"
title=$(tell "Fitted: a pass of %d rows takes %.2f times as long as one of %d; simulated: windows of %d recompute %.1f times as much as windows of %d" '
    $2 == "verify_pass_ms" { ms[$4] = $5 }
    $2 == "recompute_pct" { pct[$4] = $5 }
    END { print 256, ms[256] / ms[16], 16, 256, pct[256] / pct[32], 32 }')
reading="lines of a: the calibration, which is fitted to these marks; others and bars: simulated; hollow marks: the authors' numbers for Figure 9"
notes=("ShareGPT, 12 queries/s, all deterministic, verification EAGER, G = 1; 20,480 requests of five seeds; the authors' marks of b are read off curves, and those of c are not at hand")
plot cdf="$cdf" recomputed="$recomputed" ends="$work/ends"
