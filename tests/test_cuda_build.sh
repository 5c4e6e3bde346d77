#!/bin/bash
# The CUDA backend builds with nvcc, and the programs say in one line that they were built without CUDA, or that there is
# no GPU. What the GPU computes is for `make test-cuda`.
#
# No kernel runs here, so everything is compiled in the quickest way: the backend for sm_90, and by cuda_host for sm_80.
# Of the programs the device's part is only checked, or compiled to PTX where nvcc knows no other way, because all inline
# assembly stands in kernels.cu. The library's own object is that of the build folder, if there is one.
source tests/check.sh
out=$B/cudatest log=$B/cudatest/log
mkdir -p "$out/plain"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
quick="-O0 -Xcicc -O0 -Xptxas -O0"
"$nvcc" --help 2>/dev/null | grep -q -e --Ofast-compile && quick="-O0 -Ofc max"  # quicker, but not in older toolkits
programs="-gencode=arch=compute_90a,code=compute_90a"
"$nvcc" --help 2>/dev/null | grep -q -e --fdevice-syntax-only && programs+=" -fdevice-syntax-only"
make=(make --no-print-directory "-j$(nproc)" CC="$CC" STB="$STB" CFLAGS="-O0 -march=native" TEST_CFLAGS=-O0
    CUDA_ARCH=90 EMULATED_CFLAGS=-O1 NVCCFLAGS="$quick" PROGRAM_GENCODE="$programs")
for b in "CUDA=1 $out" "CUDA=0 $out/plain"; do
    "${make[@]}" ${b% *} B="${b#* }" "${b#* }/.flags" >"$out/log" 2>&1  # older than what is copied, so that this stays
    [ ! -e "$B/llm42.o" ] || cmp -s "$B/llm42.o" "${b#* }/llm42.o" || cp "$B/llm42.o" "${b#* }/"
done

builds() { check "$1" "${make[@]}" "${@:2}"; }  # builds NAME MAKE-ARGUMENT...

faulty() {  # faulty FAULT PATTERN COMMAND...: with this fault of the emulator the command fails and prints the pattern
    ! EMULATOR_FAULT=$1 "${@:3}" >"$out/log" 2>&1 && grep -q "$2" "$out/log"
    judge "the emulator's fault $1 is found"
}

refuses() {  # refuses PATTERN COMMAND...: a status that is not 0, and one line on stderr that has the pattern
    "${@:2}" >/dev/null 2>"$out/log" </dev/null
    local status=$?
    [ $status != 0 ] && [ $status -lt 126 ] && [ "$(wc -l <"$out/log")" = 1 ] && grep -qE "$1" "$out/log"
    judge "one line with '$1' (status $status): ${*:2}"
}

ids="--ids 5,6,7 --ids-out -n 4"
builds "build without CUDA" CUDA=0 B="$out/plain" "$out/plain/generate" "$out/plain/determinism" &&
    for program in "generate $ids" determinism; do
        refuses 'built without CUDA: run make cuda' "$out/plain/"$program --backend cuda
    done
"${make[@]}" nvcc NVCC=/nonexistent/nvcc >/dev/null 2>"$out/log" && echo "make: no error" >"$out/log"
grep -q 'install the CUDA Toolkit' "$out/log"
judge "make cuda without nvcc"

# What an engine needs is summed up from the lists that it is taken from: nothing is taken elsewhere.
grep -n 'cudaMalloc[A-Za-z]*(' llm42.cu >"$out/log"
[ "$(wc -l <"$out/log")" = 1 ]
judge "device memory is taken in one place"

if ! why=$("${make[@]}" nvcc 2>&1); then
    skip "make cuda" "$(head -n 1 <<<"$why")"
elif
    # All that is used below is built at once, so that no core waits. What fails fails again, with its name, below.
    names=(test_cuda attention_ladder_emulated
        cuda_{host,inside,leaves,steps,lost,emulated,leaves_emulated,steps_emulated})
    "${make[@]}" -k CUDA=1 B="$out" "$out"/{generate,bench,determinism,kernels,{matmul,attention}_ladder} \
        "${names[@]/#/$out/tests/}" \
        >"$out/log" 2>&1
    builds "make cuda" cuda B="$out" PROGRAMS="$out/generate $out/bench $out/determinism"
