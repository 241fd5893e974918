#!/bin/sh
# Run a command, and print every 8 s that it still runs: what `make` does for a newcomer is never silent for ten seconds.
#   usage: aloud.sh WHAT COMMAND...
what=$1
shift
(
    seconds=0
    while sleep 8 > /dev/null 2>&1; do seconds=$((seconds + 8)); echo "... $what: $seconds s"; done
) &
ticker=$!
trap 'kill $ticker 2> /dev/null' EXIT
trap 'exit 130' INT TERM
"$@"
