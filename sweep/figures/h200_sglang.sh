#!/bin/bash
# SGLang's published cost of determinism on an H200 beside what our modes cost there, and its test of determinism beside
# ours, as Markdown. Nothing is drawn. Needs what sweep/h200/run.sh leaves: workloads_*.tsv and sglang_8b.tsv.
# shellcheck disable=SC2034  # h200.inc looks for these: any will do
needs="workloads_sharegpt workloads_fixed workloads_match workloads_fixed_match sglang_8b"
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
{
    echo "# SGLang's published numbers beside ours"
    echo
    echo "## Cost"
    echo
    echo "SGLang, Qwen3-8B, one H200, 256 requests: seconds as published, and the extra time of its deterministic mode"
    echo "(batch-invariant kernels, all requests)."
    echo
    echo "| attention backend | tokens in | tokens out | normal, s | deterministic, s | extra time, % |"
    echo "| --- | --- | --- | --- | --- | --- |"
    rows $reference/sglang_cost.tsv backend workload normal_s deterministic_s | tr / '\t' |
        awk -F '\t' '{ printf "| %s | %s | %s | %s | %s | %.1f |\n", $1, $2, $3, $4, $5, 100 * ($5 / $4 - 1) }'
    echo
    echo "Ours, $(model_name 8b), on one $(device_of "$H200/workloads_sharegpt.tsv"), 1,024 requests at once: the extra time"
    echo "over mode NONDETERMINISTIC of the same file. Under policy P replay passes sum as small fast passes do"
    echo "(match), with prefill INVARIANT, W = 32 and G = 16; runs without P have prefill PACKED, W = 32 and G = 8."
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
    echo "The two differ in model, load, number of requests and engine. Each extra time is over the same engine's own fast"
    echo "mode, so the extra times can be compared only roughly."
    echo
    echo "## SGLang's test of determinism"
    echo
    echo "The same prompt is run in batches of 1 to 50 requests, in three ways. The table has the number of different"
    echo "texts of the prompt that has most, so 1 means that all are equal. In way single only the first text of a batch"
    echo "counts, so 50 texts. A cell is empty where our file has no count of texts."
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
