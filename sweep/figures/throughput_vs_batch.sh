#!/bin/bash
# Output throughput by batch: N requests at once, prefill included, for ordinary, batch-invariant and verified serving
# (all deterministic, W = 64, G = 8). Lengths are those that SGLang's benchmark draws with seed 42 for its random data
# set, up to 1,024 tokens in and 512 out (range ratio 0): with these, and with no fixed lengths, the published points
# lie on a smooth curve. The calibration is fitted to the points of the two modes without verification. With few
# requests single rollbacks decide, so throughput_vs_batch_by_seed.tsv has 40 seeds, each with lengths of its own.
source "$(dirname "$0")/common.sh"
forty=$OUT/${figure}_by_seed.tsv
run() {  # run REQUESTS SEEDS
    cells --workload "sglang:1024x512x$1" --requests "$1" --qps offline --window 64 --group 8 --ratio 1 --seed "$2" \
        --mode nondeterministic,batch_invariant,dvr
}
if [ -z "$KEEP" ]; then
    for n in 2 4 8 16 32 64; do run $n "$(seq -s , 42 81)"; done
    {
        echo "# simulated: tokens a second of output, for 40 seeds, of which each draws lengths and flips"
        printf 'mode\trequests\tseed\toutput_tok_per_s\n'
        for part in "${parts[@]}"; do rows "$part" mode requests seed output_tok_per_s; done
    } >"$forty"
    parts=()
fi
for n in 2 4 8 16 32 64 128 256 512; do run $n 42; done
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
ratios='
    $2 == "output_tok_per_s" { v[$3, $4] = $5; if (!seen[$4]++) x[++n] = $4 }
    $2 == "output_tok_per_s" { p[$3, $4] = $6 }
    function ratio(i) { return v["dvr", x[i]] / v["batch_invariant", x[i]] }
    function authors(b, i, low, high, r) {
        for (i = 1; i <= b; i++) {
            r = p["dvr", x[i]] / p["batch_invariant", x[i]]
            low = smaller(low, r); high = larger(high, r)
        }
        return low " " high
    }
    function from_to(a, b, i, low, high) {
        for (i = a; i <= b; i++) { low = smaller(low, ratio(i)); high = larger(high, ratio(i)) }
        return low " " high
    }
    END { while (last < n && ratio(last + 1) > 1) last++ }'
title=$(tell "Simulated, one seed: DVR has %.2f to %.2f times the throughput of batch-invariant kernels" \
    "$ratios"' END { print from_to(1, n) }')
# Up to a number of requests DVR is faster, and from there on it is slower.
crossing=$(tell %d "$ratios"' END { print (last && last < n ? x[last] : 0) }')
[ "$crossing" = 0 ] || title=$(tell "Simulated, one seed: DVR has %.2f to %.2f times the throughput of \
batch-invariant kernels up to %d requests (authors: %.2f to %.2f), then %.2f to %.2f times" "$ratios"'
    END { print from_to(1, last), x[last], authors(last), from_to(last + 1, n) }')
spread=$(tell "40 seeds: DVR of 2 requests has %.2f to %.2f times the throughput of batch-invariant kernels, \
%.2f in the median" '
    $2 == 2 { v[$1, $3] = $4; seen[$3] }
    END {
        for (s in seen) {
            r[++n] = v["dvr", s] / v["batch_invariant", s]
            low = smaller(low, r[n]); high = larger(high, r[n])
        }
        print low, high, median(r, n)
    }' "$forty")
plot_sweep "" "$raw" --x requests --y output_tok_per_s --over mode --log xy --reference "$work/reference" \
    --reference-name "authors' result file" --title "$title" \
    --note "lengths: SGLang's random data set, up to 1,024 tokens in and 512 out" \
    --note "$spread" \
    --note "the calibration is fitted to the authors' points of the two modes without DVR"
