/* coll_sim_text.h - the configuration of a simulated world: the program's coll_sim, or the text in COLL_SIM. */
#ifndef COLL_SIM_TEXT_H
#define COLL_SIM_TEXT_H

enum { COLL__SIM_FAULTS_MOST = 32 };

typedef struct coll__sim_settings {
    coll_sim       config;
    coll_sim_fault faults[COLL__SIM_FAULTS_MOST]; /* of the text                                              */
    int            hosts, sites;                  /* of the text; 0: not given                                */
    int            size;                          /* ranks                                                    */
} coll__sim_settings;

/* ---- >>COLL_SIM: its keywords ---- */

static bool coll__sim_rank_of(const char **at, int size, int *out)
{
    double value;

    if (!coll__read_number(at, &value) || value >= size) return false;
    *out = (int)value;
    return true;
}

/* kill=3@120   stop=3@1.5ms   cut=4-7@1ms   lose=2>1@5   late=2>1@5+3ms   (no @: all messages)   slow=3:0.5@1ms */
static bool coll__sim_read_fault(coll_sim_fault *f, const char **at, int size)
{
    bool is_time = false;
    double value = 0;

    f->peer = -1;
    if (!coll__sim_rank_of(at, size, &f->rank)) return false;
    if (f->kind == COLL_SIM_CUT) f->peer = f->rank;
    if (f->kind == COLL_SIM_SLOW && (*(*at)++ != ':' || !coll__read_number(at, &f->amount))) return false;
    if (f->kind > COLL_SIM_STOP && f->kind < COLL_SIM_SLOW && **at == (f->kind == COLL_SIM_CUT ? '-' : '>')) {
        ++*at;
        if (!coll__sim_rank_of(at, size, &f->peer)) return false;
    }
    if (**at == '@') {
        ++*at;
        if (!coll__read_measure(at, coll__times, &value, &is_time)) return false;
    }
    if (is_time || f->kind == COLL_SIM_CUT || f->kind == COLL_SIM_SLOW) f->time = value;
    else if (value >= 0 && value < 1e18) f->number = (uint64_t)value;
    if (f->kind != COLL_SIM_LATE) return true;
    if (**at != '+') return false;
    ++*at;
    return coll__read_measure(at, coll__times, &f->amount, NULL);
}

/* Reads a fault of kind word->at. */
static bool coll__sim_take_fault(void *fields, const coll__word *word, const char **at)
{
    coll__sim_settings *const s = (coll__sim_settings *)fields;
    coll_sim_fault *const f = &s->faults[s->config.fault_count];

    if (s->config.fault_count == COLL__SIM_FAULTS_MOST) return false;
    f->kind = (coll_sim_fault_kind)word->at;
    s->config.fault_count++;
    return coll__sim_read_fault(f, at, s->size);
}

/* Reads a whole number into field word->at.  There are at most as many hosts as ranks. */
static bool coll__sim_take_whole(void *fields, const coll__word *word, const char **at)
{
    coll__sim_settings *const s = (coll__sim_settings *)fields;
    double value;

    if (!coll__read_measure(at, coll__sizes, &value, NULL) || value > 1e15) return false;
    const int count = value < s->size ? (int)value : s->size;
    switch (word->at) {
    case offsetof(coll__sim_settings, hosts):                 s->hosts = count; break;
    case offsetof(coll__sim_settings, sites):                 s->sites = count; break;
    case offsetof(coll__sim_settings, config.ranks_per_host): s->config.ranks_per_host = count; break;
    case offsetof(coll__sim_settings, config.seed):           s->config.seed = (uint64_t)value; break;
    case offsetof(coll__sim_settings, config.stack):          s->config.stack = (size_t)value; break;
    default: s->config.capacity = value < 1 ? -1 : value < 1e9 ? (int)value : 0;
    }
    return true;
}

#define COLL__SIM_TIME(name, field) COLL__TAKE_TIME(name, coll__sim_settings, config.field, COLL__WORD_ZERO_IS_NONE, 1e18)
#define COLL__SIM_RATE(name, field) COLL__TAKE_RATE(name, coll__sim_settings, config.field, COLL__WORD_ZERO_IS_NONE, 0)
#define COLL__SIM_WHOLE(name, looks, field) \
    { name, looks, coll__sim_take_whole, offsetof(coll__sim_settings, field), 0, NULL, 0, 0 }
#define COLL__SIM_FAULT(name, looks, kind) { name, looks, coll__sim_take_fault, kind, 0, NULL, 0, 0 }

