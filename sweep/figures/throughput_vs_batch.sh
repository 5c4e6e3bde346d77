#!/bin/bash
# Output throughput by batch: N requests at once, prefill included, for ordinary, batch-invariant and verified serving
# (all deterministic, W = 64, G = 8). Lengths are those that SGLang's benchmark draws with seed 42 for its random data
# set, up to 1,024 tokens in and 512 out (range ratio 0): with these, and with no fixed lengths, the published points
# lie on a smooth curve. The calibration is fitted to the points of the two modes without verification.
source "$(dirname "$0")/common.sh"
for n in 2 4 8 16 32 64 128 256 512; do
    cells --workload sglang:1024x512x$n --requests $n --qps offline --window 64 --group 8 --ratio 1 --seed 42 \
        --mode nondeterministic,batch_invariant,dvr
done
collect

# Series = mode, x = requests.
rows "$raw" mode requests output_tok_per_s |
    awk -F '\t' -v OFS='\t' '{ print "output_tok_per_s", $1, $2, $3 }' >"$work/ours"
rows $reference/throughput_vs_batch.tsv mode batch output_tok_per_s | awk -F '\t' -v OFS='\t' '
    BEGIN { name["llm42"] = "dvr"; name["global_det"] = "batch_invariant"; name["non_det"] = "nondeterministic" }
    { print "output_tok_per_s", name[$1], $2, $3 }' >"$work/published"
compare "$work/ours" "$work/published" "simulated, seed 42"
{
    grep '^# device' $reference/throughput_vs_batch.tsv
    printf 'mode\trequests\toutput_tok_per_s\n'
    cut -f 2- "$work/published"
} >"$work/reference"
title=$(tell "DVR has %.2f to %.2f times the throughput of batch-invariant kernels up to %d requests, then at most %.2f times" '
    $2 == "output_tok_per_s" { v[$3, $4] = $5; if (!seen[$4]++) x[++n] = $4 }
    END {
        for (i = 1; i <= n && v["dvr", x[i]] > v["batch_invariant", x[i]]; i++) last = i
        for (i = 1; i <= n; i++) {
            r = v["dvr", x[i]] / v["batch_invariant", x[i]]
            if (i <= last) { least = smaller(least, r); most = larger(most, r) } else beyond = larger(beyond, r)
        }
        print least, most, x[last], beyond
    }')
plot_sweep "" "$raw" --x requests --y output_tok_per_s --over mode --log xy --reference "$work/reference" \
    --reference-name published --title "$title" \
    --note "lengths: SGLang's random data set, up to 1,024 tokens in and 512 out" \
    --note "the calibration is fitted to the published points of the two modes without DVR"
