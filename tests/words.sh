#!/bin/sh
# No word of tests/words.txt is in code, comments, documents, tests or names of files; that list says what to write instead.
#   usage: words.sh [FILE...]     without files, all of this checkout but what is generated; prints FILE:LINE, word, replacement
#          words.sh all           with the words that are switched off in the list, too; and how often each of them is there
#          words.sh planted       the same for files with each word of the list in each form, which must all be found
#
# A word is letters: coll__rank_seats and "Seats," contain seats, and seatbelt does not.  Words of one entry that has several
# may be on two lines of a comment.
cd "$(dirname "$0")/.." || exit 1
list=$PWD/tests/words.txt
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

files() {
    find . \( -path ./.git -o -path ./build -o -path ./single -o -path ./pair -o -path ./examples/data -o -path ./bench/history \
        -o -path ./tests/corpus -o -name __pycache__ \) -prune -o -type f \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.cc' \
        -o -name '*.cu' -o -name '*.sh' -o -name '*.py' -o -name '*.awk' -o -name '*.md' -o -name '*.rs' -o -name '*.[fF]90' \
        -o -name '*.txt' -o -name '*.toml' -o -name Makefile -o -path ./.ci/run \) -print | sed 's,^\./,,' | sort \
        | grep -vE '^(tests/words\.|bindings/(fortran/coll_raw|rust/coll-sys/src)|carriers/nccl/coll_nccl_ptx|python/coll/_[ac])'
}

look() { # file with the list, files...: what is found; the last line counts files and finds
    words=$1; shift
    awk -v list="$words" '
        function learn(entries, answer, allowed,    phrases, count, i, n, parts) {
            count = split(entries, phrases, / *, */)
            for (i = 1; i <= count; i++) {
                if (phrases[i] ~ /\./) { renamed[phrases[i]] = answer; continue }
                n = split(phrases[i], parts, " ")
                starts[parts[1]] = starts[parts[1]] " " (++known)
                length_of[known] = n; answer_of[known] = answer; is_allowed[known] = allowed; name_of[known] = phrases[i]
                for (; n; n--) part[known, n] = parts[n]
            }
        }
        function fits(entry, at,    i) {
            if (at + length_of[entry] - 1 > tokens) return 0
            for (i = 2; i <= length_of[entry]; i++) if (token[at + i - 1] != part[entry, i]) return 0
            return 1
        }
        # what the tokens first..last of a file are about; a phrase that is allowed covers the words in it
        function examine(    at, i, j, n, entries, k, covered) {
            split("", covered)
            for (k = 1; k >= 0; k--)
                for (at = 1; at <= tokens; at++) {
                    if (!(token[at] in starts)) continue
                    n = split(starts[token[at]], entries, " ")
                    for (i = 1; i <= n; i++) {
                        if (is_allowed[entries[i]] != k || !fits(entries[i], at)) continue
                        if (k) { for (j = 0; j < length_of[entries[i]]; j++) covered[at + j] = 1 }
                        else if (!(at in covered)) say(line_of[at], name_of[entries[i]], answer_of[entries[i]])
                    }
                }
            tokens = 0
        }
        function say(where, phrase, answer) {
            print file (where ? ":" where : ", its name") ": \"" phrase "\": say " answer
            found++; wrong[file] = 1
        }
        function take(text, where,    n, i, words) {
            text = tolower(text)
            if (text ~ /coll_[a-z_]*\.h/) for (i in renamed) if (index(text, i)) say(where, i, renamed[i])
            n = split(text, words, /[^a-z]+/)
            for (i = 1; i <= n; i++) if (words[i] != "") { token[++tokens] = words[i]; line_of[tokens] = where }
        }
        BEGIN {
            while ((getline line < list) > 0) {
                if (line == "" || line ~ /^#/) continue
                if (split(line, side, / -> /) != 2) { print list ": no replacement: " line; found++; continue }
                if (split(side[2], answer, /; but not: /) == 2) learn(answer[2], "", 1)
                learn(side[1], answer[1], 0)
            }
        }
        FNR == 1 { examine(); file = FILENAME; files++; take(file, 0); token[++tokens] = ""; line_of[tokens] = 0 }
        { take($0, FNR) }
        END { examine(); for (i in wrong) files--; print files + 0 " passed, " found + 0 " failed" }' "$@"
}

planted() { # each word of the list, in each form, is found in its line; what only resembles one is not
    sed -n 's/^#\([a-z]\)/\1/; /^[a-z]/p' "$list" > "$work/words"
    sed 's/ -> .*//' "$work/words" | tr ',' '\n' | sed 's/^ *//' > "$work/each"
    cd "$work" && mkdir core docs tests names || exit 1
    : > missed
    while read -r phrase; do
        joined=$(echo "$phrase" | tr -c 'a-z\n' '_')
        echo "/* The library has $phrase here. */" >> core/comment.h
        case $phrase in
        *.h) echo "#include \"../$phrase\"" >> core/code.h; echo text > "names/$phrase" ;;
        *) echo "static int coll__planted_${joined}_count;" >> core/code.h; echo text > "names/$joined.h" ;;
        esac
        echo "**$phrase** is a title." | sed 's/^\*\*./\U&/' >> docs/page.md
        echo "    expect(sentence, \"$phrase\");" >> tests/test_planted.c
        echo " * planted $phrase" | sed 's/ \([^ ]*\)$/\n *     \1/' >> core/wrapped.h
    done < each
    for file in core/comment.h core/code.h docs/page.md tests/test_planted.c; do
        look words $file > found
        awk -v file=$file '
            NR == FNR { split($0, part, ": \"|\": say "); has[part[1], part[2]] = 1; next }
            !((file ":" FNR, $0) in has) { print "not found: " $0 " in " file }' found each >> missed
    done
    look words core/wrapped.h names/*.h > found
    while read -r phrase; do
        joined=$(echo "$phrase" | tr -c 'a-z\n' '_')
        grep -q "^core/wrapped.h:[0-9]*: \"$phrase\"" found || echo "not found: $phrase on two lines" >> missed
        grep -q "^names/${joined%_h}\.h, its name: \"$phrase\"" found || echo "not found: $phrase as a name" >> missed
    done < each
    echo "European doorbells, sandbags, partying desktops, seatbelts and belladonna contain no such word." > clean.md
    sed -n 's/.*; but not: //p' words | tr ',' '\n' >> clean.md
    look words core/comment.h clean.md | sed -n 's/^clean\.md/found, and is allowed: &/p' >> missed
    cat missed
    wrong=$(wc -l < missed)
    echo "$((6 * $(wc -l < each) + $(wc -l < clean.md) - wrong)) passed, $wrong failed"
    [ "$wrong" -eq 0 ]
}

case ${1:-} in
planted) planted ;;
all)
    sed 's/^#\([a-z]\)/\1/' "$list" > "$work/words"
    look "$work/words" $(files) | tee "$work/found"
    sed -n 's/^.*: "\(.*\)": say .*/\1/p' "$work/found" | sort | uniq -c | sort -rn
    tail -n 1 "$work/found" ;;
*)
    grep -v '^#[a-z]' "$list" > "$work/words"
    [ $# -gt 0 ] || set -- $(files)
    look "$work/words" "$@" | tee "$work/found"
    [ "$(tail -n 1 "$work/found" | sed 's/.*, //')" = "0 failed" ] ;;
esac
