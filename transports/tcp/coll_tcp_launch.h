/* coll_tcp_launch.h - the address of rank 0, from the variables of launchers.
 *
 * Few launchers provide it.  If all ranks are on one host, a file named after the job is used (coll_tcp_address_file.h).  Under
 * Slurm it is the first host of the step, with a port derived from the job number.  Otherwise the error says what to set. */
#ifndef COLL_TCP_LAUNCH_H
#define COLL_TCP_LAUNCH_H

#include <sys/socket.h>
#include <sys/stat.h>

enum { COLL__ADDRESS_ROOM = 300, COLL__WORLD_ROOM = 300 };

typedef struct coll__bootstrap {
    char address[COLL__ADDRESS_ROOM];             /* "": unknown                                              */
    char job[COLL__WORLD_ROOM];                   /* identifies the job; "": unknown                          */
    bool is_on_one_host;                          /* the address is valid on this host only                   */
} coll__bootstrap;

/* Entry `index` of "a:1,b:2,c:3", without spaces.  false: missing, or too long. */
static bool coll__hosts_entry(const char *hosts, int index, char *out, size_t room)
{
    for (; index > 0; index--, hosts++) {
        hosts = strchr(hosts, ',');
        if (!hosts) return false;
    }
    hosts += strspn(hosts, " \t\n");
    size_t length = strcspn(hosts, ",");
    while (length > 0 && strchr(" \t\n", hosts[length - 1])) length--;
    if (length == 0 || length >= room) return false;
    memcpy(out, hosts, length);
    out[length] = '\0';
    return true;
}

/* The first host of a Slurm list: "node[01-03,7],login2" gives "node01".  Text after a bracket belongs to the name:
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

static void coll__launch_at(coll__bootstrap *out, const char *host, int port)
{
    coll__print(out->address, sizeof out->address, strchr(host, ':') && *host != '[' ? "[%.250s]:%d" : "%.250s:%d", host, port);
}

/* MASTER_ADDR and MASTER_PORT, set by torchrun or by hand. */
static coll_status coll__launch_master(coll__bootstrap *out)
{
    const char *host = coll__environment("MASTER_ADDR"), *port = coll__environment("MASTER_PORT");
    const char *agent = coll__environment("TORCHELASTIC_USE_AGENT_STORE");
    int number = 0;

    if (!host || !port) return COLL_OK;
    if (!coll__parse_int(port, 1, 65535, &number))
        return coll__start_failed(COLL_ERR_ARGUMENT, "MASTER_PORT=%s is not a number from 1 to 65535", port);
    /* torchrun's own store may listen at MASTER_PORT: then use the next port */
    if (agent && !strcmp(agent, "True")) number++;
    coll__launch_at(out, host, number);
    return COLL_OK;
}

/* "Slurm 4711.0": the job and its step, and how often the job was restarted.  false: no job. */
static bool coll__launch_step(coll__bootstrap *out)
{
    const char *const job = coll__environment("SLURM_JOB_ID"), *const step = coll__environment("SLURM_STEP_ID");
    const char *const again = coll__environment("SLURM_RESTART_COUNT");

    if (job) coll__print(out->job, sizeof out->job, "Slurm %.90s.%.90s%s%.90s", job, step ? step : "0", again ? "." : "",
                         again ? again : "");
    return job != NULL;
}

/* The first host of the step, and a port from 20000 to 29999, derived from the name of the job. */
static coll_status coll__launch_slurm(coll__bootstrap *out)
{
    const char *list = coll__environment("SLURM_STEP_NODELIST");
    char host[COLL__ADDRESS_ROOM - 16];

    if (!list || !coll__launch_step(out)) return COLL_OK;
    if (!coll__nodelist_first(list, host, sizeof host))
        return coll__start_failed(COLL_ERR_ARGUMENT, "SLURM_STEP_NODELIST=%.120s is no list of hosts: set COLL_ADDR=host:port",
                                  list);
    coll__launch_at(out, host, 20000 + (int)(coll__text_hash(out->job, 0) % 10000));
    return COLL_OK;
}

