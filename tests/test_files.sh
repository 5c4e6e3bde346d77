#!/bin/bash
# Files that programs write. A run that is refused, fails, is interrupted or is killed leaves an older file of that name
# whole, or there is the whole new one. No file has two parts to play: every pair of output options, and every output
# with every input, is refused before anything is opened.
export LC_ALL=C.UTF-8
source tests/check.sh
scratch

# The options of a program that name files, as `out NAME` and `in NAME`, from its table of options.
# Those of an engine stand in engine.h, by the name of the macro that has them.
files_of() {
    local macro
    sed -nE 's/.*ARGS_(OUT|IN)\("([a-z-]+)(,.)? .*/\1 \2/p' "$1"
    for macro in $(grep -oE 'ENGINE_(MODEL|ALGORITHMS)\b' "$1"); do
        grep -A 1 "^#define $macro(" examples/lib/engine.h | files_of /dev/stdin
    done
}
sources="generate score diff rollback determinism"
source_of() { if [ -e "examples/$1.c" ]; then echo "examples/$1.c"; else echo "sweep/$1.c"; fi; }
refuses() {  # refuses PATTERN PROGRAM OPTION...: status 2, one line with the pattern
    "$B/$2" "${@:3}" >"$dir/stdout" 2>"$log" </dev/null
    local status=$?
    [ $status = 2 ] && [ "$(wc -l <"$log")" = 1 ] && grep -qE -e "$1" "$log"
}
whole() { [ "$(cat "$1")" = kept ]; }
only() { [ "$(find "$dir/work" -mindepth 1 -printf '%P\n' | sort | xargs)" = "$*" ]; }

for program in $sources sweep bench fit ranks invariance; do
    source=$(source_of $program)
    # Whatever --help calls a FILE or a DIR is in the tables. (What sweep has in DIRs is tested below.)
    check "$program: files of --help" [ "$("$B/$program" --help |
        sed -nE 's/^  (-., )?--([a-z-]+) (FILE|DIR) .*/\2/p' | grep -vE '^(cells|merge)$' | sort | xargs)" = \
        "$(files_of "$source" | grep -v 'workload' | cut -d ' ' -f 2 | sort | xargs)" ]
    outs=$(files_of "$source" | sed -n 's/^OUT //p') ins=$(files_of "$source" | sed -n 's/^IN //p')
    for a in $outs; do
        # A file that is there, by another path, by a link of each kind; and one that is not there yet.
        rm -rf "$dir/work" && mkdir -p "$dir/work/model" && echo kept >"$dir/work/x"
        (cd "$dir/work" && ln x hard && ln -s x soft && ln -s new later && cp x model/part)
        for b in $outs; do
            [ "$a" != "$b" ] || continue
            for names in "x x" "x ./x" "x model/../x" "x hard" "soft x" "new new" "./new later"; do
                read -r first second <<<"$names"
                check "$program --$a $first --$b $second" refuses "name the same file" $program \
                    --"$a" "$dir/work/$first" --"$b" "$dir/work/$second"
            done
        done
        for b in $ins; do
            kind=
            [ "$b" != workload ] || kind=lengths:
            for names in "x x" "hard x" "model/part model" "model/../model/part ./model"; do
                read -r first second <<<"$names"
                check "$program --$a $first --$b $second" refuses "is a file that --$b .* reads: give another name" \
                    $program --"$a" "$dir/work/$first" --"$b" "$kind$dir/work/$second"
            done
        done
        check "$program --$a: nothing is changed" whole "$dir/work/x"
        check "$program --$a: nothing is left" only hard later model model/part soft x
    done
done

# Files that an option does not name itself: of the default model, the models of diff's sides, the cells of a sweep.
cp -r examples/tiny42 "$dir/tiny" && chmod -R u+w "$dir/tiny"
reads="is a file that .* reads: give another name"
check "the default model" refuses "$reads" generate --record examples/tiny42/model.safetensors
check "a side's model" refuses "$reads" diff -b "model=$dir/tiny" --out "$dir/tiny/config.json"
sim=(--calibration sweep/calibration/cpu-tiny42.tsv --workload fixed:8x8 --requests 4)
"$B/sweep" "${sim[@]}" --cells "$dir/cells" >/dev/null
for option in cells merge; do
    check "a cell of --$option" refuses "$reads" sweep "${sim[@]}" --$option "$dir/cells" \
        --out "$(echo "$dir"/cells/*.tsv)"
done
check "two outputs to /dev/null" "$B/generate" -n 2 --record /dev/null --trace /dev/null

