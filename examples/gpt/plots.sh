#!/bin/sh
# Train with several pages, and draw what they wrote: the losses, what the time of a step went to, the memory of each rank.
# usage: plots.sh BIN OUT        BIN has gpt/ and coll-run; OUT gets LABEL.loss.csv, LABEL.ranks.csv and the .svg
#   STEPS=300 changes how long each trains, OPTIONS="--batch 32" what; ONLY="data-alone mixed-bf16" makes some of them again
#
# With figures of earlier runs in OUT, and gnuplot, they are drawn together with the new ones.
# shellcheck disable=SC2012,SC2086

bin=${1:?"usage: plots.sh BIN OUT"}
out=${2:?"usage: plots.sh BIN OUT"}
steps=${STEPS:-150}
mkdir -p "$out" || exit 1

# train LABEL COMMAND...
train() {
    label=$1; shift
    case " ${ONLY:-$label} " in *" $label "*) ;; *) return ;; esac
    [ -x "$bin/gpt/${label%%-*}" ] || return
    echo "$label: $*" | sed "s|$bin/||g"
    "$@" --steps "$steps" --width 64 $OPTIONS --log "$out" --label "$label" | tail -n 7 | sed -n 's/^\(loss\|time\) */    \1 /p'
}

threads() { page=$1; shift; "$bin/gpt/$page" -t 4 "$@"; }
processes() { page=$1; shift; "$bin/coll-run" -n 4 --no-prefix "$bin/gpt/$page" "$@"; }

train data-alone     "$bin/gpt/data"
train data-threads   threads data
train data-processes processes data
train data-after     processes data --overlap no
train mixed-bf16     processes mixed --type bf16
train mixed-f16      processes mixed --type f16
train server-stale-4 processes server --stale 4
train naive-master   processes naive --way master --repeat 0
train naive-ring     processes naive --way ring --repeat 0
train tensor-whole   processes tensor
train tensor-cut     processes tensor --rows cut
train pipeline-gpipe "$bin/coll-run" -n 2 --no-prefix "$bin/gpt/pipeline" --pieces 8
train pipeline-1f1b  "$bin/coll-run" -n 2 --no-prefix "$bin/gpt/pipeline" --pieces 8 --order 1f1b
for level in 0 1 2 3; do                 # of a deeper model: beside its slices a rank has the units at work
    train shard-$level processes shard --level $level --layers 8 --context 32 --batch 8
done
train combine        processes combine --by pipeline

# Pieces of a batch, and how much of the time four stages have nothing to do: in either order, and by the formula.
bubbles() {
    case " ${ONLY:-bubbles} " in *" bubbles "*) ;; *) return ;; esac
    for pieces in 1 2 4 8 16; do
        for order in gpipe 1f1b; do
            threads pipeline --layers 4 --width 64 --steps 10 --pieces $pieces --order $order --json |
                sed -n 's/.*"bubble":\([0-9.]*\),"formula":\([0-9.]*\).*/\1 \2/p'
        done | tr '\n' ' ' | awk -v pieces=$pieces '{ print pieces, 100 * $1, 100 * $3, 100 * $2 }'
    done > "$out/bubble.dat"
}
[ -x "$bin/gpt/pipeline" ] && bubbles

labels=$(cd "$out" && ls -- *.loss.csv 2> /dev/null | sed 's/\.loss\.csv$//')
[ -n "$labels" ] || { echo "plots: nothing has been written to $out"; exit 1; }

# A loss is that of one batch; the mean of twenty shows the way.
for label in $labels; do
    awk -F, 'FNR > 1 { sum += $2 - last[FNR % 20]; last[FNR % 20] = $2; if (FNR > 20) print $1, sum / 20 }' \
        "$out/$label.loss.csv" > "$out/$label.loss.dat"
done
for label in $labels; do
    awk -F, -v label="$label" -v steps="$(($(wc -l < "$out/$label.loss.csv") - 1))" '
        FNR > 1 { n++; for (i = 2; i <= 5; i++) sum[i] += 1e3 * $i / steps }
        END { print label, sum[2] / n, sum[3] / n, sum[4] / n, sum[5] / n }' "$out/$label.ranks.csv"
done > "$out/times.dat"
for label in $labels; do
    awk -F, -v label="$label" 'FNR > 1 { print $1 ? "\"" $1 "\"" : "\"" label " 0\"", $6 / 1e6, $7 / 1e6, $8 / 1e6, $9 / 1e6 }
        END { print "\"\" 0 0 0 0" }' "$out/$label.ranks.csv"
done > "$out/memory.dat"

if ! command -v gnuplot > /dev/null; then
    echo "plots: the figures are in $out; there is no gnuplot to draw them (Debian: apt-get install gnuplot-nox)"
    exit 1
fi
bars='set style data histograms; set style histogram rowstacked; set style fill solid 0.8 noborder; set boxwidth 0.8
set xtics rotate by -60 font ",10"; set key outside top horizontal; set yrange [0:*]; set grid ytics'
gnuplot << END || exit 1
set terminal svg size 1000,560 font "sans,12"
set output "$out/loss.svg"
set title "Loss, the mean of 20 steps"; set xlabel "step"; set ylabel "nats a letter"; set grid
plot $(at=0; for label in $labels; do at=$((at + 1))
    printf '"%s" with lines lw 1.5 dt %d title "%s", ' "$out/$label.loss.dat" $((at / 8 + 1)) "$label"; done)
unset xlabel
$bars
set output "$out/times.svg"
set title "Where the time of a step goes, mean over the ranks"; set ylabel "ms a step"
plot "$out/times.dat" using 2:xtic(1) title "compute", "" using 3 title "compute, with messages on their way", \
    "" using 4 title "communicate", "" using 5 title "wait"
set output "$out/memory.svg"
set title "Memory of each rank"; set ylabel "MB"
plot "$out/memory.dat" using 2:xtic(1) title "weights", "" using 3 title "gradients", "" using 4 title "optimizer", \
    "" using 5 title "activations"
END
[ ! -s "$out/bubble.dat" ] || gnuplot << END || exit 1
set terminal svg size 700,450 font "sans,12"
set output "$out/bubble.svg"
set title "Time in which four stages of a pipeline have nothing to do"
set xlabel "pieces of a batch"; set ylabel "%"; set yrange [0:100]; set logscale x 2; set grid
plot "$out/bubble.dat" using 1:2 with linespoints title "gpipe", "" using 1:3 with linespoints title "1f1b", \
    "" using 1:4 with lines title "(S - 1) / (M + S - 1)"
END
echo "plots: $(cd "$out" && ls -- *.svg | tr '\n' ' ')in $out"
