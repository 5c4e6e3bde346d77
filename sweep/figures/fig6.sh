#!/bin/bash
# Figure 6: how long outputs stay equal when the same requests are served alone and in one batch. Measured on the CPU
# backend with examples/tiny42, not simulated: 96 requests of 512 tokens, unmarked and deterministic.
source "$(dirname "$0")/common.sh"
tokens=512
if [ -z "$KEEP" ]; then
    [ -x "$B/determinism" ] || fail "$B/determinism is missing: run make $B/determinism"
    pids=()
    for preset in nondeterministic paper; do
        "$B/determinism" --suite spans --preset $preset --requests 96 --tokens $tokens --threads 1 --tsv "$work/$preset" \
            >"$work/$preset.log" &
        pids+=($!) parts+=("$work/$preset")
    done
    for pid in "${pids[@]}"; do wait "$pid" || fail "$B/determinism failed"; done
fi
collect

# Cumulative shares of requests: metric, series = preset, x = tokens; the published medians stand beside their quantity.
rows "$raw" preset metric value | awk -F '\t' '$2 ~ /^request_/' | sort -t $'\t' -k2,2 -k1,1 -k3,3n |
    awk -F '\t' -v OFS='\t' '
        { key = $1 FS $2; n[key]++; mode[NR] = $1; name[NR] = substr($2, 9); value[NR] = $3; of[NR] = key }
        END { for (i = 1; i <= NR; i++) print name[i], mode[i], value[i], 100 * ++seen[of[i]] / n[of[i]] }' >"$work/cdf"
{
    printf 'metric\tmode\ttokens\trequests_pct\n'
    cat "$work/cdf"
} >"$OUT/${figure}_cdf.tsv"
awk -F '\t' -v OFS='\t' -v tokens=$tokens '
    $2 == "nondeterministic" && $4 >= 50 && !($1 in median) { median[$1] = $3 }
    { n[$1 FS $2]++; equal[$1 FS $2] += $3 == tokens }
    END {
        first = "first_span_tokens"; second = "second_span_tokens"
        print "median_first_span_tokens", "nondeterministic", tokens, median[first]
        print "median_second_span_tokens", "nondeterministic", tokens, median[second]
        for (mode = 1; mode <= 2; mode++) {
            name = mode == 1 ? "nondeterministic" : "paper"
            print "all_equal_pct", name, tokens, 100 * equal[first FS name] / n[first FS name]
        }
    }' "$work/cdf" >"$work/ours"
: >"$work/published"
compare "$work/ours" "$work/published" "measured on the CPU backend with examples/tiny42, not simulated"
published() { awk -F '\t' -v q="fig6 8B $1" '$1 == q { print $2 }' $reference/sosp_fig5_fig6.tsv; }
title=$(tell "Measured: by preset paper, %d%% of 96 answers stay equal in a batch; unmarked, %.0f%% change" '
    $2 == "all_equal_pct" { equal[$3] = $5 }
    END { print equal["paper"], 100 - equal["nondeterministic"] }')
reading="tokens equal to those of the request served alone; hollow: Figure 6 of the camera-ready paper"
notes=("first span: tokens up to the first difference; second span: between the first and the second"
    "lines: 96 greedy requests of $tokens tokens, tiny42 (1 M parameters, bf16) on a CPU, not simulated"
    "camera-ready paper: Llama-3.1-8B on an H100 SXM, with other prompts")
source=" "
plot cdf="$OUT/${figure}_cdf.tsv" tokens=$tokens first="$(published 'median first consistent span (of 512)')" \
    second="$(published 'median second span')" equal="$(published 'full 512-token match pct')"
