# man.awk - prints a man page: coll(3), of the manual in coll.h; or that of a program, of what it says to --help.
#
#     awk -v date=2026-11-25 -f tools/man.awk coll.h > coll.3
#     coll-run --help | awk -v date=2026-11-25 -v program=coll-run -v about="start ranks" -f tools/man.awk > coll-run.1
#
# The manual's shape is that of its comment: a heading in capitals; text, whose paragraphs begin with two spaces; and pieces of
# programs and tables, which are indented by four or more and stand as they are.  What a program says stands as it is, each of
# its paragraphs that begins with "Word:" under a heading of its own.  mdoc(7); POSIX awk.

function escaped(text) # so that no character of it is a command
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/"/, "\\(dq", text)
    sub(/[ \t]+$/, "", text)
    return text ~ /^[.']/ ? "\\&" text : text
}

function leave() # what stands as it is
{
    if (literal) print ".Ed"
    literal = blanks = 0
}

function literally(text)
{
    if (!literal) print ".Bd -literal" (program ? "" : " -offset indent")
    literal = 1
    for (; blanks > 0; blanks--) print ""
    print escaped(text)
}

function say(text,    sentences, count, i) # a new sentence begins a line
{
    count = split(text, sentences, /[.]  /)
    for (i = 1; i <= count; i++) if (sentences[i] != "") print escaped(sentences[i] (i < count ? "." : ""))
    fresh = 0
}

function heading(text)
{
    leave()
    print ".Sh " escaped(toupper(text))
    fresh = 1
}

function paragraph(text)
{
    leave()
    sub(/^ +/, "", text)
    if (!fresh) print ".Pp"
    say(text)
}

function begin(name, section, about)
{
    split("January February March April May June July August September October November December", months, " ")
    split(date, day, "-")
    print ".Dd " months[day[2] + 0] " " day[3] + 0 ", " day[1]
    print ".Dt " toupper(name) " " section
    print ".Os"
    print ".Sh NAME"
    print ".Nm " name
    print ".Nd " about
}

BEGIN {
    if (!program) {
        begin("coll", 3, "collective operations between threads, processes, hosts and GPUs")
        print ".Sh SYNOPSIS"
        print ".In coll.h"
        heading("Description")
    } else {
        begin(program, 1, about)
    }
}

END { leave() }

# ---- a program's help

program && NR == 1 {
    heading(/^usage:/ ? "Synopsis" : "Description")
    sub(/^usage: /, "       ")
    if (sub(/^[a-z_]+ - /, "")) { say(toupper(substr($0, 1, 1)) substr($0, 2) "."); next }
}
program && /^$/ { blanks++; after = 1; next }
program && /^[A-Z][a-z ]*: / && after && split($0, title, ":") && split(title[1], words, " ") <= 4 {
    heading(title[1])
    sub(/^[^:]*: /, "")
}
program && !described && after && /^[A-Z]/ { heading("Description"); described = 1 }
program && !listed && /^  +-/ { heading("Options"); listed = 1 }
program {
    if (!literal) blanks = 0
    sub(/^ (  )?     (coll)/, "coll")
    literally($0)
    after = 0
    next
}

# ---- the manual

done { next }
/^ \*\// || /\*\/$/ { leave(); done = 1; next }
NR == 1 { sub(/^\/\* [a-z.]+ - /, " * "); $0 = toupper(substr($0, 1, 4)) substr($0, 5) }
{ sub(/^ \* ?/, "") }
/^$/ { if (literal) blanks++; next }
/^[A-Z][A-Z ]+$/ { heading($0); next }
/^MANUAL, in/ { heading("Manual"); sub(/^MANUAL, in/, "In") }
/^    / { sub(/^    /, ""); literally($0); fresh = 0; next }
/^  / { paragraph($0); next }
{
    if (literal) { leave(); print ".Pp" }
    say($0)
}
