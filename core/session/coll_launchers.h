/* coll_launchers.h - rank and size from the environment variables of launchers.
 *
 * A launcher is a row of a table: the names of its variables for rank and size.  The first complete row counts.  If another
 * complete row has another size, the error names both: the job would be many worlds of one rank, or wait forever.  An incomplete
 * row is an error, too, if nothing else gives the number of ranks.  Sizes come only from variables of this job step: SLURM_NTASKS
 * is ignored, because it is also set in an allocation where a program is started by hand.  The last rows describe hosts or pods,
 * and not processes.  They count if no other row is complete, for a program that is started once on each; rows that count
 * processes override them.
 *
 * COLL_SIZE=1 needs no rank.  It tells that the program is alone, if a variable suggests otherwise.
 *
 * Only the environment is read: the result is a function of it. */
#ifndef COLL_LAUNCHERS_H
#define COLL_LAUNCHERS_H

static const coll__launcher coll__launchers[] = {
    { "COLL_RANK and COLL_SIZE", "COLL_RANK", "COLL_SIZE", "COLL_LOCAL_RANK", "COLL_LOCAL_SIZE", NULL, NULL, true, false, NULL },
#if COLL__HAS_NETWORKS
    { "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
      true, false, NULL },
    { "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
      "PMIX_NAMESPACE", NULL, true, false, NULL },
    { "MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
      "MPIRUN_ID", NULL, true, false, NULL },
    { "Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", NULL, "FLUX_JOB_ID", NULL, false, false, NULL },
    { "PALS", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_APID", NULL, false, false, NULL },
    { "jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE",
      NULL, NULL, true, false, NULL },
    { "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, NULL, true, false, NULL },
    { "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, NULL, NULL, false, false, NULL },
    { "LeaderWorkerSet", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", NULL, NULL, NULL, NULL, true, true,
      "the host is in LWS_LEADER_ADDRESS" },
    { "SkyPilot", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", NULL, NULL, NULL, NULL, true, true,
      "the host is the first of SKYPILOT_NODE_IPS" },
    { "AWS Batch", "AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES", NULL, NULL, NULL, NULL, true, true,
      "the host is that of node 0" },
#endif
};
enum { COLL__LAUNCHER_COUNT = sizeof coll__launchers / sizeof *coll__launchers };

/* Returns whether the environment has this row.  COLL_SIZE=1 is a complete one. */
static bool coll__has_row(const coll__launcher *l)
{
    const char *size = coll__environment(l->size);
    int one;

    return size && (coll__environment(l->rank) || (l == &coll__launchers[0] && coll__parse_int(size, 1, 1, &one)));
}

/* Reads one row; *is_complete: whether the environment has it. */
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

/* COLL_... variables count ranks, and so does a start without a launcher; all others count processes. */
static inline bool coll__counts_ranks(const coll__launcher *l) { return !l || (COLL__HAS_ENV && l == &coll__launchers[0]); }

/* Ranks for a launcher's size, if each process creates `count`.  One rank is a world of this process alone. */
static int64_t coll__ranks_said(const coll__launcher *l, int size, int count)
{
    return !coll__counts_ranks(l) ? (int64_t)size * count : size == 1 ? count : size;
}

/* ---- >>others: rows after the first ---- */

/* Variables that are set if several processes are started, but do not give the number of ranks; with COLL_NO_NETWORKS also those
 * of launchers.  A pod of an indexed Job of Kubernetes does not get that number.  The one with index 0 must not run alone. */
static coll_status coll__launch_signs(void)
{
    static const struct { const char *name, *one, *also_one, *says; } signs[] = {
        { "COLL_JOIN", "off", "0", "this process joins a job" },
        { "PMIX_RANK", NULL, NULL, "PMIx has started this process" },
        { "JOB_COMPLETION_INDEX", NULL, NULL, "this is a pod of an indexed Job of Kubernetes" },
        { "PET_NNODES", "1", "1:1", "torchrun was to start several processes on several nodes" },
        { "MLX_RANK", NULL, NULL, "mlx.launch has started this process" },
#if !COLL__HAS_NETWORKS
#define COLL__LAUNCHED(size) { size, "1", "1", "a launcher has started several processes" }
        COLL__LAUNCHED("WORLD_SIZE"), COLL__LAUNCHED("OMPI_COMM_WORLD_SIZE"), COLL__LAUNCHED("PMI_SIZE"),
        COLL__LAUNCHED("SLURM_STEP_NUM_TASKS"), COLL__LAUNCHED("MV2_COMM_WORLD_SIZE"), COLL__LAUNCHED("JSM_NAMESPACE_SIZE"),
        COLL__LAUNCHED("FLUX_JOB_SIZE"), COLL__LAUNCHED("LWS_GROUP_SIZE"), COLL__LAUNCHED("SKYPILOT_NUM_NODES"),
        COLL__LAUNCHED("AWS_BATCH_JOB_NUM_NODES"),
#undef COLL__LAUNCHED
#endif
    };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const char *text = coll__environment(signs[i].name);
        if (!text || (signs[i].one && (!strcmp(text, signs[i].one) || !strcmp(text, signs[i].also_one)))) continue;
        return coll__start_failed(COLL__HAS_NETWORKS ? COLL_ERR_ARGUMENT : COLL_ERR_UNSUPPORTED,
                                  "%s=%.40s says that %s, but %s: set COLL_RANK, COLL_SIZE and COLL_ADDR, or COLL_SIZE=1 if "
                                  "this process is alone", signs[i].name, text, signs[i].says,
                                  COLL__HAS_NETWORKS ? "nothing says how many ranks there are"
                                                     : "this program was compiled with COLL_NO_NETWORKS");
    }
    return COLL_OK;
}

/* Returns whether a row with size `other` may describe the agents of the launcher that was read, not its ranks.  Slurm starts an
 * agent of Open MPI, Hydra or torchrun on each host.  A start of torchrun by hand does so, too. */
static bool coll__is_about_agents(const coll__launched *out, const coll__launcher *l, int other)
{
    if (!out->by || out->by == l) return false;
    if (l->is_of_hosts) return true;
    if (!strcmp(l->name, "Slurm")) return out->size > 1;
    return !strcmp(out->by->name, "torchrun") && out->local_size > 0 && (long)other * out->local_size == out->size;
}

/* Checks for other complete rows with another size. */
static coll_status coll__launch_conflicts(const coll__launched *out, int count)
{
    for (int i = 0; COLL__HAS_NETWORKS && i < COLL__LAUNCHER_COUNT; i++) {
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

/* ---- >>rank and size ---- */

/* An incomplete row, and no complete one: several processes were started, and this one must not run alone. */
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
        if (i == 0 || says_more)                  /* COLL_...: set for this library only                      */
            return coll__start_failed(COLL_ERR_ARGUMENT, "%s=%.40s is set but %s is not: set both%s", rank ? l->rank : l->size,
                                      rank ? rank : size, rank ? l->size : l->rank,
                                      i == 0 ? "" : ", or COLL_SIZE=1 if this process is alone");
    }
    return out->size == 0 ? coll__launch_signs() : COLL_OK;
}

/* Reads all that the environment has on this process, which creates `count` ranks. */
static coll_status coll__launch_read(coll__launched *out, int count)
{
    coll_status status = COLL_OK;
    bool is_complete = false;

    memset(out, 0, sizeof *out);
    out->source = COLL__HAS_ENV ? "nothing in the environment" : "nothing in the configuration";
    out->size = !COLL__HAS_ENV;
    if (!COLL__HAS_ENV) return COLL_OK;           /* a process without settings is alone                      */
    for (int i = 0; i < COLL__LAUNCHER_COUNT && !is_complete; i++)
        if ((status = coll__launch_row(out, &coll__launchers[i], &is_complete)) < 0) return status;
    const char *const hosts = out->by ? NULL : coll__environment("COLL_HOSTS");
    if (hosts && coll__environment("COLL_RANK") && !coll__environment("COLL_SIZE")) {     /* the hosts give the size  */
        out->size = coll__hosts_count(hosts);
        out->source = "COLL_HOSTS";
        if (!coll__environment_int("COLL_RANK", 0, out->size - 1, &out->rank)) return COLL_ERR_ARGUMENT;
    }
    if ((status = coll__launch_halves(out)) < 0) return status;
    if (out->size == 0) out->size = 1;
    return coll__launch_conflicts(out, count);
}

#endif /* COLL_LAUNCHERS_H */
