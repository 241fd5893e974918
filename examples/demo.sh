#!/bin/sh
# Train the same small transformer four times - one rank, threads, processes over TCP, and processes over TCP with 16-bit floats -
# compare the weights bit for bit, and draw the loss against the time.
# usage: sh examples/demo.sh FOLDER [SVG]       the folder of the built gpt/data, gpt/mixed and coll-run; the picture goes to
#                                               FOLDER/demo.svg unless it is named
#   STEPS=120 changes how long each trains, OPTIONS="--width 32" what
# Ends with status 1 when a run fails or a comparison does not hold.  How fast anything is is shown, and not compared.

bin=${1:?"usage: demo.sh FOLDER [SVG] (of gpt/data, gpt/mixed and coll-run)"}
picture=${2:-$bin/demo.svg}
steps=${STEPS:-120}
for program in "$bin/gpt/data" "$bin/gpt/mixed" "$bin/coll-run"; do
    [ -x "$program" ] || { echo "demo: there is no program $program"; exit 1; }
done
results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM
failed=
processors=$(nproc)
runs='alone threads tcp tcp-bf16'

# run NAME TITLE COMMAND...: show its progress, keep what it reports in $results/NAME, and the losses in $results/NAME.loss.csv.
run() {
    name=$1 title=$2; shift 2
    : > "$results/$name"
    echo "$title" > "$results/$name.title"
    echo "$title:  $*" | sed "s|$bin/||g"
    # shellcheck disable=SC2086
    { "$@" --steps "$steps" $OPTIONS --log "$results" --label "$name" || echo "demo: $name ended with status $?"; } 2>&1 |
        awk -v result="$results/$name" '/^(ranks|model|loss|time|bytes sent|weights) / { print > result; next }
                                                                                        { print "    " $0; fflush() }'
}

# get NAME FIELD: one value of a result.
get() {
    case $2 in
    ranks)     sed -n 's/^ranks  *\([0-9]*\),.*/\1/p' "$results/$1" ;;
    transport) sed -n 's/^ranks .*, over //p' "$results/$1" ;;
    loss)      sed -n 's/^loss  *\([0-9.]*\),.*/\1/p' "$results/$1" ;;
    first)     sed -n 's/^loss .*, from //p' "$results/$1" ;;
    seconds)   sed -n 's/^time  *\([0-9.]*\) s,.*/\1/p' "$results/$1" ;;
    inside)    sed -n 's/^time .* communication \([0-9.]*\) s/\1/p' "$results/$1" ;;
    bytes)     sed -n 's/^bytes sent  *\([0-9]*\) .*/\1/p' "$results/$1" ;;
    weights)   sed -n 's/^weights  *\([0-9a-f]*\),.*/\1/p' "$results/$1" ;;
    esac
}

# check WHAT COMMAND...: one comparison, remembered when it does not hold.
check() {
    what=$1; shift
    if "$@"; then conclusion=yes; else conclusion=FAILED; failed="$failed${failed:+; }$what"; fi
    printf '  %-66s %s\n' "$what" "$conclusion"
}

learns()   { awk -v loss="$(get "$1" loss)" -v first="$(get "$1" first)" 'BEGIN { exit !(loss != "" && loss < 0.8 * first) }'; }
is_one()   { grep -q '^weights .*, identical bits on every rank' "$results/$1"; }
is_same()  { [ -n "$(get "$1" weights)" ] && [ "$(get "$1" weights)" = "$(get "$2" weights)" ]; }
is_tcp()   { case $(get "$1" transport) in tcp*) ;; *) return 1 ;; esac; }
is_less()  { awk -v a="$(get "$1" bytes)" -v b="$(get "$2" bytes)" 'BEGIN { exit !(a > 0 && a < 0.67 * b) }'; }

row() {
    awk -v title="$(cat "$results/$1.title")" -v ranks="$(get "$1" ranks)" -v how="$(get "$1" transport)" \
        -v loss="$(get "$1" loss)" -v seconds="$(get "$1" seconds)" -v alone="$(get alone seconds)" \
        -v inside="$(get "$1" inside)" -v bytes="$(get "$1" bytes)" -v weights="$(get "$1" weights)" 'BEGIN {
        if (ranks == "") { printf "  %-28s (no result)\n", title; exit }
        if (ranks == 1) how = "-"
        gsub(/ \(shared memory\)|; [^)]*/, "", how)
        speed = seconds > 0 ? alone / seconds : 0
        share = seconds > 0 ? 100 * inside / seconds : 0
        sent = bytes > 0 ? sprintf("%.1f MB", bytes / 1e6) : "-"
        printf "  %-28s %-14s %7.4f %8.2f %6.2f x %8.0f %% %9s  %s\n", title, how, loss, seconds, speed, share, sent, weights }'
}

# Lines "run second loss": the mean of the last steps, and for each step the mean time of one.
points() {
    number=0
    for name in $runs; do
        number=$((number + 1))
        awk -F, -v number=$number -v step="$(awk -v s="$(get "$name" seconds)" -v n="$steps" 'BEGIN { print s / n }')" '
            FNR > 1 { sum += $2 - last[FNR % 8]; last[FNR % 8] = $2; n += n < 8
                      print number, $1 * step, sum / n }' "$results/$name.loss.csv" 2> /dev/null
    done
}

