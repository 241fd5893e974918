# rows.sh - for scripts that build programs of the tests in another way, and run them: each is a row.  The script that reads this
# file says `config`, in CPPFLAGS perhaps switches, and prints passed and failed at its end.
. tests/support/folder.sh
passed=0 failed=0

# Prints "ok - program arguments: what it counted", or "FAILED - ..." with the end of what it said.  ONLY="test_threads ..." in
# the environment: no others.
row() { # scale program arguments...
    case " $ONLY " in "  " | *" $2 "*) ;; *) return ;; esac
    build=$(folder "$config") scale=$1 name=$2; shift 2
    log=$build/logs/$name.log said="$name${*:+ $*}${CPPFLAGS:+,$(echo " $CPPFLAGS" | sed 's/ -D/ /g')}"
    mkdir -p "$build/logs"
    if ! make --no-print-directory config="$config" CPPFLAGS="$CPPFLAGS" "$build/$name" > "$log" 2>&1; then
        failed=$((failed + 1))
        echo "FAILED - $said: $(grep -E 'error|warning' "$log" | head -n 3)"
        return
    fi
    COLL_TEST_SCALE=$scale "./$build/$name" "$@" > "$log" 2>&1
    status=$?
    line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    p=${line%% *} rest=${line#*, } f=${rest%% *}
    if [ -z "$line" ]; then p=0 f=1 line="no result, status $status"; fi
    if [ $status -ne 0 ] && [ "$f" -eq 0 ]; then f=1 line="$line, status $status"; fi
    passed=$((passed + p)) failed=$((failed + f))
    if [ "$f" -eq 0 ]; then
        echo "ok - $said: $line"
        return
    fi
    echo "FAILED - $said: $line"
    grep -avE '^ok' "$log" | tail -n 20
}
