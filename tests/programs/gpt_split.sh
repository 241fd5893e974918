# gpt_split.sh - the part of test_gpt_pages.sh about pages that split the model: tensor, pipeline, shard, combine.  Sourced there.
# shellcheck shell=sh disable=SC2086,SC2154

# Four layers and heads; 90 rows a batch, which four ranks cannot share equally; 121 sequences: the last batch of a round has 1.
tiny="--layers 4 --width 16 --heads 4 --context 15 --batch 6 --letters 1820 --steps 24 --json --log $out"

column() { # column NAME RANK COLUMN: of the run's file about its ranks
    awk -F, -v rank="$2" -v name="$3" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i }
                                       $1 == rank { print $at }' "$out/$1.ranks.csv"
}

# compare NAME VALUE RELATION VALUE: of two numbers
compare() {
    awk -v a="${2:-nothing}" -v b="${4:-nothing}" 'BEGIN { exit !(a + 0 == a && b + 0 == b && a '"$3"' b) }'
    conclusion "$1" $? "$2 and $4"
}

wants_any() { for page in "$@"; do wanted "$page" && return; done; return 1; }

if wants_any tensor pipeline shard combine; then
    run deep "$one"
    run deep-two "$one" -t 2
    run deep-four "$one" -t 4
fi

if wanted tensor; then
    page=$bin/gpt/tensor
    run tensor-one "$page" --rows cut
    bits tensor-one deep
    for rows in whole cut; do
        run tensor-$rows "$page" -t 4 --rows $rows
        near tensor-$rows 1e-4 deep
        run tensor-$rows-tcp $over_tcp -n 4 "$page" --rows $rows
        bits tensor-$rows-tcp tensor-$rows
        run tensor-$rows-both $together -n 2 --threads 2 "$page" --rows $rows
        bits tensor-$rows-both tensor-$rows
        run tensor-$rows-sim env COLL_TRANSPORT=sim "$page" -t 4 --rows $rows
        bits tensor-$rows-sim tensor-$rows
    done
    compare "tensor: a rank has less than half of the weights" "$(column tensor-whole 3 weights)" "< 0.5 *" \
        "$(column tensor-one 0 weights)"
    compare "tensor: with cut rows a rank keeps less" "$(column tensor-cut 3 activations)" "< 0.9 *" \
        "$(column tensor-whole 3 activations)"
    refuses "tensor: heads that cannot be shared out" "4 heads cannot be shared out among 3 ranks" $together -n 3 "$page" $tiny
fi

if wanted pipeline; then
    page=$bin/gpt/pipeline
    for order in gpipe 1f1b; do
        run pipeline-$order "$page" -t 4 --pieces 6 --order $order
        bits pipeline-$order deep
        run pipeline-$order-tcp $over_tcp -n 4 "$page" --pieces 6 --order $order
        bits pipeline-$order-tcp deep
        run pipeline-$order-both $together -n 2 --threads 2 "$page" --pieces 3 --order $order
        bits pipeline-$order-both deep
        run pipeline-$order-sim env COLL_TRANSPORT=sim "$page" -t 4 --pieces 6 --order $order
        bits pipeline-$order-sim deep
        compare "pipeline: $order leaves stages idle for some of the time" "$(get pipeline-$order bubble)" "> 0.05 *" 1
    done
    run pipeline-three "$page" -t 3 --pieces 2 --order 1f1b
    bits pipeline-three deep
    run pipeline-slow "$page" -t 4 --pieces 1
    bits pipeline-slow deep
    compare "pipeline: one piece keeps no more than one stage of four busy" "$(get pipeline-slow bubble)" "> 0.99 *" 0.75
    compare "pipeline: and no less" "$(get pipeline-slow bubble)" "< 1.01 *" 0.75
    compare "pipeline: six pieces keep more of them busy" "$(get pipeline-1f1b bubble)" "< 0.9 *" 0.75
    compare "pipeline: the last stage keeps one piece of six" "$(column pipeline-1f1b 3 activations)" "< 0.4 *" \
        "$(column pipeline-gpipe 3 activations)"
    refuses "pipeline: more stages than layers" "4 layers are too few for 5 stages" $together -n 5 "$page" $tiny
    refuses "pipeline: more pieces than sequences" "6 sequences cannot be cut into 7 pieces" \
        $together -n 2 "$page" --pieces 7 $tiny
fi

if wanted shard; then
    page=$bin/gpt/shard
    for level in 0 1 2 3; do
        run shard-$level "$page" -t 4 --level $level
        bits shard-$level deep-four
        run shard-$level-tcp $over_tcp -n 4 "$page" --level $level
        bits shard-$level-tcp deep-four
        compare "shard: level $level takes the bytes of the formula" "$(get shard-$level state_bytes)" "< 200 +" \
            "$(get shard-$level formula)"
        compare "shard: level $level takes no less" "$(get shard-$level state_bytes)" "> -200 +" "$(get shard-$level formula)"
    done
    run shard-both $together -n 2 --threads 2 "$page" --level 3
    bits shard-both deep-four
    run shard-sim env COLL_TRANSPORT=sim "$page" -t 4 --level 3
    bits shard-sim deep-four
    run shard-seven "$page" -t 7 --level 3
    near shard-seven 1e-4 deep
    compare "shard: level 3 takes less than level 0" "$(get shard-3 state_bytes)" "< 0.6 *" "$(get shard-0 state_bytes)"
    refuses "shard: a level that is none" "needs a whole number from 0 to 3" "$page" --level 4
fi

if wanted combine; then
    page=$bin/gpt/combine
    for order in gpipe 1f1b; do
        run combine-$order "$page" -t 4 --by pipeline --order $order
        bits combine-$order deep-two
    done
    run combine-pipeline-tcp $over_tcp -n 4 "$page" --by pipeline --pieces 3
    bits combine-pipeline-tcp deep-two
    run combine-pipeline-both $together -n 2 --threads 2 "$page" --by pipeline
    bits combine-pipeline-both deep-two
    for rows in whole cut; do
        run combine-$rows "$page" -t 4 --by tensor --rows $rows
        near combine-$rows 1e-4 deep
        run combine-$rows-tcp $over_tcp -n 4 "$page" --by tensor --rows $rows
        bits combine-$rows-tcp combine-$rows
        run combine-$rows-both $together -n 2 --threads 2 "$page" --by tensor --rows $rows
        bits combine-$rows-both combine-$rows
    done
    run combine-data "$page" -t 2 --by tensor --ways 1
    bits combine-data deep-two
    refuses "combine: rows that are not filled" "4 ranks cannot be put into rows of 3" $together -n 4 "$page" --ways 3 $tiny
    refuses "combine: fewer sequences in a row than pieces" "3 sequences cannot be cut into 4 pieces" \
        $together -n 4 "$page" --by pipeline --pieces 4 $tiny
fi
