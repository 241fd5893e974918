/* coll_launchers.h - what launchers tell a process by its environment: who it is, how many there are, and where to meet.
 *
 * A launcher is a row of a table: the names under which it writes rank and size.  The first row that is complete counts.  A
 * row that is complete too and says another size is an error that names both, for it is either many worlds of one or ranks
 * that wait for ever; so is half a row, where nothing else says how many ranks there are.  Sizes come only from what describes
 * this very step of a job: SLURM_NTASKS, which is also set in an allocation where somebody starts a program by hand, is not
 * looked at.  The last rows describe hosts or pods, and not processes.  They count where nothing else is complete, for a program
 * that is started once on each; what counts processes beats them in silence.
 *
 * COLL_SIZE=1 needs no rank.  It is how a program says that it is alone, where a variable looks as if it were not.
 *
 * Few launchers say where rank 0 is.  Where all ranks are on one host, a file that is named after the job serves (see
 * coll_tcp_notice.h); under Slurm it is the first host of the step, at a port drawn from the job's number.  Everywhere else the
 * sentence says what is missing.  Only the environment is read, and what belongs to the numbers in it, so all of this is a
 * function of the environment. */
#ifndef COLL_LAUNCHERS_H
#define COLL_LAUNCHERS_H

#include <sys/socket.h>
#include <sys/stat.h>

enum { COLL__SIZE_MOST = 65536, COLL__ADDRESS_ROOM = 300, COLL__WORLD_ROOM = 300, COLL__HOSTS_ROOM = 4096 };

static const struct coll__launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
    const char *job;                              /* what names the job on a host; NULL: nothing does         */
    bool        is_strict;                        /* half of this row is a mistake, not somebody else's word  */
    bool        is_of_hosts;                      /* it counts hosts or pods, which may hold several processes */
    const char *where;                            /* tells a person which host is that of rank 0              */
} coll__launchers[] = {
    { "COLL_RANK and COLL_SIZE", "COLL_RANK",            "COLL_SIZE",            "COLL_LOCAL_RANK",            "COLL_LOCAL_SIZE",
      NULL, true, false, NULL },
    { "torchrun", "RANK",                 "WORLD_SIZE",           "LOCAL_RANK",                 "LOCAL_WORLD_SIZE",
      NULL, true, false, NULL },
    { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
      "PMIX_NAMESPACE", true, false, NULL },
    { "MVAPICH",  "MV2_COMM_WORLD_RANK",  "MV2_COMM_WORLD_SIZE",  "MV2_COMM_WORLD_LOCAL_RANK",  "MV2_COMM_WORLD_LOCAL_SIZE",
      "MPIRUN_ID", true, false, NULL },
    { "Flux",     "FLUX_TASK_RANK",       "FLUX_JOB_SIZE",        "FLUX_TASK_LOCAL_ID",         NULL,
      "FLUX_JOB_ID", false, false, NULL },
    { "PALS",     "PALS_RANKID",          "PMI_SIZE",             "PALS_LOCAL_RANKID",          "PALS_LOCAL_SIZE",
      "PALS_APID", false, false, NULL },
    { "jsrun",    "JSM_NAMESPACE_RANK",   "JSM_NAMESPACE_SIZE",   "JSM_NAMESPACE_LOCAL_RANK",   "JSM_NAMESPACE_LOCAL_SIZE",
      NULL, true, false, NULL },
    { "MPICH",    "PMI_RANK",             "PMI_SIZE",             "MPI_LOCALRANKID",            "MPI_LOCALNRANKS",
      NULL, true, false, NULL },
    { "Slurm",    "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",              NULL,
      NULL, false, false, NULL },
    { "LeaderWorkerSet", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE",    NULL,                         NULL,
      NULL, true, true, "the host is in LWS_LEADER_ADDRESS" },
    { "SkyPilot", "SKYPILOT_NODE_RANK",   "SKYPILOT_NUM_NODES",   NULL,                         NULL,
      NULL, true, true, "the host is the first of SKYPILOT_NODE_IPS" },
    { "AWS Batch", "AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES", NULL,                 NULL,
      NULL, true, true, "the host is that of node 0" },
};
enum { COLL__LAUNCHER_COUNT = sizeof coll__launchers / sizeof *coll__launchers };

