#!/bin/bash
# make install puts the header, llm42.pc and the programs below DESTDIR; a program builds against them by pkg-config and
# by CMake; make uninstall takes everything away again. make shared exports the library's functions and nothing else.
source tests/check.sh
scratch
root=$dir

make="make --no-print-directory CC=$CC B=$B DESTDIR=$root/dest PREFIX=/opt/llm42"
prefix=$root/dest/opt/llm42
check "make install" $make install
check "header" test -s "$prefix/include/llm42.h"
check "pkg-config file" test -s "$prefix/share/pkgconfig/llm42.pc"
for h in examples/util/*.h examples/planners.h; do
    check "$h" test -s "$prefix/include/llm42/$(basename "$h")"
done
for p in ${PROGRAMS:-}; do
    p=$(basename "$p")
    case $p in
    0* | nano42) check "llm42-$p stays here" test ! -e "$prefix/bin/llm42-$p" ;;
    *) check "llm42-$p --help" "$prefix/bin/llm42-$p" --help ;;
    esac
done
# From a folder that is not the repository they find what was installed with them; so does a link to one of them.
mkdir "$root/elsewhere" "$root/links"
ln -s "$prefix/bin/llm42-generate" "$root/links/generate"
from() { (cd "$1" && "${@:2}"); }
finds() {  # finds PROGRAM OPTION...: it ends well there, and names no file of the repository
    check "elsewhere: $1" from "$root/elsewhere" "$prefix/bin/$1" "${@:2}"
    check "elsewhere: $1: no file of the repository" bash -c '! grep -F "$0" "$1"' "$PWD/examples" "$root/log"
}
paper=sweep/calibration/h100-pcie-paper.tsv
finds llm42-generate --prompt Once -n 4
finds llm42-score --text Once
finds llm42-rollback --requests 2 --tokens 4
finds llm42-determinism --suite single --requests 2 --tokens 4
finds llm42-sweep --calibration $paper --requests 4
finds llm42-sweep --backend cpu --workload fixed:8x4 --requests 2 --qps offline
finds llm42-bench --suite decode --tokens 4 --repeats 1
# What sweep has simulated is drawn there too.
grid=(--window 16,32 --group 1,2 --requests 4 --workload fixed:8x16)
finds llm42-sweep --calibration $paper "${grid[@]}" --out "$root/grid.tsv"
if command -v gnuplot >/dev/null; then
    check "elsewhere: llm42-plot" from "$root/elsewhere" "$prefix/bin/llm42-plot" "$root/grid.tsv" --x window --y group \
        --value e2e_p99_s
    check "it drew" test -s "$root/grid_e2e_p99_s.png"
else
    skip "llm42-plot" "no gnuplot"
fi
if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    check "elsewhere: llm42.py" from "$root/elsewhere" env PYTHONPATH="$prefix/share/llm42/examples/python" /usr/bin/python3 \
        -c 'import llm42; assert llm42.Engine(llm42.Model("examples/tiny42")).generate("Once", max_new_tokens=4).text;
assert llm42.sweep(calibration="sweep/calibration/h100-pcie-paper.tsv", requests=4) is not None'
else
    skip "llm42.py" "no numpy"
fi
check "by a link" from "$root/elsewhere" "$root/links/generate" --prompt Once -n 4
mkdir -p "$root/links/sweep/calibration" && echo mine >"$root/links/$paper"
check "a file of the working folder comes first" bash -c 'cd "$1" && "$0" --calibration "$2" 2>&1 |
    grep "$2:1: not a calibration"' "$prefix/bin/llm42-sweep" "$root/links" "$paper"
build=$(realpath "$B")
[ ! -e "$build/../examples" ] ||
    check "the source tree's model" from "$root/links" "$build/generate" --prompt Once -n 4
cat >"$root/use.c" <<'END'
#define LLM42_IMPLEMENTATION
#include <llm42/llm42_synthetic.h>
int main(void) {
    llm42_model *model;
    return llm42_model_load(&model, &(llm42_model_desc){.path = "synthetic:tiny"}, NULL);
}
END
cat >"$root/text.c" <<'END'
#define _POSIX_C_SOURCE 200809L
#define LLM42_IMPLEMENTATION
#include <llm42.h>
#include <llm42/tokenizer.h>
int main(int argc, char **argv) {
    llm42_model *model = NULL;
    tok *t = NULL;
    if (argc < 2 || llm42_model_load(&model, &(llm42_model_desc){.path = argv[1]}, NULL)) return 1;
    return tok_open(&t, model, argv[1], NULL, NULL) != LLM42_OK;
}
END
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$prefix/share/pkgconfig
    check "version" test "$(pkg-config --modversion llm42)" = \
        "$(sed -n 's/^.define LLM42_VERSION "\(.*\)"$/\1/p' llm42.h)"
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs llm42)
    check "compile with pkg-config" "$CC" -std=c11 -O0 -D_POSIX_C_SOURCE=200809L "$root/use.c" -o "$root/use" $flags
    check "run" "$root/use"
    check "compile with tokenizer.h" "$CC" -std=c11 -O0 "$root/text.c" -o "$root/text" $flags -lpcre2-8
    check "run it" "$root/text" "$prefix/share/llm42/examples/tiny42"
    check "no warnings of others" "$CC" -std=c11 -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Werror \
        -D_POSIX_C_SOURCE=200809L -fsyntax-only "$root/text.c" $flags
    # The numbered examples are there to be changed, in their own folder. (Nothing is optimised, since it hardly runs.)
    cp -r "$prefix/share/llm42" "$root/mine"
    for c in examples/0*.c; do
        pcre=$(grep -q tokenizer.h "$c" && echo -lpcre2-8)
        check "$c, installed" from "$root/mine" "$CC" -std=c11 -O0 "$c" -o "$root/example" $flags $pcre
    done
    check "the last of them runs" from "$root/mine" "$root/example"
else
    skip "pkg-config" "not installed"
fi
if command -v cmake >/dev/null; then
    mkdir "$root/cmake"
    cp "$root/use.c" "$root/cmake"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.10)' 'project(use C)' 'find_package(llm42 0.3 REQUIRED)' \
        'add_executable(use use.c)' 'target_link_libraries(use llm42::llm42)' >"$root/cmake/CMakeLists.txt"
    check "cmake finds it" env CC="$CC" cmake -S "$root/cmake" -B "$root/cmake" -DCMAKE_PREFIX_PATH="$prefix"
    cp "$log" "$root/said"
    [ "$(uname -m)" != x86_64 ] ||
        check "it says what makes it fast" grep -q 'llm42: .* -DCMAKE_C_FLAGS=-march=native$' "$root/said"
    check "cmake with that" env CC="$CC" cmake -S "$root/cmake" -B "$root/cmake/native" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-march=native
    cp "$log" "$root/said"
    check "it says no more" sh -c "! grep 'llm42: ' '$root/said'"
    check "cmake builds with it" cmake --build "$root/cmake"
    check "that runs" "$root/cmake/use"
    sed -i 's/llm42 0.3/llm42 99/' "$root/cmake/CMakeLists.txt"
    check "cmake: a newer version than this" bash -c '! cmake -S "$0" -B "$0/newer" -DCMAKE_PREFIX_PATH="$1"' \
        "$root/cmake" "$prefix"
else
    skip "cmake" "not installed"
fi
# Of the functions that llm42.h declares, those for CUDA are in llm42.cu.
check "make shared" $make shared B="$root/shared" CFLAGS=-O0
sed -nE 's/^LLM42_API .*[ *](llm42_[a-z0-9_]+)\(.*/\1/p' llm42.h | grep -v '^llm42_backend_cuda$\|^llm42_cuda_' |
    sort >"$root/declared"
