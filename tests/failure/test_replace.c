/* test_replace.c - one job of eight ranks, whose processes are killed at random moments, that of rank 0 too, and replaced by
 * spare ones that wait: the sums are right after each replacement, and the others keep their ranks, memory and descriptors.
 *
 *     test_replace [KILLS] [WORLD,...]  KILLS: how many processes (default: 16); WORLD: tcp, tls, memory, threads
 *
 * In `threads` a process has two ranks, each of which joins by itself: one may be taken while the other waits.
 *
 * A kill comes at any moment of the steps.  Sometimes a second process is killed: that of rank 0 or of another one during the
 * coll_replace, a spare one while it joins, or those of rank 0 and another one at once.  No rank waits for one that was killed.
 * At the end of `tcp` rank 0 is stopped.  COLL_TEST_SEED: other moments. */
#define _GNU_SOURCE
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/counting_allocator.h"

#include <dirent.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <poll.h>

enum { RANKS = 8, SPARES = 3, RANKS_MOST = RANKS + 2 * SPARES, LIVING = RANKS_MOST + SPARES + 5, KILLS_MOST = 1000,
       WORLDS_MOST = 6 * KILLS_MOST, LIVENESS_MS = 3000, START_MS = 20000, JOIN_MS = 60000, STEPS_LEAST = 12, COUNT_MOST = 5000,
       SETTLED = 5,                               /* worlds until the last decisions are kept (coll_tcp_shrink.h) */
       STEADY = RANKS - 1,                        /* its process is never killed                              */
       RSS_MORE_KB = 1024 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true                         /* they keep memory that was freed                          */
#else
#define IS_SANITIZED false
#endif

/* each: ranks of a process. */
static const struct mode { const char *name, *security, *key; int share, each; bool is_tls; } modes[] = {
    { "tcp", "key", "a key of sixteen bytes", COLL_OFF, 1, false },
    { "tls", "tls", "a key of sixteen bytes", COLL_OFF, 1, true },
    { "memory", "open", NULL, COLL_ON, 1, false },
    { "threads", "open", NULL, COLL_DEFAULT, 2, false },
};
enum { MODE_COUNT = sizeof modes / sizeof *modes };

/* What a rank says of itself.  Those of a process are side by side. */
typedef struct member {
    pid_t pid;                                    /* 0: none                                                  */
    int   number, port, holder;                   /* its number, where it listens, and what holds the port    */
    int   is_member, is_done;                     /* it has been in a world; in the last one                  */
    int   rank, size, steps, epoch;               /* in its last world, of that number                        */
} member;

/* What a process has, at the least moment of a world: others may connect. */
typedef struct taken { int descriptors; long bytes; } taken;

/* A rank, in its process.  above: in how many worlds one after the other it had more descriptors than in `first`. */
typedef struct part {
    pthread_t   thread;
    coll_comm  *comm;
    member     *me;
    const char *list, *ports;                     /* the ranks it asks; where it may listen                     */
    taken       first;
    int         above;
} part;

static struct board {
    member   of[LIVING];
    int      waiting;                             /* spare ones, as rank 0 has seen last                      */
    int      is_over;
    int      worlds;                              /* that the steady rank has finished                        */
    taken    of_worlds[WORLDS_MOST];              /* of it, in each                                           */
    long     rss_kb[WORLDS_MOST];
} *board;

static char where[64];
static const struct mode *mode;
static uint64_t seed;
static int kills_wanted = 16;
static counter own;                               /* of a process                                             */

/* ---- >>a rank ---- */

static int descriptors_open(void)
{
    DIR *const all = support_need(opendir("/proc/self/fd"));
    int count = 0;

    while (readdir(all)) count++;
    closedir(all);
    return count;
}

/* What is resident, without free memory that malloc would keep: how much that is depends on the order of the calls. */
static long resident_kb(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
    FILE *const all = support_need(fopen("/proc/self/statm", "r"));
    long pages = 0, shared = 0;                   /* shared: with other ranks, as messages have needed it     */

    CHECK(fscanf(all, "%*d %ld %ld", &pages, &shared) == 2, "%s: no statm", case_name);
    (void)fclose(all);
    return (pages - shared) * (sysconf(_SC_PAGESIZE) / 1024);
}

/* One step of all ranks.  The sums depend on which ones are here. */
static coll_status step(coll_comm *comm, int me, const int32_t *ids, int number)
{
    const size_t count = 1 + support_mix((uint64_t)number) % COUNT_MOST;
    const int size = coll_size(comm);
    static __thread int32_t x[COUNT_MOST], to[RANKS_MOST];
    static __thread float sum[COUNT_MOST];
    int wrong = 0;

    for (size_t i = 0; i < count; i++) sum[i] = (float)(me % 1000) + (float)(i % 1000);
    coll_status status = coll_allreduce(comm, COLL_IN_PLACE, sum, count, COLL_F32, COLL_SUM);
    int total = 0;
    for (int i = 0; i < size; i++) total += ids[i] % 1000;
    for (size_t i = 0; status == COLL_OK && i < count; i++) wrong += sum[i] != (float)(total + size * (int)(i % 1000));
    for (size_t i = 0; i < count; i++) x[i] = me * 1000 + (int)i;
    if (status == COLL_OK) status = coll_broadcast(comm, x, count, COLL_I32, number % size);
    for (size_t i = 0; status == COLL_OK && i < count; i++) wrong += x[i] != ids[number % size] * 1000 + (int)i;
    for (int i = 0; i < size; i++) x[i] = me * RANKS_MOST + i;
    const coll_call all = { .kind = COLL_ALLTOALL, .send = x, .recv = to, .count = 1, .type = COLL_I32, .algorithm = "direct" };
    if (status == COLL_OK) status = coll_run(comm, &all);         /* it needs all connections                 */
    for (int i = 0; status == COLL_OK && i < size; i++) wrong += to[i] != ids[i] * RANKS_MOST + coll_rank(comm);
    if (wrong == 0) return status;
    fprintf(stderr, "%s: member %d, step %d: %d wrong values\n", case_name, me, number, wrong);
    exit(5);
}

/* Work until a rank dies, or all is over.  *epoch: the number of this world, which ranks that are new do not know. */
static coll_status work(coll_comm *comm, member *me, int32_t *epoch, taken *least, bool *is_over)
{
    int32_t ids[RANKS_MOST], id = me->number, over = 0;
    coll_status status = coll_allreduce(comm, COLL_IN_PLACE, epoch, 1, COLL_I32, COLL_MAX);

    if (status == COLL_OK) status = coll_allgather(comm, &id, ids, 1, COLL_I32);
    __atomic_store_n(&me->steps, 0, __ATOMIC_SEQ_CST);
    if (status < 0) return status;
    __atomic_store_n(&me->rank, coll_rank(comm), __ATOMIC_SEQ_CST);
    __atomic_store_n(&me->size, coll_size(comm), __ATOMIC_SEQ_CST);
    __atomic_store_n(&me->epoch, *epoch, __ATOMIC_SEQ_CST);
    __atomic_store_n(&me->is_member, 1, __ATOMIC_SEQ_CST);
    for (int number = 1; status == COLL_OK && !over; number++) {
        status = step(comm, me->number, ids, number);
        if (status == COLL_OK) __atomic_store_n(&me->steps, number, __ATOMIC_SEQ_CST);
        const int waiting = coll_waiting(comm), descriptors = descriptors_open() - waiting;
        const long bytes = __atomic_load_n(&own.bytes, __ATOMIC_RELAXED);
        if (coll_rank(comm) == 0) __atomic_store_n(&board->waiting, waiting, __ATOMIC_SEQ_CST);
        if (status == COLL_OK && (number == 1 || descriptors < least->descriptors)) least->descriptors = descriptors;
        if (status == COLL_OK && (number == 1 || bytes < least->bytes)) least->bytes = bytes;
        over = __atomic_load_n(&board->is_over, __ATOMIC_SEQ_CST);
        if (status == COLL_OK) status = coll_broadcast(comm, &over, 1, COLL_I32, 0);
        if (status == COLL_OK && !over && coll_size(comm) < RANKS) break;
    }
    *is_over = over;
    return status;
}

/* The ranks of those that live have not changed. */
static bool keeps_ranks(coll_comm *before, coll_comm *after)
{
    bool is_kept = coll_rank(after) == coll_rank(before);

    for (int i = 0; is_kept && i < coll_size(after); i++) is_kept = (unsigned)(coll_former_rank(after, i) + 1) <= RANKS
        && (coll_former_rank(after, i) == i || coll_former_rank(after, i) == COLL_RANK_NONE);
    return is_kept;
}

static void report_ranks(coll_comm *before, coll_comm *after)
{
    char text[200] = "";

    for (int i = 0; i < coll_size(after); i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %d", coll_former_rank(after, i));
    fprintf(stderr, "%s: rank %d is rank %d; ranks were%s\n", case_name, coll_rank(before), coll_rank(after), text);
}

/* The next world.  After a failure the lost are replaced, unless more than RANKS are left.  If fewer have come, for they died
 * while they joined, the job grows, by all that wait. */
static coll_status go_on(coll_comm **comm, coll_status status)
{
    const int size = coll_size(*comm);
    coll_comm *next = NULL;

    if (status == COLL_OK) status = coll_grow(*comm, &next);
    for (int tries = 0; status == COLL_ERR_PEER && tries < 5; tries++)
        status = size > RANKS ? coll_shrink(*comm, &next) : coll_replace(*comm, &next);
    if (status < 0 || !next) return status;
    if (size == RANKS && coll_size(next) == RANKS && !keeps_ranks(*comm, next))
        return report_ranks(*comm, next), COLL_ERR_SYSTEM;
    coll_free(*comm);
    *comm = next;
    return COLL_OK;
}

/* The steady rank writes what its process has had in each world.  A process of one rank has in none more descriptors than in an
 * early one, in three worlds one after the other: in one of them a spare process may connect all the time.  Rank 0 has more
 * connections. */
static void note_world(part *own_part, int worlds, const taken *now)
{
    const member *const me = own_part->me;

    if (me->number == STEADY) {
        board->of_worlds[worlds] = *now;
        board->rss_kb[worlds] = resident_kb();
        __atomic_store_n(&board->worlds, worlds + 1, __ATOMIC_SEQ_CST);
    }
    if (worlds <= SETTLED || me->rank == 0) own_part->first = *now;
    own_part->above = now->descriptors > own_part->first.descriptors ? own_part->above + 1 : 0;
    if (own_part->above < 3 || mode->each > 1) return;
    fprintf(stderr, "%s: member %d had %d descriptors in its world %d, and %d in its world %d\n", case_name, me->number,
            own_part->first.descriptors, SETTLED, now->descriptors, worlds);
    exit(6);
}

static const coll_allocator counting = { counter_allocate, counter_free, &own };

static coll_config config_of(const part *p)
{
    return (coll_config){ .address = p->me->number == 0 ? where : p->list, .rank = p->me->number, .size = RANKS, .elastic = RANKS,
                          .start_timeout_ms = p->me->number < RANKS ? START_MS : JOIN_MS, .liveness_timeout_ms = LIVENESS_MS,
                          .log_level = COLL_LOG_NONE, .allocator = &counting,
                          .tcp = { .io = "poll", .security = mode->security, .key = mode->key, .share_memory = mode->share,
                                   .ports = p->me->number == 0 && mode->each == 1 ? NULL : p->ports } };
}

/* If it fails, so does its process. */
static void *part_main(void *at)
{
    part *const p = at;
    member *const me = p->me;
    const coll_config config = config_of(p);
    int32_t epoch = 0;
    bool is_over = false;
    taken least = { .descriptors = 0 };

    coll_status status = p->comm ? COLL_OK : coll_join(&p->comm, &config);
    for (int settled = 0; status == COLL_OK && !is_over;) {
        epoch++;
        status = work(p->comm, me, &epoch, &least, &is_over);
        if (me->size == RANKS && me->steps >= STEPS_LEAST) note_world(p, settled++, &least);
        if (!is_over && (status == COLL_OK || status == COLL_ERR_PEER)) status = go_on(&p->comm, status);
    }
    if (status < 0) {
        fprintf(stderr, "%s: member %d: %d: %s\n", case_name, me->number, (int)status, coll_error(p->comm));
        _exit(1);
    }
    coll_free(p->comm);
    __atomic_store_n(&me->is_done, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int process_main(member *first, const char *list)
{
    part parts[RANKS] = { { .me = first } };
    coll_comm *comms[RANKS] = { NULL };
    char ports[24];

    snprintf(ports, sizeof ports, "%d-%d", first->port, first->port + mode->each - 1);
    for (int i = 0; i < mode->each; i++) parts[i] = (part){ .me = &first[i], .list = list, .ports = ports };
    const coll_config config = config_of(&parts[0]);
    const coll_status status = first->number >= RANKS ? COLL_OK : mode->each > 1 ? coll_init_threads(mode->each, comms, &config)
                               : coll_init(&comms[0], &config);
    if (status < 0) return fprintf(stderr, "%s: member %d: %s\n", case_name, first->number, coll_error(NULL)), 1;
    for (int i = 0; i < mode->each; i++) {
        parts[i].comm = comms[i];
        if (pthread_create(&parts[i].thread, NULL, part_main, &parts[i])) return 4;
    }
    for (int i = 0; i < mode->each; i++) pthread_join(parts[i].thread, NULL);
    return own.blocks == 0 ? 0 : 3;
}

/* ---- >>the processes ---- */

static int starts;

static bool is_member(const member *p) { return p->pid && __atomic_load_n(&p->is_member, __ATOMIC_SEQ_CST); }

/* The first of its process. */
static member *first_of(member *p) { return board->of + (p - board->of) / mode->each * mode->each; }

static int members_of(member *p)
{
    int count = 0;

    for (int i = 0; i < mode->each; i++) count += is_member(first_of(p) + i);
    return count;
}

static member *find_spare(void)
{
    member *spares[LIVING];
    int count = 0;

    for (member *p = board->of; p < board->of + LIVING; p++) if (p->pid && !is_member(p)) spares[count++] = p;
    return count ? spares[support_random(&seed) % (unsigned)count] : NULL;
}

/* `count` ports side by side. */
static void reserve_ports(member *first, int count)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int one = 1;
    char at[64];
    int held = 0;

    while (held < count) {
        first->holder = support_reserve_port(at, sizeof at);
        first->port = atoi(strrchr(at, ':') + 1);
        for (held = 1; held < count; held++) {
            member *const p = &first[held];
            p->port = first->port + held;
            name.sin_port = htons((uint16_t)p->port);
            p->holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (p->port < 65536 && setsockopt(p->holder, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0
                && bind(p->holder, (struct sockaddr *)&name, sizeof name) == 0) continue;
            for (int i = 0; i <= held; i++) close(first[i].holder);
            break;
        }
    }
    if (first->number == 0) memcpy(where, at, sizeof where);
}

/* A process that joins gets the addresses of those that are in the job. */
static void start(void)
{
    char list[800] = "";
    member *first = board->of;

    while (first->pid) first += mode->each;
    for (int i = 0; i < mode->each; i++) first[i] = (member){ .number = starts++ };
    reserve_ports(first, mode->each);
    if (first->number < RANKS) snprintf(list, sizeof list, "%s", where);
    for (member *p = board->of; first->number >= RANKS && p < board->of + LIVING; p++)
        if (members_of(p)) snprintf(list + strlen(list), sizeof list - strlen(list), "%s127.0.0.1:%d", *list ? "," : "", p->port);
    const pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(process_main(first, list));
    }
    for (int i = 0; i < mode->each; i++) first[i].pid = child;
}

/* A process that has ended: by its number, 0 if it was killed. */
static void bury(member *p, bool was_killed)
{
    member *const first = first_of(p);
    int status = 0;

    const bool is_right = waitpid(first->pid, &status, 0) == first->pid
        && (was_killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
    CHECK(is_right, "%s: the process of member %d ended with %#x", case_name, first->number, (unsigned)status);
    for (int i = 0; i < mode->each; i++) {
        close(first[i].holder);
        first[i].pid = 0;
    }
}

/* Has a process ended that was not killed? */
static bool has_lost_one(void)
{
    siginfo_t info = { .si_pid = 0 };

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid != 0;
}

static int count_spares(void)
{
    int count = 0;

    for (const member *p = board->of; p < board->of + LIVING; p++) count += p->pid && !is_member(p);
    return count;
}

/* Wait until all ranks have taken some steps in one world, and spare ones wait.  Returns the number of that world, or -1. */
static int await_world(int last)
{
    for (; !has_lost_one(); poll(NULL, 0, 1)) {
        int ready = 0, epoch = -1, size = -1;
        for (const member *p = board->of; p < board->of + LIVING; p++) {
            const int steps = __atomic_load_n(&p->steps, __ATOMIC_SEQ_CST), its = __atomic_load_n(&p->epoch, __ATOMIC_SEQ_CST);
            if (!is_member(p) || steps < STEPS_LEAST || its <= last || (epoch >= 0 && its != epoch)) continue;
            size = __atomic_load_n(&p->size, __ATOMIC_SEQ_CST);
            epoch = its;
            ready++;
        }
        while (count_spares() < SPARES) start();
        if (ready >= RANKS && ready == size && __atomic_load_n(&board->waiting, __ATOMIC_SEQ_CST) >= SPARES) return epoch;
    }
    return -1;
}

static member *find_rank(int rank)
{
    pid_t steady = 0;

    for (const member *p = board->of; p < board->of + LIVING; p++) if (p->pid && p->number == STEADY) steady = p->pid;
    for (member *p = board->of; p < board->of + LIVING; p++)
        if (is_member(p) && p->rank == rank && p->pid != steady) return p;
    return NULL;
}

static void pause_us(uint64_t most)
{
    const struct timespec time = { .tv_nsec = (long)(support_random(&seed) % (most * 1000)) };

    (void)nanosleep(&time, NULL);
}

static void kill_one(member *p, member **dead, int *count)
{
    for (int i = 0; i < *count; i++) if (p && dead[i]->pid == p->pid) return;
    if (!p) return;
    kill(p->pid, SIGKILL);
    dead[(*count)++] = p;
}

/* One or two processes are killed, but not half of the ranks.  Returns how many ranks that were. */
static int kill_some(int rank)
{
    enum { SPARE_DIES = 3, SPARE_TOO, ROOT_DIES, OTHER_DIES, BOTH_DIE, KINDS = 10 };
    const int other = 1 + (int)(support_random(&seed) % (unsigned)(RANKS - 1 - mode->each));
    const uint64_t kind = support_random(&seed) % KINDS;
    member *dead[4];
    int count = 0, members = 0;

    member *const first = find_rank(kind == BOTH_DIE ? 0 : rank);
    member *second = kind == SPARE_DIES || kind == SPARE_TOO ? find_spare() : find_rank(kind == ROOT_DIES ? 0 : other);
    if (first && second && 2 * (members_of(first) + members_of(second)) >= RANKS) second = NULL;
    pause_us(15000);
    kill_one(first, dead, &count);
    if (kind >= SPARE_DIES && kind < BOTH_DIE) pause_us(support_random(&seed) % 2 ? 10000 : 60000);
    if (kind >= SPARE_DIES && kind <= BOTH_DIE) kill_one(second, dead, &count);
    for (int i = 0; i < count; i++) members += members_of(dead[i]);
    __atomic_store_n(&board->waiting, 0, __ATOMIC_SEQ_CST);
    for (int i = 0; i < count; i++) bury(dead[i], true);
    return members;
}

/* What the steady rank's process has had does not grow: the second half of its worlds is compared with the first. */
static void check_flat(int kills, int slowest)
{
    const int worlds = board->worlds, half = (SETTLED + worlds) / 2;
    int descriptors[2] = { 0, 1 << 30 };          /* the most, then the least                                 */
    long most[2] = { 0, 0 }, least[2] = { 1L << 60, 1L << 60 }, rss[2] = { 0, 0 };

    for (int i = SETTLED; i < worlds; i++) {
        const int k = i >= half;
        const taken *const t = &board->of_worlds[i];
        if (k ? t->descriptors < descriptors[1] : t->descriptors > descriptors[0]) descriptors[k] = t->descriptors;
        if (t->bytes > most[k]) most[k] = t->bytes;
        if (t->bytes < least[k]) least[k] = t->bytes;
        if (board->rss_kb[i] > rss[k]) rss[k] = board->rss_kb[i];
    }
    printf("%s: %d kills, the slowest replacement in %d ms; the process of member %d in %d worlds, first half and second half: "
           "descriptors %d, %d; allocated %ld to %ld B, %ld to %ld B; resident %ld KiB, %ld KiB\n", case_name, kills, slowest,
           STEADY, worlds, descriptors[0], descriptors[1], least[0], most[0], least[1], most[1], rss[0], rss[1]);
    CHECK(slowest < support_scaled(LIVENESS_MS), "%s: %d ms, though no process was silent", case_name, slowest);
    if (half <= SETTLED) return;
    CHECK(descriptors[1] <= descriptors[0], "%s: %d descriptors, then %d", case_name, descriptors[0], descriptors[1]);
    CHECK(least[1] <= most[0], "%s: at most %ld bytes, then at least %ld", case_name, most[0], least[1]);
    CHECK(IS_SANITIZED || rss[1] <= rss[0] + RSS_MORE_KB * mode->each, "%s: %ld KiB were resident, then %ld", case_name, rss[0],
          rss[1]);
}

/* Rank 0 is silent, so that the spare processes that wait there must find the next one.  Returns the number of the next world. */
static int stop_root(int epoch)
{
    member *const root = find_rank(0);

    kill(root->pid, SIGSTOP);
    __atomic_store_n(&board->waiting, 0, __ATOMIC_SEQ_CST);
    const int next = await_world(epoch);
    kill(root->pid, SIGKILL);
    bury(root, true);
    return next;
}

static void run_kills(const void *at)
{
    int kills = 0, epoch = 0, slowest = 0;
    int64_t killed_at = 0;

    mode = at;
    seed = support_seed();
    memset(board, 0, sizeof *board);
    while (starts < RANKS) start();
    for (int i = 0; i < RANKS; i++) while (!is_member(&board->of[i]) && !has_lost_one()) poll(NULL, 0, 1);
    for (int n = 0; (epoch = await_world(epoch)) >= 0; n++) {
        if (n > 0 && now_ms() - killed_at > slowest) slowest = (int)(now_ms() - killed_at);
        if (kills >= kills_wanted * mode->each) break;
        kills += kill_some(n % 4 == 0 ? 0 : (int)(support_random(&seed) % (unsigned)(RANKS - mode->each)));
        killed_at = now_ms();
    }
    if (epoch >= 0 && mode == modes) epoch = stop_root(epoch);
    CHECK(epoch >= 0, "%s: a process has ended after %d kills", case_name, kills);
    if (epoch < 0) return;
    __atomic_store_n(&board->is_over, 1, __ATOMIC_SEQ_CST);
    for (member *p = board->of; p < board->of + LIVING; p += mode->each) {
        if (!p->pid) continue;
        const bool waits = members_of(p) < mode->each;            /* and no rank takes it any more            */
        for (int i = 0; waits && i < mode->each; i++)
            while (is_member(&p[i]) && !__atomic_load_n(&p[i].is_done, __ATOMIC_SEQ_CST)) poll(NULL, 0, 1);
        if (waits) kill(p->pid, SIGKILL);
        bury(p, waits);
    }
    check_flat(kills, slowest);
}

static bool is_there(const struct mode *m)
{
#if defined(COLL_WITH_OPENSSL)
    return m != NULL;
#else
    return !m->is_tls;
#endif
}

int main(int argc, char **argv)
{
    const char *const list = argc > 2 ? argv[2] : argc > 1 && !atoi(argv[1]) ? argv[1] : NULL;

    if (argc > 1 && atoi(argv[1]) > 0) kills_wanted = atoi(argv[1]) < KILLS_MOST ? atoi(argv[1]) : KILLS_MOST;
    cases_begin_without_key();
    printf("COLL_TEST_SEED=%llu\n", (unsigned long long)support_seed());
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < MODE_COUNT; i++) {
        if (!support_listed(list, modes[i].name) || !is_there(&modes[i])) continue;
        run_case_within(30 + 4 * (unsigned)(kills_wanted * modes[i].each), run_kills, &modes[i], modes[i].name);
    }
    return CHECK_DONE();
}
