/* coll_tuning.h - link numbers for the cost model, as text and in a file. */
#ifndef COLL_TUNING_H
#define COLL_TUNING_H

#include "coll_keyvalue.h"
#include "../algorithms/coll_cost.h"

enum { COLL__TUNING_ROOM = 512, COLL__TUNING_FILE_MOST = 4096 };

/* ---- >>tuning: "latency=12us overhead=1.2us gbit=10 reduce=4GB/s" ---- */

#if COLL__HAS_CHOICE

/* 0-2:2.5 5:2 6-:4 ranks, and how many times faster their links are than the slowest; in increasing order */
static bool coll__take_faster(void *fields, const coll__word *word, const char **at)
{
    coll__shares *const s = (coll__shares *)(void *)((char *)fields + word->at);
    const int open = s->count ? s->runs[s->count - 1].first : 0;  /* first rank that is not set yet       */
    double first, last, rate;

    if (!coll__read_number(at, &first)) return false;
    last = first;
    if (**at == '-') {
        ++*at;
        if (!(**at >= '0' && **at <= '9')) last = INT_MAX;
        else if (!coll__read_number(at, &last)) return false;
    }
    if (**at != ':') return false;
    ++*at;
    if (!coll__read_number(at, &rate) || first < open || last < first || last > INT_MAX || !(rate >= 1)
        || rate > (double)COLL__RATE_MOST || (s->count && s->runs[s->count - 1].rate != COLL__RATE_UNIT)) return false;
    if (s->count) s->count--;                     /* added again below                                        */
    if (s->count + (first > open) + 1 + (last < INT_MAX) > COLL__RUNS_MOST) return false;
    if (first > open) coll__rates_add(s, open, COLL__RATE_UNIT);
    coll__rates_add(s, (int)first, coll__rate_in(rate));
    if (last < INT_MAX) coll__rates_add(s, (int)last + 1, COLL__RATE_UNIT);
    return true;
}

/* site=8 rank 8 starts another site; in increasing order */
static bool coll__take_site(void *fields, const coll__word *word, const char **at)
{
    coll__sites *const s = (coll__sites *)(void *)((char *)fields + word->at);
    const int last = s->count ? s->first[s->count - 1] : 0;
    double first;

    if (!coll__read_number(at, &first) || first <= last || first > INT_MAX || s->count == COLL__RUNS_MOST) return false;
    s->first[s->count++] = (int)first;
    return true;
}

#endif

/* A rate of 0 means no time, as in what coll__numbers_print writes. */
static const coll__word coll__numbers_words[] = {
    COLL__TAKE_TIME("latency",  coll__numbers, link.latency, 0, 100),
    COLL__TAKE_TIME("overhead", coll__numbers, link.overhead, 0, 100),
    COLL__TAKE_RATE("wire",     coll__numbers, link.per_byte, 0, 1e3),
    COLL__TAKE_GBIT("gbit",     coll__numbers, link.per_byte, 0, 1e3),
    COLL__TAKE_RATE("reduce",   coll__numbers, link.per_byte_reduced, 0, 1e3),
    COLL__TAKE_TIME("barrier",  coll__numbers, barrier, 0, 100),
#if COLL__HAS_CHOICE
    { "faster", "ranks and by how much they are faster than the slowest, like 0-2:2.5, in rising order", coll__take_faster,
      offsetof(coll__numbers, shares), 0, NULL, 0, 0 },
    COLL__TAKE_TIME("far_latency", coll__numbers, far.latency, 0, 100),
    COLL__TAKE_GBIT("far_gbit", coll__numbers, far.per_byte, 0, 1e3),
    { "site", "the first rank of another site than the first, in rising order", coll__take_site, offsetof(coll__numbers, sites),
      0, NULL, 0, 0 },
#endif
    { .name = NULL }
};

static bool coll__numbers_read(coll__numbers *n, const char *text, coll__wrong_word *wrong)
{
    n->shares.count = n->sites.count = 0;
    n->far = (coll__far){ 0, 0 };
    return coll__words_read(coll__numbers_words, n, text, wrong);
}

/* Append a non-negative number: five significant digits, or six decimals. */
static void coll__append_number(char *text, size_t room, double value)
{
    int digits = value < 1 ? 6 : 4;
    uint64_t unit = value < 1 ? 1000000 : 10000;

    for (double bound = 10; digits > 0 && value >= bound; digits--) bound *= 10, unit /= 10;
    const uint64_t all = (uint64_t)((value < 1e12 ? value : 1e12) * (double)unit + 0.5);
    uint64_t part = all % unit;
    coll__append(text, room, "%llu", (unsigned long long)(all / unit));
    for (; digits > 0 && part % 10 == 0; digits--) part /= 10;
    if (digits > 0) coll__append(text, room, ".%0*llu", digits, (unsigned long long)part);
}

