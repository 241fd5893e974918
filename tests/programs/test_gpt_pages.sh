#!/bin/sh
# test_gpt_pages.sh - every page of examples/gpt, briefly, on threads, processes and both: the losses of one rank at the same
# steps, within the tolerance of each check; the same bits where the arithmetic is the same; and refusals.
# And train_digits with its convolution net, whose batch statistics are those of all ranks.
#   usage: test_gpt_pages.sh FOLDER [PAGE...]        the folder of gpt/, train_digits and coll-run, e.g. build/release
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# shellcheck disable=SC2086

bin=$(cd "${1:?"usage: test_gpt_pages.sh FOLDER [PAGE...]"}" && pwd) || exit 1
shift
only="$*"
cd "$(dirname "$0")/../.." || exit 1
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
trap 'exit 1' HUP INT TERM
passed=0
failed=0

# 113 sequences in batches of 6: the last batch of a round has 5, and 7 ranks do not all have one in each.
tiny="--layers 2 --width 16 --heads 2 --context 16 --batch 6 --letters 1820 --steps 30 --json --log $out"
one=$bin/gpt/data
over_tcp="env COLL_SHARE=off timeout 60 $bin/coll-run --no-prefix"
together="timeout 60 $bin/coll-run --no-prefix"

# ---- >>helpers ----

# conclusion NAME STATUS DETAIL
conclusion() {
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok - $1"
    else
        failed=$((failed + 1))
        echo "FAILED - $1: $3"
    fi
}

wanted() { case " $only " in "  " | *" $1 "*) ;; *) return 1 ;; esac; }

# run NAME COMMAND...: with the tiny model; the result in $out/NAME, the losses in $out/NAME.loss.csv
run() {
    name=$1; shift
    timeout 60 "$@" $tiny --label "$name" > "$out/$name" 2> "$out/$name.err"
    status=$?
    if ! grep -q '"identical":true' "$out/$name"; then
        [ $status -ne 0 ] || status=1
    fi
    why=$(tail -n 3 "$out/$name.err" | tr '\n' '|')
    conclusion "$name runs, and all ranks end with the same bits" $status "status $status: $why"
}

get() { sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$out/$1"; }

# near NAME TOLERANCE [OTHER]: the losses of all steps that NAME has are those of OTHER (one rank), and not too few of them
near() {
    far=$(awk -F, 'FNR == 1 { next } NR == FNR { loss[$1] = $2; next }
                   { count++; d = $2 - loss[$1]; if (d < 0) d = -d; if (!($1 in loss) || d != d) d = 999; if (d > far) far = d }
                   END { if (count < 10) far = 999; print far + 0 }' "$out/${3:-alone}.loss.csv" "$out/$1.loss.csv")
    awk -v far="${far:-999}" -v most="$2" 'BEGIN { exit !(far <= most) }'
    conclusion "$1: each loss within $2 of that of ${3:-alone}" $? "$far"
}

# close_to NAME TOLERANCE: the mean loss of the last tenth, where single steps must differ
close_to() {
    awk -v a="$(get "$1" loss)" -v b="$(get alone loss)" -v most="$2" \
        'BEGIN { d = a - b; exit !(a > 0 && d <= most && -d <= most) }'
    conclusion "$1: the last losses within $2 of those of alone" $? "$(get "$1" loss) and $(get alone loss)"
}

bits() { # bits NAME OTHER: the same weights
    [ -n "$(get "$1" weights)" ] && [ "$(get "$1" weights)" = "$(get "$2" weights)" ]
    conclusion "$1: the bits of $2" $? "$(get "$1" weights) and $(get "$2" weights)"
}

# refuses NAME SENTENCE COMMAND...: exit status 2, on every rank, and one sentence
refuses() {
    name=$1 sentence=$2; shift 2
    timeout 60 "$@" > "$out/refused" 2>&1
    status=$?
    said=$(grep -c "$sentence" "$out/refused")
    others=$(grep 'exited with status' "$out/refused" | grep -cv 'with status 2')
    [ "$status,$said,$others" = 2,1,0 ]
    conclusion "$name is refused" $? "status $status, said $said times, $others others: $(head -n 3 "$out/refused" | tr '\n' '|')"
}

# ---- >>pages ----

run alone "$one"
awk -v first="$(get alone first)" -v last="$(get alone loss)" 'BEGIN { exit !(first > 3 && last > 0 && last < first - 0.8) }'
conclusion "alone: it learns" $? "from $(get alone first) to $(get alone loss)"
run four "$one" -t 4
near four 1e-5

if wanted data; then
    run data-tcp $over_tcp -n 4 "$one" --bucket 1 --check 7
    bits data-tcp four
    run data-both $together -n 2 --threads 2 "$one" --overlap no
    bits data-both four
    run data-sim env COLL_TRANSPORT=sim "$one" -t 4
    bits data-sim four
    run data-seven "$one" -t 7 --bucket 1 --timeline "$out/timeline"
    near data-seven 1e-5
    python3 - "$out/timeline" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))
