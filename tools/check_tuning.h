/* check_tuning.h - computes a tuning file from what coll-check measured between every two hosts.  It neither measures nor uses
 * the library.
 *
 * Rates.  The rate of a host's link is that of its fastest pair, in the slower direction.  So a single host that is faster
 * than all others is not found.  Rates that differ by less than 1.25 are set to the slowest of them.
 *
 * Sites.  If the latencies of pairs of hosts have a wide gap (a factor of 3, and 20 us), the pairs above it are far.  Hosts
 * connected by near pairs form a site.  If a site contains a far pair, or only one host, no sites are reported: a single host
 * is probably slow, not far. */
#ifndef CHECK_TUNING_H
#define CHECK_TUNING_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MOST = 8,               /* runs of ranks with equal links, and sites after the first, in a tuning file */
       TUNING_ROOM = 4096 };

static const double rates_same = 1.25, gap_least = 3, far_least = 20e-6, faster_unit = 1.0 / 16, faster_most = 65536;

/* Measurements between hosts, which are numbered by their first ranks.  From a to b: [a * hosts + b]. */
typedef struct links {
    int     ranks, hosts;
    int    *host_of, *first;        /* of each rank; of each host                             */
    double *latency, *rate;         /* s, for both directions; bytes/s                        */
} links;

/* Of the link between the ranks of one site; 0: not measured. */
typedef struct near_link {
    double latency, overhead;       /* s                                                      */
    double rate, reduce;            /* bytes/s: of one host only, and of additions            */
} near_link;

/* The result. */
typedef struct tuning {
    double  slowest;                /* bytes/s of the slowest host; 0: one host only          */
    double *faster;                 /* of each host: rate divided by `slowest`                */
    int     sites, *site;           /* site of each host, 0 the first; sites 1: no far hosts  */
    double  far_latency;            /* s; 0: no far hosts                                     */
    double  far_rate;               /* bytes/s of the link shared by all hosts of a site; 0: unknown */
} tuning;

static void *must(void *memory)
{
    if (!memory) {
        fprintf(stderr, "coll-check: out of memory\n");
        exit(1);
    }
    return memory;
}

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return a < b ? -1 : a > b;
}

/* ---- >>hosts ---- */

/* The partner of a rank or site in a round (circle method): one of an even number of positions is fixed, the others rotate. */
static int partner(int rank, int round, int places)
{
    const int others = places - 1;

    if (rank == others) {
        for (int i = 0; i < others; i++) {
            if ((2 * i) % others == round) return i;
        }
    }
    const int peer = (round - rank + others) % others;
    return peer == rank ? others : peer;
}

/* Of each rank: the first rank of its host. */
static void number_hosts(links *l, const int *firsts, int ranks)
{
    l->ranks = ranks;
    l->hosts = 0;
    l->host_of = must(calloc((size_t)ranks, sizeof *l->host_of));
    l->first = must(calloc((size_t)ranks, sizeof *l->first));
    for (int rank = 0; rank < ranks; rank++) {
        if (firsts[rank] == rank) l->first[l->hosts] = rank;
        l->host_of[rank] = firsts[rank] == rank ? l->hosts++ : l->host_of[firsts[rank]];
    }
}

/* Combine pairs of ranks to pairs of hosts; the best pair counts.  rows: of each rank its latency to every rank, then its
 * rate; 0: none. */
static void join_pairs(links *l, const double *rows)
{
    const size_t hosts = (size_t)l->hosts, ranks = (size_t)l->ranks;

    l->latency = must(calloc(hosts * hosts, sizeof *l->latency));
    l->rate = must(calloc(hosts * hosts, sizeof *l->rate));
    for (size_t a = 0; a < ranks; a++) {
        for (size_t b = 0; b < ranks; b++) {
            const size_t from = (size_t)l->host_of[a], to = (size_t)l->host_of[b];
            const double latency = rows[(a < b ? a : b) * 2 * ranks + (a < b ? b : a)], rate = rows[a * 2 * ranks + ranks + b];
            double *const least = &l->latency[from * hosts + to], *const most = &l->rate[from * hosts + to];
            if (from == to) continue;
            if (latency > 0 && (*least <= 0 || latency < *least)) *least = latency;
            if (rate > *most) *most = rate;
        }
    }
}

static double latency_between(const links *l, int a, int b) { return l->latency[(size_t)a * (size_t)l->hosts + (size_t)b]; }

/* Bytes/s in the slower direction. */
static double rate_between(const links *l, int a, int b)
{
    const size_t hosts = (size_t)l->hosts;
    const double out = l->rate[(size_t)a * hosts + (size_t)b], in = l->rate[(size_t)b * hosts + (size_t)a];

    return out < in ? out : in;
}

/* ---- >>rates ---- */