/* What the environment says. */
typedef struct coll__launched {
    const char *source;                           /* the name of the launcher, or "nothing in the environment" */
    const struct coll__launcher *by;              /* NULL: none                                               */
    int  rank, size, local_rank, local_size;      /* local_size 0: not said                                   */
    char address[COLL__ADDRESS_ROOM];             /* "": not said                                             */
    char job[COLL__WORLD_ROOM];                   /* tells this job from others; "": not said                 */
    char hosts[COLL__HOSTS_ROOM];                 /* where each rank listens; "": not said                    */
    bool is_on_one_host;                          /* the address is of use on this host only                  */
} coll__launched;

static COLL__PRINTF(2, 3) coll_status coll__start_failed(coll_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(coll__start_error, sizeof coll__start_error, format, list);
    va_end(list);
    return status;
}

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

/* An environment variable, NULL when it is not set or empty. */
static const char *coll__environment(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
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

/* ---- >>lists of hosts ---- */

/* Entry `index` of "a:1,b:2,c:3", without the spaces around it.  false: there is none, or it is longer than the room. */
static bool coll__hosts_entry(const char *hosts, int index, char *out, size_t room)
{
    for (; index > 0; index--) {
        hosts = strchr(hosts, ',');
        if (!hosts++) return false;
    }
    hosts += strspn(hosts, " \t\n");
    size_t length = strcspn(hosts, ",");
    while (length > 0 && strchr(" \t\n", hosts[length - 1])) length--;
    if (length == 0 || length >= room) return false;
    memcpy(out, hosts, length);
    out[length] = '\0';
    return true;
}

static int coll__hosts_count(const char *hosts)
{
    int n = 1;
    for (; *hosts; hosts++) n += *hosts == ',';
    return n;
}

/* The first host of a Slurm list: "node[01-03,7],login2" gives "node01".  What stands behind a bracket belongs to the name:
 * "rack[1-2]-n[3,4]" gives "rack1-n3". */
static bool coll__nodelist_first(const char *list, char *out, size_t room)
{
    size_t n = 0;

    while (*list && *list != ',') {
        if (*list == '[') {
            const char *close = strchr(list, ']');
            const size_t length = strspn(list + 1, "0123456789");
            if (!close || length == 0 || n + length >= room) return false;
            memcpy(out + n, list + 1, length);
            n += length;
            list = close + 1;
        } else if (*list == ']' || n + 1 >= room) {
            return false;
        } else {
            out[n++] = *list++;
        }
    }
    out[n] = '\0';
    return n > 0;
}

/* A host file of MLX, a JSON list with a list of addresses for each rank, [["10.0.0.1:5000"], ["10.0.0.2:5000"]]: the first
 * address of each, with commas between them.  false: it is no such list, or longer than the room. */
static bool coll__mlx_hosts(const char *text, char *out, size_t room)
{
    int depth = 0, taken = 0;
    size_t n = 0;

    for (; *text; text++) {
        if (*text == '[') {
            taken = 0;
            if (++depth > 2) return false;
        } else if (*text == ']') {
            if (--depth < 0 || (depth == 1 && taken == 0)) return false;
        } else if (*text == '"') {
            const size_t length = strcspn(text + 1, "\"");
            if (depth != 2 || !text[1 + length] || memchr(text + 1, ',', length)) return false;
            if (taken++ == 0) {
                if (n + length + 2 > room) return false;
                if (n > 0) out[n++] = ',';
                memcpy(out + n, text + 1, length);
                n += length;
            }
            text += 1 + length;
        } else if (!strchr(", \t\r\n", *text)) {
            return false;
        }
    }
    out[n] = '\0';
    return depth == 0 && n > 0;
}

/* ---- >>who: rank and size ---- */

/* Has the environment this row?  COLL_SIZE=1 is a whole one. */
static bool coll__has_row(const struct coll__launcher *l)
{
    const char *size = coll__environment(l->size);
    int one;

    return size && (coll__environment(l->rank) || (l == &coll__launchers[0] && coll__parse_int(size, 1, 1, &one)));
}

/* One row; *is_complete tells whether the environment has it. */
static coll_status coll__launch_row(coll__launched *out, const struct coll__launcher *l, bool *is_complete)
{
    *is_complete = coll__has_row(l);
    if (!*is_complete) return COLL_OK;
    if (!coll__environment_int(l->size, 1, COLL__SIZE_MOST, &out->size)
        || !coll__environment_int(l->rank, 0, out->size - 1, &out->rank)
        || !coll__environment_int(l->local_rank, 0, out->size - 1, &out->local_rank)
        || (l->local_size && !coll__environment_int(l->local_size, 1, out->size, &out->local_size))) return COLL_ERR_ARGUMENT;
    out->by = l;
    out->source = l->name;
    return COLL_OK;
}

/* MLX tells the rank, and the size as the length of a list. */
static coll_status coll__launch_mlx(coll__launched *out)
{
    const char *path = coll__environment("MLX_HOSTFILE");
    char text[COLL__HOSTS_ROOM];

    if (out->by || !coll__environment("MLX_RANK") || !path) return COLL_OK;
    FILE *file = fopen(path, "re");
    const size_t got = file ? fread(text, 1, sizeof text, file) : 0;
    const int error = !file || ferror(file) ? errno : 0;
    if (file) fclose(file);
    if (error) return coll__start_failed(COLL_ERR_ARGUMENT, "MLX_HOSTFILE=%.160s: %s", path, strerror(error));
    text[got < sizeof text ? got : sizeof text - 1] = '\0';
    if (got == sizeof text || !coll__mlx_hosts(text, out->hosts, sizeof out->hosts))
        return coll__start_failed(COLL_ERR_ARGUMENT, "MLX_HOSTFILE=%.160s is no list like [[\"10.0.0.1:5000\"], "
                                  "[\"10.0.0.2:5000\"]], or longer than %d bytes", path, COLL__HOSTS_ROOM - 1);
    out->size = coll__hosts_count(out->hosts);
    out->source = "MLX";
    return coll__environment_int("MLX_RANK", 0, out->size - 1, &out->rank) ? COLL_OK : COLL_ERR_ARGUMENT;
}

/* COLL_HOSTS says how many there are, so that COLL_RANK is enough beside it. */
static coll_status coll__launch_hosts(coll__launched *out)
{
    const char *hosts = coll__environment("COLL_HOSTS");

    if (!hosts || !coll__environment("COLL_RANK") || coll__environment("COLL_SIZE")) return COLL_OK;
    out->size = coll__hosts_count(hosts);
    out->source = "COLL_HOSTS";
    return coll__environment_int("COLL_RANK", 0, out->size - 1, &out->rank) ? COLL_OK : COLL_ERR_ARGUMENT;
}

/* Variables that somebody sets who starts several processes, and that do not say how many ranks there are.  A pod of an
 * indexed Job of Kubernetes does not learn how many there are, and the one with index 0 is not to train by itself. */
static coll_status coll__launch_signs(void)
{
    static const struct { const char *name, *one, *also_one, *says; } signs[] = {
        { "PMIX_RANK", NULL, NULL, "PMIx has started this process" },
        { "JOB_COMPLETION_INDEX", NULL, NULL, "this is a pod of an indexed Job of Kubernetes" },
        { "PET_NNODES", "1", "1:1", "torchrun was to start several processes on several nodes" },
    };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const char *text = coll__environment(signs[i].name);
        if (!text || (signs[i].one && (!strcmp(text, signs[i].one) || !strcmp(text, signs[i].also_one)))) continue;
        return coll__start_failed(COLL_ERR_ARGUMENT, "%s=%.40s says that %s, but nothing says how many ranks there are: set "
                                  "COLL_RANK, COLL_SIZE and COLL_ADDR, or COLL_SIZE=1 if this process is alone", signs[i].name,
                                  text, signs[i].says);
    }
    return COLL_OK;
}