back = {(e["pid"], e["args"]["step"]): e["ts"] + e["dur"] for e in events if e["name"] == "forward and backward"}
early = [e for e in events if e["tid"] == 1 and e["ts"] < back[e["pid"], e["args"]["step"]]]
sys.exit(not (len(back) == 7 * 30 and len(early) >= 3 * 7 * 20))
END
    conclusion "data: sums begin while backward runs" $? "see the timeline"
    STEPS=25 ONLY="data-alone data-after" OPTIONS="--batch 2 --context 16" \
        sh examples/gpt/plots.sh "$bin" "$out/plots" > "$out/drawn" 2>&1
    if command -v gnuplot > /dev/null; then [ "$(cat "$out"/plots/*.svg | grep -c '</svg>')" = 3 ]
    else grep -q 'there is no gnuplot' "$out/drawn"; fi
    conclusion "data: what it writes is drawn, or there is no gnuplot" $? "$(tail -n 2 "$out/drawn" | tr '\n' '|')"
    refuses "data: heads that do not divide the width" "cannot be divided by 5 heads" $together -n 3 "$one" --heads 5
    refuses "data: no such text" "No such file" $together -n 3 "$one" --data "$out/none"
    refuses "data: too short a text" "40 letters are used, and one sequence takes 65" "$one" -t 3 --letters 40
    refuses "data: too large a batch" "more than this model can count" $together -n 2 "$one" --batch 100000 --context 4096
    refuses "data: a word that is none" "is one of: no yes" "$one" --overlap maybe
    refuses "data: a number that is none" "needs a whole number from 1" "$one" --steps 1.5
fi

if wanted mixed; then
    run mixed-f32 "$bin/gpt/mixed" -t 4 --type f32
    bits mixed-f32 four
    for type in bf16 f16; do
        run mixed-$type "$bin/gpt/mixed" -t 4 --type $type
        run mixed-$type-tcp $over_tcp -n 4 "$bin/gpt/mixed" --type $type
        bits mixed-$type-tcp mixed-$type
    done
    run mixed-both $together -n 2 --threads 2 "$bin/gpt/mixed" --type bf16
    bits mixed-both mixed-bf16
    near mixed-bf16 0.01
    run mixed-small "$bin/gpt/mixed" -t 4 --type f16 --scale 10
    near mixed-small 0.004
    close_to mixed-f16 0.2
    timeout 60 "$bin/gpt/mixed" -t 2 --type f16 --scale 30 ${tiny%% --json*} > "$out/dropped"
    dropped=$(sed -n 's/^f16 *\([0-9]*\) steps dropped.*/\1/p' "$out/dropped")
    [ "${dropped:-0}" -ge 5 ] && [ "$dropped" -lt 30 ]
    conclusion "mixed: steps that overflow are dropped, and the scale comes down" $? "$dropped steps"
fi