/* Set rates that hardly differ to the slowest of them. */
static void join_rates(double *rates, int count)
{
    for (double bound = 0, least;; bound = least * rates_same) {
        least = 0;
        for (int i = 0; i < count; i++) {
            if (rates[i] >= bound && (least <= 0 || rates[i] < least)) least = rates[i];
        }
        if (least <= 0) return;
        for (int i = 0; i < count; i++) {
            if (rates[i] >= least && rates[i] < least * rates_same) rates[i] = least;
        }
    }
}

static void find_rates(const links *l, tuning *t)
{
    double *const rates = t->faster = must(calloc((size_t)l->hosts, sizeof *rates));

    t->slowest = 0;
    for (int a = 0; a < l->hosts; a++) {
        for (int b = 0; b < l->hosts; b++) {
            if (b != a && rate_between(l, a, b) > rates[a]) rates[a] = rate_between(l, a, b);
        }
        if (rates[a] > 0 && (t->slowest <= 0 || rates[a] < t->slowest)) t->slowest = rates[a];
    }
    for (int a = 0; a < l->hosts; a++) rates[a] = rates[a] > 0 ? rates[a] / t->slowest : 1;
    join_rates(rates, l->hosts);
    for (int a = 0; a < l->hosts; a++) {
        const double most = rates[a] < faster_most ? rates[a] : faster_most;
        rates[a] = (double)(long)(most / faster_unit + 0.5) * faster_unit;
    }
}

/* ---- >>sites ---- */

/* The least latency of a far pair; *far: the median of far pairs.  0: no pair is far. */
static double far_from(const links *l, double *far)
{
    const size_t pairs = (size_t)l->hosts * (size_t)(l->hosts - 1) / 2;
    double *const times = must(malloc((pairs + 1) * sizeof *times)), from = 0;
    size_t count = 0, gap = 0;

    *far = 0;
    for (int a = 0; a < l->hosts; a++) {
        for (int b = a + 1; b < l->hosts; b++) times[count++] = latency_between(l, a, b);
    }
    qsort(times, count, sizeof *times, compare_doubles);
    for (size_t i = 1; i < count; i++) {
        if (gap == 0 || times[i] * times[gap - 1] > times[i - 1] * times[gap]) gap = i;
    }
    if (gap > 0 && times[gap] >= gap_least * times[gap - 1] && times[gap] - times[gap - 1] >= far_least) {
        from = times[gap];
        *far = times[(gap + count) / 2];
    }
    free(times);
    return from;
}

/* Merge the sites of near pairs.  false: nothing changed. */
static bool join_sites(const links *l, int *site, double from)
{
    bool has_joined = false;

    for (int a = 0; a < l->hosts; a++) {
        for (int b = a + 1; b < l->hosts; b++) {
            if (latency_between(l, a, b) >= from || site[a] == site[b]) continue;
            site[a] = site[b] = site[a] < site[b] ? site[a] : site[b];
            has_joined = true;
        }
    }
    return has_joined;
}

/* Are there no far pairs within a site, and no sites of one host? */
static bool sites_are_right(const links *l, const int *site, double from)
{
    for (int a = 0; a < l->hosts; a++) {
        int beside = 0;
        for (int b = 0; b < l->hosts; b++) {
            if (b == a || site[b] != site[a]) continue;
            if (latency_between(l, a, b) >= from) return false;
            beside++;
        }
        if (beside == 0) return false;
    }
    return true;
}

static void find_sites(const links *l, tuning *t)
{
    int *const site = t->site = must(calloc((size_t)l->hosts, sizeof *site));
    const double from = far_from(l, &t->far_latency);

    t->sites = 0;
    t->far_rate = 0;
    for (int a = 0; a < l->hosts; a++) site[a] = a;
    while (from > 0 && join_sites(l, site, from)) continue;
    if (from > 0 && sites_are_right(l, site, from)) {
        for (int a = 0; a < l->hosts; a++) site[a] = site[a] == a ? t->sites++ : site[site[a]];
    } else {
        t->far_latency = 0;
        t->sites = 1;
        memset(site, 0, (size_t)l->hosts * sizeof *site);
    }
}

/* The partner of a host at another site in a round, in which sites exchange in pairs; -1: none. */
static int partner_across(const tuning *t, int hosts, int host, int round)
{
    const int site = partner(t->site[host], round, t->sites + t->sites % 2);
    int place = 0, other = 0;

    for (int a = 0; a < host; a++) place += t->site[a] == t->site[host];
    while (other < hosts && (t->site[other] != site || place-- > 0)) other++;
    return other < hosts ? other : -1;
}

/* Sum the rates across each site's link, for one direction at a time, and keep the maximum in `most`.  rates: of each host.
 * Hosts with the lower rank of a pair send first, then the others. */
static void add_across(const tuning *t, int hosts, int round, const double *rates, double *most)
{
    double (*const sums)[4] = must(calloc((size_t)t->sites, sizeof *sums));       /* out and in, first; out and in, then */

    for (int a = 0; a < hosts; a++) {
        const int other = partner_across(t, hosts, a, round), when = 2 * (a > other);
        if (other < 0) continue;
        sums[t->site[a]][when] += rates[a];
        sums[t->site[other]][when + 1] += rates[a];
    }
    for (int site = 0; site < t->sites; site++) {
        for (int i = 0; i < 4; i++) most[site] = sums[site][i] > most[site] ? sums[site][i] : most[site];
    }
    free(sums);
}

