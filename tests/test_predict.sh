#!/bin/bash
# Measured runs beside simulated ones: the errors of sweep/experiments/predict.inc on made-up measurements,
# sweep/cpu/run.sh with few requests and its refusals, and the grids of the H200.
export LC_ALL=C
source tests/check.sh
scratch

# Simulated runs, and "measured" ones whose throughput is theirs times a number.
grid=(--calibration sweep/calibration/cpu-tiny42.tsv --workload fixed:32x32 --requests 16 --qps offline,40
    --mode "nondeterministic,dvr" --ratio "0.5,1" --group 2)
"$B/sweep" "${grid[@]}" --window 16 --quiet --out "$dir/one.tsv" >/dev/null
"$B/sweep" "${grid[@]}" --window 16,32 --quiet --out "$dir/simulated.tsv" >/dev/null
times() {  # times FACTOR IN OUT
    awk -F '\t' -v OFS='\t' -v factor="$1" '
        $1 == "backend" { for (i = 1; i <= NF; i++) if ($i == "output_tok_per_s") column = i; print; next }
        !/^#/ { $column = factor * $column }
        { print }' "$2" >"$3"
}
times 1 "$dir/simulated.tsv" "$dir/a.tsv"
times 2 "$dir/simulated.tsv" "$dir/b.tsv"
times 1.25 "$dir/simulated.tsv" "$dir/c.tsv"
source sweep/experiments/predict.inc
best_of_three() {
    prediction_errors "$dir/simulated.tsv" "$dir/a.tsv" "$dir/b.tsv" "$dir/c.tsv" >"$dir/errors"
    awk -F '\t' '
        NR == 1 { if ($0 != "run\tquantity\tmeasured\tsimulated\terror_pct\tsecond\tworst") bad = 1; next }
        { run[$1] = 1 }
        $2 == "output_tok_per_s" && ($5 > -49.99 || $5 < -50.01) { print; bad = 1 }
        $2 == "output_tok_per_s" && ($6 > 1.2501 * $4 || $6 < 1.2499 * $4 || $7 > 1.0001 * $4) { print; bad = 1 }
        $2 != "output_tok_per_s" && $5 != 0 { print; bad = 1 }
        END {
            for (r in run) n++
            exit bad || n != 10 || !("dvr 50% W=32 G=2 40" in run) || !("nondeterministic 40" in run)
        }' "$dir/errors"
}
check "the best of three repeats, and errors to it" best_of_three
one_file() {
    cp "$dir/one.tsv" "$dir/same.tsv"
    prediction_errors "$dir/one.tsv" "$dir/same.tsv" >"$dir/one_errors"
    awk -F '\t' '
        NR == 1 { if (NF != 5) bad = 1; next }
        { n++; if ($5 != 0 || $1 ~ /W=/) { print; bad = 1 } }
        END { exit bad || n < 6 * 5 }' "$dir/one_errors"
}
check "one file: no columns for repeats; the one window is not in the names" one_file
summary() {
    prediction_summary "$dir/errors" >"$dir/summary"
    cat "$dir/summary"
    grep -qF '| dvr 100% W=16 G=2 offline | -50.0% | +0.0% | +0.0% |' "$dir/summary" &&
        grep -qE '^\| output_tok_per_s, all at once \| 5 \| 50\.0% \| -50\.0% \|' "$dir/summary"
}
check "the summary" summary

cpu() { B=$B OUT=$dir/cpu REQUESTS=4 REPEATS=2 bash sweep/cpu/run.sh "$@"; }
refuses() {  # refuses TEXT COMMAND...
    if "${@:2}" >"$dir/said" 2>&1; then echo "it did not fail"; return 1; fi
    cat "$dir/said"
    grep -qF "$1" "$dir/said"
}
check "no runs: says what to do" refuses "is missing: run bash sweep/cpu/run.sh measure" cpu predict
check "28 runs on the CPU, twice" cpu measure
check "no calibration: says what to do" refuses "is missing: run bash sweep/cpu/run.sh calibrate" cpu predict
cp sweep/calibration/cpu-tiny42.tsv "$dir/cpu/"
runs() {
    FORCE=1 cpu predict || return 1
    [ "$(cut -f 1 "$dir/cpu/predict_errors.tsv" | grep -v '^#\|^run$' | sort -u | wc -l)" = 28 ] &&
        grep -q '^# measured on this machine: cpu ' "$dir/cpu/predict_errors.tsv" &&
        grep -q '^# simulated: .*calibration cpu-tiny42' "$dir/cpu/predict_errors.tsv" &&
        grep -q '^| output_tok_per_s, all at once | 14 |' "$dir/cpu/predict.md"
}
check "28 runs beside the simulated ones" runs
times 2 "$dir/cpu/offline_1.tsv" "$dir/cpu/offline_2.tsv"
check "repeats that differ are refused" refuses "the machine was busy: the two best repeats of " cpu predict
said() {
    FORCE=1 cpu predict && grep -q '^# doubtful, ' "$dir/cpu/predict_errors.tsv" &&
        grep -q '^doubtful, ' "$dir/cpu/predict.md"
}
check "with FORCE=1 the results say so" said
check "an unknown part: the usage" refuses "bash sweep/cpu/run.sh calibrate" cpu everything