if wanted server; then
    run server-now "$bin/gpt/server" -t 4 --stale 0
    bits server-now alone
    run server-now-tcp $over_tcp -n 3 "$bin/gpt/server" --stale 0
    bits server-now-tcp alone
    run server "$bin/gpt/server" -t 4
    close_to server 0.4
    run server-tcp $over_tcp -n 4 "$bin/gpt/server" --stale 3
    close_to server-tcp 0.4
    run server-both $together -n 2 --threads 2 "$bin/gpt/server" --stale 2
    close_to server-both 0.4
    for on in "" "nice taskset -c 0"; do         # one processor for all: gradients come in any order
        timeout 60 $on "$bin/gpt/server" -t 6 --stale 2 ${tiny%% --json*} --steps 400 > "$out/stale"
        stalest=$(sed -n 's/^stale *\([0-9]*\) steps at most.*/\1/p' "$out/stale")
        [ "${stalest:-9}" -le 2 ] && [ "${stalest:-0}" -ge 1 ]
        conclusion "server: gradients are stale, and no more than allowed" $? "$stalest steps"
    done
    refuses "server: no worker" "takes two ranks" "$bin/gpt/server"
fi

if wanted resume; then
    go="$bin/gpt/resume --interval 10"
    run resume-begin $go -t 4 --checkpoint "$out/a.ckpt" --stop 15
    cp "$out/a.ckpt" "$out/b.ckpt"
    cp "$out/a.ckpt" "$out/c.ckpt"
    run resume-same $over_tcp -n 4 $go --checkpoint "$out/a.ckpt"
    bits resume-same four
    near resume-same 1e-5
    run resume-over $go -t 4 --checkpoint "$out/g.ckpt" --stop 90
    bits resume-over four
    run resume-fewer $together -n 3 $go --checkpoint "$out/b.ckpt"
    near resume-fewer 1e-5
    run resume-more $together -n 3 --threads 2 $go --checkpoint "$out/c.ckpt"
    near resume-more 1e-5
    run resume-thread $go -t 4 --checkpoint "$out/d.ckpt" --kill-rank 2 --kill-step 25
    near resume-thread 1e-5
    run resume-killed $over_tcp --survive -n 4 $go --checkpoint "$out/e.ckpt" --kill-rank 0 --kill-step 25
    bits resume-killed resume-thread
    near resume-killed 1e-5
    head -c 3000 "$out/a.ckpt" > "$out/f.ckpt"
    refuses "resume: half a checkpoint" "not a whole checkpoint" $together -n 2 $go --checkpoint "$out/f.ckpt" $tiny
    { head -c 3000 "$out/a.ckpt"; printf '????'; tail -c +3005 "$out/a.ckpt"; } > "$out/h.ckpt"
    refuses "resume: a checkpoint with other bytes" "it has been damaged" $together -n 2 $go --checkpoint "$out/h.ckpt" $tiny
    refuses "resume: another training" "other options" $together -n 2 $go --checkpoint "$out/a.ckpt" $tiny --seed 2
    refuses "resume: no file" "says where the state is kept" $go -t 2
fi

# The weights after each step: a new rank 0 may repeat steps of the one before.
traced() { # NAME OTHER
    sort -nu "$out/$1.trace" > "$out/$1.steps" && [ "$(wc -l < "$out/$1.steps")" = 30 ] && cmp -s "$out/$1.steps" "$out/$2.steps"
    conclusion "$1: after each step the weights of $2" $? "$(diff "$out/$1.steps" "$out/$2.steps" | head -n 3 | tr '\n' '|')"
}

