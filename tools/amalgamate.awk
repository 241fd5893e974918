# amalgamate.awk - prints a header with every #include "..." replaced by the file that it names: coll.h as one file.
#
#     awk -f tools/amalgamate.awk coll.h > one.h              `make dist` writes single/coll.h so
#
# A file is found relative to the one that includes it, and comes once.  A line is an include when its first visible
# character is the # of an #include with a quote; comments and strings that speak of one are left alone.  POSIX awk.

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
    if (path != marked) print "/* ---- " display(path) (path in begun ? ", continued" : "") " ---- */"
    begun[path] = 1
    marked = path
}

function expand(path, from,    line, name, target, got)
{
    while ((got = (getline line < path)) > 0) {
        if (index(line, "\r")) fail(display(path) " has carriage returns")
        if ((name = included(line)) == "") {
            if (line != "") mark(path)
            print line
            continue
        }
        target = normalise(folder(path) name)
        if (target in seen) continue
        seen[target] = 1
        expand(target, path)
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
    if (ARGC != 2) fail("usage: awk -f amalgamate.awk coll.h > one.h")
    top = normalise(ARGV[1])
    root = folder(top)
    number = version(top)
    release = newest(root "CHANGELOG.md")
    if (split(release, words, ",") == 0 || words[1] != number)
        fail(display(top) " is version " number ", and the newest heading of CHANGELOG.md is \"" release "\"")
    print "/* SPDX-License-Identifier: MIT-0"
    print " *"
    print " * coll.h " release ", in one file.  Generated from coll.h, coll_impl.h, core/, transports/ and carriers/"
    print " * by `make dist`; do not edit."
    print " * MIT No Attribution: use it for anything, without asking and without naming anybody; there is no warranty. */"
    seen[top] = 1
    expand(top, "")
    exit failed
}