# Attention on the H200: two programs in turn, twice, in one table. Here both are made up, and each call takes longer.
mkdir "$dir/programs" "$dir/h200"
cat >"$dir/programs/kernels" <<'END'
#!/bin/bash
echo >>"$CALLS" && us=$(wc -l <"$CALLS")
exec >"${*: -1}"  # --out FILE
case $0 in
*kernels) printf '# llm42 x\n# cuda kernels: 7\n# us: of all\nattention\tprompt\tall\t512\t-\t-\t-\t%d\t428\n' "$us" ;;
*) printf '# PyTorch y\nkernel\trows\nflash\t512\texpanded\t%d\t207\n' "$us" ;;
esac
END
chmod +x "$dir/programs/kernels" && cp "$dir/programs/kernels" "$dir/programs/python"
attention() {
    CALLS=$dir/calls B=$dir/programs PYTHON=$dir/programs/python OUT=$dir/h200 bash sweep/h200/run.sh attention
}
in_turn() {
    attention && cat "$dir/h200/attention.tsv" &&
        [ "$(grep -v '^#' "$dir/h200/attention.tsv" | sed 1d | tr '\t\n' '  ')" = \
            "$(printf '%s llm42 512 grouped %s 428 %s flash 512 expanded %s 207 ' 1 1 1 2 2 3 2 4)" ] &&
        [ "$(grep -c '^# \(date: 20\|llm42 x\|cuda kernels: 7\|PyTorch y\)' "$dir/h200/attention.tsv")" = 4 ]
}
check "attention beside PyTorch's, in turn, with both manifests" in_turn
stale() { OUT=$dir/h200 bash sweep/h200/run.sh stale | grep -P '^attention\tattention.tsv\t7\t20'; }
check "its revision of the kernels is known" stale
rm "$dir/programs/python" "$dir/h200/attention.tsv"
without() { ! attention && [ ! -e "$dir/h200/attention.tsv" ]; }
check "without PyTorch no table is written" without

# Hostile loads on the H200: a test_cuda that finds no GPU measures nothing and ends well, and then nothing may change.
mkdir "$dir/programs/tests" && printf '#!/bin/bash\necho "skipped: no CUDA device"\n' >"$dir/programs/tests/test_cuda"
chmod +x "$dir/programs/tests/test_cuda"
h200() { B=$dir/programs OUT=$dir/h200 bash sweep/h200/run.sh "$@"; }
printf '# date: 2020-01-01\n# cuda kernels: 7\npart\nx\n' | tee "$dir/h200/sglang_8b.tsv"{,.part} >"$dir/old"
check "nothing was measured" refuses "nothing was measured for sglang_8b.tsv" h200 sglang
check "the old file is as it was" cmp "$dir/old" "$dir/h200/sglang_8b.tsv"
check "four loads at once that fail" refuses "nothing was measured for determinism_qwen3_5_9b.tsv" h200 determinism-hybrid
rm "$dir/programs/tests/test_cuda"
check "no test_cuda: says what to do" refuses "tests/test_cuda is missing: run make" h200 sglang
check "an unknown part of several" refuses "no part tbk: there are " env PARTS="fig6 tbk" OUT="$dir/h200" bash sweep/h200/run.sh all
check "minutes that are no number" refuses "MINUTES=abc: must be a whole number" env MINUTES=abc bash sweep/h200/run.sh stale

# The grids of the H200, by one seed.
cp sweep/results/h200/grid_8b.tsv sweep/results/h200/grid_base42.tsv "$dir/h200"
check "what was measured by a rule that is gone is not simulated" refuses "measured before version 0.3.0" \
    env OUT="$dir/h200" SEEDS=1 bash sweep/h200/grid.sh
sed -i 's/; fill largest//' "$dir"/h200/*.tsv  # as if it had been measured by today's rule
check "grids, simulated" env OUT="$dir/h200" SEEDS=1 bash sweep/h200/grid.sh
check "30 cells" [ "$(wc -l <"$dir/h200/grid_errors.tsv")" = 31 ]
finish
