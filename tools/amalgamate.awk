# amalgamate.awk - prints a header with every #include "..." replaced by the file that it names: coll.h as one file, or as two.
#
#     awk -f tools/amalgamate.awk coll.h > one.h                        `make dist` writes single/coll.h so
#     awk -v part=header -f tools/amalgamate.awk coll.h > coll.h        all but coll_impl.h: pair/coll.h
#     awk -v part=source -f tools/amalgamate.awk coll.h > coll.c        coll_impl.h and what only it includes: pair/coll.c
#
# A file is found relative to the one that includes it, and comes once.  A line is an include when its first visible
# character is the # of an #include with a quote; comments and strings with an #include are not changed.  POSIX awk.

# a/./b and a/../b as the shortest path to the same file
function normalise(path,    parts, count, kept, i, depth, result)
{
    count = split(path, parts, "/")
    for (i = 1; i <= count; i++) {
        if (parts[i] == "." || (parts[i] == "" && i > 1)) continue
        if (parts[i] == ".." && depth > 0 && kept[depth] != ".." && kept[depth] != "") depth--
        else kept[++depth] = parts[i]
    }
    for (i = 1; i <= depth; i++) result = result (i > 1 ? "/" : "") kept[i]
    return result
}

# "a/b/" of a/b/c, "" of c
function folder(path)
{
    return match(path, /^.*\//) ? substr(path, 1, RLENGTH) : ""
}

# the path without the folder of the first file
function display(path)
{
    return index(path, root) == 1 ? substr(path, length(root) + 1) : path
}

function fail(sentence)
{
    print "amalgamate.awk: " sentence | "cat 1>&2"
    close("cat 1>&2")
    failed = 1
    exit 1
}

# "core/coll_base.h" when the line includes it, "" when it does not
function included(line)
{
    if (line !~ /^[ \t]*#[ \t]*include[ \t]*"[^"]+"/) return ""
    sub(/^[ \t]*#[ \t]*include[ \t]*"/, "", line)
    sub(/".*$/, "", line)
    return line
}

# say from which file the next line comes, when that has changed
function mark(path)
{
    if (path != marked) write("/* ---- " display(path) (path in begun ? ", continued" : "") " ---- */")
    begun[path] = 1
    marked = path
}

# where the implementation would stand in the header of the pair
function refuse_implementation()
{
    write("#if !defined(COLL__SPLIT) || defined(COLL_STATIC)")
    write("#error \"COLL_IMPLEMENTATION and COLL_STATIC are for single/coll.h: with pair/coll.h, compile pair/coll.c\"")
    write("#endif")
}

function write(line)
{
    if (part != "source" || in_source) print line
}

function expand(path, from,    line, name, target, got)
{
    while ((got = (getline line < path)) > 0) {
        if (index(line, "\r")) fail(display(path) " has carriage returns")
        if ((name = included(line)) == "") {
            if (line != "") mark(path)
            write(line)
            continue
        }
        target = normalise(folder(path) name)
        if (target in seen) continue
        seen[target] = 1
        if (target != implementation) expand(target, path)
        else if (part == "header") refuse_implementation()
        else {
            in_source = 1
            expand(target, path)
            in_source = 0
        }
    }
    if (got < 0) fail("cannot read " path (from != "" ? ", which " from " includes" : ""))
    close(path)
}

# 0.1.0, from the three COLL_VERSION_ lines
function version(path,    line, words, number)
{
    while ((getline line < path) > 0)
        if (line ~ /^[ \t]*#[ \t]*define[ \t]+[A-Z]+_VERSION_(MAJOR|MINOR|PATCH)[ \t]/) {
            split(line, words)
            number = number (number != "" ? "." : "") words[3]
        }
    close(path)
    return number
}

# "0.1.0, 2026-11-21", the newest heading of a changelog
function newest(path,    line)
{
    while ((getline line < path) > 0)
        if (sub(/^## /, "", line)) break
    close(path)
    return line
}

BEGIN {
    if (ARGC != 2 || part !~ /^(header|source)?$/) fail("usage: awk [-v part=header|source] -f amalgamate.awk coll.h")
    top = normalise(ARGV[1])
    root = folder(top)
    implementation = root "coll_impl.h"
    number = version(top)
    release = newest(root "CHANGELOG.md")
    if (split(release, words, ",") == 0 || words[1] != number)
        fail(display(top) " is version " number ", and the newest heading of CHANGELOG.md is \"" release "\"")
    print "/* SPDX-License-Identifier: MIT-0"
    print " *"
    what = "coll.h " release ", in one file."
    if (part == "header") what = "coll.h " release ": compile coll.c, in place of COLL_IMPLEMENTATION, and link it."
    if (part == "source") what = "coll.c, the implementation of coll.h " release ": compile it as C, and link it."
    print " * " what "  Generated from coll.h," (part == "" ? " coll_impl.h, core/, transports/ and carriers/" : "")
    print " * " (part != "" ? "coll_impl.h, core/, transports/ and carriers/ " : "") "by `make dist`; do not edit."
    print " * MIT No Attribution: use it for any purpose, without conditions and without attribution; there is no warranty. */"
    if (part == "source") {
        print "#define COLL_IMPLEMENTATION"
        print "#define COLL__SPLIT"
        print "#include \"coll.h\""
        print "#if defined(__clang__)                            /* reports unused static inline functions of a .c file */"
        print "#pragma GCC diagnostic ignored \"-Wunused-function\""
        print "#endif"
    }
    seen[top] = 1
    expand(top, "")
    exit failed
}