/* A directory shared by this user's processes on this host, writable by the user only. */
static bool coll__private_directory(char *path, size_t room)
{
    const char *base = coll__environment("TMPDIR");
    struct stat s;

    if (!base) base = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    coll__print(path, room, "%.200s/coll-%lu", base, (unsigned long)geteuid());
    if (strlen(base) > 200 || (mkdir(path, 0700) && errno != EEXIST)) return false;
    return !lstat(path, &s) && S_ISDIR(s.st_mode) && s.st_uid == geteuid() && !(s.st_mode & (S_IWGRP | S_IWOTH));
}

/* Has srun started the ranks?  With --mpi=pmi2 it also sets PMI's variables, with the same values. */
static bool coll__is_step_of_slurm(const coll__launched *l)
{
    int rank = -1, size = -1;

    return l->by && coll__parse_int(coll__variable("SLURM_PROCID"), 0, INT_MAX, &rank)
           && coll__parse_int(coll__variable("SLURM_STEP_NUM_TASKS"), 1, INT_MAX, &size) && rank == l->rank && size == l->size;
}

/* What the launcher calls the job, and this try or step of it.  srun's variables may be those of other launchers' agents, which
 * know how many ranks are on a host, or of ranks that are numbered by hand. */
static void coll__launch_job(coll__bootstrap *out, const coll__launched *l)
{
    const bool is_step = coll__is_step_of_slurm(l) && l->local_size == 0 && strncmp(l->by->name, "COLL", 4);
    const char *const job = l->by ? coll__environment(l->by->job) : NULL;
    const char *const part = l->by ? coll__environment(l->by->part) : NULL;

    if (is_step) (void)coll__launch_step(out);
    else if (job)
        coll__print(out->job, sizeof out->job, "%s %.100s%s%.100s", l->by->name, job, part ? "." : "", part ? part : "");
}

/* All ranks on one host, with a common job id: use a file named after it. */
static void coll__launch_one_host(coll__bootstrap *out, const coll__launched *l)
{
    char directory[COLL__ADDRESS_ROOM - 40];
    int fd = -1, process = 0;                     /* Hydra: at the other end of PMI_FD; it has started all ranks of this host */
    const bool is_flux = l->by && !strcmp(l->by->name, "Flux") && coll__parse_int(coll__variable("FLUX_JOB_NNODES"), 1, 1, &fd);

    if (!l->by || l->by->part || (l->local_size != l->size && !is_flux)) return;
    if (!strcmp(l->by->name, "MPICH") && coll__parse_int(coll__variable("PMI_FD"), 0, INT_MAX, &fd)
        && (process = coll__process_behind(fd)) > 0) coll__print(out->job, sizeof out->job, "MPICH %d", process);
    if (!*out->job || !coll__private_directory(directory, sizeof directory)) return;
    coll__print(out->address, sizeof out->address, "file:%s/job-%08x", directory, coll__text_hash(out->job, 0));
    out->is_on_one_host = true;
}

/* Find the address of rank 0. */
static coll_status coll__launch_where(coll__bootstrap *out, const coll__launched *l)
{
    if (!COLL__HAS_NETWORKS) return COLL_OK;
    const coll_status status = coll__launch_master(out);
    if (status < 0 || *out->address) return status;
    if (coll__is_step_of_slurm(l)) return coll__launch_slurm(out);
    coll__launch_one_host(out, l);
    return COLL_OK;
}

/* Convert NCCL's and Gloo's lists: in NCCL's, names are prefixes unless the list begins with "=". */
static void coll__network_words(const char *text, bool is_nccl, char *out, size_t room)
{
    const bool is_not = *text == '^', is_exact = !is_nccl || text[is_not] == '=';

    coll__print(out, room, "%s", is_not ? "^" : "");
    for (text += is_not + (text[is_not] == '='); *text;) {
        const size_t length = strcspn(text, ",");
        if (length > 0) coll__append(out, room, "%.*s%s%s", (int)length, text, is_exact ? "" : "*", text[length] ? "," : "");
        text += length + (text[length] == ',');
    }
}

/* Use the network setting of other libraries.  Returns the variable's name; NULL: none is set. */
static const char *coll__launch_network(char *out, size_t room)
{
    static const char *const others[] = { "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME" };

    for (int i = 0; COLL__HAS_NETWORKS && i < 2; i++) {
        if (!coll__environment(others[i])) continue;
        coll__network_words(coll__variable(others[i]), i == 0, out, room);
        return others[i];
    }
    return NULL;
}

#endif /* COLL_TCP_LAUNCH_H */