draw_text() {
    points | awk '
        { run[NR] = $1; x[NR] = $2; y[NR] = $3 }
        $2 > right { right = $2 }
        $3 > top { top = $3 }
        NR == 1 || $3 < low { low = $3 }
        END {
            if (!NR) exit
            wide = 78; high = 14; sign = " 1TPb"
            for (i = 1; i <= NR; i++) {
                column = 1 + int((wide - 1) * x[i] / right); line = int((high - 1) * (top - y[i]) / (top - low + 1e-9))
                at[line, column] = substr(sign, run[i] + 1, 1)
            }
            for (line = 0; line < high; line++) {
                printf "  %5.2f |", top - (top - low) * line / (high - 1)
                for (column = 1; column <= wide; column++) printf "%s", (line, column) in at ? at[line, column] : " "
                print ""
            }
            printf "        +"; for (column = 1; column <= wide; column++) printf "-"
            printf "\n         0 s%" wide - 4 ".1f s\n", right
            print "  loss against time.  1: one rank   T: threads   P: processes over TCP   b: the same with bf16"
        }'
}

draw_svg() {
    titles=$(for name in $runs; do tr '\n' '|' < "$results/$name.title"; done)
    points | awk -v titles="$titles" -v processors="$processors" '
        { path[$1] = path[$1] " " $2 "," $3 }
        $2 > right { right = $2 }
        $3 > top { top = $3 }
        NR == 1 || $3 < low { low = $3 }
        END {
            split(titles, title, "|"); split("#444444 #1f77b4 #d62728 #2ca02c", colour, " ")
            print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 400\" font-family=\"sans-serif\" font-size=\"13\">"
            print "<rect width=\"720\" height=\"400\" fill=\"white\"/><path d=\"M60 20V350H700\" fill=\"none\" stroke=\"black\"/>"
            for (i = 0; i <= 4; i++) {
                printf "<text x=\"52\" y=\"%d\" text-anchor=\"end\">%.2f</text>\n", 354 - 330 * i / 4, low + (top - low) * i / 4
                printf "<text x=\"%d\" y=\"368\" text-anchor=\"middle\">%.1f</text>\n", 60 + 640 * i / 4, right * i / 4
            }
            printf "<text x=\"380\" y=\"388\" text-anchor=\"middle\">seconds, on %d processors</text>\n", processors
            print "<text x=\"66\" y=\"16\">loss of the last steps</text>"
            for (r = 1; r <= 4; r++) {
                n = split(path[r], point, " "); line = ""
                for (i = 1; i <= n; i++) {
                    split(point[i], xy, ",")
                    line = line sprintf(" %.1f,%.1f", 60 + 640 * xy[1] / right, 350 - 330 * (xy[2] - low) / (top - low + 1e-9))
                }
                printf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", substr(line, 2), colour[r]
                printf "<text x=\"450\" y=\"%d\" fill=\"%s\">%s</text>\n", 24 + 20 * r, colour[r], title[r]
            }
            print "</svg>"
        }' > "$picture"
}

echo "A small transformer learns to write like Jane Austen, four times the same $steps steps."
echo "This machine has $processors processors: 4 ranks can be up to $((processors < 4 ? processors : 4)) times as fast as one."
awk -v processors="$processors" '$1 > processors / 4 {
    print "Other programs use them as well (load " $1 "): the times below are then worth little." }' /proc/loadavg 2> /dev/null
echo

over_tcp="env COLL_SHARE=off $bin/coll-run -n 4 --no-prefix"       # COLL_SHARE=off: as between hosts, without shared memory
run alone    "one rank"                     "$bin/gpt/data"
run threads  "4 threads"                    "$bin/gpt/data" -t 4
# shellcheck disable=SC2086
run tcp      "4 processes over TCP"         $over_tcp "$bin/gpt/data"
# shellcheck disable=SC2086
run tcp-bf16 "4 processes over TCP, bf16"   $over_tcp "$bin/gpt/mixed" --type bf16

echo
printf '  %-28s %-14s %7s %8s %8s %10s %9s  %s\n' run over loss seconds speed messages sent weights
for name in $runs; do row $name; done
awk -v a="$(get tcp-bf16 bytes)" -v b="$(get tcp bytes)" 'BEGIN {
    if (b > 0) printf "  over TCP bf16 sends %.0f %% of the bytes of f32\n", 100 * a / b }'
echo '  messages: part of the time of rank 0 in which it sends, receives or waits; sent: by each rank'
echo
for name in $runs; do check "$name: the loss falls" learns $name; done
for name in threads tcp tcp-bf16; do check "$name: the same bits on all ranks" is_one $name; done
check "4 threads and 4 processes: the same bits" is_same tcp threads
for name in tcp tcp-bf16; do check "$name: it was TCP" is_tcp $name; done
check "bf16: a third fewer bytes than f32, or less" is_less tcp-bf16 tcp
echo
draw_text
draw_svg && echo && echo "  the same as a picture: $picture"
echo
if [ -n "$failed" ]; then echo "demo: FAILED: $failed"; exit 1; fi
echo "demo: all 4 runs learned, all ranks agree, and threads and TCP agree bit for bit"
