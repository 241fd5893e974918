/* coll_keyvalue.h - parses numbers with units ("12us", "4GB/s") and texts of key=value words, by tables. */
#ifndef COLL_KEYVALUE_H
#define COLL_KEYVALUE_H

#include "../base/coll_environment.h"

/* ---- >>numbers with units, in any locale ---- */

/* Read an unsigned number: "12", "1.5", "2e-6".  Advances *at.  Ignores digits beyond the range of a double. */
static bool coll__read_number(const char **at, double *out)
{
    const char *s = *at;
    double value = 0, place = 1;
    int exponent = 0;

    if (!(*s >= '0' && *s <= '9')) return false;
    for (; *s >= '0' && *s <= '9'; s++) value = value * 10 + (*s - '0');
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++)
            if (place < 1e30) value = value * 10 + (*s - '0'), place *= 10;
    if (*s == 'e' && (s[1] == '-' || s[1] == '+') && s[2] >= '0' && s[2] <= '9') {
        const bool is_negative = s[1] == '-';
        for (s += 2; *s >= '0' && *s <= '9' && exponent < 300; s++) exponent = exponent * 10 + (*s - '0');
        for (; exponent > 0; exponent--) {
            if (is_negative) place *= 10;
            else value *= 10;
        }
    }
    *out = value / place;
    *at = s;
    return *out == *out;                          /* inf / inf, from many digits and a negative exponent      */
}

/* A unit: the number is multiplied by `by` and divided by `divide`; without a unit it is unchanged. */
typedef struct coll__unit { const char *name; double by, divide; } coll__unit;

static const coll__unit coll__times[] = {
    { "ns", 1, 1e9 }, { "us", 1, 1e6 }, { "ms", 1, 1e3 }, { "s", 1, 1 }, { NULL, 0, 0 }
};
static const coll__unit coll__rates[] = {
    { "GB/s", 1e9, 1 }, { "MB/s", 1e6, 1 }, { "Gbit/s", 1e9, 8 }, { "Mbit/s", 1e6, 8 }, { "B/s", 1, 1 }, { NULL, 0, 0 }
};
static const coll__unit coll__sizes[] = { { "KiB", 1024, 1 }, { "MiB", 1048576, 1 }, { "K", 1024, 1 }, { "M", 1048576, 1 },
                                          { NULL, 0, 0 } };
static const coll__unit coll__gbits[] = { { "", 1e9, 8 }, { NULL, 0, 0 } };       /* for names with the unit: gbit=10 */

static bool coll__read_measure(const char **at, const coll__unit *units, double *out, bool *has_unit)
{
    if (!coll__read_number(at, out)) return false;
    while (units->name && strncmp(*at, units->name, strlen(units->name))) units++;
    if (units->name) {
        *out = *out * units->by / units->divide;
        *at += strlen(units->name);
    }
    if (has_unit) *has_unit = units->name != NULL;
    return true;
}

/* ---- >>words: "latency=12us overhead=1.2us gbit=10", each by a row of a table ---- */

enum {
    COLL__WORD_INVERSE = 1,                       /* the field is the inverse: seconds per byte for a rate; 0 stays 0 */
    COLL__WORD_ZERO_IS_NONE = 2                   /* 0 in the text means -1 in the field, where 0 means not set */
};

typedef struct coll__word {
    const char *name;                             /* NULL ends the table                                      */
    const char *looks;                            /* describes its value: "a time, like 12us"                 */

    /* Read the value at *at into `fields`, and advance *at.  false: invalid. */
    bool (*take)(void *fields, const struct coll__word *word, const char **at);
    size_t      at;                               /* offset of the field                                      */
    unsigned    traits;
    const coll__unit *units;
    double      least, most;                      /* in s, or in bytes/s; 0 is always valid                   */
} coll__word;

/* The first invalid word of a text. */
typedef struct coll__wrong_word {
    const char *at;
    size_t      length;
    const coll__word *word;                       /* its row; NULL: unknown name                              */
} coll__wrong_word;

/* Take a number with a unit into a double. */
static bool coll__take_measure(void *fields, const coll__word *word, const char **at)
{
    double value;

    if (!coll__read_measure(at, word->units, &value, NULL)) return false;
    if (value > word->most || (value > 0 && value < word->least)) return false;
    if (value > 0 && word->traits & COLL__WORD_INVERSE) value = 1 / value;
    if (value <= 0 && word->traits & COLL__WORD_ZERO_IS_NONE) value = -1;
    memcpy((char *)fields + word->at, &value, sizeof value);
    return true;
}

#define COLL__TAKE_TIME(name, type, field, traits, most) \
    { name, "a time, like 12us", coll__take_measure, offsetof(type, field), traits, coll__times, 0, most }
#define COLL__TAKE_RATE(name, type, field, traits, least) \
    { name, "a rate, like 4GB/s", coll__take_measure, offsetof(type, field), COLL__WORD_INVERSE | (traits), coll__rates, \
      least, 1e18 }
#define COLL__TAKE_GBIT(name, type, field, traits, least) \
    { name, "a number of Gbit/s, like 10", coll__take_measure, offsetof(type, field), COLL__WORD_INVERSE | (traits), \
      coll__gbits, least, 1e27 }

/* Read a text; fields that it does not mention stay.  Words are separated by spaces, commas or newlines; # starts a comment.
 * false, with *wrong: invalid. */
static bool coll__words_read(const coll__word *words, void *fields, const char *text, coll__wrong_word *wrong)
{
    static const char space[] = " ,\t\r\n";

    for (const char *at = text + strspn(text, space); *at; at += strspn(at, space)) {
        const char *const begin = at;
        const size_t length = strcspn(at, space), name = strcspn(at, "= ,\t\r\n");
        const coll__word *word = words;
        if (*at == '#') {
            at += strcspn(at, "\n");
            continue;
        }
        while (word->name && (strlen(word->name) != name || strncmp(word->name, begin, name))) word++;
        *wrong = (coll__wrong_word){ begin, length, word->name ? word : NULL };
        if (!word->name || begin[name] != '=') return false;
        at = begin + name + 1;
        if (!word->take(fields, word, &at) || at != begin + length) return false;
    }
    return true;
}

/* Write the error sentence; `where` names the text. */
static coll_status coll__words_failed(const coll__word *words, const coll__wrong_word *wrong, const char *where)
{
    char known[200] = "";
    const int length = (int)coll__least(wrong->length, 40);

    if (wrong->word)
        return coll__start_failed(COLL_ERR_ARGUMENT, "%s: \"%.*s\" makes no sense: %s is %s", where, length, wrong->at,
                                  wrong->word->name, wrong->word->looks);
    for (; words->name; words++) coll__append(known, sizeof known, "%s%s", *known ? ", " : "", words->name);
    return coll__start_failed(COLL_ERR_ARGUMENT, "%s: \"%.*s\" begins with an unknown name; there is: %s", where, length,
                              wrong->at, known);
}

#endif /* COLL_KEYVALUE_H */
