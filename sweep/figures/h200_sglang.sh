#!/bin/bash
# SGLang's published cost of determinism on an H200 beside what our modes cost there, and its test of determinism beside
# ours, as Markdown. Nothing is drawn. Needs what sweep/h200/run.sh leaves: sglang_cost.tsv, workloads_*.tsv and
# sglang_8b.tsv.
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="sglang_cost workloads_sharegpt workloads_fixed workloads_match workloads_fixed_match sglang_8b"
# shellcheck source=sweep/figures/h200.inc
source "$(dirname "$0")/h200.inc"

# ours FILE POLICY: lines `mode, policy, ratio, output tokens/s` of a file that bench or sweep has written.
ours() {
    [ -r "$H200/$1.tsv" ] || return 0
    if grep -q '^suite' "$H200/$1.tsv"; then
        rows "$H200/$1.tsv" suite case deterministic_ratio tokens_per_s | grep '^workloads' | cut -f 2-
    else
        rows "$H200/$1.tsv" mode ratio output_tok_per_s
    fi | awk -F '\t' -v OFS='\t' -v policy="$2" '
        {
            mode = $1
            sub(/.*:/, "", mode)
            way = mode ~ /^dvr/ ? "DVR" : mode == "nondeterministic" ? "NONDETERMINISTIC" : "INVARIANT"
            if (mode ~ /overlap/) next
            kind = mode ~ /eager/ ? "EAGER" : "WAIT"
            print way, way == "DVR" ? policy kind : "none", way == "DVR" ? 100 * $2 : way == "INVARIANT" ? 100 : 0, $3
        }'
}
# A row for each mode of a file: the extra time is that of the same tokens at the lower speed.
load() {  # load NAME FILE POLICY
    ours "$2" "$3" | sort -t $'\t' -k1,1r -k2,2 -k3,3n | awk -F '\t' -v name="$1" -v file="$2" '
        $1 == "NONDETERMINISTIC" { base = $4; next }
        {
            printf "| %s | %s | %s | %d | %.0f | %.1f | `%s.tsv` |\n", name, $1, $2, $3, $4, 100 * (base / $4 - 1),
                file
        }'
}
revision_of() { sed -n 's/^# cuda kernels: //p' "$H200/$1.tsv" | head -n 1; }
revisions() {  # revisions NAME...: which revision of the CUDA kernels the files are of
    local name sep=
    for name in "$@"; do
        [ -r "$H200/$name.tsv" ] || continue
        printf '%s`%s.tsv`, revision %s' "$sep" "$name" "$(revision_of "$name")"
        sep='; '
    done
}
# repeated FILE LENGTH: SGLang's load with prompts and outputs of LENGTH tokens, by our presets. Ordinary requests alone
# (share 0) are the base: the mean of their runs.
repeated() {
    local file=$H200/$1.tsv tokens
    [ -r "$file" ] || return 0
    tokens=${2%???},${2: -3}
    rows "$file" preset ratio duration_s >"$work/cost"
    awk -F '\t' '$2 == 0 { base = 1 } END { exit !base }' "$work/cost" || return 0
    rows $reference/sglang_cost.tsv workload normal_s deterministic_s | awk -F '\t' -v load="$2/$2" '
        $1 == load { x = 100 * ($3 / $2 - 1); if (!n++ || x < least) least = x; if (x > most) most = x }
        END { printf "%.0f to %.0f", least, most }' >"$work/published"
    echo "Ours, $(model_name 8b), on one $(device_of "$file"): SGLang's load of 256 requests with $tokens"
    echo "tokens in and $tokens out (\`$1.tsv\`, revision $(revision_of "$1"), $(sed -n 's/^# date: //p' \
        "$file"); one run each)."
    awk -F '\t' -v published="$(cat "$work/published")" '
        $2 == 0 { base += $3; n++; if (!least || $3 < least) least = $3; if ($3 > most) most = $3 }
        { preset[NR] = $1; share[NR] = $2 == "nan" ? 100 : 100 * $2; s[NR] = $3 }
        END {
            base /= n
            print "Extra time is over " (n == 1 ? "the run" : "the mean of the " (n == 2 ? "two" : n) " runs") \
                " of ordinary requests alone.\n"
            print "| preset | deterministic requests, % | time, s | extra time, % |\n| --- | --- | --- | --- |"
            for (i = 1; i <= NR; i++) {
                extra = 100 * (s[i] / base - 1)
                if (share[i] && (!k++ || extra > dearest)) dearest = extra
                printf "| `%s` | %d | %.2f | %s |\n", preset[i], share[i], s[i], share[i] ? sprintf("%.1f", extra) : ""
            }
            if (dearest > 0) printf "\nThe deterministic runs take at most %.1f%% longer", dearest
            else printf "\nThe deterministic runs do not take longer"
            if (n > 1) printf ", and the ordinary ones are %.1f%% apart", 100 * (most / least - 1)
            print ". SGLang"
            print "publishes " published "% for this load, in the table of its numbers below. That is another model in"
            print "another engine: each extra time is over the same engine\047s ordinary mode."
        }' "$work/cost"
    sed -n 's/^# cut off .*: \(.* is missing\)$/\nThe run was cut off by its time limit: \1./p' "$file"
    echo
}
{
    echo "# SGLang's published numbers beside ours"
    echo
    echo "## Cost"
    echo
    repeated sglang_cost 1024
    repeated sglang_cost_4096x4096 4096
    echo "SGLang, Qwen3-8B, one H200, 256 requests: seconds as published, and the extra time of its deterministic mode"
    echo "(batch-invariant kernels, all requests)."
    echo
    echo "| attention backend | tokens in | tokens out | normal, s | deterministic, s | extra time, % |"
    echo "| --- | --- | --- | --- | --- | --- |"
    rows $reference/sglang_cost.tsv backend workload normal_s deterministic_s | tr / '\t' |
        awk -F '\t' '{ printf "| %s | %s | %s | %s | %s | %.1f |\n", $1, $2, $3, $4, $5, 100 * ($5 / $4 - 1) }'
    echo
    echo "Ours in other loads, $(model_name 8b), on one $(device_of "$H200/workloads_sharegpt.tsv"), 1,024"
    echo "requests at once: the extra time over mode NONDETERMINISTIC of the same file. Under policy P replay passes"
    echo "sum as small fast passes do (match), with prefill INVARIANT, W = 32 and G = 16; runs without P have prefill"
    echo "PACKED, W = 32 and G = 8."
    echo "Revisions of the CUDA kernels: $(revisions workloads_sharegpt workloads_match);"
    echo "$(revisions workloads_fixed workloads_fixed_match)."
    echo
    echo "| load | mode | policy | deterministic requests, % | output tokens/s | extra time, % | file |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    load ShareGPT workloads_sharegpt ""
    load ShareGPT workloads_match "P, "
    load "1,024 in, 256 out" workloads_fixed ""
    load "1,024 in, 256 out" workloads_fixed_match "P, "
    echo
    echo "These loads differ from SGLang's in lengths and number of requests, too, so their extra times can be compared only"
    echo "roughly."
    echo
    echo "## SGLang's test of determinism"
    echo
    echo "The same prompt is run in batches of 1 to 50 requests, in three ways. The table has the number of different"
    echo "texts of the prompt that has most, so 1 means that all are equal. In way single only the first text of a batch"
    echo "counts, so 50 texts. Our control, nondeterministic, has the products as cuBLASLt offers them."
    if [ -r "$H200/sglang_8b.tsv" ]; then
        old=
        [ "$(revision_of sglang_8b)" -gt 7 ] || old=", so the bits are not today's"
        echo "(Ours: $(revisions sglang_8b) of the CUDA kernels$old.)"
    fi
    echo
    echo "| engine | mode | single | mixed | prefix |"
    echo "| --- | --- | --- | --- | --- |"
    rows $reference/sglang_determinism.tsv backend mode single mixed_p1 mixed_p2 mixed_long \
        prefix_1 prefix_511 prefix_2048 prefix_4097 | awk -F '\t' '
        function most(from, to,    i, m) { for (i = from; i <= to; i++) if ($i > m) m = $i; return m }
        { printf "| SGLang, %s | %s | %d | %d | %d |\n", $1, $2, $3, most(4, 6), most(7, 10) }'
    [ ! -r "$H200/sglang_8b.tsv" ] || rows "$H200/sglang_8b.tsv" case quantity value | awk -F '\t' '
        { split($1, part, " "); at = part[2] SUBSEP part[1] }
        $2 == "unique_texts" { texts[at] = $3 }
        $2 == "unique_outputs" {
            if (!seen[part[2]]++) mode[++modes] = part[2]
            outputs[at] = $3
            if ($3 == 1) texts[at] = 1  # one output with all its bits is one text
        }
        function line(engine, name, count) {
            printf "| %s | %s | %s | %s | %s |\n", engine, name, count[name, "single"], count[name, "mixed"],
                count[name, "prefix"]
        }
        END {
            for (i = 1; i <= modes; i++) line("ours", mode[i], texts)
            print "\nThe next table counts ours more strictly: outputs that differ in a token or a bit of a"
            print "log-probability, among all answers, of which way single has 1,275. SGLang has no such count.\n"
            print "| engine | mode | single | mixed | prefix |"
            print "| --- | --- | --- | --- | --- |"
            for (i = 1; i <= modes; i++) line("ours", mode[i], outputs)
        }'
} >"$work/table"
mv "$work/table" "$OUT/sglang.md"
