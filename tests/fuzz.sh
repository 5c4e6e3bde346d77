#!/bin/bash
# fuzz.sh SECONDS tests/fuzz_NAME.c ...: each target for that long, with libFuzzer where clang and its runtime are
# there (new inputs stay in build/fuzz/NAME), else with the target's own mutator, built by `make fuzz` before this.
set -u
STB=${STB:-/usr/include/stb} B=${B:-build}
seconds=$1; shift
failed=0
for source in "$@"; do
    name=$(basename "$source" .c)
    corpus=$B/fuzz/$name
    mkdir -p "$corpus"
    libs="-lm $(grep -q tokenizer.h "$source" && echo -lpcre2-8)"
    if clang -std=c11 -ffp-contract=off -O1 -g -march=native -fsanitize=fuzzer,address,undefined \
        -fno-sanitize-recover=all -DLLM42_LIBFUZZER -I. -isystem "$STB" "$source" \
        examples/lib/args.c sweep/lib/common.c sweep/lib/workload.c -o "$B/fuzz/$name.bin" $libs \
        2>"$B/fuzz/$name.log"; then
        echo "== $name: libFuzzer, $seconds s"
        B=$B/asan "$B/asan/tests/$name" --seeds "$corpus"
        B=$B/asan "$B/fuzz/$name.bin" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=4096 \
            -artifact_prefix="$B/fuzz/" "$corpus" || failed=1
    else
        echo "== $name: its own mutator, $seconds s"
        B=$B/asan "$B/asan/tests/$name" --seconds "$seconds" || failed=1
    fi
done
exit $failed
