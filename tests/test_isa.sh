#!/bin/bash
# The same program built for several instruction sets, optimisation levels and compilers: those that this machine can
# run must print the same digest. An ARM build runs in qemu, where that and a cross compiler are installed. A build that
# lets the compiler reorder sums is the control: its digest must differ.
source tests/check.sh
out=$B/isa log=$B/isa/log
mkdir -p "$out"
required="-std=c11 -ffp-contract=off -I. -isystem $STB"
flags=$(grep -m1 '^flags' /proc/cpuinfo 2>/dev/null)

can_run() {  # can_run FLAG...: does this machine have all of these instructions?
    for f in "$@"; do [[ " $flags " == *" $f "* ]] || return 1; done
}

build() {  # build NAME COMPILER FLAGS...: build/isa/NAME, unless it is newer than what it is made of
    local name=$1 cc=$2; shift 2
    local line="$cc $* $required" newest=
    newest=$(ls -t "$out/$name" tests/test_isa.c "$B/llm42.o" tests/*.h llm42.h \
        examples/util/llm42_synthetic.h 2>/dev/null | head -n 1)
    [ "$newest" = "$out/$name" ] && [ "$line" = "$(cat "$out/$name.line" 2>/dev/null)" ] && return
    $cc "$@" $required tests/test_isa.c -o "$out/$name" -lm 2>"$out/$name.log" && echo "$line" >"$out/$name.line"
}

digest() {  # digest NAME: the numbers of the program's digest line
    local emulator=
    [ "$1" != aarch64-O2 ] || emulator=qemu-aarch64
    $emulator "$out/$1" 2>&1 | tee "$out/$1.txt" | grep -i digest | grep -oE '[0-9a-f]{16}' | paste -sd' '
}

# name, compiler, what the machine must have (comma-separated, - for nothing), flags
# The library's own object, with which the control is linked too, was compiled by make's flags before make ran this.
object="-O1 $OMP -DLLM42_IMPLEMENTED $B/llm42.o"
list="make $CC - $object
native-O0 $CC - -O0 -march=native"
if [ "$(uname -m)" = x86_64 ]; then
    list="$list
scalar-O3 $CC - -O3 -march=x86-64 $OMP
scalar-O1 $CC - -O1 -march=x86-64
avx2-O3 $CC avx2,fma,bmi2 -O3 -march=haswell $OMP
avx2-O1 $CC avx2,fma,bmi2 -O1 -march=haswell
avx512-O3 $CC avx512f,avx512dq,avx512bw,avx512vl,avx512cd -O3 -march=skylake-avx512 $OMP
avx512-O1 $CC avx512f,avx512dq,avx512bw,avx512vl,avx512cd -O1 -march=skylake-avx512"
else
    list="$list
native-O1 $CC - -O1 -march=native"
fi
for other in gcc clang; do
    if [ "$other" != "$CC" ] && command -v $other >/dev/null; then
        list="$list
$other-native-O3 $other - -O3 -march=native"
        [ "$(uname -m)" = x86_64 ] && list="$list
$other-scalar-O2 $other - -O2 -march=x86-64
$other-avx2-O2 $other avx2,fma,bmi2 -O2 -march=haswell"
    fi
done
cross=aarch64-linux-gnu-gcc
if ! command -v qemu-aarch64 >/dev/null || ! $cross -static -x c - -o /dev/null 2>/dev/null <<<'int main(void) {}'; then
    skip "aarch64-O2" "needs the packages qemu-user, gcc-aarch64-linux-gnu and libc6-dev-arm64-cross"
else
    list="$list
aarch64-O2 $cross - -O2 -static"
fi
while read -r name cc needs flagline; do
    [ "$needs" = - ] || can_run ${needs//,/ } || continue
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    build "$name" "$cc" $flagline &
done <<<"$list"
build control "$CC" $object -DLLM42_TEST_CONTROL &
wait

want=
while read -r name cc needs _; do
    if [ "$needs" != - ] && ! can_run ${needs//,/ }; then
        skip "$name" "this machine lacks $needs"
        continue
    fi
    got=$([ -x "$out/$name" ] && digest "$name")
    want=${want:-$got}
    echo "  $name: $got"
    cat "$out/$name.log" "$out/$name.txt" 2>/dev/null | tail -n 20 >"$log"
    [ -n "$got" ] && [ "$got" = "$want" ]
    judge "$name: digest '$got', expected '$want'"
done <<<"$list"

got=$([ -x "$out/control" ] && digest control)
echo "  control: $got"
[ -n "$got" ] && [ "$got" != "$want" ]
judge "control: digest '$got' should differ from '$want'"
finish
