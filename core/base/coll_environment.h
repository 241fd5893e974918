/* coll_environment.h - environment variables, as texts and as numbers, and the sentence where one makes no sense. */
#ifndef COLL_ENVIRONMENT_H
#define COLL_ENVIRONMENT_H

#include "coll_text.h"

/* The whole of `text` as a number within low..high. */
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

/* A variable of the environment; NULL: it is not set, or this program does not ask (COLL_NO_ENV). */
static inline const char *coll__variable(const char *name) { return COLL__HAS_ENV ? getenv(name) : NULL; }

/* The same, NULL when it is empty, too. */
static const char *coll__environment(const char *name)
{
    const char *text = name ? coll__variable(name) : NULL;
    return text && *text ? text : NULL;
}

/* An environment variable as a number: 0 when it is not set; false, with the sentence, when it is nonsense. */
static bool coll__environment_int(const char *name, long low, long high, int *out)
{
    const char *text = coll__environment(name);

    if (!text || coll__parse_int(text, low, high, out)) return true;
    coll__start_failed(COLL_ERR_ARGUMENT, "%s=%s is not a number from %ld to %ld", name, text, low, high);
    return false;
}

#endif /* COLL_ENVIRONMENT_H */