nm -D --defined-only "$root/shared/libllm42.so" | awk '{ print $3 }' | sort >"$root/exported"
check "what it exports" diff "$root/declared" "$root/exported"
sed '1s/.*/#define LLM42_IMPLEMENTED/; 2s/.*/#include "llm42.h"/' "$root/use.c" >"$root/other.c"
check "a program with it" "$CC" -std=c11 -I. "$root/other.c" -o "$root/use" -L"$root/shared" \
    -Wl,-rpath,"$root/shared" -lllm42
check "it runs" "$root/use"
mkdir "$prefix/share/other" && echo other >"$prefix/share/other/file"
check "make uninstall" $make uninstall
check "what others have put there stays, and nothing else" test "$(cd "$prefix" && find . | sort | xargs)" = \
    ". ./share ./share/other ./share/other/file"
rm -r "$prefix/share/other"
check "make uninstall again" $make uninstall
check "no folder of ours left" test ! -e "$prefix"

# A machine without a compiler and gnuplot: what the banner says is so once they are installed. This apt-get puts them
# there; its compiler compiles what make looks for, and nothing else, so that make ends behind the banner.
bare=$root/bare
mkdir "$bare"
ln -s /usr/bin/* "$bare"
ln -s /bin/* "$bare" 2>/dev/null  # where it is another folder
rm -f "$bare"/{gcc*,cc,c99,clang*,gnuplot*,apt-get,sudo,id}
printf '#!/bin/bash\necho 0\n' >"$bare/id"
cat >"$bare/apt-get" <<END
#!/bin/bash
[ "\$1" = install ] && cp "$root/compiler" "$bare/gcc" && ln -sf /bin/true "$bare/gnuplot"
END
cat >"$root/compiler" <<END
#!/bin/bash
case " \$* " in *" -E "* | *" /dev/null "* | *" --version "*) exec $(command -v "$CC") "\$@" ;; esac
exit 1
END
chmod +x "$bare/id" "$bare/apt-get" "$root/compiler"
for jobs in 1 4; do
    env -i PATH="$bare" make --no-print-directory -j$jobs figures STB="${STB:-/usr/include/stb}" B="$root/none-$jobs" \
        >"$root/log" 2>&1
    cp "$root/log" "$root/banner"
    rm -f "$bare/gcc" "$bare/gnuplot"
    [ -z "${OMP--fopenmp}" ] || check "banner, -j$jobs: OpenMP" grep -qx '  OpenMP   found' "$root/banner"
    check "banner, -j$jobs: gnuplot" grep -qx '  gnuplot  found' "$root/banner"
done

finish