if wanted leaves; then
    of_six=$tiny
    tiny=$(echo "$tiny" | sed 's/--batch 6/--batch 24/')
    page=$bin/gpt/leaves
    run leaves-one "$page" --trace "$out/leaves-one.trace"
    sort -n "$out/leaves-one.trace" > "$out/leaves-one.steps"
    run data-one "$one"
    near leaves-one 1e-5 data-one
    for ranks in 2 3 4 5 7 8; do
        run leaves-$ranks "$page" -t $ranks --trace "$out/leaves-$ranks.trace"
        traced leaves-$ranks leaves-one
        run leaves-$ranks-tcp $over_tcp -n $ranks "$page" --trace "$out/leaves-$ranks-tcp.trace"
        traced leaves-$ranks-tcp leaves-one
    done
    run leaves-both $together -n 2 --threads 3 "$page" --micro 24 --trace "$out/leaves-both.trace"
    traced leaves-both leaves-one
    run leaves-thread "$page" -t 5 --kill-rank 2 --kill-step 9 --trace "$out/leaves-thread.trace"
    traced leaves-thread leaves-one
    run leaves-killed $over_tcp --survive -n 4 "$page" --kill-rank 0 --kill-step 9 --trace "$out/leaves-killed.trace"
    traced leaves-killed leaves-one
    run leaves-other "$page" -t 3 --micro 23 --trace "$out/leaves-other.trace"
    ! cmp -s "$out/leaves-other.trace" "$out/leaves-one.steps"
    conclusion "leaves: with other leaves the bits differ" $? "the comparison finds nothing"
    tiny=$of_six
fi

if wanted elastic; then
    timeout 40 "$bin/coll-run" -n 4 --elastic 2:4 --restart 9 "$bin/gpt/elastic" ${tiny%% --json*} --micro 6 --steps 1500 \
        --kill-every 300 > "$out/elastic" 2> "$out/elastic.err"
    status=$?
    [ "$status $(grep -c 'undisturbed: the same bits' "$out/elastic")" = '0 1' ] \
        && [ "$(grep -c 'SIGKILL' "$out/elastic.err")" -ge 2 ] && [ "$(grep -c '4 ranks continue' "$out/elastic")" -ge 1 ]
    conclusion "elastic: ranks are killed, others join, and the loss is that of an undisturbed run" $? \
        "status $status: $(tail -n 3 "$out/elastic" "$out/elastic.err" | tr '\n' '|')"
    refuses "elastic: threads" "is a process" "$bin/gpt/elastic" -t 2
fi

if wanted naive; then
    for way in master ring library-ring library; do
        run naive-$way "$bin/gpt/naive" -t 4 --way $way --repeat 1
        run naive-$way-tcp $over_tcp -n 4 "$bin/gpt/naive" --way $way --repeat 1
        near naive-$way 1e-5
        case $way in library) near naive-$way-tcp 1e-5 ;; *) bits naive-$way-tcp naive-$way ;; esac
    done
    run naive-both $together -n 2 --threads 2 "$bin/gpt/naive" --way ring --repeat 1
    bits naive-both naive-ring
    $over_tcp -n 4 "$bin/gpt/naive" ${tiny%% --json*} > "$out/cost"
    awk '$1 == "master" { master = $4 } $1 == "ring" { ring = $4 } $1 == "library" { ours = $4; ways = 1 }
         END { exit !(ways && ours > 0 && ours <= master && master > ring) }' "$out/cost"      # fewer messages may be quicker
    conclusion "naive: the master sends most, the library no more" $? "$(grep 'busiest' "$out/cost" | tr '\n' '|')"
fi

if wanted digits; then
    conv="$bin/train_digits --net conv --epochs 3 --json"
    for world in alone threads tcp seven; do
        case $world in alone) how= ;; threads) how="-t 4" ;; seven) how="-t 7" ;; esac
        case $world in tcp) $over_tcp -n 4 $conv ;; *) timeout 60 $conv $how ;; esac > "$out/digits-$world.all" 2>&1
        grep '^{.*"identical":true' "$out/digits-$world.all" > "$out/digits-$world"
        awk -v loss="$(get digits-$world loss)" -v one="$(get digits-alone loss)" -v right="$(get digits-$world accuracy)" \
            'BEGIN { d = loss - one; exit !(right >= 0.95 && d < 1e-3 && -d < 1e-3) }'
        conclusion "digits-$world: 95 % are read, and the loss is that of one rank within 1e-3" $? \
            "$(tail -n 1 "$out/digits-$world.all")"
    done
    bits digits-tcp digits-threads
fi

. tests/programs/gpt_split.sh

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
