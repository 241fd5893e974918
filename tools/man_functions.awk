# man_functions.awk - writes the man pages of the functions: one for each comment of the public headers and the functions that are
# declared under it, and for each other name a page that refers to it.  A blocking function and its coll_i... form share a page.
#
#     awk -v date=2026-11-25 -v to=build/man/functions -f tools/man_functions.awk coll.h core/contract/coll_memory.h ...
#     awk -v names=1 -f tools/man_functions.awk coll.h ...          prints the names of all public functions, one a line
#
# What a parameter is, and what a status means, is the same everywhere, and is said here.  mdoc(7); POSIX awk.

function escaped(text) # so that no character of it is a command
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub(/"/, "\\(dq", text)
    sub(/[ \t]+$/, "", text)
    while (match(text, /`[^`]*`/))                                   # what is quoted so
        text = substr(text, 1, RSTART - 1) "\\fI" substr(text, RSTART + 1, RLENGTH - 2) "\\fP" substr(text, RSTART + RLENGTH)
    return text ~ /^[.']/ ? "\\&" text : text
}

function trimmed(text)
{
    gsub(/[ \t]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    return text
}

# ---- what is read

FNR == 1 { forget(); inside = 0 }

function forget() { comment = group = ""; fresh = 0 }

/^\/\* ---- >>/ { forget(); section = $0; if ($0 !~ /\*\/$/) inside = 2; next }
inside == 2 { if (/\*\/$/) inside = 0; next }                        # the title of a section goes on
/^\/\*/ {
    comment = ""
    fresh = 1
    inside = 1
    sub(/^\/\* ?/, "")
}
inside == 1 {
    is_last = sub(/ *\*\/ *$/, "")
    sub(/^ \* ?/, "")
    comment = comment $0 "\n"
    if (is_last) inside = 0
    next
}
/^$/ { if (!open) forget(); next }
/^COLL_API / { open = 1; declaration = ""; note = "" }
open {
    line = $0
    if (match(line, /\/\*.*\*\//)) {
        note = note " " trimmed(substr(line, RSTART + 2, RLENGTH - 4))
        line = substr(line, 1, RSTART - 1)
    }
    declaration = declaration " " line
    if (line ~ /;[ \t]*$/) { open = 0; declared(trimmed(declaration), trimmed(note)) }
    next
}
{ forget() }

function declared(text, note,    name, blocking)
{
    sub(/^COLL_API /, "", text)
    sub(/;$/, "", text)
    name = text
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    prototype[name] = text
    if (names) { print name; return }
    blocking = name
    sub(/^coll_i/, "coll_", blocking)
    if (name != blocking && (blocking in page)) {                    # a coll_i... form
        page[name] = page[blocking]
        members[page[name]] = members[page[name]] " " name
        return
    }
    if (fresh || !group) {
        group = name
        groups[++count] = name
        about[group] = comment
        fresh = 0
    }
    if (note) notes[name] = note
    page[name] = group
    members[group] = trimmed(members[group] " " name)
}

# ---- what is written

function put(text) { print text > file }

function split_arguments(text, out,    i, c, depth, n, begin) # at commas outside of brackets
{
    n = 0
    begin = 1
    depth = 0
    for (i = 1; i <= length(text) + 1; i++) {
        c = substr(text, i, 1)
        if (c == "(") depth++
        if (c == ")") depth--
        if ((c == "," && depth == 0) || i > length(text)) { out[++n] = trimmed(substr(text, begin, i - begin)); begin = i + 1 }
    }
    return n
}

function argument_name(text)
{
    if (match(text, /\(\*[a-z_]+\)/)) return substr(text, RSTART + 2, RLENGTH - 3)
    sub(/.*[ *]/, "", text)
    return text
}

function synopsis(name,    text, returns, arguments, list, n, i)
{
    text = prototype[name]
    returns = substr(text, 1, index(text, name "(") - 1)
    arguments = substr(text, index(text, name "(") + length(name) + 1)
    sub(/\)$/, "", arguments)
    put(".Ft \"" trimmed(returns) "\"")
    put(".Fo " name)
    n = split_arguments(arguments, list)
    for (i = 1; i <= n; i++) {
        put(".Fa \"" list[i] "\"")
        if (list[i] == "void" || argument_name(list[i]) in listed) continue
        listed[argument_name(list[i])] = 1
        order[++used] = argument_name(list[i])
        typed[argument_name(list[i])] = list[i]
    }
    put(".Fc")
}

function say(text,    sentences, n, i)                               # a new sentence begins a line
{
    gsub(/\n/, " ", text)
    text = trimmed(text)
    gsub(/[.] /, ".\n", text)
    n = split(text, sentences, "\n")
    for (i = 1; i <= n; i++) if (sentences[i] != "") put(escaped(sentences[i]))
}

function describe(text,    lines, n, i, block, literal)
{
    n = split(text, lines, "\n")
    for (i = 1; i <= n; i++) {
        if (lines[i] ~ /^    /) {
            if (!literal) { say(block); block = ""; put(".Bd -literal -offset indent") }
            literal = 1
            put(escaped(substr(lines[i], 5)))
            continue
        }
        if (literal && lines[i] == "") { put(""); continue }
        if (literal) { put(".Ed"); put(".Pp") }
        literal = 0
        block = block lines[i] "\n"
    }
    if (literal) put(".Ed")
    say(block)
}

function write_page(group,    list, n, i, text, first, returns, has_request)
{
    file = to "/" group ".3"
    split("January February March April May June July August September October November December", months, " ")
    split(date, day, "-")
    put(".\\\" Written by tools/man_functions.awk from the public headers.")
    put(".Dd " months[day[2] + 0] " " day[3] + 0 ", " day[1])
    put(".Dt " toupper(group) " 3")
    put(".Os")
    put(".Sh NAME")
    n = split(members[group], list, " ")
    for (i = 1; i <= n; i++) put(".Nm " list[i] (i < n ? " ," : ""))
    first = about[group]
    gsub(/\n/, " ", first)
    sub(/[.:;]( .*)?$/, "", first)
    while (match(first, /[.:;] /)) first = substr(first, 1, RSTART - 1)
    put(".Nd " escaped(tolower(substr(trimmed(first), 1, 1)) substr(trimmed(first), 2)))
    put(".Sh SYNOPSIS")
    put(".In coll.h")
    used = 0
    split("", listed)
    split("", order)
    for (i = 1; i <= n; i++) synopsis(list[i])
    put(".Sh DESCRIPTION")
    describe(about[group])
    for (i = 1; i <= n; i++) if (list[i] in notes) text = text "x"
    if (text) {
        put(".Bl -tag -width Ds")
        for (i = 1; i <= n; i++) if (list[i] in notes) { put(".It Fn " list[i]); say(notes[list[i]]) }
        put(".El")
    }
    for (i = 1; i <= n; i++) has_request = has_request || list[i] ~ /^coll_i/ && ("out" in listed) && list[i] !~ /^coll_init/
    if (has_request) {
        put(".Pp")
        say("The function whose name begins with coll_i starts the same operation and returns at once. " \
            "The buffers must not be used until coll_wait or coll_test says that the request is finished.")
    }
    text = ""
    for (i = 1; i <= used; i++) if (order[i] in meaning) text = "x"
    if (text) {
        put(".Pp")
        put("The parameters are:")
        put(".Bl -tag -width Ds")
        for (i = 1; i <= used; i++)
            if (order[i] in meaning) {
                put(".It Fa " order[i])
                say(meaning[typed[order[i]] in meaning ? typed[order[i]] : order[i]])
            }
        put(".El")
    }
    put(".Sh RETURN VALUES")
    returns = prototype[list[1]]
    if (returns ~ /^coll_status /) {
        put(".Dv COLL_OK ,")
        put("or a negative")
        put(".Vt coll_status .")
        put(".Dv COLL_ERR_ARGUMENT")
        put("and")
        put(".Dv COLL_ERR_UNSUPPORTED")
        put("mean that nothing was sent.")
        put("Any other error ends the communicator.")
        say("coll_error returns a sentence that describes the error; coll_status_text the fixed text of a status.")
    } else if (returns ~ /^void [^*]/) put("None.")
    else put("As described above.")
    put(".Sh SEE ALSO")
    put(".Xr coll 3")
    close(file)
    for (i = 2; i <= n; i++) {
        file = to "/" list[i] ".3"
        put(".so man3/" group ".3")
        close(file)
    }
}

BEGIN {
    meaning["comm"] = "A communicator.  All ranks of it call a collective, in the same order and with arguments that agree."
    meaning["send"] = "The input.  COLL_IN_PLACE: it is in recv."
    meaning["recv"] = "The result."
    meaning["buffer"] = "The elements that are sent or received."
    meaning["count"] = "The number of elements; of one block if there are several.  It may be 0."
    meaning["send_count"] = "The number of elements that this rank sends."
    meaning["recv_count"] = "The number of elements that this rank receives; for a message, the room."
    meaning["counts"] = "The number of elements of each block, one entry a rank."
    meaning["offsets"] = "Where each block begins, in elements from the start of the buffer.  NULL: one block after the other."
    meaning["send_counts"] = "The number of elements of each block that is sent."
    meaning["recv_counts"] = "The number of elements of each block that is received."
    meaning["send_offsets"] = "Where each block that is sent begins, in elements.  NULL: one block after the other."
    meaning["recv_offsets"] = "Where each block that is received begins, in elements.  NULL: one block after the other."
    meaning["send_bytes"] = "Where each block that is sent begins, in bytes."
    meaning["recv_bytes"] = "Where each block that is received begins, in bytes."
    meaning["send_types"] = "The type of each block that is sent."
    meaning["recv_types"] = "The type of each block that is received."
    meaning["type"] = "The type of an element: COLL_F32, COLL_I64, COLL_BLOB(bytes), ..."
    meaning["wire"] = "The type that the messages carry."
    meaning["op"] = "The operation: COLL_SUM, COLL_AVG, COLL_MAX, ..."
    meaning["root"] = "The rank that has the input, or gets the result."
    meaning["peer"] = "The other rank.  For a receive COLL_ANY_SOURCE takes a message from any rank."
    meaning["int count"] = "How many there are: ranks, requests, or items of a list."
    meaning["dest"] = "The rank to send to."
    meaning["source"] = "The rank to receive from."
    meaning["tag"] = "A number from 0 on that keeps messages apart.  For a receive COLL_ANY_TAG takes any."
    meaning["out"] = "Where the new object is written.  After an error it is NULL."
    meaning["config"] = "How the communicator is made.  NULL: from the environment."
    meaning["call"] = "A description of the call.  Members that are 0 have their defaults."
    meaning["request"] = "A request of a coll_i function, coll_start or coll_prepare."
    meaning["requests"] = "Requests; entries that are NULL count as finished."
    meaning["index"] = "Where the number of the finished request is written; -1: none."
}

END { if (!names) for (g = 1; g <= count; g++) write_page(groups[g]) }
