/* coll_sim_text.h - what a simulated world is to be: from the program's coll_sim, or from the text in COLL_SIM. */
#ifndef COLL_SIM_TEXT_H
#define COLL_SIM_TEXT_H

enum { COLL__SIM_FAULTS_MOST = 32 };

typedef struct coll__sim_settings {
    coll_sim       config;
    coll_sim_fault faults[COLL__SIM_FAULTS_MOST]; /* of the text                                              */
    int            hosts;                         /* of the text; 0: not said                                 */
} coll__sim_settings;

/* Zero would mean the default: what is said to be none is kept as less than none. */
static inline double coll__sim_said(double value) { return value > 0 ? value : -1; }

static bool coll__sim_rank_of(const char **at, int size, int *out)
{
    double value;

    if (!coll__read_number(at, &value) || value >= size) return false;
    *out = (int)value;
    return true;
}

/* kill=3@120   stop=3@1.5ms   cut=4-7@1ms   lose=2>1@5   late=2>1@5+3ms   pieces=2>1   (no @: all messages) */
static bool coll__sim_read_fault(coll_sim_fault *f, const char **at, int size)
{
    bool is_time = false;
    double value = 0;

    f->peer = -1;
    if (!coll__sim_rank_of(at, size, &f->rank)) return false;
    if (f->kind == COLL_SIM_CUT) f->peer = f->rank;
    if (f->kind > COLL_SIM_STOP && **at == (f->kind == COLL_SIM_CUT ? '-' : '>')) {
        ++*at;
        if (!coll__sim_rank_of(at, size, &f->peer)) return false;
    }
    if (**at == '@') {
        ++*at;
        if (!coll__read_measure(at, coll__times, &value, &is_time)) return false;
    }
    if (is_time || f->kind == COLL_SIM_CUT) f->time = value;
    else if (value >= 0 && value < 1e18) f->number = (uint64_t)value;
    if (f->kind != COLL_SIM_LATE) return true;
    if (**at != '+') return false;
    ++*at;
    return coll__read_measure(at, coll__times, &f->amount, NULL);
}

/* One "key=value"; *at is behind the "=". */
static bool coll__sim_read_value(coll__sim_settings *s, const char *key, size_t length, const char **at, int size)
{
    static const char *const faults[] = { "kill", "stop", "cut", "lose", "late", "pieces" };
    coll_sim *c = &s->config;
    const struct { const char *name; double *out; const coll__unit *units; bool is_rate; } all[] = {
        { "latency", &c->latency, coll__times, false },       { "overhead", &c->overhead, coll__times, false },
        { "local_latency", &c->local_latency, coll__times, false }, { "jitter", &c->jitter, coll__times, false },
        { "detection", &c->detection, coll__times, false },   { "wire", &c->seconds_per_byte, coll__rates, true },
        { "reduce", &c->seconds_per_byte_reduced, coll__rates, true },
        { "local", &c->local_seconds_per_byte, coll__rates, true }
    };
    double value;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strlen(all[i].name) != length || strncmp(key, all[i].name, length)) continue;
        if (!coll__read_measure(at, all[i].units, &value, NULL)) return false;
        *all[i].out = coll__sim_said(all[i].is_rate && value > 0 ? 1 / value : value);
        return true;
    }
    for (int i = 0; i < (int)(sizeof faults / sizeof *faults); i++) {
        if (strlen(faults[i]) != length || strncmp(key, faults[i], length)) continue;
        if (c->fault_count == COLL__SIM_FAULTS_MOST) return false;
        s->faults[c->fault_count].kind = (coll_sim_fault_kind)(i + COLL_SIM_KILL);
        return coll__sim_read_fault(&s->faults[c->fault_count++], at, size);
    }
    if (!coll__read_measure(at, coll__sizes, &value, NULL) || value > 1e15) return false;
    if (length == 4 && !strncmp(key, "gbit", 4)) c->seconds_per_byte = coll__sim_said(value > 0 ? 8e-9 / value : 0);
    else if (length == 5 && !strncmp(key, "hosts", 5)) s->hosts = value < size ? (int)value : size;
    else if (length == 8 && !strncmp(key, "per_host", 8)) c->ranks_per_host = value < size ? (int)value : size;
    else if (length == 8 && !strncmp(key, "capacity", 8)) c->capacity = value < 1 ? -1 : value < 1e9 ? (int)value : 0;
    else if (length == 4 && !strncmp(key, "seed", 4)) c->seed = (uint64_t)value;
    else if (length == 5 && !strncmp(key, "stack", 5)) c->stack = (size_t)value;
    else return false;
    return true;
}

static coll_status coll__sim_read(coll__sim_settings *s, const char *text, int size)
{
    for (const char *at = text; *at;) {
        if (*at == ' ' || *at == ',') {
            at++;
            continue;
        }
        const char *const begin = at, *const is = strchr(at, '=');
        const size_t word = strcspn(at, " ,");
        if (is) at = is + 1;
        if (!is || is > begin + word || !coll__sim_read_value(s, begin, (size_t)(is - begin), &at, size)
            || (*at && *at != ' ' && *at != ','))
            return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_SIM: \"%.*s\" makes no sense for %d ranks (see Simulation in "
                                      "coll.h)", (int)word, begin, size);
    }
    if (s->hosts) s->config.ranks_per_host = (size + s->hosts - 1) / s->hosts;
    if (s->config.fault_count) s->config.faults = s->faults;
    return COLL_OK;
}

static inline double coll__sim_default(double value, double otherwise) { return value > 0 ? value : value < 0 ? 0 : otherwise; }

/* The program's wishes, or else those in COLL_SIM, with the defaults filled in. */
static coll_status coll__sim_settle(coll__sim_settings *s, const coll_sim *given, int size)
{
    coll_sim *c = &s->config;
    const char *text = getenv("COLL_SIM");

    memset(s, 0, sizeof *s);
    if (given) *c = *given;
    const coll_status status = !given && text ? coll__sim_read(s, text, size) : COLL_OK;
    if (status < 0) return status;
    c->latency = coll__sim_default(c->latency, 12e-6);
    c->overhead = coll__sim_default(c->overhead, 4e-6);
    c->seconds_per_byte = coll__sim_default(c->seconds_per_byte, 0.5e-9);
    c->seconds_per_byte_reduced = coll__sim_default(c->seconds_per_byte_reduced, 0.1e-9);
    c->local_latency = coll__sim_default(c->local_latency, 0.5e-6);
    c->local_seconds_per_byte = coll__sim_default(c->local_seconds_per_byte, 0.1e-9);
    c->jitter = coll__sim_default(c->jitter, 0);
    c->detection = coll__sim_default(c->detection, 1e-3);
    if (c->ranks_per_host <= 0) c->ranks_per_host = 1;
    if (c->seed == 0) c->seed = 1;
    for (int i = 0; i < c->fault_count; i++) {
        const coll_sim_fault *f = &c->faults[i];
        if (f->kind < COLL_SIM_KILL || f->kind > COLL_SIM_PIECES || f->rank < 0 || f->rank >= size || f->peer >= size)
            return coll__start_failed(COLL_ERR_ARGUMENT, "coll_sim: fault %d makes no sense for %d ranks", i, size);
    }
    return COLL_OK;
}

#endif /* COLL_SIM_TEXT_H */
