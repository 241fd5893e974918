#!/bin/sh
# wheels.sh - what PyPI gets: the sdist of the Python package and the wheel that is built from it; and the same of coll-torch, for
# the PyTorch of build/torch-venv, if there is one.
#   usage: [CC=...] sh packages/wheels.sh [FOLDER [PACKAGE]]  FOLDER: dist; PACKAGE: coll or torch, both if left out
#
# zig (PyPI: ziglang) compiles the Python package, because it links for an older glibc than that of this system.  auditwheel
# reads which symbols the library needs and names the wheel after the oldest glibc that has them.  With CC another compiler, the
# wheel is for systems that are as new as this one; so is that of coll-torch, which needs the C++ library of PyTorch.
# `sh tools/deps.sh rest` installs the tools into build/wheel-venv.
cd "$(dirname "$0")/.." || exit 1
out=${1:-dist} only=$2 tools=$PWD/build/wheel-venv/bin torch=$PWD/build/torch-venv/bin/python
[ -x "$tools/auditwheel" ] || { echo "wheels.sh: there is no $tools/auditwheel: run sh tools/deps.sh rest"; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/include"
out=$(cd "$out" && pwd)
PATH=$tools:$PATH
export PATH

packed() { # PYTHON FOLDER NAME auditwheel's options...: the sdist, and the wheel that is built from it, into $out
    python=$1 folder=$2 name=$3; shift 3
    rm -f "$out/$name"-*
    (cd "$folder" && "$python" -c 'import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])' \
        "$out" > "$work/log" 2>&1) || { cat "$work/log"; return 1; }
    COLL_TORCH_WHEEL=1 "$python" -m pip wheel -q --no-index --no-build-isolation --no-deps -w "$work/$name" \
        "$out/$name"-*.tar.gz \
        && "$tools/python" -m auditwheel repair "$@" -w "$out" "$work/$name"/*.whl
}

coll() (
    if [ -z "$CC" ]; then
        # zig does not read /usr/include.  The library loads liburing when it runs, but is compiled with its header.
        [ -f /usr/include/liburing.h ] \
            || { echo "wheels.sh: there is no /usr/include/liburing.h (Debian: liburing-dev)"; exit 1; }
        cp -r /usr/include/liburing.h /usr/include/liburing "$work/include/"
        # The newest symbol that the library needs is getentropy, of glibc 2.25.  zig's targets have no CRC instruction unless it
        # is named; the library uses it only where the processor has it.
        CC="$tools/python -m ziglang cc -target x86_64-linux-gnu.2.25 -mcpu=baseline+crc32"
        CPPFLAGS="-I$work/include $CPPFLAGS"
        ZIG_GLOBAL_CACHE_DIR=$PWD/build/zig ZIG_LOCAL_CACHE_DIR=$PWD/build/zig
        export CC CPPFLAGS ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
    fi
    packed "$tools/python" . coll_h
)

torch() { packed "$torch" bindings/torch coll_torch --exclude 'libtorch*.so' --exclude libc10.so; }

case $only in '' | coll) coll || exit 1 ;; esac
case $only in '' | torch) [ ! -x "$torch" ] || torch || exit 1 ;; esac
ls -l "$out"
