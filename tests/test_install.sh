#!/bin/bash
# make install puts the header, llm42.pc and the programs below DESTDIR; a program builds against them with the flags
# of pkg-config; make uninstall takes everything away again.
set -u
CC=${CC:-gcc} B=${B:-build}
passed=0 failed=0 skipped=0
root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT

check() {  # check NAME COMMAND...
    local name=$1; shift
    if "$@" >"$root/log" 2>&1; then
        passed=$((passed + 1))
    else
        echo "  $name: FAILED: $*"
        tail -n 20 "$root/log"
        failed=$((failed + 1))
    fi
}

make="make --no-print-directory CC=$CC B=$B DESTDIR=$root/dest PREFIX=/opt/llm42"
prefix=$root/dest/opt/llm42
check "make install" $make install
check "header" test -s "$prefix/include/llm42.h"
check "pkg-config file" test -s "$prefix/share/pkgconfig/llm42.pc"
for p in ${PROGRAMS:-}; do
    p=$(basename "$p")
    case $p in
    0*) check "llm42-$p stays here" test ! -e "$prefix/bin/llm42-$p" ;;
    *) check "llm42-$p --help" "$prefix/bin/llm42-$p" --help ;;
    esac
done
cat >"$root/use.c" <<'END'
#define LLM42_IMPLEMENTATION
#include <llm42.h>
int main(void) { return llm42_synthetic_names()[0] == NULL; }
END
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$prefix/share/pkgconfig
    check "version" test "$(pkg-config --modversion llm42)" = \
        "$(sed -n 's/^.define LLM42_VERSION "\(.*\)"$/\1/p' llm42.h)"
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs llm42)
    check "compile with pkg-config" "$CC" -std=c11 -O1 -D_POSIX_C_SOURCE=200809L "$root/use.c" -o "$root/use" $flags
    check "run" "$root/use"
else
    echo "  pkg-config: skipped: not installed"
    skipped=1
fi
check "make uninstall" $make uninstall
check "nothing left" test -z "$(find "$root/dest" -type f)"

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

skips=
[ "$skipped" = 0 ] || skips=", $skipped skipped"
echo "test_install: $passed passed, $failed failed$skips"
[ "$failed" = 0 ]
