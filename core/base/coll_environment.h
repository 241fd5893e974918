/* coll_environment.h - reads environment variables as text and numbers, reports invalid ones, and fills fields of a
 * configuration that are 0 or NULL. */
#ifndef COLL_ENVIRONMENT_H
#define COLL_ENVIRONMENT_H

#include "coll_text.h"

/* Parse the whole of `text` as a number in low..high. */
static bool coll__parse_int(const char *text, long low, long high, int *out)
{
    char *end;

    if (!text || !((*text >= '0' && *text <= '9') || (*text == '-' && low < 0))) return false;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || *end || value < low || value > high) return false;
    *out = (int)value;
    return true;
}

/* An environment variable; NULL: not set, or COLL_NO_ENV. */
static inline const char *coll__variable(const char *name) { return COLL__HAS_ENV ? getenv(name) : NULL; }

/* The same; NULL also if it is empty. */
static const char *coll__environment(const char *name)
{
    const char *text = name ? coll__variable(name) : NULL;
    return text && *text ? text : NULL;
}

/* An environment variable as a number; unchanged if not set. false, with an error sentence: invalid. */
static bool coll__environment_int(const char *name, long low, long high, int *out)
{
    const char *text = coll__environment(name);

    if (!text || coll__parse_int(text, low, high, out)) return true;
    coll__start_failed(COLL_ERR_ARGUMENT, "%s=%s is not a number from %ld to %ld", name, text, low, high);
    return false;
}

/* ---- >>fields: the caller's value, else the variable's, else the default. false, with an error sentence: invalid ---- */

/* A number from 1 to `high`.  `none` is what -1 means, in the field and in the variable; NULL: the variable must not be -1. */
static bool coll__settle_number(int *field, const char *name, int high, int usual, const char *none)
{
    const char *const text = *field == 0 ? coll__environment(name) : NULL;

    if (*field < 0) *field = -1;
    if (text && (!coll__parse_int(text, none ? -1 : 1, high, field) || *field == 0)) {
        coll__start_failed(COLL_ERR_ARGUMENT, "invalid %s=%.40s: use 1 to %d%s%s", name, text, high, none ? ", or -1: " : "",
                           none ? none : "");
        return false;
    }
    if (*field == 0) *field = usual;
    return true;
}

/* The index of `text` in a list such as "auto, uring, poll"; -1: not found. */
static int coll__word_number(const char *words, const char *text)
{
    const size_t length = strlen(text);

    for (int i = 0; *words; i++, words += strspn(words, ", ")) {
        const size_t word = strcspn(words, ",");
        if (word == length && !strncmp(words, text, length)) return i;
        words += word;
    }
    return -1;
}

/* Set a field to the index of a word; unchanged if the variable is not set. */
static bool coll__settle_choice(int *field, const char *name, const char *words)
{
    const char *text = coll__environment(name);
    const int number = text ? coll__word_number(words, text) : *field;

    if (number < 0) coll__start_failed(COLL_ERR_ARGUMENT, "%s=%.40s is none of %s", name, text, words);
    else *field = number;
    return number >= 0;
}

/* COLL_DEFAULT, COLL_ON or COLL_OFF. */
static bool coll__settle_switch(int *field, const char *name)
{
    int number = -1;

    if (*field != COLL_DEFAULT || !coll__environment(name)) return true;
    if (!coll__settle_choice(&number, name, "on, off, 1, 0")) return false;
    *field = number % 2 == 0 ? COLL_ON : COLL_OFF;
    return true;
}

/* An empty variable counts as not set; so does an empty field, if is_open_if_empty. */
static bool coll__settle_text(const char **field, const char *name, const char *usual, bool is_open_if_empty)
{
    if (!*field || (!**field && is_open_if_empty)) *field = coll__variable(name);
    if (!*field || !**field) *field = usual;
    return true;
}

#endif /* COLL_ENVIRONMENT_H */
