#!/bin/sh
# wheels.sh - what PyPI gets: the sdist of the Python package, and the wheel that is built from it.
#   usage: [CC=...] sh packages/wheels.sh [FOLDER]            FOLDER: dist
#
# zig (PyPI: ziglang) compiles, because it links for an older glibc than that of this system.  auditwheel then reads which symbols
# the library needs and names the wheel after the oldest glibc that has them.  With CC another compiler, the wheel is for systems
# that are as new as this one.  `sh tools/deps.sh rest` installs the tools into build/wheel-venv.
cd "$(dirname "$0")/.." || exit 1
out=${1:-dist} tools=$PWD/build/wheel-venv/bin
[ -x "$tools/auditwheel" ] || { echo "wheels.sh: there is no $tools/auditwheel: run sh tools/deps.sh rest"; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/include"
rm -f "$out"/coll_h-*
PATH=$tools:$PATH

# The library loads liburing when it runs, but needs its header to compile; zig does not read /usr/include.
if [ -z "$CC" ]; then
    [ -f /usr/include/liburing.h ] || { echo "wheels.sh: there is no /usr/include/liburing.h (Debian: liburing-dev)"; exit 1; }
    cp -r /usr/include/liburing.h /usr/include/liburing "$work/include/"
    CPPFLAGS="-I$work/include $CPPFLAGS"
    # The newest symbol that the library needs is getentropy, of glibc 2.25.  zig's targets have no CRC instruction unless it is
    # named; the library uses it only where the processor has it.
    CC="python -m ziglang cc -target x86_64-linux-gnu.2.25 -mcpu=baseline+crc32"
    ZIG_GLOBAL_CACHE_DIR=$PWD/build/zig ZIG_LOCAL_CACHE_DIR=$PWD/build/zig
    export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
fi
export CC CPPFLAGS PATH

sdist() { # FOLDER of pyproject.toml: into $out
    (cd "$1" && python -c 'import sys; from setuptools import build_meta as builder; builder.build_sdist(sys.argv[1])' "$2")
}
wheel() { # SDIST, what auditwheel leaves out...
    from=$1; shift
    python -m pip wheel -q --no-index --no-build-isolation --no-deps -w "$work/wheels" "$from" \
        && python -m auditwheel repair "$@" -w "$out" "$work"/wheels/*.whl && rm -r "$work/wheels"
}
sdist . "$(cd "$out" && pwd)" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
wheel "$out"/coll_h-*.tar.gz || exit 1
ls -l "$out"