# A link stays a link, and its target is replaced. A file that must not be written is not replaced.
rm -rf "$dir/work" && mkdir "$dir/work" && echo kept >"$dir/work/x" && ln -s x "$dir/work/soft"
check "record by a link" "$B/generate" -n 2 --record "$dir/work/soft"
check "the link's target is the transcript" grep -q '^# end$' "$dir/work/x"
check "the link is there" [ "$(readlink "$dir/work/soft")" = x ]
if [ "$(id -u)" = 0 ]; then
    skip "a file that must not be written" "root may write everything"
else
    chmod a-w "$dir/work/x"
    check "a file that must not be written" grep -q ' Permission denied$' \
        <("$B/generate" -n 2 --record "$dir/work/x" 2>&1 >/dev/null)
fi

# A run that fails leaves the older file, and nothing beside it.
fails() { ! "$B/$1" "${@:2}" >"$dir/stdout" 2>"$log" </dev/null; }
rm -rf "$dir/work" && mkdir "$dir/work" && echo kept >"$dir/work/x"
check "generate fails" fails generate -n 1000000 --record "$dir/work/x"
check "generate fails" fails generate -n 1000000 --trace "$dir/work/x"
check "generate fails" fails generate --preset nonsense --record "$dir/work/x"
check "rollback fails" fails rollback --model synthetic:tiny --record "$dir/work/x"
check "rollback fails" fails rollback --requests 2 --tokens 4 --html "$dir/work/x" --record "$dir/gone/x"
check "the older file is whole" whole "$dir/work/x"
check "nothing is beside it" only x

# Threads write files at once, without OpenMP; a forked child that ends has no part in its parent's files.
cat >"$dir/turns.c" <<'END'
#define _POSIX_C_SOURCE 200809L
#include "examples/util/llm42_file.h"
#include <pthread.h>
#include <sys/wait.h>

static void *create(void *at) {
    char path[64];
    for (int i = 0; i < 3000; i++) {
        snprintf(path, sizeof path, "%s.%d", (const char *)at, i % 3);
        FILE *file = llm42_file_create(path);
        if (!file || fprintf(file, "%s\n", path) < 0 || !llm42_file_finish(file)) return perror(path), at;
    }
    return NULL;
}

int main(void) {
    static char name[][2] = {"a", "b", "c", "d"};
    pthread_t thread[4];
    void *bad, *worst = NULL;
    atexit(llm42_files_end);
    for (int i = 0; i < 4; i++) pthread_create(&thread[i], NULL, create, name[i]);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], &bad), worst = bad ? bad : worst;
    FILE *plain = llm42_file_create("plain"), *kept = llm42_file_create("kept");
    fprintf(plain, "before, "), fprintf(kept, "before, ");
    llm42_file_keep(kept, "unfinished\n");
    for (int i = 0; i < 3; i++) {
        int status;
        if (!fork()) {  // ends as it is, or finishes them, or fills them and drops one
            for (int n = 0; i && n < 100000; n++) fprintf(plain, "child"), fprintf(kept, "child");
            if (i) llm42_file_finish(kept);
            if (i == 2) llm42_file_drop(plain);
            FILE *own = llm42_file_create("plain");  // files of its own are not forbidden
            exit(!own || fprintf(own, "child\n") < 0);
        }
        if (wait(&status) < 0 || status) return 1;
        if (!access("plain", F_OK) || !access("kept", F_OK) || !access("kept.unfinished", F_OK)) return 2;
    }
    fprintf(plain, "after\n"), fprintf(kept, "after\n");
    return !llm42_file_finish(plain) || !llm42_file_finish(kept) || worst;
}
END
rm -rf "$dir/work" && mkdir "$dir/work"
check "turns.c" "${CC:-gcc}" -std=c11 -Wall -Wextra -Wpedantic -Werror -I. -pthread "$dir/turns.c" -o "$dir/turns"
check "threads and forks" bash -c 'cd "$1/work" && "$1/turns"' - "$dir"
check "files of threads are whole" [ "$(cat "$dir"/work/[abcd].[012] | xargs)" = \
    "a.0 a.1 a.2 b.0 b.1 b.2 c.0 c.1 c.2 d.0 d.1 d.2" ]
check "a parent's files are its own" [ "$(cat "$dir/work/plain" "$dir/work/kept")" = $'before, after\nbefore, after' ]
check "nothing is beside them" only {a,b,c,d}.{0,1,2} kept plain