/* Bytes/s of the slowest link between sites. */
static double least_across(const tuning *t, const double *most)
{
    double least = 0;

    for (int site = 0; site < t->sites; site++) {
        if (most[site] > 0 && (least <= 0 || most[site] < least)) least = most[site];
    }
    return least;
}

/* ---- >>the text ---- */

__attribute__((format(printf, 2, 3)))
static void add(char *text, const char *format, ...)
{
    const size_t length = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + length, TUNING_ROOM - length, format, arguments);
    va_end(arguments);
}

/* Four significant digits; never 0, which would mean no time or no limit. */
static void add_number(char *text, const char *name, double value, const char *unit)
{
    if (value >= 1000) add(text, "%s%.0f%s", name, value, unit);
    else if (value >= 1e-3) add(text, "%s%.4g%s", name, value, unit);
    else add(text, "%s%.6f%s", name, value > 1e-6 ? value : 1e-6, unit);
}

/* Separator on the same line. */
static void add_gap(char *text)
{
    if (*text && text[strlen(text) - 1] != '\n') add(text, " ");
}

/* "faster=0-2:2.5", or a note why there is none. */
static void add_rates(char *text, char *notes, const links *l, const tuning *t)
{
    int runs = 0;

    for (int i = 0; i < l->ranks; i++) runs += i == 0 || t->faster[l->host_of[i]] != t->faster[l->host_of[i - 1]];
    if (runs > RUNS_MOST) {
        add(notes, "the links of hosts have %d runs of equal rates, and a tuning file at most %d: faster= is left out; give "
                   "hosts of equal rates ranks that follow one another\n", runs, RUNS_MOST);
        return;
    }
    for (int first = 0, end; first < l->ranks; first = end) {
        const double faster = t->faster[l->host_of[first]];
        for (end = first + 1; end < l->ranks && t->faster[l->host_of[end]] == faster;) end++;
        if (faster <= 1) continue;
        add_gap(text);
        add(text, "faster=%d", first);
        if (end == l->ranks) add(text, "-");
        else if (end > first + 1) add(text, "-%d", end - 1);
        add(text, ":%.9g", faster);
    }
}

/* "site=3", or a note why there is none, and the link between sites. */
static void add_sites(char *text, char *notes, const links *l, const tuning *t)
{
    bool *const seen = must(calloc((size_t)t->sites, sizeof *seen)), are_rows = true;

    for (int i = 0; i < l->ranks; i++) {
        const int site = t->site[l->host_of[i]];
        if (i > 0 && site == t->site[l->host_of[i - 1]]) continue;
        are_rows = are_rows && !seen[site];
        seen[site] = true;
    }
    free(seen);
    if (t->sites < 2) return;
    add_number(text, "far_latency=", t->far_latency * 1e6, "us");
    if (t->far_rate > 0) add_number(text, " far_gbit=", t->far_rate * 8e-9, "");
    if (!are_rows) {
        add(notes, "the hosts are at %d sites, and ranks of one site do not follow one another: site= is left out; number the "
                   "ranks site by site, or set COLL_SITE on every host\n", t->sites);
    } else if (t->sites > RUNS_MOST + 1) {
        add(notes, "the hosts are at %d sites, and a tuning file has at most %d: site= is left out; set COLL_SITE on every "
                   "host\n", t->sites, RUNS_MOST + 1);
    }
    for (int i = 1; i < l->ranks && are_rows && t->sites <= RUNS_MOST + 1; i++) {
        if (t->site[l->host_of[i]] != t->site[l->host_of[i - 1]]) add(text, " site=%d", i);
    }
}

static void end_line(char *text)
{
    if (*text && text[strlen(text) - 1] != '\n') add(text, "\n");
}

static void tuning_free(links *l, tuning *t)
{
    free(l->host_of);
    free(l->first);
    free(l->latency);
    free(l->rate);
    free(t->faster);
    free(t->site);
}

/* The lines of a tuning file, and notes on what it lacks. */
static void tuning_text(const links *l, const tuning *t, const near_link *near, char *text, char *notes)
{
    const double rate = t->slowest > 0 ? t->slowest : near->rate;

    *text = *notes = '\0';
    add_number(text, "latency=", near->latency * 1e6, "us");
    add_number(text, " overhead=", near->overhead * 1e6, "us");
    if (rate > 0) add_number(text, " gbit=", rate * 8e-9, "");
    if (near->reduce > 0) add_number(text, " reduce=", near->reduce * 1e-9, "GB/s");
    end_line(text);
    add_rates(text, notes, l, t);
    end_line(text);
    add_sites(text, notes, l, t);
    end_line(text);
}

#endif /* CHECK_TUNING_H */
