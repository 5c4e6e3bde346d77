#!/bin/bash
# build/sweep as it is used: the same result at any number of threads, from shares, after a break; what it refuses and
# how; that simulated and measured results say which they are; and that its figures agree with each other.
# shellcheck disable=SC2054,SC2086  # the commas are sweep's, and some variables hold several words or none
export LC_ALL=C
source tests/check.sh
scratch
sweep=$B/sweep

refuses() {  # refuses STATUS PATTERN ARGUMENT...: that status, one line on stderr with the pattern, nothing on stdout
    "$sweep" "${@:3}" >"$dir/stdout" 2>"$dir/stderr" </dev/null
    local status=$? lines
    lines=$(wc -l <"$dir/stderr")
    [ $status = "$1" ] && [ "$lines" = 1 ] && [ ! -s "$dir/stdout" ] && grep -qE -- "$2" "$dir/stderr"
    judge "sweep ${*:3}: exit $status, expected $1 and '$2', got:" "$dir/stderr"
}

rows() {  # rows AWK [FILE]: for each row; at["NAME"] is the place of the column NAME
    awk -F '\t' '/^#/ { next } !n { for (n = 1; n <= NF; n++) at[$n] = n; next } '"$1" "${@:2}"
}
column() { rows '{ print $at["'"$2"'"] }' "$1"; }  # column FILE NAME

seal_cell() {  # seal_cell FILE: the hash in the file of a cell is made to fit its lines again
    local hash=$((0xcbf29ce484222325)) byte
    for byte in $(sed '/^# hash: /,$d' "$1" | od -An -v -tu1); do hash=$(((hash ^ byte) * 0x100000001b3)); done
    sed -i "s/^# hash: .*/# hash: $(printf %016x $hash)/" "$1"
}

# A calibration of the right form and plausible numbers; batch-invariant passes take half as long again.
make_calibration() {
    awk 'BEGIN {
        OFS = "\t"
        print "# llm42 calibration 2\n# source: made up for this test\n# device: none\n# model: llama-3.1-8b"
        print "# time_unit: ms\n# kv_tokens: 100000\n# flip_shape: 0.35"
        print "schedule", "kind", "rows", "context_tokens", "ms"
        tables = split("fast decode 12 0.02,fast prompt 12 0.04,fixed window 12 0.04,fixed prompt 12 0.04," \
                       "invariant decode 18 0.03,invariant prompt 18 0.06", table, ",")
        for (t = 1; t <= tables; t++) {
            split(table[t], f, " ")
            print "# table: " f[1] " " f[2] " 15"
            for (r = 1; r <= 4096; r *= 8)
                for (c = 0; c <= 16384; c += 8192) print f[1], f[2], r, c, f[3] + f[4] * r * (1 + c / 16384)
        }
        print "# table: flips 1"
        print "fast_rows", "replay_rows", "flip_rate"
        print 1, 1, 0.005
        print "# end"
    }'
}
make_calibration >"$dir/none.tsv"
sim=(--calibration "$dir/none.tsv" --requests 200)
grid=("${sim[@]}" --mode dvr,nondeterministic,batch_invariant --window 16,64 --ratio 0.1,1 --verify eager,wait
      --qps 12,offline --slowdown 0,1)

# The grid, its columns, and modes in which most axes mean nothing.
"$sweep" "${grid[@]}" --threads 1 >"$dir/whole.tsv"
columns="backend calibration workload requests preset mode planner verifier verify prefill chunked bonus window group ratio
qps slowdown seed duration_s total_tok_per_s output_tok_per_s ttft_p50_s ttft_p75_s ttft_p90_s ttft_p99_s e2e_p50_s
e2e_p75_s e2e_p90_s e2e_p99_s itl_p50_s itl_p99_s det_e2e_p50_s det_e2e_p99_s nondet_e2e_p50_s nondet_e2e_p99_s
nondet_itl_p99_s returned_tokens det_tokens candidates verifications rollbacks recomputed_tokens recompute_pct
rollbacks_per_request preemptions passes_fast passes_fixed passes_invariant passes_replay replay_busy_pct running_mean
offered_per_s served_per_s overloaded"
check "columns" \
    [ "$(grep -m1 ^backend "$dir/whole.tsv" | tr '\t' ' ')" = "$(tr '\n' ' ' <<<"$columns" | sed 's/ $//')" ]
check "38 rows of 54 fields: 32 dvr, 2 nondeterministic, 4 batch_invariant" \
    [ "$(awk -F '\t' '!/^#/ && NF == 54' "$dir/whole.tsv" | cut -f 6 | sort | uniq -c | xargs)" \
    = "4 batch_invariant 32 dvr 1 mode 2 nondeterministic" ]
check "--list has them in that order" diff <(awk '!/^#/' "$dir/whole.tsv" | cut -f 5-18) \
    <("$sweep" "${grid[@]}" --list | cut -f 3-)
check "simulated, and says so" grep -q '^# simulated: .*calibration none$' "$dir/whole.tsv"
check "no axis where it means nothing" [ "$(awk -F '\t' '$6 == "nondeterministic"' "$dir/whole.tsv" | cut -f 8-15 |
    sort -u)" = $'-\t-\t-\ton\t-\tnan\tnan\tnan' ]

# Several numbers of requests at once: a column, and the same figures as one by one, where no column is needed.
batches=("${sim[@]}" --qps offline --mode dvr,nondeterministic --ratio 0.5)
"$sweep" "${batches[@]}" --max-running 16,4 --quiet >"$dir/batches.tsv"
check "a column for several batches" [ "$(column "$dir/batches.tsv" max_running | xargs)" = "16 4 16 4" ]
for batch in 4 16; do
    check "batch $batch is the same alone, without that column" diff <("$sweep" "${batches[@]}" --max-running $batch \
        --quiet | grep '^sim') <(awk -F '\t' -v batch=$batch '$19 == batch' "$dir/batches.tsv" | cut -f 1-18,20-)
done
check "batches by a merge" diff "$dir/batches.tsv" <("$sweep" "${batches[@]}" --max-running 16,4 --cells "$dir/batch" \
    --quiet >/dev/null && "$sweep" "${batches[@]}" --max-running 16,4 --merge "$dir/batch" --quiet)
refuses 2 "--max-running: 0, the backend's own number, must stand alone" "${batches[@]}" --max-running 0,4

# Shapes have names in FP8, too.
sed 's/^# model: .*/&-fp8/' "$dir/none.tsv" >"$dir/eight.tsv"
check "a shape in FP8" "$sweep" "${sim[@]/none.tsv/eight.tsv}" --quiet --out "$dir/eight_out.tsv"