/* Half a row, and nothing that is complete: somebody started several processes, and this one must not go off by itself. */
static coll_status coll__launch_halves(const coll__launched *out)
{
    for (int i = 0; i < COLL__LAUNCHER_COUNT; i++) {
        const struct coll__launcher *l = &coll__launchers[i];
        const char *rank = coll__environment(l->rank), *size = coll__environment(l->size);
        int number = 0;
        if (!l->is_strict || !rank == !size || coll__has_row(l) || (out->size > 0 && i > 0)) continue;
        if (out->size > 0 && !strcmp(out->source, "COLL_HOSTS")) continue;
        const bool says_more = rank ? l->is_of_hosts || !coll__parse_int(rank, 0, 0, &number)
                                    : !coll__parse_int(size, 1, 1, &number);
        if (i == 0 || says_more)                  /* COLL_...: nobody but us would set it                     */
            return coll__start_failed(COLL_ERR_ARGUMENT, "%s=%.40s is set but %s is not: set both%s", rank ? l->rank : l->size,
                                      rank ? rank : size, rank ? l->size : l->rank,
                                      i == 0 ? "" : ", or COLL_SIZE=1 if this process is alone");
    }
    return out->size == 0 ? coll__launch_signs() : COLL_OK;
}

/* May a row that says `other` be about the agents of the launcher that has been read, and not about its ranks?  Slurm starts
 * those of Open MPI, Hydra and torchrun, one on each host, and whatever starts torchrun by hand does so too. */