/* Write the numbers as coll__numbers_read reads them. */
static void coll__numbers_print(const coll__numbers *n, char *text, size_t room)
{
    const coll__link *link = &n->link;
    const struct { const char *name; double value; const char *unit; } all[] = {
        { "latency=", link->latency * 1e6, "us" }, { " overhead=", link->overhead * 1e6, "us" },
        { " gbit=", link->per_byte > 0 ? 8e-9 / link->per_byte : 0, "" },
        { " reduce=", link->per_byte_reduced > 0 ? 1e-9 / link->per_byte_reduced : 0, "GB/s" },
        { " far_latency=", n->far.latency * 1e6, "us" },
        { " far_gbit=", n->far.per_byte > 0 ? 8e-9 / n->far.per_byte : 0, "" }
    };
    enum { ALWAYS = 4 };

    coll__print(text, room, "%s", "");
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
        if (i >= ALWAYS && !(all[i].value > 0)) continue;
        coll__append(text, room, "%s", all[i].name);
        coll__append_number(text, room, all[i].value);
        coll__append(text, room, "%s", all[i].unit);
    }
    for (int i = 0; COLL__HAS_CHOICE && i < n->shares.count; i++) {
        const coll__rank_run *const run = &n->shares.runs[i];
        if (run->rate == COLL__RATE_UNIT) continue;
        coll__append(text, room, " faster=%d", run->first);
        if (i + 1 == n->shares.count) coll__append(text, room, "-");
        else if (run[1].first > run->first + 1) coll__append(text, room, "-%d", run[1].first - 1);
        coll__append(text, room, ":");
        coll__append_number(text, room, (double)run->rate / (double)COLL__RATE_UNIT);
    }
    for (int i = 0; i < n->sites.count; i++) coll__append(text, room, " site=%d", n->sites.first[i]);
}

/* Round the numbers to their text: ranks that read that text get the same bits. */
static void coll__numbers_round(coll__numbers *n)
{
    char text[COLL__TUNING_ROOM];
    coll__wrong_word wrong;

    coll__numbers_print(n, text, sizeof text);
    (void)coll__numbers_read(n, text, &wrong);
}

/* Read the tuning file at `path` for `size` ranks; path NULL: none. */
static coll_status coll__tuning_read(coll__numbers *n, const char *path, int size)
{
    if (!path) return COLL_OK;
#if COLL__HAS_CHOICE && COLL__HAS_OS
    char text[COLL__TUNING_FILE_MOST + 1], where[140];
    coll__wrong_word wrong;
    FILE *file = fopen(path, "re");
    const size_t got = file ? fread(text, 1, sizeof text, file) : 0;
    const int error = !file || ferror(file) ? errno : 0;
    if (file) fclose(file);
    if (error) return coll__start_failed(COLL_ERR_ARGUMENT, "tuning file %.160s: %s", path, strerror(error));
    if (got == sizeof text)
        return coll__start_failed(COLL_ERR_ARGUMENT, "tuning file %.160s is longer than %d bytes", path, COLL__TUNING_FILE_MOST);
    text[got] = '\0';
    coll__print(where, sizeof where, "tuning file %.120s", path);
    if (!coll__numbers_read(n, text, &wrong)) return coll__words_failed(coll__numbers_words, &wrong, where);
    const coll__rank_run *const last = n->shares.count > 0 ? &n->shares.runs[n->shares.count - 1] : NULL;
    const bool is_far = n->sites.count > 0 && n->sites.first[n->sites.count - 1] >= size;
    /* the end of a range is after its ranks */
    if (is_far || (last && last->first >= size + (last->rate == COLL__RATE_UNIT)))
        return coll__start_failed(COLL_ERR_ARGUMENT, "%s: %s= names ranks beyond the %d that there are", where,
                                  is_far ? "site" : "faster", size);
    coll__numbers_round(n);
    const size_t name = strlen(path);
    n->origin = COLL__BY_FILE;
    coll__print(n->file, sizeof n->file, "%s", path + (name < sizeof n->file ? 0
                                                                        : name + 1 - sizeof n->file));
    return COLL_OK;
#else
    (void)n, (void)size;
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "tuning file %.160s: this program was compiled with COLL_NO_CHOICE", path);
#endif
}

#endif /* COLL_TUNING_H */