then
    if { command -v nvidia-smi && nvidia-smi -L; } 2>/dev/null | grep -q '^GPU '; then
        skip "programs without a GPU" "this machine has one (make test-cuda uses it)"
    else
        for program in "generate $ids" "generate --model synthetic:tiny $ids" bench determinism; do
            refuses '[Nn]o CUDA device' "$out/"$program --backend cuda
        done
        for suite in all workloads online; do
            refuses "^bench: workload: 'nonsense'" "$out/bench" --backend cuda --suite $suite --workload nonsense
        done
        for suite in passes prompts; do
            refuses '[Nn]o CUDA device' "$out/bench" --backend cuda --suite $suite --workload nonsense
        done
        refuses "^bench: --suite: 'prompts' is not one of" "$out/bench" --suite prompts
        refuses 'only with --backend cuda' "$out/bench" --kv-gb 1
        refuses 'shape:tiny has no weights' "$out/bench" --suite decode --model shape:tiny
        builds "make test-cuda" test-cuda B="$out" &&
            { grep -qx "0 passed, 0 failed" "$out/log"; judge "it skips"; }
        refuses 'part passes needs' "$out/tests/test_cuda" --part passes --window 8 --group 4
        refuses '^matmul_ladder: --k: 100 is not' "$out/matmul_ladder" --k 100
        refuses "^attention_ladder: --rows: .x. is not" "$out/attention_ladder" --rows 8,x
        if builds "make kernels" kernels B="$out"; then
            refuses '[Nn]o CUDA device' "$out/kernels"
            refuses '[Nn]o CUDA device' "$out/kernels" --part attention
            refuses '[Nn]o CUDA device' "$out/kernels" --part exchange
            refuses "^kernels: --part: 'nonsense' is not one of" "$out/kernels" --part nonsense
            refuses '^kernels: --leaves: part leaves needs' "$out/kernels" --part leaves --leaves 1
            refuses '^kernels: --model: .tests.: must be synthetic:NAME' "$out/kernels" --model tests
            refuses '^kernels: /nonexistent/x: cannot write' "$out/kernels" --out /nonexistent/x
        fi
    fi
    # Attention's tasks, algorithm files, memory and the choice of algorithms, on the host.
    builds "the host's part" B="$out" "$out/tests/cuda_host" &&
        check "the host's part" "$out/tests/cuda_host"
    # The kernels themselves, on the CPU: their bits are those of the CPU backend in the arithmetic sm90.
    # Where there is a LeakSanitizer, it finds no memory that the emulator has lost.
    leaks=
    echo 'int main() {}' | g++ -fsanitize=leak -x c++ - -o "$out/leaks" 2>/dev/null && "$out/leaks" && leaks=-fsanitize=leak
    builds "the emulated backend" CUDA=1 B="$out" EMULATED_LIBS="-ldl -lm -lpthread $leaks" "$out/tests/cuda_emulated" &&
        for model in "synthetic:tiny --leaves 8 --tensor-parallel 2 --devices 2" "tests/arch/qwen3_moe --quick" \
            "tests/arch/qwen3_5_text --quick"; do
            # shellcheck disable=SC2086
            "$out/tests/cuda_emulated" --part arithmetic --model $model >"$out/log" 2>&1 &&
                grep -qx '  cuda arithmetic: sm90' "$out/log"
            judge "the kernels on the CPU, $model"
        done
    # Controls: the bits are wrong if waits leave a copy that has not arrived, or if no thread waits at a barrier.
    tiny=("$out/tests/cuda_emulated" --part arithmetic --model synthetic:tiny --quick)
    faulty wait 'that differ' "${tiny[@]}"
    faulty barrier 'that differ' "${tiny[@]}"
    # The same for FP8 models. Control: not if nobody waits for a warpgroup's products.
    eight=("$out/tests/cuda_emulated" --part e4m3 --quick --leaves 2 --tensor-parallel 2 --devices 2 --no-check)
    EMULATOR_PROCESSORS=3 check "FP8 on the CPU" "${eight[@]}"
    fp8=("$out/tests/cuda_emulated" --part arithmetic --model synthetic:tiny-fp8 --quick)
    faulty product 'that differ' "${fp8[@]}"
    EMULATOR_PROCESSORS=1 check "stages of FP8 are filled again when all lanes have read them" "${fp8[@]}" --no-check
    # The bits stay if blocks have many tasks, and each kernel copies as early as it may. Controls: not if none waits for
    # those ahead of it, or for the products of warpgroups, by which attention with wide heads multiplies.
    wide=("$out/tests/cuda_emulated" --part arithmetic --model tests/arch/llama_wide_heads --quick)
    faulty product 'attention.*that differ' "${wide[@]}"
    EMULATOR_PROCESSORS=2 EMULATOR_EARLY=1 check "kernels that begin early" "${wide[@]}"
    EMULATOR_EARLY=1 faulty begin 'that differ' "${tiny[@]}" --no-check
    # A backend does not open on a GPU whose 2^x is not that of Hopper GPUs in one row of their table.
    faulty power '2^x has other bits' "${tiny[@]}"
    # Nor does a fault in the meetings of a cluster remain unnoticed.
    faulty cluster 'the shared memory of a block that has ended' "${tiny[@]}"
    # The kernels of warpgroups have the bits of the other ones. Control: not if nobody waits for the copy engine.
    if builds "cuda_leaves, emulated" B="$out" "$out/tests/cuda_leaves_emulated"; then
        check "warpgroups on the CPU" "$out/tests/cuda_leaves_emulated"
        faulty mbarrier ' 0 have' "$out/tests/cuda_leaves_emulated"
    fi
    # Steps of attention in one order have the same bits. Controls: copies have not arrived; no thread waits at a barrier.
    if builds "attention_ladder, emulated" B="$out" "$out/tests/attention_ladder_emulated"; then
        ladder=("$out/tests/attention_ladder_emulated" --rows 1 --context 1024)
        check "attention_ladder on the CPU" "${ladder[@]}"
        for step in 7 8; do faulty mbarrier "step $step is off by" "${ladder[@]}"; done
        faulty wait 'step 6 is off by' "${ladder[@]}"
    fi
    # However two devices exchange their parts of sums, the bits are the same.
    check "exchanges on the CPU" "$out/tests/cuda_emulated" --part exchange --model synthetic:tiny --no-cublas --no-check \
        --quick
    # cuda_steps finds out how the emulated tensor cores add, and what each of the faults changes.
    finds() {  # finds PATTERN ARGUMENT...: what would come behind that line is left out
        "$out/tests/cuda_steps_emulated" --brief --steps 1024 "${@:2}" 2>&1 | tee "$out/log" | grep -q "$1"
        judge "cuda_steps ${*:2}"
    }
    steps() {  # steps STATUS PATTERN ARGUMENT...
        "$out/tests/cuda_steps_emulated" --brief --steps 1024 "${@:3}" >"$out/log" 2>&1
        [ $? = "$1" ] && grep -q "$2" "$out/log"
        judge "cuda_steps ${*:3}"
    }
    cut="addends cut, products as they are, 16 at a time, result cut"
    if builds "cuda_steps, emulated" B="$out" "$out/tests/cuda_steps_emulated"; then
        steps 0 "alone holds for all kinds: 25 bits below 2^-133 or more, $cut"
        finds "alone holds for all kinds: 24 bits below 2^-133 or more, $cut" --bits 24
        finds "alone holds for all kinds: 25 bits below 2^-132 or more, $cut" --least -132
        EMULATOR_FAULT=product steps 1 "wgmma m64n192k16, .*: 0 single steps and 0 sums"
        steps 0 "sm_80, is not known" --bits 24 --major 8
        steps 0 "sm_80, is not known to the library, but its steps are those of sm90" --major 8
    fi
    builds "what is built in stays built in" B="$out" "$out/determinism"
    ! grep -q building "$out/log"
    judge "plain make after make cuda built again"
fi
finish