static bool coll__is_about_agents(const coll__launched *out, const struct coll__launcher *l, int other)
{
    if (!out->by || out->by == l) return false;
    if (l->is_of_hosts) return true;
    if (!strcmp(l->name, "Slurm")) return out->size > 1;
    return !strcmp(out->by->name, "torchrun") && out->local_size > 0 && (long)other * out->local_size == out->size;
}

/* Our own names count ranks, and so does who names no launcher; all others count processes. */
static inline bool coll__counts_ranks(const struct coll__launcher *l) { return !l || l == &coll__launchers[0]; }

/* Ranks for a size that a launcher gives, where each process brings `count`.  One rank is a world of this process alone. */
static int64_t coll__ranks_said(const struct coll__launcher *l, int size, int count)
{
    return !coll__counts_ranks(l) ? (int64_t)size * count : size == 1 ? count : size;
}

/* Rows that are complete too, and say another size. */
static coll_status coll__launch_conflicts(const coll__launched *out, int count)
{
    for (int i = 0; i < COLL__LAUNCHER_COUNT; i++) {
        const struct coll__launcher *l = &coll__launchers[i];
        int other = 0;
        if (!coll__environment(l->rank) || !coll__parse_int(getenv(l->size), 1, COLL__SIZE_MOST, &other)) continue;
        const bool agrees = coll__ranks_said(l, other, count) == coll__ranks_said(out->by, out->size, count);
        if (!agrees && !coll__is_about_agents(out, l, other))
            return coll__start_failed(COLL_ERR_ARGUMENT, "there %s %d rank%s by %s, but %s=%d (%s) is set too: unset one of them",
                                      out->size == 1 ? "is" : "are", out->size, out->size == 1 ? "" : "s", out->source, l->size,
                                      other, l->name);
    }
    return COLL_OK;
}

/* ---- >>where ---- */

/* A host and a number as an address. */
static void coll__launch_at(coll__launched *out, const char *host, int port)
{
    coll__print(out->address, sizeof out->address, strchr(host, ':') && *host != '[' ? "[%.250s]:%d" : "%.250s:%d", host, port);
}

/* A number from a text, the same everywhere. */
static uint32_t coll__text_hash(const char *text)
{
    uint32_t h = 2166136261u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 16777619u;
    return h ^ h >> 15;
}

/* MASTER_ADDR and MASTER_PORT, which torchrun sets and people export by hand. */
static coll_status coll__launch_master(coll__launched *out)
{
    const char *host = coll__environment("MASTER_ADDR"), *port = coll__environment("MASTER_PORT");
    const char *agent = coll__environment("TORCHELASTIC_USE_AGENT_STORE");
    int number = 0;

    if (!host || !port) return COLL_OK;
    if (!coll__parse_int(port, 1, 65535, &number))
        return coll__start_failed(COLL_ERR_ARGUMENT, "MASTER_PORT=%s is not a number from 1 to 65535", port);
    /* torchrun's own store listens at MASTER_PORT when its agent serves it: ours is the port behind */
    if (agent && !strcmp(agent, "True")) number++;
    coll__launch_at(out, host, number);
    return COLL_OK;
}

/* The first host of the step, and a port between 20000 and 29999 that the numbers of job and step decide. */
static coll_status coll__launch_slurm(coll__launched *out)
{
    const char *list = coll__environment("SLURM_STEP_NODELIST"), *job = coll__environment("SLURM_JOB_ID");
    const char *step = coll__environment("SLURM_STEP_ID");
    char host[COLL__ADDRESS_ROOM - 16];

    if (!list || !job) return COLL_OK;
    if (!coll__nodelist_first(list, host, sizeof host))
        return coll__start_failed(COLL_ERR_ARGUMENT, "SLURM_STEP_NODELIST=%.120s is no list of hosts: set COLL_ADDR=host:port",
                                  list);
    coll__print(out->job, sizeof out->job, "Slurm %.100s.%.100s", job, step ? step : "0");
    coll__launch_at(out, host, 20000 + (int)(coll__text_hash(out->job) % 10000));
    return COLL_OK;
}

