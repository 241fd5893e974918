#!/bin/sh
# test_wheels_torch.sh - coll-torch as a user installs it, beside the Python package, for the PyTorch of build/torch-venv.
#   usage: sh tests/bindings/test_wheels_torch.sh
#
# The packages are short and not for speed.  An environment in which they are installed, from the wheels or from the sdists, is
# empty but for that PyTorch; what runs there finds no compiler.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/checks.sh
. tests/support/environments.sh
torch=$PWD/build/torch-venv/bin/python dist=$dir/dist
if ! minor=$("$torch" -c 'import torch.version as t; print(*t.__version__.split(".")[:2], sep=".")' 2> /dev/null); then
    echo "left out - there is no PyTorch in build/torch-venv: sh tools/deps.sh torch"
    echo "0 passed, 0 failed"
    exit 0
fi
made() { CC=${CC:-cc} CFLAGS="-O0 -DCOLL__ONE_TIER" sh packages/wheels.sh "$dist"; }
check "the wheels and the sdists" made
wheel=$(ls "$dist"/coll_torch-*.whl) sdist=$dist/coll_torch-$version.tar.gz
full=$version.$("$torch" -c 'import torch; print("%d%02d" % tuple(map(int, torch.__version__.split(".")[:2])))')
named() { case $(basename "$wheel") in coll_torch-"$full"-cp*-manylinux_*.whl) ;; *) return 1 ;; esac; }
check "one version, with that of PyTorch" named
(mkdir "$dir/unpacked" && cd "$dir/unpacked" && "$tools/python" -m zipfile -e "$wheel" .)
check "it requires this PyTorch" grep -qx "Requires-Dist: torch==$minor\.\*" "$dir"/unpacked/*.dist-info/METADATA
only_own() { test "$(cd "$dir/unpacked" && find . -name '*.so*' | grep -cv '^./coll_torch/_c[.]')" = 0; }
check "it has no library of PyTorch's" only_own

with_torch() { # NAME: an environment with the PyTorch and setuptools of build/torch-venv
    environment "$1" || return 1
    "$torch" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        > "$(echo "$dir/$1"/lib/python3*/site-packages)/torch.pth"
    printf '#!%s\nfrom torch.distributed.run import main\nmain()\n' "$dir/$1/bin/python3" > "$dir/$1/bin/torchrun"
    chmod +x "$dir/$1/bin/torchrun"
}
page=$PWD/bindings/torch/README.md
installed() { # NAME LINE: what is installed, and its own test
    alone "$1" /bin/sh -c "$2" > "$dir/said" && grep -q "^coll-torch $version for PyTorch $minor;" "$dir/said" \
        && grep -qx "entry points: torch.backends, torch.distributed.backends" "$dir/said" \
        && grep -q "on 2 processes: as expected" "$dir/said"
}
trained() { # NAME LINE: a step of DistributedDataParallel, without an import of coll_torch
    program "$page" > "$dir/$1/home/train.py"
    alone "$1" /bin/sh -c "$2" > "$dir/said" && test "$(cat "$dir/said")" = "[[0.5, 0.5, 0.5, 0.5]]
[[0.5, 0.5, 0.5, 0.5]]"
}
used() { # NAME: the lines of the page
    check "$1: $(lines "$page" | sed -n 1p)" installed "$1" "$(lines "$page" | sed -n 1p)"
    check "$1: python3 -m coll.torch" installed "$1" "python3 -m coll.torch"
    check "$1: $(lines "$page" | sed -n 2p)" trained "$1" "$(lines "$page" | sed -n 2p)"
}

check "an environment with PyTorch" with_torch wheels
check "pip install from the wheels, of both packages" into wheels --find-links "$dist" --only-binary :all: coll-h coll-torch
check "there is no compiler" sh -c "! env -i PATH='$dir/wheels/bin' /bin/sh -c 'command -v cc || command -v g++'"
used wheels

check "another one" with_torch sources
compiled() {
    CC=${CC:-cc} CFLAGS="-O0 -DCOLL__ONE_TIER" \
        into sources --find-links "$dist" --no-build-isolation --no-binary :all: coll-h "coll-torch==$version"
}
check "pip install from the sdists, of both packages" compiled
used sources

without() { # PyTorch: one sentence says what to do
    ! "$tools/python" -m pip wheel -q --no-index --no-build-isolation --no-deps -w "$dir/none" "$sdist" > "$dir/said" 2>&1 \
        && grep -q 'this environment has none: pip install torch' "$dir/said"
}
check "without PyTorch the source says what to do" without
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
