#!/bin/bash
# How many GPUs does a fleet need? The least number of replicas that holds a bound on P99 latency, by the share of
# requests that are deterministic and by mechanism; and whether deterministic requests should have replicas of their
# own.
#
# The bound is three times the P99 latency of ordinary requests on an idle GPU, in whole seconds: a fleet that is well
# used batches many requests, which makes each several times slower. It must hold for deterministic requests and for the
# others, each kind by itself. (P99 of all requests together would say little of the kind that has few.)
#
# Loads: ShareGPT at 160 requests a second (Poisson arrivals; 5 to 19 GPUs), and an hour of the
# Azure trace of conversations, whose own arrivals come 20 times as fast (110 a second on average). The trace is not in
# the repository: AZURE names it. Where it is missing, its panel is drawn from the points that are there.
#
# Mechanisms: DVR by the paper's policies; DVR by the best of figA.sh; preset best (mode HYBRID); batch-invariant
# passes; and nothing deterministic, the floor. The last two cut prompts into chunks, with which they need fewer GPUs.
# Each replica is a GPU. least_tokens routes. Deterministic requests are one class, and the others are another. Replicas
# set apart serve deterministic requests only. Then the classes do not affect each other, so the least numbers of both
# are found side by side, and added. Batch-invariant passes then run only on the replicas set apart.
#
# figD.tsv and the points have seed 42. figD_by_seed.tsv has the least numbers of every seed, with the bound of seed 42: a
# seed draws lengths, arrivals, flips and which requests are deterministic. (Of the trace it draws the last two only, so
# batch-invariant passes are the same for each.)
source "$(dirname "$0")/common.sh"
AZURE=${AZURE:-../shared/traces/azure2023_conv.csv}
paper=(--mode dvr --window 64 --group 8)
best=(--mode dvr --window 64 --group 16 --verify wait --prefill packed --chunked on --bonus on)
preset_best=(--preset best)
invariant=(--mode batch_invariant --chunked on)
none=(--mode nondeterministic --chunked on)
most=64                      # no more replicas of a class are tried
some=8,10,12,14,17,20,25,30  # those of the curves