# A request's time outside the engine is part of its latencies and of the duration that rates have, and of nothing else.
sed 's/^# model:/# host_request_ms: 1500\n&/' "$dir/none.tsv" >"$dir/outside.tsv"
"$sweep" "${grid[@]/none.tsv/outside.tsv}" >"$dir/later.tsv"
check "host_request_ms" [ "$(awk -F '\t' '
    /^#/ { next }
    $1 == "backend" { for (i = 1; i <= NF; i++) name[i] = $i; next }
    FILENAME == ARGV[1] { rows++; for (i = 1; i <= NF; i++) old[rows, i] = $i; next }
    {
        row++
        for (i = 3; i <= NF; i++)
            if (name[i] ~ /ttft|e2e|duration/ && old[row, i] != "nan") {
                if (name[i] ~ /duration/) longer = $i / old[row, i]
                difference = $i - old[row, i] - 1.5
                wrong += difference > 2e-5 * $i || -difference > 2e-5 * $i
            } else if (name[i] ~ /tok_per_s|running_mean|served_per_s/) {
                difference = $i * longer / old[row, i] - 1
                wrong += longer < 1.005 || difference > 2e-3 || -difference > 2e-3
            } else wrong += $i != old[row, i]
    }
    END { print rows, row, wrong }' "$dir/whole.tsv" "$dir/later.tsv")" = "38 38 0" ]
for fleet in "" "--replicas 2"; do
    "$sweep" --calibration "$dir/outside.tsv" --requests 1 $fleet --quiet >"$dir/alone.tsv"
    check "the duration of one request is its latency, $fleet" [ "$(column "$dir/alone.tsv" duration_s)" = \
        "$(column "$dir/alone.tsv" e2e_p99_s)" ]
done

# The same result another way.
check "2 threads" diff "$dir/whole.tsv" <("$sweep" "${grid[@]}" --threads 2)
for share in 1/3 2/3 3/3; do "$sweep" "${grid[@]}" --cells "$dir/cells" --cell $share --quiet; done
"$sweep" "${grid[@]}" --merge "$dir/cells" --out "$dir/merged.tsv" --quiet >/dev/null
check "three shares, merged" cmp "$dir/whole.tsv" "$dir/merged.tsv"
check "no files but the cells'" [ "$(find "$dir/cells" -type f ! -name '*.tsv' | wc -l)" = 0 ]
for task in 1 2; do
    B=$B SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=2 bash sweep/slurm.sh "$dir/tasks" "${grid[@]}" --quiet
done
check "two Slurm tasks, merged" diff "$dir/whole.tsv" <("$sweep" "${grid[@]}" --merge "$dir/tasks" --quiet)
check "two tasks for one cell" [ "$(for task in 1 2; do
    B=$B SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=2 bash sweep/slurm.sh "$dir/few" "${sim[@]}"
done | xargs)" = "share 1/2: 1 cells run, 0 were there share 2/2: 0 cells run, 0 were there" ]
task() { env SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2 "$@" bash sweep/slurm.sh "$dir/none" 2>&1; }
check "a Slurm array must be 1-N" grep -q 'array must be 1-N' <(task SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=4)
check "a Slurm task without its program" grep -q "no gone/sweep: run make" <(task B=gone)

# Another configuration in the same folder: both keep their cells, and a merge says what it has found.
other=("${grid[@]}" --requests 201 --flip-scale 1.0000001 --quiet)
"$sweep" "${other[@]}" --threads 1 >"$dir/other.tsv"
"$sweep" "${other[@]}" --cells "$dir/cells" --out "$dir/cells_other.tsv" >/dev/null
check "another configuration in the same folder" cmp "$dir/other.tsv" "$dir/cells_other.tsv"
"$sweep" "${grid[@]}" --merge "$dir/cells" >"$dir/merged.tsv" 2>"$dir/stderr"
check "it has not touched the first one's cells" cmp "$dir/whole.tsv" "$dir/merged.tsv"
check "the merge says so" grep -qxF "sweep: $dir/cells: 38 cells of this configuration, 38 of them in this grid; 38 \
cells of another configuration: flip_scale 1.0000001 (here 1), requests 201 (here 200); only this one is merged" "$dir/stderr"
check "and the other merge" diff "$dir/other.tsv" <("$sweep" "${other[@]}" --merge "$dir/cells" 2>"$dir/stderr")
check "says so even under --quiet" grep -q '38 cells of another configuration: flip_scale 1 (here 1.0000001)' \
    "$dir/stderr"
refuses 1 'missing; 38 of the grid.s 38 cells are not done: .*; it has 38 cells of another .*; 38 cells of another' \
    "${grid[@]}" --no-flips --merge "$dir/cells"
while read -r file; do rm "$file"; done < <(grep -l 'requests 201' "$dir/cells"/*)
mkdir "$dir/mixed"
cp "$dir"/cells/*_qps12_* "$dir/mixed"
"$sweep" "${other[@]}" --qps offline --cells "$dir/mixed" >/dev/null
refuses 1 'missing; 19 of the grid.s 38 cells are not done: .*; it has 19 cells of another .* requests 201 ' \
    "${grid[@]}" --merge "$dir/mixed"
printf '# llm42 sweep cell 3\n# configuration: x;\n# cell: \nrow\n# hash: 0\n# end\n' >"$dir/mixed/odd.tsv"
seal_cell "$dir/mixed/odd.tsv"
refuses 1 '; 1 cell of another configuration: x, \(here llm42 ' "${grid[@]}" --merge "$dir/mixed"

# Damage: a file cut short, one that is another cell's, one of a version without hashes, one gone, one with a number
# that was edited. If the hash fits such a number (the control), the cell is kept.
cells=("$dir"/cells/*)
edit() { sed -i 's/^\(sim\t.*\t\)[^\t]*$/\142.4242/' "$1"; }
cp "${cells[4]}" "$dir/cell" && head -c 300 "$dir/cell" >"${cells[4]}"
refuses 1 "${cells[4]##*/}: cut short or damaged; 1 of the grid's 38" "${grid[@]}" --merge "$dir/cells" \
    --out "$dir/no.tsv"
cp "$dir/cell" "${cells[4]}" && edit "${cells[4]}"
edited="${cells[4]##*/}: edited or damaged, because its hash does not fit its lines"
refuses 1 "$edited; 1 of the grid's 38" "${grid[@]}" --merge "$dir/cells" --out "$dir/no.tsv"
check "a refused merge leaves no result" [ ! -e "$dir/no.tsv" ]
head -c 300 "${cells[0]}" >"$dir/part" && cp "$dir/part" "${cells[0]}"
cp "${cells[3]}" "${cells[1]}"
sed -i '1s/3$/2/; /^# hash: /d' "${cells[5]}"
refuses 1 "; 4 of the grid's 38" "${grid[@]}" --merge "$dir/cells"
rm "${cells[2]}"
"$sweep" "${grid[@]}" --cells "$dir/cells" --out "$dir/resumed.tsv" >/dev/null 2>"$dir/notes"
check "resumed after damage" cmp "$dir/whole.tsv" "$dir/resumed.tsv"
check "note of the cut file" grep -q "${cells[0]##*/}: cut short or damaged: run again" "$dir/notes"
check "note of the file that is another cell's" grep -q "${cells[1]##*/}: cut short or damaged: run again" "$dir/notes"
check "note of the edited file" grep -q "$edited: run again" "$dir/notes"
check "note of the file of another version" grep -q \
    "${cells[5]##*/}: written by another version of build/sweep: run again" "$dir/notes"
check "notes of these only" [ "$(wc -l <"$dir/notes")" = 4 ]
check "they are whole now" diff "$dir/whole.tsv" <("$sweep" "${grid[@]}" --merge "$dir/cells" --quiet)
edit "${cells[3]}" && seal_cell "${cells[3]}"
check "a finished cell is not run again" grep -q '42.4242$' <("$sweep" "${grid[@]}" --cells "$dir/cells")
rm "${cells[3]}"
refuses 1 "${cells[3]##*/}: missing" "${grid[@]}" --merge "$dir/cells"

# Requests are submitted as they are needed: the same as all at once, preemptions included. The program that does the
# latter is built with a library that has one more way to verify.
late="v->submit_late = .*;"
word='X(LLM42_VERIFY_WAIT,'
check "the line that decides it" grep -q "$late" sweep/sweep.c
fewer=" return (int)(s->sim && needed .*;"
check "the line that takes fewer pages" grep -q "$fewer" sweep/sweep.c
check "the line of a policy's word" grep -q "$word" llm42.h
sed "s/$late/v->submit_late = false;/; s/$fewer/ return (int)s->pages;/" sweep/sweep.c >"$dir/eager.c"
sed "/$word/i\\    X(LLM42_VERIFY_NEVER, \"never\", \"for this test\") \\\\" llm42.h >"$dir/llm42.h"
check "a sweep that submits all at once" "$CC" -std=c11 -ffp-contract=off -O1 $OMP -I"$dir" -I. -isystem "$STB" \
    "$dir/eager.c" sweep/sweep/cells.c sweep/lib/*.c examples/lib/args.c -o "$dir/eager" -lm
few=("${sim[@]}" --requests 500 --mode dvr,nondeterministic --ratio 0.5 --qps 12,offline --verify eager,wait
     --prefill isolated,packed,invariant --max-running 100 --kv-tokens 17000 --admission-reserve 0)
"$sweep" "${few[@]}" >"$dir/few.tsv"
check "preemptions are in it" grep -qvx 0 <(column "$dir/few.tsv" preemptions)
check "submitted late or at once" diff "$dir/few.tsv" <("$dir/eager" "${few[@]}")
# A pool that is larger than what requests can need takes no more memory: the same as with all its pages.
awk 'BEGIN { for (i = 0; i < 40; i++)
    printf "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": 30, \"hash_ids\": [1, %d, %d]}\n",
        100 * i, 1100 + 10 * i, i % 3 + 2, i + 9 }' >"$dir/mooncake.jsonl"
for option in --no-flips --prefix-cache; do
    large=("${sim[@]}" --requests 40 --max-running 7 --page-size 2 --kv-tokens 2000000 $option
           --workload "mooncake:$dir/mooncake.jsonl" --mode dvr,nondeterministic --verify eager,wait
           --prefill isolated,packed --qps 1,offline --admission-reserve 1)
    "$sweep" "${large[@]}" >"$dir/large$option.tsv"
    check "a large pool, $option" diff "$dir/large$option.tsv" <("$dir/eager" "${large[@]}")
done
check "the prefix cache is in use" [ "$(column "$dir/large--no-flips.tsv" duration_s | xargs)" != \
    "$(column "$dir/large--prefix-cache.tsv" duration_s | xargs)" ]
"$sweep" "${sim[@]}" --requests 20 --kv-tokens 2147483647 --timing >/dev/null 2>"$dir/stderr"
check "20 requests with 2147483647 tokens of KV in 2 GB" [ "$(awk '{print ($(NF - 3) < 2000)}' "$dir/stderr")" = 1 ]
sed 's/kv_tokens: 100000/kv_tokens: 1e12/' "$dir/none.tsv" >"$dir/large.tsv"
refuses 1 'large.tsv: kv_tokens: 1000000000000 tokens are 62500000000 pages of 16: at most 268435456' \
    --calibration "$dir/large.tsv"
refuses 2 '--kv-tokens: 1: requests can have 9650 tokens and need 9664, in pages of 16: raise --kv-tokens, or lower --max-context' \
    "${sim[@]}" --kv-tokens 1
check "as many tokens as one request needs" "$sweep" "${sim[@]}" --kv-tokens 9664
sed 's/kv_tokens: 100000/kv_tokens: 1000/' "$dir/none.tsv" >"$dir/little.tsv"
check "a calibration's are raised with a word" [ "$("$sweep" "${sim[@]/none.tsv/little.tsv}" --requests 2 2>&1 \
    >"$dir/stdout")" = "sweep: the KV pool has room for the longest request, 9650 tokens: kv_tokens of little is 1000" ]
refuses 2 '--kv-tokens: a KV pool of 62500000000 pages of 16 tokens: at most' "${sim[@]}" --kv-tokens 1000000000000
check "a word that llm42.h has is a value of the axis" \
    [ "$("$dir/eager" "${sim[@]}" --verify wait,never --list | cut -f 7 | xargs)" = "verify wait never" ]

# Planners: all return the same tokens. Cells of the default one have no planner in their names, the others have.
planners=$("$sweep" "${sim[@]}" --planner nobody 2>&1 | sed -n 's/.*is not one of: //p')
refuses 2 "--planner: 'nobody' is not one of: default" "${sim[@]}" --planner nobody
some=("${sim[@]}" --planner "${planners//, /,}" --mode dvr,nondeterministic,batch_invariant --prefill packed
      --chunked on --ratio 0.5)
"$sweep" "${some[@]}" >"$dir/planners.tsv"
check "three cells of each planner" [ "$(column "$dir/planners.tsv" planner | sort | uniq -c | xargs)" = \
    "$(tr -d ' ' <<<"$planners" | tr , '\n' | sort | sed 's/^/3 /' | xargs)" ]
check "planners return as many tokens" [ "$(column "$dir/planners.tsv" returned_tokens | sort -u | wc -l)" = 1 ]
check "names of their cells" [ "$("$sweep" "${some[@]}" --list | awk -F '\t' '
    NR > 1 && ($5 == "default" ? $2 !~ /planner/ : index($2, "_planner-" $5 "_"))' | wc -l)" = \
    "$(column "$dir/planners.tsv" planner | wc -l)" ]

# A result says where nothing is known of flips, and where a calibration has none.
says() {  # says COMMENT CALIBRATION OPTION...: the line of comment that begins so; NONE: there is none
    "$sweep" --calibration "sweep/calibration/$2.tsv" --requests 20 --quiet "${@:3}" 2>&1 | grep -E '^# (extrapolated|no flips):' >"$log"
    if [ "$1" = NONE ]; then [ ! -s "$log" ]; else grep -qF -- "$1" "$log" && [ "$(wc -l <"$log")" = 1 ]; fi
    judge "$*"
}
paper="--preset paper --group 8 --window"
says '# extrapolated: in 1 of 2 cells a replay pass has more rows (W x G) than the 512 up to' h100-pcie-paper $paper 64,65
says NONE h100-pcie-paper $paper 64
says NONE h100-pcie-paper --preset invariant,dvr --group 1024
says NONE h100-pcie-paper $paper 65 --no-flips
says 'than the 1024 up to' h200-llama-3.1-8b $paper 128,129
says 'than the 256 up to' cpu-tiny42 $paper 33 --workload fixed:16x16
says '# no flips: in 2 of 4 cells' h200-llama-3.1-8b --preset dvr,best,invariant,paper --window 16 --group 8
says NONE h200-llama-3.1-8b-fp8 --preset dvr,best
says '# no flips: in 1 of 1 cells' h200-qwen3-30b-a3b-fp8 --preset paper
says '# extrapolated: in 1 of 2 cells' h100-pcie-paper $paper 65 --ratio 0,1

# A planner of one's own, from a file: with a parameter, a state for each engine, open and close for each cell.
cat >"$dir/mine.h" <<'END'
#include "sweep/budget.h"
static llm42_result count_open(llm42_planner *planner, const char *parameter, llm42_error *error) {
    fputs("open ", stderr);
    return budget_open(planner, parameter, error);
}
static void count_close(llm42_planner *planner) {
    fputs("close ", stderr);
    budget_close(planner);
}
// What an open function must not return, and an error without a text.
static llm42_result faulty_open(llm42_planner *planner, const char *parameter, llm42_error *error) {
    (void)planner, (void)error;
    return parameter ? LLM42_INVALID : LLM42_IDLE;
}
#undef OWN_PLANNERS
#define OWN_PLANNERS {.name = "budget", .open = budget_open, .close = budget_close}, \
    {.name = "count", .open = count_open, .close = count_close}, {.name = "faulty", .open = faulty_open}
END
check "a sweep with planners of one's own" "$CC" -std=c11 -ffp-contract=off ${SANITIZE--O1} -Wall -Wextra -Werror $OMP \
    -I. -isystem "$STB" -DLLM42_IMPLEMENTED -DLLM42_PLANNER="\"$dir/mine.h\"" sweep/sweep.c \
    sweep/sweep/cells.c sweep/lib/planner.c "$B/programs.a" "$B/llm42.o" \
    -o "$dir/own" -lm
own=("${sim[@]}" --planner default,budget,budget:0.05,budget:0.3,budget:1 --ratio 0.5 --quiet)
"$dir/own" "${own[@]}" --threads 1 >"$dir/own.tsv" 2>"$dir/stderr"
check "the column planner has its parameter" [ "$(column "$dir/own.tsv" planner | xargs)" = \
    "default budget budget:0.05 budget:0.3 budget:1" ]
check "its parameter means something" [ "$(column "$dir/own.tsv" replay_busy_pct | sed -n '3p;5p' | sort -u | wc -l)" = 2 ]
check "as many tokens" [ "$(column "$dir/own.tsv" returned_tokens | sort -u | wc -l)" = 1 ]
# The same ones: commands of sweep/README.md print hashes of the deterministic tokens, and of the others, the control.
if [ "$slow" = 0 ]; then
    awk '/^for planner in default budget/ { on = 1 } /^```/ { on = 0 } on' sweep/README.md |
        sed -E "s,build/sweep,$dir/own,; s,(run\.tsv|log|answers)\b,$dir/\1,g" >"$dir/recipe"
    bash "$dir/recipe" >"$dir/hashes" 2>"$dir/stderr"
    check "planners change no deterministic token, but others" awk '{ hash[NR] = $1 }
        END { exit NR != 4 || hash[1] != hash[3] || hash[2] == hash[4] }' "$dir/hashes"
fi
check "cells side by side share no state" diff "$dir/own.tsv" <("$dir/own" "${own[@]}" --threads 4 2>"$dir/stderr")
check "nor do replicas" diff <(awk '!/^#/' "$dir/own.tsv") <("$dir/own" "${own[@]}" --replicas 1 2>"$dir/stderr" |
    awk '!/^#/' | cut -f 1-18,21-)
"$dir/own" "${sim[@]}" --planner count:0.1 --replicas 3 >"$dir/stdout" 2>"$dir/stderr"
check "open and close for each replica" grep -q '^open open open close close close' "$dir/stderr"
"$dir/own" "${sim[@]}" --planner count:0.1,count:7 --threads 1 >"$dir/stdout" 2>"$dir/stderr"
check "a parameter that the planner refuses" [ "$? $(head -n 1 "$dir/stderr")" = \
    "1 open close open own: --planner budget:7: must be a share of time from 0 to 1" ]
refuses 2 "--planner: 'every:1': only a planner of your own takes a parameter" "${sim[@]}" --planner every:1
program=$sweep sweep=$dir/own
refuses 2 "--planner: 'budget:a/b': a parameter has letters, digits and" "${sim[@]}" --planner budget:a/b
refuses 2 '--planner: budget:1 is there twice' "${sim[@]}" --planner budget:1,budget:1
refuses 2 "--planner: 'budge' is not one of: default, every, deadline, budget, count, faulty" "${sim[@]}" --planner budge
refuses 1 'own: planner faulty: open returned 1, which is neither LLM42_OK nor an error$' "${sim[@]}" --planner faulty
refuses 1 'own: planner faulty: open returned 1, which' "${sim[@]}" --planner faulty --replicas 2
refuses 1 'own: planner faulty:x: open: a field or argument is out of its range$' "${sim[@]}" --planner faulty:x
sweep=$program
check "make sweep PLANNER=FILE" bash -c 'make -n B="$1" sweep PLANNER=sweep/budget.h |
    grep -q -- "-DLLM42_PLANNER=.*/sweep/budget.h\""' - "$dir/nothing_built"
stamp() { make -s B="$dir/stamps" "$@" "$dir/stamps/.planner" "$dir/stamps/.flags" && cat "$dir"/stamps/.[fp]*; }
check "other planners or flags mean building again" [ "$( (stamp; stamp PLANNER=sweep/budget.h; stamp CFLAGS=-O1) |
    sort -u | grep -c .)" = 3 ]
no_planner() { [[ "$(make -n B="$dir/nothing_built" sweep PLANNER="$1" 2>&1)" == *"PLANNER=$1: $2"* ]]; }
check "of a file that is not there" no_planner gone.h "no such file"
for name in "my planner.h" "it's.h" 'a"b.h' 'a\b.h'; do
    cp sweep/budget.h "$dir/$name"
    check "of a file called $name" no_planner "$dir/$name" "the path must have no space, quote or backslash: rename or copy"
done

# Figures: of one cell against its requests, of modes against each other.
"$sweep" "${sim[@]}" --ratio 0.5 --per-request "$dir/requests.tsv" --trace "$dir/trace.tsv" >"$dir/one.tsv"
rank() { awk -F '\t' '!/^#/ && !/^request/ {print $'"$1"'}' "$dir/requests.tsv" | sort -g | sed -n "$2p"; }
same() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b * 0.99999 && a < b * 1.00001) }'; }
sum() { awk -F '\t' '!/^#/ && !/^request/ {n += $'"$1"'} END {print n}' "$dir/requests.tsv"; }
check "e2e p99 of 200 requests is the 198th" same "$(rank 7 198)" "$(column "$dir/one.tsv" e2e_p99_s)"
check "ttft p50 of 200 requests is the 100th" same "$(rank 6 100)" "$(column "$dir/one.tsv" ttft_p50_s)"
check "half of them deterministic" [ "$(sum 2)" = 100 ]
check "verifications" [ "$(sum 8)" = "$(column "$dir/one.tsv" verifications)" ]
check "rollbacks" [ "$(sum 9)" = "$(column "$dir/one.tsv" rollbacks)" ]
check "recomputed tokens" [ "$(sum 10)" = "$(column "$dir/one.tsv" recomputed_tokens)" ]
check "returned tokens" [ "$(sum 4)" = "$(column "$dir/one.tsv" returned_tokens)" ]
check "replay passes, by what they are" [ "$(rows '
    $at["event"] == "pass" && $at["windows"] > 0 { passes++ }
    END { print passes }' "$dir/trace.tsv") $(column "$dir/one.tsv" passes_fixed)" = \
    "$(column "$dir/one.tsv" passes_replay) 0" ]
"$sweep" "${sim[@]}" --preset dvr,best,paper,invariant --mode preset >"$dir/passes.tsv"
check "replay passes of each preset" [ "$(rows '
    { r = $at["passes_replay"]
      print $at["preset"], (r > 0) == ($at["verifications"] > 0), $at["passes_fixed"] == ($at["preset"] == "paper" ? r : 0)
    }' "$dir/passes.tsv" | xargs)" = "dvr 1 1 best 1 1 paper 1 1 invariant 1 1" ]
check "trace" [ "$(grep -c $'\tfinished\t' "$dir/trace.tsv")" = 200 ]
check "every cell returns the same tokens" [ "$(column "$dir/whole.tsv" returned_tokens | sort -u | wc -l)" = 1 ]
check "invariant passes as fast as fast ones: as without determinism" \
    [ "$(awk -F '\t' '$6 == "batch_invariant" && $17 == 1' "$dir/whole.tsv" | cut -f 19-31)" \
    = "$(awk -F '\t' '$6 == "nondeterministic"' "$dir/whole.tsv" | cut -f 19-31)" ]
# A FIXED replay pass has all of its W x G rows, so that G is not 128 there unless it is given.
check "G of preset dvr by verifier" \
    [ "$("$sweep" "${sim[@]}" --preset dvr --verifier fixed,invariant --list | column /dev/stdin group | xargs)" = "32 128" ]
check "G that is given" \
    [ "$("$sweep" "${sim[@]}" --preset dvr --verifier fixed --group 100 --list | column /dev/stdin group)" = 100 ]
"$sweep" "${sim[@]}" --verifier fixed --prefill packed,invariant --slowdown 0,1,3 >"$dir/prefill.tsv"
check "with prefill invariant a slowdown means something" \
    [ "$(column "$dir/prefill.tsv" prefill | uniq -c | xargs)" = "1 packed 3 invariant" ]
check "INVARIANT passes there only" [ "$(column "$dir/prefill.tsv" passes_invariant |
    awk '{print ($1 > 0)}' | xargs)" = "0 1 1 1" ]
check "slow ones make first tokens late" [ "$(column "$dir/prefill.tsv" ttft_p50_s |
    awk 'NR > 1 {print $1, NR}' | sort -g | cut -d ' ' -f 2 | xargs)" = "3 2 4" ]

# Overload: columns, the line on stderr, also from a merge; no line for steady loads, short runs, requests all at once.
overload=(--calibration sweep/calibration/h100-pcie-paper.tsv --workload arxiv --requests 300 --quiet)
"$sweep" "${overload[@]}" --qps 1,9,offline --cells "$dir/load" >"$dir/load.tsv" 2>"$dir/stderr"
check "offered and served" [ "$(rows '
    { off = $at["served_per_s"] * $at["duration_s"] / 300 - 1
      print $at["qps"], $at["offered_per_s"], (off * off < 1e-6), $at["overloaded"] }' "$dir/load.tsv" | xargs)" = "1 1.004 1 0 9 9.032 1 1 offline nan 1 nan" ]
said="sweep: overloaded: 1 of 3 cells; qps 9, served 1.47 of 9.03/s, latencies grow with --requests"
check "overload is said" [ "$(cat "$dir/stderr")" = "$said" ]
check "by a merge, too" [ "$("$sweep" "${overload[@]}" --qps 1,9,offline --merge "$dir/load" 2>&1 >/dev/null)" = "$said" ]
check "of one cell" [ "$("$sweep" "${overload[@]}" --qps 9 2>&1 >/dev/null)" = \
    "sweep: overloaded: served 1.47 of 9.03/s, latencies grow with --requests" ]
check "with columns for drafts" [ "$("$sweep" "${overload[@]}" --qps 9 --draft none 2>&1 >/dev/null)" = \
    "sweep: overloaded: served 1.47 of 9.03/s, latencies grow with --requests" ]
drafts_pay() {  # windows with drafts do not wait for their turn
    "$sweep" --calibration sweep/calibration/h200-llama-3.1-8b.tsv --preset dvr --planner every --ratio 0.5 --qps offline \
        --max-running 16 --workload fixed:32x128 --requests 128 --draft none,0.7 --quiet |
        rows '{ speed[$at["draft"]] = $at["output_tok_per_s"] } END { exit !(speed["0.7"] > 0.9 * speed["none"]) }'
}
check "drafts under a planner of one's own" drafts_pay
every_turns() {  # fewer than G deterministic requests have their turn once in W passes, as under the built-in planner
    "$sweep" --calibration sweep/calibration/h200-llama-3.1-8b.tsv --preset dvr --planner default,every --ratio 0.25 \
        --qps offline --max-running 16 --workload fixed:32x128 --requests 64 --quiet |
        rows '{ p50[$at["planner"]] = $at["det_e2e_p50_s"] } END { exit !(p50["every"] < 1.5 * p50["default"]) }'
}
check "planner every: few requests do not wait for G" every_turns
most_rows() {  # the rows of the largest pass, where prompts ride beside drafts: 32 windows of 16, or the token budget
    "$sweep" --calibration sweep/calibration/h200-llama-3.1-8b.tsv --preset dvr --ratio 1 --qps 20 --max-running 128 \
        --workload fixed:1500x64 --requests 60 --draft 0.7 --token-budget "$1" --trace "$dir/rows.tsv" --quiet >"$dir/rows"
    awk -F '\t' '$2 == "pass" && $4 > most { most = $4 } END { print most }' "$dir/rows.tsv"
}
check "prompts beside drafts keep to 32 windows" [ "$(most_rows 128)" = 512 ]
check "or to the token budget" [ "$(most_rows 1024)" = 1024 ]
check "of a fleet" [ "$("$sweep" "${overload[@]}" --qps 9 --replicas 2 2>&1 >/dev/null)" = \
    "sweep: overloaded: served 2.88 of 9.03/s, latencies grow with --requests" ]
check "a short run is not overloaded" [ -z "$("$sweep" "${overload[@]/arxiv/sharegpt}" --requests 60 2>&1 >/dev/null)" ]
short=("${overload[@]/arxiv/fixed:1024x64}" --preset paper --requests 1024 --qps 16)
check "nearly overloaded for a short time: nothing can be told" [ "$("$sweep" "${short[@]}" | tail -n 1 | cut -f 54)" = nan ]
check "for a longer time: it is not" [ "$("$sweep" "${short[@]}" --requests 8192 | tail -n 1 | cut -f 54)" = 0 ]
unset 'overload[6]'
check "a run that is too short says so" grep -qx "sweep: 1 of 1 cells may be overloaded: too short to tell, raise \
--requests" <("$sweep" "${overload[@]/arxiv/fixed:1024x64}" --preset paper --requests 1024 --qps 16 2>&1 >/dev/null)
overload+=(--quiet)
check "one request is not" [ "$("$sweep" "${overload[@]}" --requests 1 | cut -f 52- | tail -n 1)" = "$(printf 'nan\t0.5315\tnan')" ]

# Mode hybrid is as fast as the better of the two modes that give the same bits, wherever these cross.
hybrid=(--qps offline --mode dvr,hybrid,batch_invariant --verifier invariant --verify wait --prefill packed --chunked on
    --bonus on --ratio 0.1,0.5,1)
hybrid_cells() {  # hybrid_cells FILE: cells of mode hybrid; how many are more than 2% slower than the better mode
    rows '
        {
            key = $at["slowdown"]; x = $at["total_tok_per_s"]
            if ($at["mode"] == "batch_invariant") invariant[key] = x
            else if ($at["mode"] == "dvr") dvr[key " " $at["ratio"]] = x
            else { hybrid[key " " $at["ratio"]] = x; slowdown[key " " $at["ratio"]] = key }
        }
        END {
            for (k in hybrid) {
                best = dvr[k] > invariant[slowdown[k]] ? dvr[k] : invariant[slowdown[k]]
                cells++; slow += hybrid[k] < 0.98 * best
            }
            print cells, slow + 0
        }' "$1"
}
"$sweep" "${sim[@]}" "${hybrid[@]}" --requests 400 --slowdown 1,1.5,2,4 >"$dir/hybrid.tsv"
check "hybrid is as fast as the better mode" [ "$(hybrid_cells "$dir/hybrid.tsv")" = "12 0" ]
"$sweep" --calibration sweep/calibration/h100-pcie-paper.tsv --requests 2000 --workload fixed:512x256 "${hybrid[@]}" \
    --window 64 --group 16 --slowdown 0,1.25,1.5,2,3 >"$dir/hybrid.tsv"
check "hybrid is as fast as the better mode on the paper's GPU" [ "$(hybrid_cells "$dir/hybrid.tsv")" = "15 0" ]
check "no flips, no rollbacks" [ "$("$sweep" "${sim[@]}" --no-flips | cut -f 41,42 | tail -n 1)" = $'0\t0' ]
check "ratio 0: no verification" [ "$("$sweep" "${sim[@]}" --ratio 0 | cut -f 39-41 | tail -n 1)" = $'0\t0\t0' ]

# One table of a calibration 10% faster: single runs may take longer, but no mean does, and README has these figures. The
# control: where a table is 10% slower, means are longer.
B=$B OUT=$dir bash sweep/experiments/faster_table.sh
slower() { awk -F '\t' 'NR > 1 && $4 > 2 * $5 { n++ } END { print NR - 1, n + 0 }' "$1"; }
check "a faster table makes no mean longer" [ "$(slower "$dir/faster_table.tsv")" = "8 0" ]
B=$B OUT=$dir SEEDS=20 FACTOR=1.1 bash sweep/experiments/faster_table.sh
check "a slower table does" [ "$(slower "$dir/faster_table.tsv" | cut -d ' ' -f 2)" -ge 4 ]

# Presets: a cell's columns have what its preset says, and its row is that of the same policies given one by one.
"$sweep" "${sim[@]}" --preset dvr,best,paper,invariant --ratio 0.5 >"$dir/presets.tsv"
check "four presets, and their modes" [ "$(awk -F '\t' '!/^#/ && NR > 1 {print $5 "=" $6}' "$dir/presets.tsv" | xargs)" = \
    "preset=mode dvr=dvr best=hybrid paper=dvr invariant=batch_invariant" ]
check "the paper's policies, W and G" [ "$(grep -P '\tpaper\t' "$dir/presets.tsv" | cut -f 8-14 | xargs)" = \
    "fixed eager isolated off off 64 8" ]
check "what they say stands there, not that they say it" [ "$(grep -v '^#' "$dir/presets.tsv" | grep -cw preset)" = 1 ]
by_hand() {  # by_hand PRESET: each value of its row as an option, with a preset of other values
    local options
    readarray -t options < <(awk -F '\t' -v preset="$1" '
        /^#/ { next }
        !n { for (n = 1; n <= NF; n++) name[n] = $n; next }
        $5 == preset {
            for (i = 6; i <= 18; i++) if ($i != "-" && $i != "nan") print "--" name[i] "\n" $i
        }' "$dir/presets.tsv")
    [ ${#options[@]} -gt 8 ] && "$sweep" "${sim[@]}" --preset "$2" "${options[@]}" >"$dir/hand.tsv" &&
        diff <(awk -F '\t' -v preset="$1" '!/^#/ && $5 == preset' "$dir/presets.tsv" | cut -f 6-) \
            <(grep ^sim "$dir/hand.tsv" | cut -f 6-)
}
check "four presets, four results" [ "$(grep ^sim "$dir/presets.tsv" | cut -f 19- | sort -u | wc -l)" = 4 ]
for pair in "dvr paper" "best paper" "paper best" "invariant paper"; do check "by hand: $pair" by_hand $pair; done
"$sweep" "${sim[@]}" --preset dvr,paper --window 12 --verify eager --bonus on >"$dir/own.tsv"
check "options override the presets" [ "$(grep ^sim "$dir/own.tsv" | cut -f 9,12,13 | sort -u | xargs)" = "eager on 12" ]
check "and leave them the rest" [ "$(column "$dir/own.tsv" verifier | xargs) $(column "$dir/own.tsv" prefill |
    tail -n 1) $(column "$dir/own.tsv" group | tail -n 1)" = "invariant fixed isolated 8" ]
check "mode hybrid has one verifier, by any preset" [ "$("$sweep" "${sim[@]}" --preset dvr,paper --mode hybrid |
    grep -c ^sim)" = 2 ]

# A fleet. One replica gives the same rows as a single engine, apart from two more columns, and the same requests.
# Settings are taken by chance. The control: other seeds differ. (tests/test_fleet.c looks at the routers.)
pick() { shift $((RANDOM % $#)) && echo "$1"; }
RANDOM=42 same=0 others=0
for _ in $(seq 40); do
    one=("${sim[@]}" --mode "$(pick dvr dvr dvr hybrid nondeterministic batch_invariant)"
        --preset "$(pick dvr best paper)" --verifier "$(pick preset fixed invariant)" --verify "$(pick eager wait)"
        --prefill "$(pick isolated packed invariant)" --chunked "$(pick off on)" --bonus "$(pick off on)"
        --window "$(pick 1 8 64)" --group "$(pick 1 8)"
        --ratio "$(pick 0 0.1 0.5 1)" --qps "$(pick offline 5 12 trace)" --planner "$(pick default default every deadline)"
        --max-running "$(pick 3 20 2048)" --kv-tokens "$(pick 0 8000 30000)" --workload "mooncake:$dir/mooncake.jsonl")
    [ $((RANDOM % 2)) = 0 ] || one+=(--prefix-cache)
    router=$(pick round_robin least_tokens deterministic_apart)
    [ "$router" != deterministic_apart ] || one+=(--mode dvr)
    "$sweep" "${one[@]}" --per-request "$dir/a_requests.tsv" 2>"$dir/stderr" | awk '!/^#/' >"$dir/a.tsv"
    "$sweep" "${one[@]}" --replicas 1 --router "$router" --per-request "$dir/b_requests.tsv" 2>"$dir/stderr" |
        awk '!/^#/' | cut -f 1-18,21- >"$dir/b.tsv"
    cmp -s "$dir/a.tsv" "$dir/b.tsv" && [ -s "$dir/a.tsv" ] && same=$((same + 1))
    cmp -s <(grep -v '^#' "$dir/a_requests.tsv") <(grep -v '^#' "$dir/b_requests.tsv" | cut -f 1-10) &&
        others=$((others + 1))
done
check "one replica gives the row of one engine, 40 times" [ $same = 40 ]
check "and its requests" [ $others = 40 ]
fleet=("${sim[@]}" --replicas 1,5 --router round_robin,least_tokens,deterministic_apart --ratio 0.3,1 --qps 40,offline
       --mode dvr,nondeterministic,batch_invariant)
"$sweep" "${fleet[@]}" --threads 1 >"$dir/fleet.tsv" 2>"$dir/stderr"
check "52 rows of a fleet: batch_invariant has two ratios where replicas are set apart" \
    [ "$(column "$dir/fleet.tsv" mode | sort | uniq -c | xargs)" = "16 batch_invariant 24 dvr 12 nondeterministic" ]
check "a fleet on 2 threads" diff "$dir/fleet.tsv" <("$sweep" "${fleet[@]}" --threads 2 2>"$dir/stderr")
check "another seed is another fleet" [ "$(cut -f 20- "$dir/fleet.tsv" | sort -u | wc -l)" -lt \
    "$(cat "$dir/fleet.tsv" <("$sweep" "${fleet[@]}" --seed 43 --quiet) | cut -f 20- | sort -u | wc -l)" ]
check "every fleet returns the same tokens" [ "$(column "$dir/fleet.tsv" returned_tokens | sort -u | wc -l)" = 1 ]
check "columns of a fleet" [ "$(grep -m1 ^backend "$dir/fleet.tsv" | cut -f 18-21 | xargs)" = \
    "seed replicas router duration_s" ]
for share in 1/2 2/2; do "$sweep" "${fleet[@]}" --cells "$dir/fleets" --cell $share --quiet; done
check "a fleet's shares, merged" diff "$dir/fleet.tsv" <("$sweep" "${fleet[@]}" --merge "$dir/fleets" --quiet)
cells=("$dir"/fleets/*)
head -c 300 "${cells[7]}" >"$dir/part" && cp "$dir/part" "${cells[7]}"
edit "${cells[8]}" && seal_cell "${cells[8]}"
"$sweep" "${fleet[@]}" --cells "$dir/fleets" >"$dir/again.tsv" 2>"$dir/notes"
check "a fleet resumed: the cut cell is run again, the others are not" \
    [ "$(diff "$dir/fleet.tsv" "$dir/again.tsv" | grep -c '^>') $(grep -c '42.4242$' "$dir/again.tsv") \
$(grep -c 'run again' "$dir/notes")" = "1 1 1" ]
"$sweep" "${sim[@]}" --replicas 6 --router deterministic_apart --apart 2 --ratio 0.5 --qps 60 \
    --per-request "$dir/requests.tsv" >"$dir/one.tsv"
check "replicas of their own" [ "$(awk -F '\t' '!/^#/ && !/^request/ {print $2, ($11 <= 2)}' "$dir/requests.tsv" |
    sort -u | xargs)" = "0 0 1 1" ]
check "the column apart" [ "$(column "$dir/one.tsv" apart)" = 2 ]
"$sweep" "${sim[@]}" --replicas 6 --router deterministic_apart --mode batch_invariant --ratio 0.5 >"$dir/one.tsv"
check "INVARIANT passes on these only" [ "$(($(column "$dir/one.tsv" passes_fast) > 0 &&
    $(column "$dir/one.tsv" passes_invariant) > 0))" = 1 ]
check "round robin" [ "$("$sweep" "${sim[@]}" --replicas 3 --per-request /dev/stdout | awk -F '\t' '
    $1 ~ /^[0-9]+$/ && NF == 11 && $11 != ($1 - 1) % 3 + 1' | wc -l)" = 0 ]
# Times and lengths of one's own, and what is said of them.
printf 'input_len\toutput_len\tarrival_s\n10\t20\t3\n0\t30\t4.5\n30\t10\t7\n' >"$dir/own_lengths.tsv"
own_times=("${sim[@]}" --requests 3 --workload "lengths:$dir/own_lengths.tsv")
"$sweep" "${own_times[@]}" --qps trace --per-request "$dir/own_requests.tsv" >"$dir/own_times.tsv" 2>"$dir/stderr"
check "own lengths with own arrivals" [ "$(awk -F '\t' '/^[0-9]/ { print $3, $4, $5 }' "$dir/own_requests.tsv" | xargs)" = \
    "10 20 0 1 30 1.5 30 10 4" ]
check "0 tokens count as 1, with a word" grep -qx \
    "sweep: --workload: 0 input or output tokens count as 1, in 1 of the requests of lengths:own_lengths.tsv" \
    "$dir/stderr"
check "in the result, too" grep -q "^# empty: 0 input or output tokens count as 1, in 1 of the file's requests\$" \
    "$dir/own_times.tsv"
check "arrivals that nobody asked for" grep -qx 'sweep: --qps: 12, not the arrivals of lengths:own_lengths.tsv: --qps trace takes these' \
    <("$sweep" "${own_times[@]}" 2>&1 >/dev/null)
"$sweep" "${own_times[@]}" --qps trace,5 --trace-speed 1,2 --quiet >"$dir/speeds.tsv"
check "the trace's speed is a column" [ "$(column "$dir/speeds.tsv" qps | xargs) $(column "$dir/speeds.tsv" trace_speed |
    xargs) $(column "$dir/speeds.tsv" offered_per_s | head -n 2 | xargs)" = "trace trace 5 1 2 nan 0.5 1" ]
# The first requests are in no percentile if --leave-out says so, and in all other figures.
left=("${sim[@]}" --ratio 0.5 --qps 12)
"$sweep" "${left[@]}" --leave-out 50 --per-request "$dir/left_requests.tsv" >"$dir/left.tsv"
check "percentiles leave out the first 50 of 200" [ "$(for class in '' 1 0; do
    awk -F '\t' -v class="$class" '/^[0-9]/ && $1 > 50 && (class == "" || $2 == class) { print $7 }' \
        "$dir/left_requests.tsv" | sort -g | awk '{ a[NR] = $1 } END { n = int(NR * 0.99); printf "%.6g\n", a[n + (n < NR * 0.99)] }'
done | xargs)" = "$(for name in e2e_p99_s det_e2e_p99_s nondet_e2e_p99_s; do column "$dir/left.tsv" $name; done | xargs)" ]
check "all other figures have them" diff <("$sweep" "${left[@]}" | awk '!/^#/' | cut -f 1-21,37-) \
    <(awk '!/^#/' "$dir/left.tsv" | cut -f 1-21,37-)
check "and the percentiles differ" [ "$("$sweep" "${left[@]}" | column /dev/stdin itl_p99_s)" != "$(column "$dir/left.tsv" itl_p99_s)" ]
check "the result says so" grep -q '^# percentiles: without the first 50 requests of each cell$' "$dir/left.tsv"
duration() { column <("$sweep" "${sim[@]}" --workload "mooncake:$dir/mooncake.jsonl" --qps trace "$@") ttft_p50_s; }
check "arrivals 50 times as fast" [ "$(duration --trace-speed 50)" != "$(duration)" ]
check "and as fast as they are" [ "$(duration --trace-speed 1)" = "$(duration)" ]

# The conversion of old calibrations that sweep/calibration/README.md has.
sed '1s/2$/1/; s/^# flip_shape:.*/# flip_rate: 0.005\n&/; /^# table: flips/,$d; /^# table:/d' "$dir/none.tsv" >"$dir/old.tsv"
{ printf '\xef\xbb\xbf'; cat "$dir/none.tsv"; } >"$dir/marked.tsv"
check "a byte order mark is no part of the first line" diff <("$sweep" "${sim[@]}" | cut -f 3- | grep ^sharegpt) \
    <("$sweep" "${sim[@]/none.tsv/marked.tsv}" | cut -f 3- | grep ^sharegpt)
sed -n "/^awk -F/,/OLD OLD/p" sweep/calibration/README.md |
    sed "s|OLD OLD >NEW|$dir/old.tsv $dir/old.tsv|" >"$dir/convert.sh"
check "an old calibration converted" diff <(bash "$dir/convert.sh") "$dir/none.tsv"

# Measured on the CPU.
cpu=(--backend cpu --workload fixed:24x12 --requests 6 --qps offline --window 8 --group 2 --ratio 0.5)
"$sweep" "${cpu[@]}" --mode dvr,nondeterministic,batch_invariant --slowdown 0 >"$dir/cpu.tsv"
check "measured, and says so" grep -qE '^# measured on this machine: cpu .+, 1 threads, model examples/tiny42$' \
    "$dir/cpu.tsv"
check "measured rows" [ "$(awk -F '\t' '!/^#/' "$dir/cpu.tsv" | cut -f 1,2,37 | sort -u | xargs)" \
    = "backend calibration returned_tokens cpu - 72" ]
check "a share that --seconds ends counts what it ran" [ "$("$sweep" "${cpu[@]}" --window 8,16,32 --seconds 1e-9 \
    --cells "$dir/ended" --cell 1/1 2>&1 | sort | xargs)" = \
    "share 1/1: 0 cells run, 0 were there sweep: --seconds: 3 cells were not begun" ]
# What a GPU said of itself is kept with each cell, and is in what they are merged into: each line once.
"$sweep" "${cpu[@]}" --seed 1,2 --cells "$dir/gpu" --quiet >/dev/null
for file in "$dir"/gpu/*; do
    sed -i 's/^# hash: .*/# cuda device: a GPU\n# cuda kernels: 7\n&/' "$file" && seal_cell "$file"
done
check "the manifest of merged cells" [ "$("$sweep" "${cpu[@]}" --seed 1,2 --merge "$dir/gpu" --quiet | grep '^# cuda')" = \
    "$(printf '# cuda device: a GPU\n# cuda kernels: 7')" ]
sed -i 's/^# cuda kernels: 7/# cuda kernels: 8/' "$file"
refuses 1 'edited or damaged' "${cpu[@]}" --seed 1,2 --merge "$dir/gpu"
"$sweep" --backend cpu --requests 1 --qps offline >"$dir/cpu.tsv"
check "long requests are cut to the context, and it says so" grep -q '^# lengths: .* 2048 tokens' "$dir/cpu.tsv"

# A run that is interrupted. With --cells its finished cells are in DIR and nothing is beside a later result. Without it
# they are in NAME.unfinished, which the next interruption leaves as it is.
many=(--backend cpu --workload fixed:24x12 --requests $((${TEST_SLOW:-0} ? 8 : 60)) --qps offline --mode nondeterministic --seed 1,2,3,4,5,6,7,8,9
    --quiet --out "$dir/ended.tsv")
interrupt() {  # interrupt GLOB OPTION...: when a file of that name has a row
    "$sweep" "${many[@]}" "${@:2}" >/dev/null 2>"$dir/stderr" </dev/null &
    local pid=$!
    while kill -0 $pid 2>/dev/null && ! grep -q '^cpu' $1 2>/dev/null; do sleep 0.01; done
    kill $pid && { wait $pid; } 2>/dev/null
    [ $? = 143 ]
}
row() { grep -q '^cpu' "$1" && tail -n 1 "$1" | grep -q '^# unfinished'; }
kept="$dir/ended.tsv.unfinished"
hint='[1-8] of 9 cells have run: with --cells DIR, which keeps each in a file, the same command would go on'
check "interrupted" interrupt "$dir/ended.tsv.*.part"
check "how to go on" grep -qx "sweep: interrupted; what there is is in $kept; $hint" "$dir/stderr"
check "a finished cell is kept" row "$kept"
cp "$kept" "$dir/kept"
check "interrupted again" interrupt "$dir/ended.tsv.*.part"
check "under another name" grep -q "in $kept.2; $hint" "$dir/stderr"
check "a finished cell is kept" row "$kept.2"
check "the first is as it was" cmp "$kept" "$dir/kept"
sed 's/^# grid: .*seed 1/&,10/' "$kept" >"$kept.3"
check "the whole result" "$sweep" "${many[@]}"
check "removes what the same settings have left, and nothing else" [ "$(cd "$dir" && echo ended.tsv*)" = \
    "ended.tsv ended.tsv.unfinished.3" ]
rm "$kept.3"
check "interrupted, with --cells" interrupt "$dir/half/*.tsv" --cells "$dir/half"
check "how to go on" grep -qx "sweep: interrupted; [1-8] of 9 cells are in $dir/half, and the same command goes on" "$dir/stderr"
check "the same command goes on" "$sweep" "${many[@]}" --cells "$dir/half"
check "nothing is beside the result" [ "$(cd "$dir" && echo ended.tsv*)" = ended.tsv ]

# What is refused, and --list refuses it as a run does, and leaves no folder.
for list in "" --list; do
    refuses 2 'calibration FILE: .*sweep/calibration' $list
    refuses 1 'gone: cannot open' "${sim[@]}" --workload "lengths:$dir/gone" $list
    refuses 1 'gone/x: cannot make this folder' "${sim[@]}" --cells "$dir/gone/x" $list
    refuses 2 '--token-budget: 4000: ' "${sim[@]}" --chunked off --token-budget 4000 $list
done
"$sweep" "${sim[@]}" --list --cells "$dir/listed" --out "$dir/listed.tsv" >/dev/null
check "--list leaves nothing" [ -z "$(find "$dir" -name 'listed*')" ]
refuses 2 '--qps: the list is empty' "${sim[@]}" --qps ''
# With a table of exchanges a calibration of one device serves several: two are faster than one.
sed 's/^# end$/# table: exchange 2\nranks\trows\texchange_us\n2\t1\t11\n2\t512\t37\n# end/' \
    sweep/calibration/h100-pcie-paper.tsv >"$dir/exchange.tsv"
ranks=(--calibration "$dir/exchange.tsv" --workload fixed:64x32 --requests 20 --qps offline --quiet)
check "ranks from a table of exchanges" "$sweep" "${ranks[@]}" --tensor-parallel 1,2 --out "$dir/ranks.tsv"
check "two ranks are faster than one" rows '
    { took[$at["tensor_parallel"]] = $at["duration_s"] }
    END { exit !(took[2] > 0 && took[2] < took[1]) }' "$dir/ranks.tsv"
refuses 2 '--tensor-parallel: 4: calibration exchange' "${ranks[@]}" --tensor-parallel 2,4
# sweep/calibration/exchange.sh puts the times of our ways into a calibration, in place of a table that it has.
cat >"$dir/measured.tsv" <<'END'
# cuda device: made up
ranks	rows	type	way	us	exchange_us	relative_pct	bits	control	note
2	1	bf16	mail	5	11	40	equal	as it must be	CUDA graphs
2	1	bf16	nccl_all_gather	20	17	100	equal	-	CUDA graphs
2	1	bf16	none	3	0	nan	-	-	CUDA graphs
2	512	bf16	meeting	9	37	40	equal	as it must be	CUDA graphs
END
for old in sweep/calibration/h100-pcie-paper.tsv "$dir/exchange.tsv"; do
    check "exchanges that were measured" bash -c 'bash sweep/calibration/exchange.sh "$1" "$2" |
        grep -v "^# exchange: " | diff - "$3"' - "$dir/measured.tsv" "$old" "$dir/exchange.tsv"
done
{ sed '$d' "$dir/exchange.tsv"; printf '# table: invariant exchange 2\n2\t1\t3.5\n2\t512\t400\n# end\n'; } >"$dir/both.tsv"
printf '2\t%s\t40\tequal\t-\t-\n' '1	fp32	mail	6	3.5' '512	fp32	own_rows	9	400' >>"$dir/measured.tsv"
for old in "$dir/exchange.tsv" "$dir/both.tsv"; do
    check "exchanges of both types" bash -c 'bash sweep/calibration/exchange.sh "$1" "$2" | grep -v "^# exchange: " |
        diff - "$3"' - "$dir/measured.tsv" "$old" "$dir/both.tsv"
done
for file in exchange both; do
    "$sweep" --calibration "$dir/$file.tsv" --workload fixed:64x32 --requests 2 --qps offline --quiet \
        --mode nondeterministic,batch_invariant --tensor-parallel 2 --out "$dir/ranks_$file.tsv"
    column "$dir/ranks_$file.tsv" duration_s >"$dir/took_$file"
done
check "INVARIANT passes have exchanges of their own" bash -c 'diff "$1" "$2" | grep -c "^[<>]" | grep -qx 2' - \
    "$dir/took_exchange" "$dir/took_both"
says_no() {  # says_no PATTERN FILE...: exchange.sh ends with 1, prints nothing and says so
    bash sweep/calibration/exchange.sh "${@:2}" >"$dir/stdout" 2>"$dir/stderr"
    [ $? = 1 ] && [ ! -s "$dir/stdout" ] && grep -qE -- "$1" "$dir/stderr"
}
sed '3s/equal/differ/' "$dir/measured.tsv" >"$dir/wrong.tsv"
check "different bits" says_no 'wrong.tsv:3: the ranks had different bits' "$dir/wrong.tsv" "$dir/exchange.tsv"
check "another file" says_no 'none.tsv: not a result of' "$dir/none.tsv" "$dir/exchange.tsv"
check "no file" says_no 'gone: cannot open' "$dir/gone" "$dir/exchange.tsv"
# Keys may stand behind a table, lines may end as elsewhere, and a name may look like an assignment.
sed '$d' "$dir/exchange.tsv" >"$dir/key=late.tsv"
printf '# kv_tokens: 77\n# end\n' >>"$dir/key=late.tsv"
sed -i '0,/^# kv_tokens/{/^# kv_tokens/d}' "$dir/key=late.tsv"
sed 's/$/\r/' "$dir/key=late.tsv" >"$dir/key=late_crlf.tsv"
for late in "$dir/key=late.tsv" "$dir/key=late_crlf.tsv"; do
    check "a key behind a table: $late" bash -c '
        cd "${2%/*}" && bash "$3/sweep/calibration/exchange.sh" "$1" "${2##*/}" >"$1.new" &&
        grep -qx "# kv_tokens: 77" "$1.new" && [ "$(grep -c "^# table: .*exchange" "$1.new")" = 2 ]' \
        - "$dir/measured.tsv" "$late" "$PWD"
done
sed 's/bf16/fp32/' "$dir/measured.tsv" >"$dir/fp32.tsv"
check "no bf16" says_no 'fp32.tsv: no exchange of parts in bf16' "$dir/fp32.tsv" "$dir/exchange.tsv"
# sweep/h200x2/beside.sh compares two traces of the same passes.
trace() {  # trace FILE REQUESTS OPTION...
    "$sweep" --calibration "$dir/exchange.tsv" --workload fixed:64x32 --requests "$2" --qps offline --quiet \
        --preset best --mode nondeterministic --trace "$dir/$1" --out "$dir/traced.tsv" "${@:3}" >/dev/null
}
trace one.trace 20
trace two.trace 20 --tensor-parallel 2
trace less.trace 19
check "passes beside themselves" bash -c 'bash sweep/h200x2/beside.sh "$1" "$1" |
    awk -F "\t" "NR > 1 { n += \$3; bad += \$6 != 0 } END { exit !(n > 30 && !bad) }"' - "$dir/one.trace"
check "passes beside faster ones" bash -c 'bash sweep/h200x2/beside.sh "$1" "$2" |
    awk -F "\t" "NR > 1 { n += \$6 < 0 } END { exit !n }"' - "$dir/one.trace" "$dir/two.trace"
check "passes of other requests" bash -c '! bash sweep/h200x2/beside.sh "$1" "$2" 2>"$3" >"$3.out" && [ ! -s "$3.out" ] &&
    grep -qE "^beside.sh: .*less.trace: pass [0-9]+ has other rows than" "$3"' - "$dir/one.trace" "$dir/less.trace" "$dir/log"
for wrong in "$dir/less.trace.gone" "$dir/exchange.tsv"; do
    check "no trace: $wrong" bash -c '! bash sweep/h200x2/beside.sh "$1" "$2" 2>"$3" && grep -qE "^beside.sh: .*$4: (cannot|not a)" "$3"' \
        - "$dir/one.trace" "$wrong" "$dir/log" "$(basename "$wrong")"
done
# A calibration of two devices serves two ranks as one of one device serves one, and no other number.
sed 's/^# device: none$/&\n# devices: 2/' "$dir/none.tsv" >"$dir/two.tsv"
for ranks in 1 2; do
    "$sweep" --calibration "$dir/$([ $ranks = 1 ] && echo none || echo two).tsv" --tensor-parallel $ranks \
        --requests 20 --qps offline --quiet --out "$dir/ranks_$ranks.tsv"
    column "$dir/ranks_$ranks.tsv" duration_s >"$dir/took_$ranks"
done
check "times of two devices" diff "$dir/took_1" "$dir/took_2"
# The simulator knows the times of the calibration's leaves alone. Where no pass is INVARIANT they mean nothing.
sed 's/^# device: none$/&\n# leaves: 2/' "$dir/none.tsv" >"$dir/leaves.tsv"
two_leaves=(--calibration "$dir/leaves.tsv" --requests 20 --qps offline --quiet)
for leaves in 1 2,4; do
    refuses 2 "--leaves: ${leaves#2,}: the INVARIANT passes of calibration leaves have 2: build/bench --calibrate FILE" \
        "${two_leaves[@]}" --mode batch_invariant --leaves "$leaves"
done
for given in "" "--leaves 2" "--leaves 1 --mode nondeterministic" "--leaves 4 --slowdown 2"; do
    check "leaves of a calibration: $given" "$sweep" "${two_leaves[@]}" --mode batch_invariant $given --out "$dir/out.tsv"
done
check "ranks are leaves, too" "$sweep" --calibration "$dir/two.tsv" --tensor-parallel 2 --leaves 2 --requests 20 \
    --mode batch_invariant --qps offline --quiet --out "$dir/other.tsv"
check "results name the leaves" grep -q '^# leaves: 2, of INVARIANT passes$' "$dir/out.tsv"
refuses 2 'the grid has 4665600 cells' "${sim[@]}" --window "$(seq -s, 1 60)" --group "$(seq -s, 1 60)" \
    --seed "$(seq -s, 1 36)" --ratio "$(seq -s, 0.01 0.01 0.36)"
refuses 1 'gone/x: cannot write' "${sim[@]}" --out "$dir/gone/x"
refused() {  # refused STATUS PATTERN WORDS: a case, in which SIM stands for ${sim[@]}, and DIR for $dir
    local words=${3//DIR/$dir}
    refuses "$1" "$2" ${words//SIM/${sim[*]}}
}
cases sweep refused
configuration() { "$sweep" "${sim[@]}" --requests 5 "$@" | grep '^# configuration'; }
check "scales that look alike are two configurations" [ "$(configuration --flip-scale 1.0000001)" != \
    "$(configuration --flip-scale 1.0000002)" ]
check "and so are reserves" [ "$(configuration --admission-reserve 0.7000001)" != "$(configuration)" ]
# The more unlike the requests are, the more of them have no rollback. 0 is what the calibration says.
unlike() {
    "$sweep" "${sim[@]}" --requests 200 --ratio 1 --flip-scale 5 --flip-spread "$1" --per-request "$dir/unlike" \
        --quiet >"$dir/stdout" 2>/dev/null
    rows '!$at["rollbacks"] { none++ } END { print none + 0 }' "$dir/unlike"
}
spread_1=$(unlike 0.1) spread_3=$(unlike 3) spread_0=$(unlike 0)
echo "requests without a rollback: $spread_1 with a spread of 0.1, $spread_3 with 3, $spread_0 as calibrated" >"$log"
check "a larger spread leaves more requests without a rollback" test "$spread_3" -gt $((spread_1 + 40))
check "0 is what the calibration says" [ "$spread_0" = "$(unlike 1.690308509457033)" ]
check "the spread is part of the configuration" [ "$(configuration --flip-spread 2)" != "$(configuration)" ]
# A cell that fails costs no other: the rows that are there are written, and the status says that one is missing.
"$sweep" "${sim[@]}" --chunked on,off --token-budget 4000 >"$dir/stdout" 2>"$dir/stderr" </dev/null
check "one row of two, status 2" test $? = 2 -a "$(grep -vc '^#' "$dir/stdout")" = 2
check "and one line says why" test "$(wc -l <"$dir/stderr")" = 1
refuses 2 '--pages: 2 of 16 tokens: requests can have 36 tokens and need 3 pages' "${cpu[@]}" --pages 2
check "as many pages as one request needs" "$sweep" "${cpu[@]}" --pages 3
mkfifo "$dir/pipe"
cat "$dir/pipe" >"$dir/piped.tsv" &
timeout 60 "$sweep" "${sim[@]}" --out "$dir/pipe" >/dev/null
wait
check "a pipe is written to and stays one" [ -p "$dir/pipe" -a -s "$dir/piped.tsv" ]
check "nothing is left behind" [ "$(find "$dir" -name '*.part' | wc -l)" = 0 ]
full_disk() { ! "$sweep" "${sim[@]}" >/dev/full; }
check "a full disk is an error" full_disk

finish