# Ended at any moment: the older file is whole, or the new one is. By Ctrl-C and by kill the status is 130 or 143, and a
# file that is kept says at its end that it is unfinished. A program may also have finished before.
moments="0.005 0.02 0.03 0.05 0.08 0.12 0.2 0.35"
[ $slow = 0 ] || moments="0.1 0.4 1 2"
ended_well() {  # ended_well SIGNAL STATUS END KEPT
    local part=$dir/work/x.unfinished
    case $1:$2 in
    INT:130 | TERM:143 | KILL:137) ended=$((ended + 1)) ;;
    *:0) ;;
    *) echo "status $2" && cat "$dir/stderr" && return 1 ;;
    esac
    whole "$dir/work/x" || { tail -n 1 "$dir/work/x" | grep -qE "$3"; } || { echo "cut" && return 1; }
    if [ -e "$part" ]; then
        [ $4 != none ] && tail -n 3 "$part" | grep -q unfinished || { echo "not marked" && tail "$part" && return 1; }
        kept=$((kept + 1))
        [ "$2" = 0 ] || grep -qE "interrupted; (what there is is|.* answers are kept) in $part" "$dir/stderr" || return 1
        cp "$part" "$dir/kept" && rm "$part"
    fi
    [ "$1" = KILL ] || only x || { echo "something is left: $(ls "$dir/work")" && return 1; }
}
end_at() {  # end_at SIGNAL MOMENT END KEPT PROGRAM OPTION ARGUMENT...
    local status
    rm -rf "$dir/work" && mkdir "$dir/work" && echo kept >"$dir/work/x"
    {  # bash has a word to say of what is killed
        timeout --preserve-status -s "$1" "$2" "$B/$5" --"$6" "$dir/work/x" "${@:7}" \
            >"$dir/stdout" 2>"$dir/stderr" </dev/null
    } 2>/dev/null
    status=$?
    check "$5 --$6, SIG$1 after $2 s" ended_well "$1" $status "$3" "$4"
}
# ends PROGRAM OPTION END KEPT ARGUMENT...: END is in the last line of a whole file; KEPT: kept, may (be) or none
ends() {
    local signal moment
    ended=0 kept=0
    for signal in INT TERM KILL; do
        for moment in $moments; do end_at $signal "$moment" "$3" "$4" "$1" "$2" "${@:5}"; done
    done
    # On a busy machine there may be nothing to keep yet, so it gets more time until there is.
    for moment in 0.5 0.7 1 1.4 2 2.8 4 5.6 8 11; do
        [ "$4" = kept ] && [ $kept = 0 ] || break
        end_at INT $moment "$3" "$4" "$1" "$2" "${@:5}"
    done
    check "$1 --$2 was ended" [ $ended -gt 0 ]
    [ "$4" != kept ] || check "$1 --$2 has kept something" [ $kept -gt 0 ]
}
long=(--ids 0,905,312 --ids-out --ignore-eos --samples 8 -n 400 --deterministic --threads 1)
ends generate record '^# end$' kept "${long[@]}"
check "what is kept can be audited" grep -qE '^verified to the bit: .* of .* requests' \
    <("$B/audit" "$dir/kept" --model examples/tiny42 --threads 1 --share 0.05 --seed 1)
ends generate trace '^# end$' kept "${long[@]}"
for seed in {1..32}; do  # the first ends at once, so that something can be kept
    echo "{\"ids\": [0, 905, 312], \"max_tokens\": $((seed == 1 ? 1 : 400)), \"temperature\": 1, \"seed\": $seed," \
        '"deterministic": true}'
done >"$dir/in.jsonl"
ends generate out '"finish": ' kept --batch "$dir/in.jsonl" --ignore-eos --max-running 2 --threads 1
ends rollback record '^# end$' kept --tokens 300 --threads 1
ends rollback html '^</html>$' none --threads 1
ends rollback svg '^</svg>$' none --threads 1
ends determinism tsv '	' none --suite mixed --requests 8 --tokens 64 --threads 1
ends diff out '^# end$' none -b schedule=fast,rows=512
sim=(--calibration sweep/calibration/h100-pcie-paper.tsv --requests 3000 --threads 1)
ends sweep out '^sim	' may "${sim[@]}" --requests 30000
ends sweep out '^sim	' kept "${sim[@]}" --requests 2000 --mode dvr,nondeterministic --window 16,32,64
ends sweep per-request '	' none "${sim[@]}"
ends sweep trace '^# end$' kept "${sim[@]}"
ends bench out '	' may --suite decode --repeats 3 --quick
ends fit out '^# end$' none
ends ranks out '	' none --requests 4 --tokens 32 --batch 4
if command -v python3 >/dev/null; then
    env --default-signal=INT "$B/generate" "${long[@]}" --samples 64 --trace "$dir/run.json" >/dev/null 2>&1 &
    until [ -s "$dir/run.json.$!.part" ] || ! kill -0 $!; do sleep 0.02; done
    kill -INT $!
    wait $!
    check "a trace for viewers that was ended is whole JSON" python3 -m json.tool "$dir/run.json.unfinished"
fi
finish