# measure A B ARGUMENT...: the P99 latencies of both classes with A replicas, or if B is not 0 with A set apart for
# deterministic requests and B for the others. `name` tells the runs of a search from those of others.
measure() {
    local route=(--replicas "$1" --router least_tokens) path
    [ "$2" = 0 ] || route=(--replicas $(($1 + $2)) --router deterministic_apart --apart "$1")
    path=$work/runs/$name.$(printf %02d.%02d "$1" "$2")
    mkdir -p "$path"
    parts=() work=$path
    cells "${load[@]}" "${@:3}" "${route[@]}" --threads 1
    work=${path%/runs/*}
    rows "$path/0000.tsv" det_e2e_p99_s nondet_e2e_p99_s
}

# The number of replicas of a class to be tried next. `low` is the largest number that is known not to hold the bound.
# Above it, numbers are tried in steps that double until one holds the bound (`high`), then the middle of both. 0: there
# is nothing to try, `high` is the least number.
candidate() {  # candidate LOW HIGH STEP
    if [ "$2" = 0 ]; then echo $(($1 + $3)); elif (($2 - $1 > 1)); then echo $((($1 + $2) / 2)); else echo 0; fi
}

# least FROM APART ARGUMENT...: the least number of replicas from FROM on that holds the bound, as A B. APART is 1 where
# deterministic requests have replicas of their own: A then is the least number of these, and B of the others. Both are
# looked for at once, because the classes do not affect each other. `nan nan`: not even `most` replicas hold it.
least() {
    local low=($(($1 - 1)) 0) high=(0 0) step=(1 1) n=(0 0) c p99
    [ "$2" = 1 ] || high=(0 1)
    while :; do
        for c in 0 1; do n[c]=$(candidate "${low[c]}" "${high[c]}" "${step[c]}"); done
        [ "${n[*]}" != "0 0" ] || break
        for c in 0 1; do
            [ "${n[c]}" != 0 ] || n[c]=${high[c]}
            ((n[c] <= most)) || n[c]=$most
            ((low[c] < most)) || { echo "nan nan" && return; }
        done
        measure "${n[0]}" $(($2 * n[1])) "${@:3}" >"$work/p99.$name"
        read -ra p99 <"$work/p99.$name"
        [ "$2" = 1 ] || p99=("$(printf '%s\n' "${p99[@]}" | grep -v nan | sort -g | tail -n 1)" nan)
        for c in 0 1; do
            if [ "${p99[c]}" = nan ] || awk "BEGIN { exit !(${p99[c]} <= $bound) }"; then high[c]=${n[c]}
            else low[c]=${n[c]} step[c]=$((2 * step[c])); fi
        done
    done
    echo "${high[0]}" $(($2 * high[1]))
}

# series NAME FROM APART SHARES ARGUMENT...: the points of a line, into work/points.NAME. More deterministic requests
# never need fewer replicas, so each search begins where the one before has ended.
series() {
    local name share ratio from=$2 found
    for share in $4; do
        name=$seed.$run.$1.$3.$share
        ratio=()
        [ "$share" = nan ] || ratio=(--ratio "$share")
        least "$from" "$3" "${@:5}" "${ratio[@]}" >"$work/found.$name"
        read -ra found <"$work/found.$name"
        if [ "${found[0]}" != nan ]; then from=${found[0]}; else
            echo "$figure: $name: $most replicas are not enough" >&2
        fi
        if [ "$3" = 0 ]; then
            printf '%s_replicas\t%s\t%s\t%s\n' "$run" "$1" "$share" "${found[0]}"
        else
            printf '%s_apart_replicas\t%s\t%s\t%s\n' "$run" "$1" "$share" \
                "$([ "${found[0]}" = nan ] && echo nan || echo $((found[0] + found[1])))"
            printf '%s_apart_deterministic\t%s\t%s\t%s\n' "$run" "$1" "$share" "${found[0]}"
        fi
    done >"$work/points.$seed.$run.$1.$3"
}

# Runs a command beside others, at most as many as there are processors.
jobs_now=0
beside() {
    if ((jobs_now >= $(nproc 2>/dev/null || echo 2))); then
        wait -n || fail "a run failed"
        jobs_now=$((jobs_now - 1))
    fi
    "$@" &
    jobs_now=$((jobs_now + 1))
}
all_done() {
    for (( ; jobs_now > 0; jobs_now--)); do wait -n || fail "a run failed"; done
}

# figure_of RUN FROM SHARES SHARES_APART WORKLOAD ARGUMENT...: the points of one load by seed 42, into work/ours, and
# those of every seed, into work/each. At least FROM replicas are needed.
figure_of() {
    local floor
    run=$1 seed=42
    parts=()
    cells --workload "$5" "${none[@]}" --requests 2000 --qps 0.1 --replicas 1
    bound=$(rows "${parts[0]}" e2e_p99_s | awk '{ b = int(3 * $1); print b + (b < 3 * $1) }')
    if [[ " ${*:5} " != *" --trace-speed "* ]]; then  # else the other runs have a column more, so no table holds both
        mkdir -p "$work/runs/42.$run.0"
        mv "${parts[0]}" "$work/runs/42.$run.0/0000.tsv"
    fi
    printf '%s_bound_s\tbound\tnan\t%s\n' "$run" "$bound" >>"$work/ours"
    for seed in ${seeds//,/ }; do
        load=(--workload "${@:5}" --seed "$seed")
        series none "$2" 0 nan "${none[@]}"
        floor=$(cut -f 4 "$work/points.$seed.$run.none.0")
        beside series dvr "$floor" 0 "$3" "${paper[@]}"
        beside series dvr_best "$floor" 0 "$3" "${best[@]}"
        beside series preset_best "$floor" 0 "$3" "${preset_best[@]}"
        beside series batch_invariant "$floor" 0 nan "${invariant[@]}"
        if [ -n "$4" ]; then
            beside series dvr 1 1 "$4" "${paper[@]}"
            beside series dvr_best 1 1 "$4" "${best[@]}"
            beside series preset_best 1 1 "$4" "${preset_best[@]}"
            beside series batch_invariant 1 1 "$4" "${invariant[@]}"
        fi
        all_done
        cat "$work/points.$seed.$run".* >"$work/found"
        [ "$seed" != 42 ] || cat "$work/found" >>"$work/ours"
        awk -F '\t' -v OFS='\t' -v seed="$seed" '{ print $1, $2, $3, seed, $4 }' "$work/found" >>"$work/each"
    done
    seed=42 load=(--workload "${@:5}" --seed 42)
}

# P99 latency by number of replicas: the larger one of both classes.
curve() {  # curve NAME REPLICAS ARGUMENT...
    parts=()
    cells "${load[@]}" --replicas "$2" --router least_tokens "${@:3}"
    rows "${parts[0]}" replicas det_e2e_p99_s nondet_e2e_p99_s | awk -F '\t' -v OFS='\t' -v name="$1" '
        { print "sharegpt_p99_s", name, $1, $2 == "nan" || ($3 != "nan" && $3 + 0 > $2 + 0) ? $3 : $2 }' >>"$work/ours"
    mkdir -p "$work/runs/42.sharegpt.curve.$1"
    mv "${parts[0]}" "$work/runs/42.sharegpt.curve.$1/0000.tsv"
}

# keep_table FILE PART...: the parts as one table. A run has a line for its grid. It is removed, because the rows say the
# same. Rows that two runs have are there once.
keep_table() {
    raw=$1 parts=("${@:2}")
    collect
    awk '/^# grid:/ { next } /^#/ || !seen[$0]++' "$raw" >"$work/table"
    mv "$work/table" "$raw"
}

# keep_runs BASE RUN: all runs of a load by seed 42, in BASE.tsv, and those with replicas set apart, which have a column
# more, in BASE_apart.tsv.
keep_runs() {
    local part shared=() apart=()
    for part in "$work/runs/42.$2".*/0000.tsv; do
        if grep -q $'^backend.*\tapart\t' "$part"; then apart+=("$part"); else shared+=("$part"); fi
    done
    [ ${#apart[@]} = 0 ] || keep_table "$1_apart.tsv" "${apart[@]}"
    keep_table "$1.tsv" "${shared[@]}"
}

by_seed=$OUT/${figure}_by_seed.tsv
if [ -z "$KEEP" ]; then
    : >"$work/ours"
    figure_of sharegpt 4 "0.1 0.3 0.5 0.7 1" "0.1 0.3 0.5 0.7" sharegpt-served --requests 12000 --qps 160
    curve none $some "${none[@]}"
    curve batch_invariant $some "${invariant[@]}"
    curve dvr $some "${paper[@]}" --ratio 0.5
    curve dvr_best $some "${best[@]}" --ratio 0.5
    curve preset_best $some "${preset_best[@]}" --ratio 0.5
    keep_runs "$OUT/$figure" sharegpt
    if [ -r "$AZURE" ]; then
        figure_of azure 8 "0.1 0.3 0.5 0.7 1" "" "azure:$AZURE" --requests 19366 --qps trace --trace-speed 20
        keep_runs "$OUT/${figure}_azure" azure
        raw=$OUT/$figure.tsv
    else
        [ ! -r "$points" ] || awk -F '\t' -v OFS='\t' '$2 ~ /^azure_/ { print $2, $3, $4, $5 }' "$points" >"$work/azure"
        [ ! -r "$by_seed" ] || awk '/^azure_/' "$by_seed" >>"$work/each"
        if [ -s "$work/azure" ]; then
            echo "$figure: $AZURE is not here: the panel of the Azure trace is drawn from the points in $points" >&2
            cat "$work/azure" >>"$work/ours"
        else
            echo "$figure: $AZURE is not here: the panel of the Azure trace is left out" >&2
        fi
    fi
    : >"$work/published"
    compare "$work/ours" "$work/published" \
        "simulated, seed 42: least numbers of replicas that hold a bound on P99 latency, in seconds"
    {
        echo "# the least numbers of every seed; those of seed 42 are ours in $(basename "$points")"
        printf 'metric\tseries\tx\tseed\tours\n'
        cat "$work/each"
    } >"$work/by_seed"
    mv "$work/by_seed" "$by_seed"
else
    collect
fi

title=$(tell "Simulated: ShareGPT, half of it deterministic: preset best needs %s GPUs (set apart: %s), \
batch-invariant kernels %s (set apart: %s), the paper's DVR %s" '
    $1 ~ /^sharegpt(_apart)?_replicas$/ && ($3 == 0.5 || $3 == "nan") {
        of = $1 ~ /apart/ ? "apart " $2 : $2
        least[of] = smaller(least[of], $5); most[of] = larger(most[of], $5)
    }
    function range(s) { return least[s] == most[s] ? least[s] : least[s] "~to~" most[s] }
    END { print range("preset_best"), range("apart preset_best"), range("batch_invariant"),
        range("apart batch_invariant"), range("dvr") }' "$by_seed" | tr '~' ' ')
width=1200 reading="least number of GPUs that hold a bound on P99 latency; bars and band: least and most of five seeds"
notes=("bound: three times the P99 latency of ordinary requests on an idle GPU; it holds for each kind of request by itself"
    "the paper's DVR: verification EAGER, oldest windows first, prompts ISOLATED, W = 64, G = 8; tuned: verification WAIT, prompts PACKED and in chunks, bonus, W = 64, G = 16 (Fig. A2)"
    "extrapolated: replay passes of tuned DVR have M = 1,024 rows, and nothing is known of flips beyond 512"
    "the router takes the GPU with the fewest tokens at work; lines and marks are of seed 42")
plot by_seed="$by_seed"
