#!/bin/bash
# What drafts are worth, by the share of them that is right: ordinary requests, deterministic ones by DVR, and
# batch-invariant passes, each without drafts and with at most seven. Llama 3.1 8B on an H200, 1, 4, 16 and 64 requests
# at once, 32 tokens in and 128 out. Lines are simulated with the calibration of that GPU. Marks were measured on it
# with an oracle (results/h200/drafts.tsv and drafts_64.tsv, by build/drafts): medians of runs. Measured
# ordinary requests have no marks, because their texts leave the oracle's after a while and its drafts are wrong from
# there on. Nor has DVR with 64 requests, which was measured when preset dvr had G = 32 (drafts_64_dvr.tsv). The line at
# which drafts stop to pay is in figE_worth.tsv.
CALIBRATION=${CALIBRATION:-sweep/calibration/h200-llama-3.1-8b.tsv}
source "$(dirname "$0")/common.sh"
measured=(sweep/results/h200/drafts.tsv sweep/results/h200/drafts_64.tsv)
rates=0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1
batches="1 2 4 8 16 32 64 128 256"
for batch in $batches; do
    load=(--workload fixed:32x128 --qps offline --max-running "$batch" --requests $((16 * batch)) --draft none,$rates
        --token-budget $((batch < 32 ? 256 : 8 * batch)))  # as build/drafts has it
    # A sweep of one batch has no column max_running, so the number of requests tells the batch.
    cells "${load[@]}" --preset dvr --mode nondeterministic --draft-ordinary
    cells "${load[@]}" --preset best,dvr,invariant
done
collect

# Series = batch and way, x = share of right drafts. A way without drafts is a constant.
rows "$raw" requests preset mode draft output_tok_per_s | awk -F '\t' -v OFS='\t' '
    { way = $3 == "nondeterministic" ? "ordinary" : $2; at = $1 / 16 " " way }
    $4 == "none" { none[at] = $5; next }
    { n++; key[n] = at; x[n] = $4; y[n] = $5 }
    END {
        for (i = 1; i <= n; i++) {
            print "tok_per_s", key[i], x[i], y[i]
            print "ratio", key[i], x[i], y[i] / none[key[i]]
        }
        for (at in none) for (r = 0; r <= 1; r++) print "tok_per_s_none", at, r, none[at]
    }' | sort -t "$(printf '\t')" -k 1,2 -k 3,3g >"$work/ours"
: >"$work/published"
for file in "${measured[@]}"; do
    [ -r "$file" ] || continue
    rows "$file" model batch way draft tok_per_s | awk -F '\t' -v OFS='\t' '
        $3 == "ordinary" { next }
        $4 ~ /^[0-9.]+$/ { print "tok_per_s", $2 " " $3, $4, $5 }
        $4 == "none" { print "tok_per_s_none", $2 " " $3, 0, $5 }' >>"$work/published"
done
compare "$work/ours" "$work/published" "simulated; the column published has what an H200 measured"

# The least share of right drafts at which drafts are worth 1% or more, by batch and way, and the worst of all cells.
# Where there are measurements, also the share at which drafts give 5%, measured and simulated: both by straight lines
# between the shares that were measured; 0: less is enough.
if [ -z "$KEEP" ]; then
    {
        echo "# $figure: least share of right drafts that makes a way 1% faster than it is without, and the least ratio;"
        echo "# then the share that makes it 5% faster, by straight lines between the shares that an H200 measured"
        printf 'batch\tway\tleast_share\tworst_ratio\tshare_5_simulated\tshare_5_measured\n'
        awk -F '\t' -v OFS='\t' '
            function reaches(ratio, at, i, a, b) {  # where the line through ratio[at, share of i] comes to 1.05
                if (!(at in shares)) return "nan"
                if (ratio[at, share[at, 1]] >= 1.05) return 0
                for (i = 2; i <= shares[at]; i++) {
                    a = ratio[at, share[at, i - 1]]; b = ratio[at, share[at, i]]
                    if (b < 1.05) continue
                    return sprintf("%.3f", share[at, i - 1] + (1.05 - a) / (b - a) * (share[at, i] - share[at, i - 1]))
                }
                return "none"
            }
            FILENAME == ARGV[1] && $1 == "tok_per_s_none" { base[$2] = $4 }
            FILENAME == ARGV[1] && $1 == "tok_per_s" { share[$2, ++shares[$2]] = $3; measured[$2, $3] = $4 / base[$2] }
            FILENAME == ARGV[2] && $1 == "ratio" {
                ours[$2, $3] = $4
                if ($4 >= 1.01 && !($2 in least)) least[$2] = $3
                if (!($2 in worst) || $4 < worst[$2]) worst[$2] = $4
            }
            END {
                for (at in worst) {
                    split(at, k, " ")
                    print k[1], k[2], at in least ? least[at] : "none", sprintf("%.4f", worst[at]), reaches(ours, at),
                        reaches(measured, at)
                }
            }' <(sort -t "$(printf '\t')" -k 2,2 -k 1,1r -k 3,3g "$work/published") "$work/ours" | sort -k 2,2 -k 1,1n
    } >"$OUT/${figure}_worth.tsv"
fi

# Both measured: DVR with drafts of which 70% are right, over ordinary requests without drafts.
worth() {
    rows "${measured[0]}" batch way draft tok_per_s >"$work/rows"
    for file in "${measured[@]:1}"; do [ ! -r "$file" ] || rows "$file" batch way draft tok_per_s >>"$work/rows"; done
    awk -F '\t' -v batch="$1" '
        $1 == batch && $2 == "ordinary" && $3 == "none" { base = $4 }
        $1 == batch && $2 == "dvr" && $3 == 0.7 { value = $4 }
        END { if (base && value) printf "%.1f", value / base }' "$work/rows"
}
title="What drafts are worth, by the share of right ones"
[ -z "$(worth 1)" ] || [ -z "$(worth 16)" ] || title="With 70% of drafts right, DVR serves one request \
$(worth 1) times as fast as ordinary decoding without drafts, and 16 at once $(worth 16) times as fast"
width=1180 reading="lines: simulated; hollow marks: measured on an H200 with an oracle; dashed: without drafts"
source=$(source_of "$raw")
notes=("at most seven drafts of a request in a pass; best has batch-invariant passes here; the title is measured;\
 DVR of 64 requests was not"
    "measured: Llama 3.1 8B (random weights) on one H200; $(made_of <(grep -h '^#' "${measured[@]}"))")
plot
