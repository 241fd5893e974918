# checks.sh - for scripts that read this file: counted checks, each by a command, in a folder that goes at the end.  What the
# environment says to the library is forgotten.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0
for name in $(env | sed -n 's/^\(COLL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

check() { # name command...
    what=$1; shift
    if "$@" > "$dir/log" 2>&1; then passed=$((passed + 1)); echo "ok - $what"
    else failed=$((failed + 1)); echo "FAILED - $what: $(tail -n 30 "$dir/log")"; fi
}

counted() { # name processes command...: each process says "N passed, N failed"
    what=$1 processes=$2; shift 2
    "$@" > "$dir/log" 2>&1
    status=$?
    # shellcheck disable=SC2046
    set -- $(awk '/^[0-9]+ passed, [0-9]+ failed$/ { p += $1; f += $3; n++ } END { print n + 0, p + 0, f + 0 }' "$dir/log")
    if [ "$1" -ne "$processes" ] || { [ $status -ne 0 ] && [ "$3" -eq 0 ]; }; then set -- "$1" "$2" $(($3 + 1)); fi
    passed=$((passed + $2)) failed=$((failed + $3))
    if [ "$3" -eq 0 ]; then echo "ok - $what: $2"; else echo "FAILED - $what: $(tail -n 30 "$dir/log")"; fi
}
