/* coll_launchers.h - what launchers tell a process by its environment: who it is, and how many there are.
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
 * Only the environment is read, and what belongs to the numbers in it, so all of this is a function of the environment. */
#ifndef COLL_LAUNCHERS_H
#define COLL_LAUNCHERS_H

static const coll__launcher coll__launchers[] = {
    { "COLL_RANK and COLL_SIZE", "COLL_RANK",            "COLL_SIZE",            "COLL_LOCAL_RANK",            "COLL_LOCAL_SIZE",
      NULL, true, false, NULL },
#if COLL__HAS_NETWORKS
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
#endif
};
enum { COLL__LAUNCHER_COUNT = sizeof coll__launchers / sizeof *coll__launchers };

/* Has the environment this row?  COLL_SIZE=1 is a whole one. */
static bool coll__has_row(const coll__launcher *l)
{
    const char *size = coll__environment(l->size);
    int one;

    return size && (coll__environment(l->rank) || (l == &coll__launchers[0] && coll__parse_int(size, 1, 1, &one)));
}

/* One row; *is_complete tells whether the environment has it. */
static coll_status coll__launch_row(coll__launched *out, const coll__launcher *l, bool *is_complete)
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

/* Our own names count ranks, and so does who names no launcher; all others count processes. */
static inline bool coll__counts_ranks(const coll__launcher *l) { return !l || (COLL__HAS_ENV && l == &coll__launchers[0]); }

/* Ranks for a size that a launcher gives, where each process brings `count`.  One rank is a world of this process alone. */
static int64_t coll__ranks_said(const coll__launcher *l, int size, int count)
{
    return !coll__counts_ranks(l) ? (int64_t)size * count : size == 1 ? count : size;
}

/* ---- >>others: what is not of the table's first row ---- */

#if COLL__HAS_NETWORKS && COLL__HAS_ENV

/* Variables that somebody sets who starts several processes, and that do not say how many ranks there are.  A pod of an
 * indexed Job of Kubernetes does not learn how many there are, and the one with index 0 is not to train by itself. */
static coll_status coll__launch_signs(void)
{
    static const struct { const char *name, *one, *also_one, *says; } signs[] = {
        { "PMIX_RANK", NULL, NULL, "PMIx has started this process" },
        { "JOB_COMPLETION_INDEX", NULL, NULL, "this is a pod of an indexed Job of Kubernetes" },
        { "PET_NNODES", "1", "1:1", "torchrun was to start several processes on several nodes" },
        { "MLX_RANK", NULL, NULL, "mlx.launch has started this process" },
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

/* May a row that says `other` be about the agents of the launcher that has been read, and not about its ranks?  Slurm starts
 * those of Open MPI, Hydra and torchrun, one on each host, and whatever starts torchrun by hand does so too. */
static bool coll__is_about_agents(const coll__launched *out, const coll__launcher *l, int other)
{
    if (!out->by || out->by == l) return false;
    if (l->is_of_hosts) return true;
    if (!strcmp(l->name, "Slurm")) return out->size > 1;
    return !strcmp(out->by->name, "torchrun") && out->local_size > 0 && (long)other * out->local_size == out->size;
}

/* Rows that are complete too, and say another size. */
static coll_status coll__launch_conflicts(const coll__launched *out, int count)
{
    for (int i = 0; i < COLL__LAUNCHER_COUNT; i++) {
        const coll__launcher *l = &coll__launchers[i];
        int other = 0;
        if (!coll__environment(l->rank) || !coll__parse_int(coll__variable(l->size), 1, COLL__SIZE_MOST, &other)) continue;
        const bool agrees = coll__ranks_said(l, other, count) == coll__ranks_said(out->by, out->size, count);
        if (!agrees && !coll__is_about_agents(out, l, other))
            return coll__start_failed(COLL_ERR_ARGUMENT, "there %s %d rank%s by %s, but %s=%d (%s) is set too: unset one of them",
                                      out->size == 1 ? "is" : "are", out->size, out->size == 1 ? "" : "s", out->source, l->size,
                                      other, l->name);
    }
    return COLL_OK;
}

#else

/* What launchers say is not read: a process that one of them has started, one of several, is not to go off by itself.  The
 * first names do not say of how many. */
static coll_status coll__launch_signs(void)
{
    static const char *const signs[] = { "PMIX_RANK", "JOB_COMPLETION_INDEX", "MLX_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                                         "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE", "JSM_NAMESPACE_SIZE",
                                         "FLUX_JOB_SIZE", "PET_NNODES", "LWS_GROUP_SIZE", "SKYPILOT_NUM_NODES",
                                         "AWS_BATCH_JOB_NUM_NODES" };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const char *text = coll__environment(signs[i]);
        int one;
        if (text && (i < 3 || !coll__parse_int(text, 1, 1, &one)))
            return coll__start_failed(COLL_ERR_UNSUPPORTED, "%s=%.40s is set, but this program was compiled with "
                                      "COLL_NO_NETWORKS: set COLL_RANK, COLL_SIZE and COLL_ADDR, or COLL_SIZE=1 if this "
                                      "process is alone", signs[i], text);
    }
    return COLL_OK;
}

static inline coll_status coll__launch_conflicts(const coll__launched *out, int count) { return (void)out, (void)count, COLL_OK; }

#endif

/* ---- >>who: rank and size ---- */

/* COLL_HOSTS says how many there are, so that COLL_RANK is enough beside it. */
static coll_status coll__launch_hosts(coll__launched *out)
{
    const char *hosts = coll__environment("COLL_HOSTS");

    if (!hosts || !coll__environment("COLL_RANK") || coll__environment("COLL_SIZE")) return COLL_OK;
    out->size = coll__hosts_count(hosts);
    out->source = "COLL_HOSTS";
    return coll__environment_int("COLL_RANK", 0, out->size - 1, &out->rank) ? COLL_OK : COLL_ERR_ARGUMENT;
}

/* Half a row, and nothing that is complete: somebody started several processes, and this one must not go off by itself. */
static coll_status coll__launch_halves(const coll__launched *out)
{
    for (int i = 0; i < COLL__LAUNCHER_COUNT; i++) {
        const coll__launcher *l = &coll__launchers[i];
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

/* Everything that the environment says of this process, which brings `count` ranks. */
static coll_status coll__launch_read(coll__launched *out, int count)
{
    coll_status status = COLL_OK;
    bool is_complete = false;

    memset(out, 0, sizeof *out);
    out->source = COLL__HAS_ENV ? "nothing in the environment" : "nothing in the configuration";
    out->size = !COLL__HAS_ENV;
    if (!COLL__HAS_ENV) return COLL_OK;           /* a process that is told nothing else is a world of its own */
    for (int i = 0; i < COLL__LAUNCHER_COUNT && !is_complete; i++)
        if ((status = coll__launch_row(out, &coll__launchers[i], &is_complete)) < 0) return status;
    if (!out->by && (status = coll__launch_hosts(out)) < 0) return status;
    if ((status = coll__launch_halves(out)) < 0) return status;
    if (out->size == 0) out->size = 1;
    return coll__launch_conflicts(out, count);
}

#endif /* COLL_LAUNCHERS_H */
