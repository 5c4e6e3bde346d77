#!/bin/bash
# Looks for what make needs, each header on its own, and names the packages of Debian and Ubuntu that are missing. With
# the argument `install` it installs them, where there are apt-get and root, or a sudo that asks for no password. It
# ends well if nothing is missing any more; else it prints the command to run.
# From the environment: CC, STB (folder of stb_ds.h), PCRE2, PLOTS and WASM (not empty: PCRE2, gnuplot, and clang for
# WebAssembly are needed too), and NUMPY and SERVE (not empty: numpy, and what build/serve is built with, are installed
# where that can be done, but not needed).
set -u

has() { printf '#include <stddef.h>\n#include <%s>\n' "$1" | $CC -DPCRE2_CODE_UNIT_WIDTH=8 -isystem "$STB" -E -; }
lacks() { ! has "$1" >/dev/null 2>&1; }
no_numpy() { ! python3 -c 'import numpy' 2>/dev/null && ! /usr/bin/python3 -c 'import numpy' 2>/dev/null; }
look() {  # sets missing and wanted (packages) and install (how to get the missing ones)
    missing='' wanted=
    [ -n "${NUMPY:-}" ] && no_numpy && wanted=" python3-numpy"
    if [ -n "${SERVE:-}" ] && { lacks microhttpd.h || lacks jansson.h || ! command -v pkg-config >/dev/null; }; then
        wanted="$wanted libmicrohttpd-dev libjansson-dev pkg-config"
    fi
    lacks stdio.h && missing="$missing gcc libc6-dev"
    lacks stb_ds.h && missing="$missing libstb-dev"
    lacks jsmn.h && missing="$missing libjsmn-dev"
    [ -n "$PCRE2" ] && lacks pcre2.h && missing="$missing libpcre2-dev"
    if [ -n "$WASM" ] && ! echo 'int main(void) { return 0; }' |
        clang --target=wasm32-wasi --sysroot=/usr -x c - -o /dev/null 2>/dev/null; then
        missing="$missing clang lld wasi-libc libclang-rt-dev-wasm32"
    fi
    [ -n "$PLOTS" ] && ! command -v gnuplot >/dev/null && missing="$missing gnuplot-nox"
    install="apt-get install -y --no-install-recommends$missing"
}

look
if [ -n "$missing$wanted" ] && [ "${1:-}" = install ]; then
    as=
    [ "$(id -u)" = 0 ] || as="sudo -n"
    if command -v apt-get >/dev/null && $as true 2>/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        for packages in "$missing" "$wanted"; do
            [ -n "$packages" ] || continue
            echo "installing$packages"
            install="apt-get install -y --no-install-recommends$packages"
            $as $install >/dev/null 2>&1 || { $as apt-get update -qq && $as $install; }
        done
        look
    fi
fi
[ -z "$missing" ] || { echo "Missing:$missing. Run: sudo $install" >&2; exit 1; }
