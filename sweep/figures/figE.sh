#!/bin/bash
# What drafts are worth, by the share of them that is right: ordinary requests, deterministic ones by DVR, and
# batch-invariant passes, each without drafts and with at most seven. Llama 3.1 8B on an H200, 1, 4, 16 and 64 requests
# at once, 32 tokens in and 128 out. Lines are simulated with the calibration of that GPU. Marks were measured on it
# with an oracle (build/drafts): medians of runs, of way best at several shares (results/h200/drafts.tsv), of ordinary
# requests and DVR without drafts and at 70% (drafts_ways.tsv). The points have way best with 256 requests, too
# (drafts_256.tsv). The line at which drafts stop to pay is in figE_worth.tsv.
CALIBRATION=${CALIBRATION:-sweep/calibration/h200-llama-3.1-8b.tsv}
source "$(dirname "$0")/common.sh"
measured=(sweep/results/h200/drafts{,_ways,_256}.tsv)
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
        $4 ~ /^[0-9.]+$/ { print "tok_per_s", $2 " " $3, $4, $5 }
        $4 == "none" { print "tok_per_s_none", $2 " " $3, 0, $5 }' >>"$work/published"
done
compare "$work/ours" "$work/published" "simulated; the column published has what an H200 measured"

# The least share of right drafts at which drafts are worth 1% or more, by batch and way, and the worst of all cells.
# Where there are measurements, also the share at which drafts give 5%, measured and simulated: both by straight lines
# between the shares that were measured, if there are two; 0: less is enough.
if [ -z "$KEEP" ]; then
    {
        echo "# $figure: least share of right drafts that makes a way 1% faster than it is without, and the least ratio;"
        echo "# then the share that makes it 5% faster, by straight lines between the shares that an H200 measured"
        printf 'batch\tway\tleast_share\tworst_ratio\tshare_5_simulated\tshare_5_measured\n'
        awk -F '\t' -v OFS='\t' '
            function reaches(ratio, at, i, a, b) {  # where the line through ratio[at, share of i] comes to 1.05
                if (shares[at] < 2) return "nan"
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

# Times as fast with an oracle of which 70% is right: DVR over ordinary requests without drafts, and over itself.
over() {  # over COLUMN BATCH BASE DECIMALS: of the points, column 5 is simulated and 6 is measured
    tell "%.$4f" '$2 == "tok_per_s_none" && $3 == "'"$2 $3"'" && $4 == 0 { base = $'"$1"' }
        $2 == "tok_per_s" && $3 == "'"$2"' dvr" && $4 == 0.7 { value = $'"$1"' }
        END { print base && base != "nan" && value != "nan" ? value / base : 0 }'
}
title="Simulated: what drafts are worth, by the share of an oracle's that is right"
[ ! -r "${measured[1]}" ] || title="Measured: with 70% of an oracle's drafts right, DVR serves one request \
$(over 6 1 ordinary 1) times as fast as ordinary decoding without drafts, and 64 at once $(over 6 64 ordinary 1) times"
width=1180 reading="lines: simulated; hollow marks: measured on an H200 with an oracle; dashed: without drafts"
source=$(source_of "$raw")
notes=("at most seven drafts of a request in a pass; best has batch-invariant passes here; the y axes are logarithmic"
    "DVR of 64 requests with 70% right, over itself without drafts: measured $(over 6 64 dvr 2) times,\
 simulated $(over 5 64 dvr 2)"
    "measured: Llama 3.1 8B (random weights) on one H200, medians of three runs; \
$(made_of <(grep -h '^#' "${measured[@]}"))")
plot
