#!/bin/sh
# test_wheels.sh - the Python packages as a user installs them: from wheels, without a compiler; from the sdist and from the
# checkout, with one.  No index is used.
#   usage: sh tests/bindings/test_wheels.sh
#
# The tools, and setuptools for builds in isolation, are in build/wheel-venv and build/wheelhouse: sh tools/deps.sh rest.
cd "$(dirname "$0")/../.." || exit 1
top=$(pwd)
: "${CC:=cc}"
export CC
. tests/support/checks.sh
. tests/support/environments.sh
dist=$dir/dist

# ---- >>the wheel
made() { env -u CC sh packages/wheels.sh "$dist" coll && wheel=$(ls "$dist"/coll_h-*.whl) && sdist=$dist/coll_h-$version.tar.gz; }
check "the wheel and the sdist" made
named() { case $(basename "$wheel") in coll_h-"$version"-py3-none-manylinux_2_26_"$(uname -m)".whl) ;; *) return 1 ;; esac; }
check "one version; any Python 3; glibc 2.26" named
(mkdir "$dir/unpacked" && cd "$dir/unpacked" && "$tools/python" -m zipfile -e "$wheel" .)
library=$(ls "$dir"/unpacked/coll/libcoll.so.*)
check "liburing is loaded, and not needed" \
    sh -c "! readelf -d '$library' | grep NEEDED | grep uring && grep -q 'liburing[.]so' '$library'"
accepted() { # PYTHON ABI: does pip take the wheel for it?
    "$tools/python" -m pip download -q --no-index --find-links "$dist" --no-deps --only-binary=:all: --implementation cp \
        --python-version "$1" --abi "$2" --platform "manylinux_2_26_$(uname -m)" -d "$dir/taken-$2" coll-h
}
check "Python 3.9 takes the wheel" accepted 3.9 cp39
check "Python 3.14 without the GIL takes the wheel" accepted 3.14 cp314t

# ---- >>installed
first_line() { lines bindings/python/README.md | sed -n 1p; }
second_line() { lines bindings/python/README.md | sed -n 2p; }
four_processes() { # NAME: whose shell is the only program from elsewhere
    alone "$1" /bin/sh -c "$(first_line)" | sed 's/.*] //' | sort > "$dir/said" && printf '%s 6\n' 0 1 2 3 | diff - "$dir/said"
}
four_threads() { test "$(alone "$1" /bin/sh -c "$(second_line)")" = "[6, 6, 6, 6]"; }
own() { # NAME: the library beside the package, whatever else the loader would find
    alone "$1" LD_LIBRARY_PATH="$dir/elsewhere" python3 -c '
import os, coll
from coll._load import lib
assert os.path.dirname(lib._name) == os.path.dirname(coll.__file__), lib._name'
}
page() { # NAME: the program of the page
    program bindings/python/README.md > "$dir/$1/home/page.py"
    alone "$1" coll-run -n 3 --no-prefix python3 page.py > "$dir/said" && test "$(sort -u "$dir/said")" = "[3.0, 3.0]"
}
used() { # NAME what
    check "$2: coll-run, four processes" four_processes "$1"
    check "$2: four threads" four_threads "$1"
    check "$2: the program of the page" page "$1"
    check "$2: its own library" own "$1"
    check "$2: the version" test "$(alone "$1" python3 -c 'import coll; print(coll.__version__)')" = "$version"
    check "$2: coll-run has the version, too" sh -c "'$dir/$1/bin/coll-run' --version | grep -F '$version'"
}
check "an empty environment" environment wheel
check "pip install from the wheel" into wheel --find-links "$dist" --only-binary :all: coll-h
check "there is no compiler" sh -c "! env -i PATH='$dir/wheel/bin' /bin/sh -c 'command -v cc || command -v gcc'"
mkdir "$dir/elsewhere" && : > "$dir/elsewhere/$(basename "$library")"
used wheel "wheel"
if command -v mypy > /dev/null 2>&1; then
    cat > "$dir/typed.py" << 'PROGRAM'
import coll
from typing import List
def rank(comm: coll.Comm) -> int:
    half = comm.split(comm.rank % 2)
    if half is not None:
        half.iallreduce(1).wait()
    return comm.rank + int(comm.allreduce(1, op='sum'))
ranks: List[int] = coll.spawn(2, rank)
PROGRAM
    typed() { (cd "$dir" && mypy --no-incremental --strict --python-executable "$dir/wheel/bin/python" typed.py); }
    untyped() { # a wrong type of an argument is found: the types are in the wheel
        sed 's/comm.rank % 2/"even"/' "$dir/typed.py" > "$dir/wrong.py"
        (cd "$dir" && ! mypy --no-incremental --strict --python-executable "$dir/wheel/bin/python" wrong.py > said \
            && grep -q '"split" of "Comm" has incompatible type "str"' said)
    }
    check "mypy --strict takes a program" typed
    check "mypy finds a wrong argument" untyped
else echo "left out - types: there is no mypy"; fi

# ---- >>from source.  Compiled for a short build, not for speed.
CFLAGS="-O0 -DCOLL__ONE_TIER"
export CFLAGS
check "another empty environment" environment sdist
check "pip install from the sdist, in isolation" into sdist --find-links build/wheelhouse "$sdist"
used sdist "sdist"
checkout() { # what git has, with what was changed
    mkdir "$dir/checkout" && git ls-files --cached --others --exclude-standard | while read -r file; do
        [ ! -f "$file" ] || echo "$file"
    done | sort > "$dir/files" && tar cf - -T "$dir/files" | tar xf - -C "$dir/checkout"
}
check "a checkout" checkout
check "a third one" environment source
here() {
    (cd "$dir/checkout" && CPPFLAGS=-DCOLL_WITH_OPENSSL LDFLAGS="-lssl -lcrypto" \
        into source --find-links "$top/build/wheelhouse" .)
}
check "pip install . in the checkout, with TLS" here
check "it has TLS" sh -c "readelf -d '$dir'/source/lib/python3*/site-packages/coll/libcoll.so.* | grep NEEDED | grep libssl"
left() { (cd "$dir/checkout" && find . -type f ! -path './build/*' | sed 's|^\./||' | sort | diff "$dir/files" -); }
check "it leaves nothing but build/" left
check "checkout: coll-run, four processes" four_processes source
without() { # a compiler: one sentence says what to do
    ! CC=/nowhere/cc "$tools/python" -m pip wheel -q --no-index --no-build-isolation --no-deps -w "$dir/none" "$sdist" \
        > "$dir/said" 2>&1 \
        && grep -q 'coll: cannot run the C compiler /nowhere/cc: No such file.*set CC' "$dir/said"
}
check "without a compiler it says what to do" without

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
