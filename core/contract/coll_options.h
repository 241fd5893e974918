/* coll_options.h - fields that the caller may leave open, 0 or NULL, and the environment may fill: of the configuration,
 * or of what a transport keeps for itself. */
#ifndef COLL_OPTIONS_H
#define COLL_OPTIONS_H

#include "../base/coll_environment.h"

typedef enum coll__option_type {
    COLL__OPTION_NUMBER,                          /* an int                                                   */
    COLL__OPTION_SWITCH,                          /* an int: 1 for "on" and -1 for "off"                      */
    COLL__OPTION_CHOICE,                          /* an int, of the variable alone: the number of its word; 0: unsaid */
    COLL__OPTION_TEXT,
    COLL__OPTION_WORD                             /* a text: one of some words                                */
} coll__option_type;

enum {
    COLL__ONLY_POSITIVE = 1,                      /* less than 0 is left open, too                            */
    COLL__ZERO_IS_NONE = 2,                       /* 0 in the environment is what -1 is in the field          */
    COLL__WITHIN_RANGE = 4,                       /* the range is that of the field, too                      */
    COLL__EMPTY_IS_OPEN = 8                       /* "" leaves the field open, and is not none                */
};

typedef struct coll__option {
    const char *name, *variable;
    size_t      at;                               /* of the field                                             */
    coll__option_type type;
    int         low, high;                        /* NUMBER: what the variable may say                        */
    int         usual;                            /* where neither says anything                              */
    unsigned    traits;
    const char *usual_text, *words;               /* words: "auto, uring, poll"                               */
} coll__option;

#define COLL__NUMBER(field, variable, low, high, usual, traits) \
    { #field, variable, offsetof(coll_config, field), COLL__OPTION_NUMBER, low, high, usual, traits, NULL, NULL }
#define COLL__SWITCH(field, variable) \
    { #field, variable, offsetof(coll_config, field), COLL__OPTION_SWITCH, 0, 0, 0, 0, NULL, NULL }
#define COLL__CHOICE(type, field, variable, words) \
    { #field, variable, offsetof(type, field), COLL__OPTION_CHOICE, 0, 0, 0, 0, NULL, words }
#define COLL__TEXT(field, variable, usual, traits) \
    { #field, variable, offsetof(coll_config, field), COLL__OPTION_TEXT, 0, 0, 0, traits, usual, NULL }
#define COLL__WORD(field, variable, usual, words) \
    { #field, variable, offsetof(coll_config, field), COLL__OPTION_WORD, 0, 0, 0, 0, usual, words }

/* The number of a word of "auto, uring, poll"; -1: it is none. */
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

static coll_status coll__option_choice(const coll__option *o, int *field)
{
    const char *text = coll__environment(o->variable);
    const int number = text ? coll__word_number(o->words, text) : 0;

    if (number < 0) return coll__start_failed(COLL_ERR_ARGUMENT, "%s=%.40s is none of %s", o->variable, text, o->words);
    *field = number;
    return COLL_OK;
}

static coll_status coll__option_number(const coll__option *o, int *field)
{
    const bool is_said = o->traits & COLL__ONLY_POSITIVE ? *field > 0 : *field != 0;
    const char *text = is_said ? NULL : coll__environment(o->variable);

    if (text && o->type == COLL__OPTION_SWITCH) {
        if (coll__word_number("on, off", text) < 0)
            return coll__start_failed(COLL_ERR_ARGUMENT, "%s=%.40s is neither on nor off", o->variable, text);
        *field = !strcmp(text, "on") ? 1 : -1;
    } else if (text) {
        if (!coll__environment_int(o->variable, o->low, o->high, field)) return COLL_ERR_ARGUMENT;
        if (*field == 0 && o->traits & COLL__ZERO_IS_NONE) *field = -1;
    }
    if (*field == 0 || (*field < 0 && o->traits & COLL__ONLY_POSITIVE)) *field = o->usual;
    if (*field != 0 && o->traits & COLL__WITHIN_RANGE && (*field < o->low || *field > o->high))
        return coll__start_failed(COLL_ERR_ARGUMENT, "%s %d is out of range: %d to %d", o->name, *field, o->low, o->high);
    return COLL_OK;
}

static coll_status coll__option_text(const coll__option *o, const char **field)
{
    const bool is_open = !*field || (!**field && o->traits & COLL__EMPTY_IS_OPEN);

    if (is_open) *field = coll__variable(o->variable);
    if (!*field || !**field) *field = o->usual_text;
    if (o->type != COLL__OPTION_WORD || !*field || coll__word_number(o->words, *field) >= 0) return COLL_OK;
    return coll__start_failed(COLL_ERR_ARGUMENT, is_open ? "%s=%.40s is none of %s" : "%s \"%.40s\" is none of %s",
                              is_open ? o->variable : o->name, *field, o->words);
}

/* Fill what is open of `fields`, a coll_config or what the table is about, which ends with a row without a name. */
static coll_status coll__options_settle(const coll__option *o, void *fields)
{
    coll_status status = COLL_OK;

    for (; o && o->name && status == COLL_OK; o++) {
        void *const field = (char *)fields + o->at;
        const bool has_words = o->type == COLL__OPTION_CHOICE || o->type == COLL__OPTION_WORD;
        COLL__ASSERT(o->variable && has_words == (o->words != NULL), "option %s of %s has %s", o->name,
                     o->variable ? o->variable : "no variable", o->words ? o->words : "no words");
        status = o->type >= COLL__OPTION_TEXT ? coll__option_text(o, (const char **)field)
               : o->type == COLL__OPTION_CHOICE ? coll__option_choice(o, (int *)field) : coll__option_number(o, (int *)field);
    }
    return status;
}

#endif /* COLL_OPTIONS_H */
