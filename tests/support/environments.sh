# environments.sh - empty environments of Python, for scripts that read this file after checks.sh; $tools are the programs of
# build/wheel-venv (sh tools/deps.sh rest).
tools=$PWD/build/wheel-venv/bin
if [ ! -x "$tools/auditwheel" ]; then
    echo "FAILED - there is no $tools/auditwheel: sh tools/deps.sh rest"; echo "0 passed, 1 failed"; exit 1
fi
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
number() { sed -n "s/^#define COLL_VERSION_$1 //p" coll.h; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)

environment() { # NAME
    "$tools/python" -m venv --without-pip "$dir/$1" && mkdir -p "$dir/$1/home"
}
into() { # NAME pip's arguments...: no index is used
    to=$dir/$1; shift
    PIP_NO_CACHE_DIR=1 "$tools/python" -m pip --python "$to/bin/python" install -q --no-index "$@"
}
alone() { # NAME command...: the programs of the environment are the only ones that are found
    at=$dir/$1; shift
    (cd "$at/home" && env -i PATH="$at/bin" HOME="$at/home" "$@")
}
lines() { # PAGE: the commands of its first block, but for `pip install`
    sed -n '/^    pip install/,/^$/ { /^    pip install/d; s/^    //p }' "$1"
}
program() { # PAGE: its first program
    sed -n '/^```python/,/^```/p' "$1" | sed '1d; /^```/,$d'
}
