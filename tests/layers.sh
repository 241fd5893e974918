#!/bin/sh
# Which part of the library uses which: every layer uses only what it may.
#   usage: layers.sh            exits with 1 and says what is wrong; exceptions are listed in tests/layers.allow, and are
#                               wrong itself when it has no cause any more: the list only shrinks
#          layers.sh planted    the same for a copy with a fault of each sort, which must all be found
#
# A layer is a folder of core, one transport, or one carrier.  It is found by the names that a file defines (Universal Ctags)
# and that other files say, outside comments and strings:
#     include  a file includes a part of a layer that its own may not use
#     use      it says a name that is defined there
#     above    both are in one folder, and the name is defined further down in the order of coll_impl.h
#     name     core says the name of a transport or a carrier, in code or in a string, or speaks of GPUs
#     long     a file has more than 700 lines (coll.h, the manual, may)
#     alone    a part of a layer does not parse alone
cd "$(dirname "$0")/.." || exit 1
allowed=$PWD/tests/layers.allow
command -v ctags > /dev/null || { echo "layers: ctags is not installed (Debian: universal-ctags)"; exit 1; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

plant() { # sort, file, line: into the copy
    echo "$3" >> "$2"
    echo "$1 $2" >> "$work/planted"
}

if [ "$1" = planted ]; then
    cp -r coll.h coll_impl.h core transports carriers "$work" && cd "$work" || exit 1
    plant include core/numbers/coll_mx.h '#include "../engine/coll_comm.h"'
    plant use core/algorithms/coll_tree.h 'static int coll__planted_size(const coll_comm *c) { return coll__world_rank(c, 0); }'
    plant use transports/coll_sim.h 'static void coll__planted_domain(void) { coll__domain_release(NULL); }'
    plant above core/session/coll_launchers.h \
        'static int coll__planted_shrink(void) { return coll__shrink_inside(NULL, NULL); }'
    plant name core/session/coll_explain.h 'static const char *coll__planted_name(void) { return "tcp"; }'
    plant name core/engine/coll_allreduce_list.h 'static const char *coll__planted_carrier(void) { return "nccl"; }'
    plant name core/engine/coll_order.h '#if defined(COLL_WITH_NCCL)
#endif'
    plant alone core/base/coll_hmac.h 'static coll__none_knows coll__planted_type;'
    plant long core/engine/coll_allreduce_list.h "$(yes '/* a line */' | head -n 700)"
fi
find coll.h coll_impl.h core transports carriers -name '*.h' | sort > "$work/files"
ctags -x --c-kinds=+defgtux-p --_xformat='%N %F' -L "$work/files" 2> /dev/null | grep -iE '^coll_' | sort -u > "$work/names"

awk -v names="$work/names" -v files="$work/files" '
    function layer(file,    parts, n) {
        n = split(file, parts, "/")
        if (file == "coll.h" || file == "core/base/coll_features.h") return "public"       # which includes it
        if (parts[1] == "core") return parts[2]
        if (n == 1) return "front"                                              # coll_impl.h, which includes all
        if (n == 3) return parts[2]
        sub(/^coll_/, "", parts[2]); sub(/\.h$/, "", parts[2])
        return parts[2]
    }
    function may(from, to) { return from == to || from == "front" || index(uses[from], " " to " ") > 0 }
    function say(sort, file, what) { if (!((sort, file, what) in said)) print sort, file, what; said[sort, file, what] = 1 }
    # code without comments; strings stay, for names of transports
    function strip(line,    out, at) {
        out = ""
        while (line != "") {
            if (inside) {
                if (!(at = index(line, "*/"))) return out
                line = substr(line, at + 2); inside = 0
            }
            if (!(at = index(line, "/*"))) return out line
            out = out substr(line, 1, at - 1) " "
            line = substr(line, at + 2); inside = 1
        }
        return out
    }
    BEGIN {
        uses["public"] = " contract "
        uses["base"] = " public contract "
        uses["numbers"] = " public base "
        uses["algorithms"] = " public "
        uses["contract"] = " public base numbers algorithms "
        uses["membership"] = " public contract base "
        uses["engine"] = " public contract base numbers algorithms "
        uses["session"] = uses["engine"] "engine "
        while ((getline line < files) > 0)
            if (line ~ /^(transports|carriers)\/coll_[a-z]+\.h$/) {
                gsub(/.*\/coll_|\.h$/, "", line)
                transports[++n] = line
            }
        for (i in transports) uses[transports[i]] = uses["engine"] "engine membership "
        uses["hybrid"] = uses["hybrid"] "threads tcp "        # both at once
        uses["sim"] = uses["mpi"] = uses["nccl"] = uses["session"] "session membership "    # they make or end communicators
        while ((getline line < names) > 0) {
            split(line, f, " ")
            count[f[1]]++
            at[f[1], count[f[1]]] = f[2]
        }
        while ((getline line < "coll_impl.h") > 0)
            if (match(line, /^#include "[^"]+"/)) order[substr(line, 11, RLENGTH - 11)] = ++includes
    }
    FNR == 1 {
        if (file != "" && last > 700 && file != "coll.h") say("long", file, last > 1000 ? "1000" : "700")
        file = FILENAME; mine = layer(file); inside = 0
    }
    {
        last = FNR
        if (mine == "public" || file ~ /^core.contract.coll_(transport|memory|leaf_nodes|wrap)\.h$/) next     # others define it
        code = strip($0)
        if (match(code, /^#include "[^"]+"/)) {
            target = substr(code, 11, RLENGTH - 11)
            folder = file; sub(/[^\/]*$/, "", folder)
            target = folder target
            while (sub(/[^\/.]+\/\.\.\//, "", target)) continue
            if (!may(mine, layer(target))) say("include", file, target)
            next
        }
        if (file ~ /^core\// && match(code, "GPU|CUDA|COLL_WITH_[A-Z]*")) say("name", file, substr(code, RSTART, RLENGTH))
        if (file ~ /^core\//)
            for (i in transports) if (match(code, "\"" transports[i] "\"|coll__" transports[i] "[_a-z]*"))
                say("name", file, substr(code, RSTART, RLENGTH))
        gsub(/"([^"\\]|\\.)*"/, "", code)
        while (match(code, /[A-Za-z_][A-Za-z_0-9]*/)) {
            word = substr(code, RSTART, RLENGTH)
            code = substr(code, RSTART + RLENGTH)
            if (!(word in count) || (file, word) in looked) continue
            looked[file, word] = 1
            good = 0; worst = ""
            for (i = 1; i <= count[word]; i++) {
                other = at[word, i]
                if (other == file) { good = 1; break }
                if (!may(mine, layer(other))) { if (worst == "") worst = "use" }
                else if (layer(other) == mine && (file in order) && (other in order) && order[other] > order[file])
                    worst = "above"
                else { good = 1; break }
            }
            if (!good) say(worst, file, word)
        }
    }
    END { if (last > 700) say("long", file, last > 1000 ? "1000" : "700") }
' $(cat "$work/files") > "$work/found"

for part in $(grep -E '^core/(base|numbers|algorithms|contract|membership)/' "$work/files"); do
    ${CC:-cc} -std=gnu11 -fsyntax-only -Wall -Wno-unused-function -Wno-unused-const-variable -x c "$part" > /dev/null 2>&1 \
        || echo "alone $part parse" >> "$work/found"
done
sort -u "$work/found" -o "$work/found"
grep -v '^#' "$allowed" 2> /dev/null | sort -u > "$work/allowed"
if [ "$1" = planted ]; then
    while read -r fault; do
        grep -q "^$fault " "$work/found" || echo "layers: not found: $fault"
    done < "$work/planted" > "$work/missed"
    cat "$work/missed"
    failed=$(wc -l < "$work/missed")
    echo "$(($(wc -l < "$work/planted") - failed)) passed, $failed failed"
    exit $((failed > 0))
fi
wrong=$(comm -23 "$work/found" "$work/allowed" | tee "$work/new" | wc -l)
stale=$(comm -13 "$work/found" "$work/allowed" | tee "$work/stale" | wc -l)
sed 's/^/layers: /' "$work/new"
sed 's/^/layers: in the list of what is allowed, and not so any more: /' "$work/stale"
echo "layers: $(wc -l < "$work/files") files, $(wc -l < "$work/names") names, $(wc -l < "$work/allowed") allowed"
echo "$(wc -l < "$work/files") passed, $((wrong + stale)) failed"
[ "$((wrong + stale))" -eq 0 ]