static const coll__word coll__sim_words[] = {
    COLL__SIM_TIME("latency",       latency),
    COLL__SIM_TIME("overhead",      overhead),
    COLL__SIM_TIME("local_latency", local_latency),
    COLL__SIM_TIME("far_latency",   far_latency),
    COLL__SIM_TIME("jitter",        jitter),
    COLL__SIM_TIME("detection",     detection),
    COLL__SIM_RATE("wire",          seconds_per_byte),
    COLL__SIM_RATE("reduce",        seconds_per_byte_reduced),
    COLL__SIM_RATE("local",         local_seconds_per_byte),
    COLL__SIM_RATE("far",           far_seconds_per_byte),
    COLL__TAKE_GBIT("gbit", coll__sim_settings, config.seconds_per_byte, COLL__WORD_ZERO_IS_NONE, 0),
    COLL__SIM_WHOLE("hosts", "how many hosts there are", hosts),
    COLL__SIM_WHOLE("per_host", "how many ranks a host has", config.ranks_per_host),
    COLL__SIM_WHOLE("sites", "how many sites there are", sites),
    COLL__SIM_WHOLE("capacity", "how many messages a channel holds, 0 or more", config.capacity),
    COLL__SIM_WHOLE("seed", "a number", config.seed),
    COLL__SIM_WHOLE("stack", "a size, like 128KiB", config.stack),
    COLL__SIM_FAULT("kill",   "a rank and its call or a time, like 3@120 or 3@1.5ms", COLL_SIM_KILL),
    COLL__SIM_FAULT("stop",   "a rank and its call or a time, like 3@120 or 3@1.5ms", COLL_SIM_STOP),
    COLL__SIM_FAULT("cut",    "ranks and a time, like 4-7@1ms", COLL_SIM_CUT),
    COLL__SIM_FAULT("lose",   "from a rank to a rank, and which message, like 2>1@5", COLL_SIM_LOSE),
    COLL__SIM_FAULT("late",   "from a rank to a rank, which message, and by how much, like 2>1@5+3ms", COLL_SIM_LATE),
    COLL__SIM_FAULT("slow",   "a rank and the part of its network that is left, like 3:0.5, or 3:0.5@1ms", COLL_SIM_SLOW),
    { .name = NULL }
};

static coll_status coll__sim_read(coll__sim_settings *s, const char *text)
{
    char where[60];
    coll__wrong_word wrong;

    if (!coll__words_read(coll__sim_words, s, text, &wrong)) {
        coll__print(where, sizeof where, "COLL_SIM for %d ranks, and %d faults at most", s->size, COLL__SIM_FAULTS_MOST);
        return coll__words_failed(coll__sim_words, &wrong, where);
    }
    coll_sim *const c = &s->config;
    if (s->hosts) c->ranks_per_host = (s->size + s->hosts - 1) / s->hosts;
    const int each = c->ranks_per_host > 0 ? c->ranks_per_host : 1, hosts = (s->size + each - 1) / each;
    if (s->sites) c->hosts_per_site = (hosts + s->sites - 1) / s->sites;
    if (s->config.fault_count) s->config.faults = s->faults;
    return COLL_OK;
}

/* ---- >>defaults ---- */

static inline double coll__sim_default(double value, double otherwise) { return value > 0 ? value : value < 0 ? 0 : otherwise; }

/* The program's settings, or else those in COLL_SIM, with the defaults filled in. */
static coll_status coll__sim_settle(coll__sim_settings *s, const coll_sim *given, int size)
{
    coll_sim *c = &s->config;
    const char *text = coll__variable("COLL_SIM");

    memset(s, 0, sizeof *s);
    s->size = size;
    if (given) *c = *given;
    const coll_status status = !given && text ? coll__sim_read(s, text) : COLL_OK;
    if (status < 0) return status;
    c->latency = coll__sim_default(c->latency, 12e-6);
    c->overhead = coll__sim_default(c->overhead, 4e-6);
    c->seconds_per_byte = coll__sim_default(c->seconds_per_byte, 0.5e-9);
    c->seconds_per_byte_reduced = coll__sim_default(c->seconds_per_byte_reduced, 0.1e-9);
    c->local_latency = coll__sim_default(c->local_latency, 0.5e-6);
    c->local_seconds_per_byte = coll__sim_default(c->local_seconds_per_byte, 0.1e-9);
    c->far_latency = coll__sim_default(c->far_latency, c->latency);
    c->far_seconds_per_byte = coll__sim_default(c->far_seconds_per_byte, c->seconds_per_byte);
    c->jitter = coll__sim_default(c->jitter, 0);
    c->detection = coll__sim_default(c->detection, 1e-3);
    if (c->ranks_per_host <= 0) c->ranks_per_host = 1;
    if (c->seed == 0) c->seed = 1;
    for (int i = 0; i < c->fault_count; i++) {
        const coll_sim_fault *f = &c->faults[i];
        if (f->kind < COLL_SIM_KILL || f->kind > COLL_SIM_SLOW || f->rank < 0 || f->rank >= size || f->peer >= size
            || (f->kind == COLL_SIM_SLOW && !(f->amount > 0 && f->amount < 1e6)))
            return coll__start_failed(COLL_ERR_ARGUMENT, "coll_sim: fault %d makes no sense for %d ranks", i, size);
    }
    return COLL_OK;
}

#endif /* COLL_SIM_TEXT_H */