/* The process that has started all ranks of this host under Hydra holds the other end of PMI_FD. */
static void coll__launch_hydra(char *job, size_t room)
{
    int who[3] = { 0, 0, 0 };                     /* struct ucred, which only _GNU_SOURCE declares            */
    socklen_t length = sizeof who;
    int fd = -1;

    if (!coll__parse_int(getenv("PMI_FD"), 0, INT_MAX, &fd)) return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &length) || who[0] <= 0) return;
    coll__print(job, room, "%d", who[0]);
}

/* A directory for what the processes of one user on this host share, which nobody else may write to. */
static bool coll__private_directory(char *path, size_t room)
{
    const char *base = coll__environment("TMPDIR");
    struct stat s;

    if (!base) base = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    coll__print(path, room, "%.200s/coll-%lu", base, (unsigned long)geteuid());
    if (strlen(base) > 200 || (mkdir(path, 0700) && errno != EEXIST)) return false;
    return !lstat(path, &s) && S_ISDIR(s.st_mode) && s.st_uid == geteuid() && !(s.st_mode & (S_IWGRP | S_IWOTH));
}

/* All ranks on this host, and a number that they share: a file with that name is where they meet. */
static void coll__launch_one_host(coll__launched *out)
{
    char job[128] = "", directory[COLL__ADDRESS_ROOM - 40];
    const char *named = out->by ? coll__environment(out->by->job) : NULL, *nodes = coll__environment("FLUX_JOB_NNODES");
    const bool is_flux = out->by && !strcmp(out->by->name, "Flux") && nodes && !strcmp(nodes, "1");

    if (!out->by || (out->local_size != out->size && !is_flux)) return;
    if (named) coll__print(job, sizeof job, "%.120s", named);
    else if (!strcmp(out->by->name, "MPICH")) coll__launch_hydra(job, sizeof job);
    if (!*job || !coll__private_directory(directory, sizeof directory)) return;
    coll__print(out->job, sizeof out->job, "%s %s", out->by->name, job);
    coll__print(out->address, sizeof out->address, "file:%s/meeting-%08x", directory, coll__text_hash(out->job));
    out->is_on_one_host = true;
}

/* Everything that the environment says of this process, which brings `count` ranks. */
static coll_status coll__launch_read(coll__launched *out, int count)
{
    coll_status status = COLL_OK;
    bool is_complete = false;

    memset(out, 0, sizeof *out);
    out->source = "nothing in the environment";
    for (int i = 0; i < COLL__LAUNCHER_COUNT && !is_complete; i++)
        if ((status = coll__launch_row(out, &coll__launchers[i], &is_complete)) < 0) return status;
    if (!out->by && ((status = coll__launch_hosts(out)) < 0 || (out->size == 0
                                                                && (status = coll__launch_mlx(out)) < 0))) return status;
    if ((status = coll__launch_halves(out)) < 0) return status;
    if (out->size == 0) out->size = 1;
    return coll__launch_conflicts(out, count);
}

/* Has srun started the ranks?  With --mpi=pmi2 it sets PMI's variables too, which say the same. */
static bool coll__is_step_of_slurm(const coll__launched *out)
{
    int rank = -1, size = -1;

    return out->by && coll__parse_int(getenv("SLURM_PROCID"), 0, INT_MAX, &rank)
           && coll__parse_int(getenv("SLURM_STEP_NUM_TASKS"), 1, INT_MAX, &size) && rank == out->rank && size == out->size;
}

/* Where to meet, for a launch that has been read.  An address "" means that nothing says it. */
static coll_status coll__launch_where(coll__launched *out)
{
    const coll_status status = coll__launch_master(out);

    if (status < 0 || *out->address) return status;
    if (coll__is_step_of_slurm(out)) return coll__launch_slurm(out);
    coll__launch_one_host(out);
    return COLL_OK;
}

#endif /* COLL_LAUNCHERS_H */
