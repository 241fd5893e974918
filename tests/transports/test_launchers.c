/* test_launchers.c - the environment that launchers set, and the texts that the start reads: lists of hosts, ports, networks,
 * rendezvous files.
 *
 * Every environment is tried in a process of its own.
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"

enum { CASE_SECONDS = 25 };

/* ---- >>parsers ---- */

static void test_nodelists(void)
{
    static const struct { const char *list, *first; } cases[] = {
        { "node1", "node1" }, { "node1,node2", "node1" }, { "node[01-03,7]", "node01" }, { "node[7,9-11],login", "node7" },
        { "rack[1-2]-n[3,4]", "rack1-n3" }, { "a-b.example.org", "a-b.example.org" }, { "n[003]", "n003" },
        { "", NULL }, { "node[", NULL }, { "node[]", NULL }, { "node]", NULL }, { ",node", NULL }, { "node[1-2", NULL },
        { "a-name-that-is-longer-than-there-is-room", NULL },
    };
    char first[24];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool is_good = coll__nodelist_first(cases[i].list, first, sizeof first);
        CHECK(is_good == (cases[i].first != NULL) && (!is_good || !strcmp(first, cases[i].first)), "\"%s\" gives \"%s\"",
              cases[i].list,
              is_good ? first : "nothing");
    }
}

static void test_lists_of_hosts(void)
{
    char out[40];

    CHECK(coll__hosts_count("a:1,b:2,c:3") == 3 && coll__hosts_count("a:1") == 1, "counts of lists");
    CHECK(coll__hosts_entry("a:1, b:2 ,c:3", 1, out, sizeof out) && !strcmp(out, "b:2"), "entry 1 is \"%s\"", out);
    CHECK(coll__hosts_entry("a:1,b:2,c:3", 2, out, sizeof out) && !strcmp(out, "c:3"), "entry 2 is \"%s\"", out);
    CHECK(!coll__hosts_entry("a:1,b:2", 2, out, sizeof out) && !coll__hosts_entry("a:1,,b:2", 1, out, sizeof out)
          && !coll__hosts_entry("a:1, ,b:2", 1, out, sizeof out) && !coll__hosts_entry("abcdef:1", 0, out, 8),
              "missing entries");
}

static void test_ports(void)
{
    static const struct { const char *text; int first, last; } cases[] = {
        { "5000-5099", 5000, 5099 }, { "5000", 5000, 5000 }, { "1-65535", 1, 65535 }, { "", 0, 0 }, { "-", 0, 0 },
            { "5000-", 0, 0 },
        { "-5000", 0, 0 }, { "5099-5000", 0, 0 }, { "0-10", 0, 0 }, { "5000-65536", 0, 0 }, { "5000-5099-5100", 0, 0 },
            { "http", 0, 0 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int first = 0, last = 0;
        const bool is_good = coll__ports_read(cases[i].text, &first, &last);
        CHECK(is_good == (cases[i].first > 0) && (!is_good || (first == cases[i].first && last == cases[i].last)),
              "\"%s\" gives %d-%d",
              cases[i].text, first, last);
    }
}

/* A host's interfaces, as getifaddrs would give them. */
typedef struct interface { const char *name, *address; bool is_down; } interface;

static const interface interfaces[] = {
    { "lo", "127.0.0.1", false }, { "eth0", "10.0.0.7", false }, { "eth1", "10.1.0.7", false }, { "ib0", "192.168.8.1", false },
    { "docker0", "172.17.0.1", false }, { "eth2", "10.2.0.7", true }, { "lo", "::1", false }, { "eth0", "fd00::7", false },
        { "eth0", "fe80::7", false },
};
enum { INTERFACES = sizeof interfaces / sizeof *interfaces };

static void test_networks(void)
{
    static const struct { const char *rules, *chosen; } cases[] = {
        { "eth1", "10.1.0.7" }, { "eth0", "10.0.0.7 fd00::7" }, { "eth*", "10.0.0.7 10.1.0.7 fd00::7" },
            { "ib0,eth1", "192.168.8.1 10.1.0.7" },
        { "10.1.0.0/16", "10.1.0.7" }, { "10.1.0.7", "10.1.0.7" }, { "fd00::/64", "fd00::7" }, { "10.0.0.0/15",
                                                                                                 "10.0.0.7 10.1.0.7" },
        { "^docker0,eth0", "10.1.0.7 192.168.8.1" }, { "eth*,^eth1", "10.0.0.7 fd00::7" }, { "lo", "127.0.0.1 ::1" },
            { "127.0.0.1", "127.0.0.1" },
        { "^eth*", "192.168.8.1 172.17.0.1" }, { " eth1 , ib0 ", "10.1.0.7 192.168.8.1" }, { "10.1.0.6/31", "10.1.0.7" },
            { "10.1.0.5/31", "" },
        { "eth", "" }, { "eth2", "" }, { "eth9", "" }, { "10.9.0.0/16", "" }, { "10.1.0.0/33", "" }, { "10.1.0", "" },
            { "", "10.0.0.7 10.1.0.7 192.168.8.1" },
        { "^10.0.0.0/8,172.16.0.0/12,fd00::/8", "192.168.8.1" },
    };
    struct ifaddrs list[INTERFACES];
    struct sockaddr_storage addresses[INTERFACES];

    memset(list, 0, sizeof list);
    for (int i = 0; i < INTERFACES; i++) {
        unsigned char bytes[16];
        const bool is_v6 = strchr(interfaces[i].address, ':') != NULL;
        if (!is_v6) memcpy(bytes, coll__v4_prefix, 12);
        CHECK(inet_pton(is_v6 ? AF_INET6 : AF_INET, interfaces[i].address, is_v6 ? bytes : bytes + 12) == 1, "%s",
              interfaces[i].address);
        const coll__address a = coll__address_with(bytes, 0);
        (void)coll__address_to(&a, &addresses[i]);
        list[i] = (struct ifaddrs){ .ifa_next = i + 1 < INTERFACES ? &list[i + 1] : NULL,
                                    .ifa_name = (char *)(uintptr_t)interfaces[i].name,
                                    .ifa_flags = interfaces[i].is_down ? 0 : IFF_UP,
                                        .ifa_addr = (struct sockaddr *)&addresses[i] };
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char chosen[COLL__ENDPOINT_ADDRESSES][16];
        char text[200] = "", host[INET6_ADDRSTRLEN];
        const int count = coll__network_choose(list, cases[i].rules, chosen);
        for (int k = 0; k < count; k++) {
            const bool is_v4 = !memcmp(chosen[k], coll__v4_prefix, 12);
            coll__append(text, sizeof text, "%s%s", k ? " " : "", inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4
                                                                            ? chosen[k] + 12 : chosen[k], host, sizeof host));
        }
        CHECK(!strcmp(text, cases[i].chosen), "\"%s\" chooses \"%s\", not \"%s\"", cases[i].rules, text, cases[i].chosen);
    }
}

static void test_other_words(void)
{
    static const struct { const char *text; bool is_nccl; const char *ours; } cases[] = {
        { "eth", true, "eth*" }, { "=eth0", true, "eth0" }, { "^docker", true, "^docker*" }, { "^=docker0,lo", true,
                                                                                               "^docker0,lo" },
        { "ib,eth", true, "ib*,eth*" }, { "eth0,eth1", false, "eth0,eth1" }, { "eth0", false, "eth0" },
    };
    char ours[64];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        coll__network_words(cases[i].text, cases[i].is_nccl, ours, sizeof ours);
        CHECK(!strcmp(ours, cases[i].ours), "\"%s\" is \"%s\"", cases[i].text, ours);
    }
}

static void test_rendezvous(void)
{
#define NONCE "0123456789abcdef0123456789abcdef"
    static const struct { const char *text; int count; } cases[] = {
        { "coll rendezvous 1\n" NONCE "\n10.0.0.7:4000\nend\n", 1 },
            { "coll rendezvous 1\n" NONCE "\n10.0.0.7:4000\n[fd00::7]:4000\n127.0.0.1:1\nend\n", 3 },
        { "", 0 }, { "coll rendezvous 1\n", 0 }, { "coll rendezvous 2\n" NONCE "\n10.0.0.7:4000\nend\n", 0 },
            { "coll rendezvous 1\n" NONCE "\nend\n", 0 },
        { "coll rendezvous 1\n" NONCE "\n10.0.0.7:4000\n", 0 }, { "coll rendezvous 1\nshort\n10.0.0.7:4000\nend\n", 0 },
        { "coll rendezvous 1\n" NONCE "\na-name:4000\nend\n", 0 }, { "coll rendezvous 1\n" NONCE "\n10.0.0.7:0\nend\n", 0 },
        { "coll rendezvous 1\n" NONCE "\n1.1.1.1:1\n1.1.1.2:1\n1.1.1.3:1\n1.1.1.4:1\nend\n", 0 }, { "#!/bin/sh\nexit 0\n", 0 },
    };
    coll__rendezvous file;
    char text[COLL__RENDEZVOUS_MOST];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "%s", cases[i].text);
        const bool is_good = coll__rendezvous_parse(text, &file);
        CHECK(is_good == (cases[i].count > 0) && (!is_good || file.count == cases[i].count), "file %zu: %d addresses", i,
              is_good ? file.count : -1);
    }
}

/* ---- >>launchers: the environment as a table ---- */

typedef struct launched {
    const char *name;
    const char *environment[10];                  /* "NAME=value"; nothing else is set                        */
    coll_status status;
    int         rank, size;
    const char *source, *address;                 /* the beginning of the address                             */
    const char *words[3];                         /* in the sentence                                          */
    int         count;                            /* ranks of this process; 0: one                            */
} launched;

#define OMPI "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1"
#define SRUN "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_JOB_ID=77", "SLURM_STEP_ID=3"
#define TORCH "RANK=3", "WORLD_SIZE=16", "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=8", "MASTER_ADDR=h1", "MASTER_PORT=29500"

static const launched launches[] = {
    { "nothing", { 0 }, COLL_OK, 0, 1, "nothing", "", { 0 }, 0 },
    { "by hand", { "COLL_RANK=2", "COLL_SIZE=4", "COLL_ADDR=h:1" }, COLL_OK, 2, 4, "COLL_RANK and COLL_SIZE", "h:1", { 0 }, 0 },
    { "an empty rank", { "COLL_RANK=", "COLL_SIZE=" }, COLL_OK, 0, 1, "nothing", "", { 0 }, 0 },
    { "torchrun", { TORCH }, COLL_OK, 3, 16, "torchrun", "h1:29500", { 0 }, 0 },
    { "torchrun with its own store", { TORCH, "TORCHELASTIC_USE_AGENT_STORE=True" }, COLL_OK, 3, 16, "torchrun", "h1:29501",
      { 0 }, 0 },
    { "torchrun, IPv6", { "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=fd00::7", "MASTER_PORT=5" }, COLL_OK, 1, 2, "torchrun",
      "[fd00::7]:5", { 0 }, 0 },
    { "torchrun under srun", { TORCH, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2" }, COLL_OK, 3, 16, "torchrun", "h1:29500",
      { 0 }, 0 },
    { "torchrun under mpirun, an agent on each host", { TORCH, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2" }, COLL_OK, 3,
      16, "torchrun", "h1:29500", { 0 }, 0 },
    { "torchrun and another job", { TORCH, "PMI_RANK=0", "PMI_SIZE=5" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "16 ranks by torchrun", "PMI_SIZE=5" }, 0 },
    { "Open MPI on one host", { OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=12", "TMPDIR=/tmp" }, COLL_OK, 1, 4,
      "Open MPI", "file:/tmp/coll-", { 0 }, 0 },
    { "Open MPI on several hosts", { OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=12" }, COLL_ERR_ARGUMENT, 0, 0, NULL,
      NULL,
      { "Open MPI", "several hosts", "COLL_ADDR" }, 0 },
    { "Open MPI with MASTER_ADDR", { OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2", "MASTER_ADDR=h1", "MASTER_PORT=7" }, COLL_OK, 1, 4,
      "Open MPI", "h1:7", { 0 }, 0 },
    { "Open MPI, started by Slurm's daemons", { OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2", "SLURM_PROCID=0",
                                                "SLURM_STEP_NUM_TASKS=2", "COLL_ADDR=h:1" },
      COLL_OK, 1, 4, "Open MPI", "h:1", { 0 }, 0 },
    { "four worlds of one under srun", { "PMI_RANK=0", "PMI_SIZE=1", "SLURM_PROCID=3", "SLURM_STEP_NUM_TASKS=4" },
      COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "1 rank by MPICH", "SLURM_STEP_NUM_TASKS=4" }, 0 },
    { "one rank of MPICH", { "PMI_RANK=0", "PMI_SIZE=1" }, COLL_OK, 0, 1, "MPICH", "", { 0 }, 0 },
    { "MPICH on several hosts", { "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2" }, COLL_ERR_ARGUMENT, 0,
      0, NULL, NULL,
      { "MPICH", "several hosts", "COLL_ADDR" }, 0 },
    { "srun", { SRUN, "SLURM_STEP_NODELIST=node[01-03,7]" }, COLL_OK, 1, 4, "Slurm", "node01:2", { 0 }, 0 },
    { "srun without a list of hosts", { SRUN }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "Slurm", "COLL_ADDR" }, 0 },
    { "srun with nonsense for a list", { SRUN, "SLURM_STEP_NODELIST=node[" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "SLURM_STEP_NODELIST=node[" }, 0 },
    { "one that joins, but makes its ranks itself", { "COLL_JOIN=on" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "COLL_JOIN=on", "joins a job" }, 0 },
    { "one that does not join", { "COLL_JOIN=off" }, COLL_OK, 0, 1, "nothing", "", { 0 }, 0 },
    { "by hand in an allocation", { "SLURM_JOB_ID=7", "SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_NPROCS=4" }, COLL_OK, 0, 1,
      "nothing", "", { 0 }, 0 },
    { "Flux on one host", { "FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=2", "FLUX_JOB_ID=fX1", "FLUX_JOB_NNODES=1", "TMPDIR=/tmp" },
      COLL_OK, 1, 2, "Flux", "file:/tmp/coll-", { 0 }, 0 },
    { "PALS", { "PALS_RANKID=1", "PMI_RANK=1", "PMI_SIZE=2", "PALS_LOCAL_SIZE=2", "PALS_APID=x", "TMPDIR=/tmp" }, COLL_OK, 1, 2,
      "PALS", "file:/tmp/coll-", { 0 }, 0 },
    { "jsrun", { "JSM_NAMESPACE_RANK=1", "JSM_NAMESPACE_SIZE=2", "COLL_ADDR=h:1" }, COLL_OK, 1, 2, "jsrun", "h:1", { 0 }, 0 },
    { "MVAPICH", { "MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=2", "COLL_ADDR=h:1" }, COLL_OK, 1, 2, "MVAPICH", "h:1",
      { 0 }, 0 },
    { "a rank of torchrun without a size", { "RANK=3" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "RANK=3", "WORLD_SIZE" }, 0 },
    { "a size without a rank", { "WORLD_SIZE=4" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "WORLD_SIZE=4", "RANK" }, 0 },
    { "RANK=0, and nothing more", { "RANK=0" }, COLL_OK, 0, 1, "nothing", "", { 0 }, 0 },
    { "a rank of PMIx and no size", { "PMIX_RANK=2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "PMIX_RANK=2", "COLL_SIZE" }, 0 },
    { "COLL_RANK beside another launcher", { "COLL_RANK=1", "RANK=1", "WORLD_SIZE=2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "COLL_RANK=1", "COLL_SIZE" }, 0 },
    { "a list of hosts", { "COLL_RANK=1", "COLL_HOSTS=a:1,b:2,c:3" }, COLL_OK, 1, 3, "COLL_HOSTS", "a:1", { 0 }, 0 },
    { "a list of hosts and a size", { "COLL_RANK=1", "COLL_SIZE=2", "COLL_HOSTS=a:1,b:2" }, COLL_OK, 1, 2, "COLL_RANK and", "a:1",
      { 0 }, 0 },
    { "a list that is too short", { "COLL_RANK=1", "COLL_SIZE=3", "COLL_HOSTS=a:1,b:2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "2 entries", "3 ranks" }, 0 },
    { "a list with a hole", { "COLL_RANK=1", "COLL_SIZE=3", "COLL_HOSTS=a:1,,b:2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "entry 1" }, 0 },
    { "a list and another address", { "COLL_RANK=1", "COLL_SIZE=2", "COLL_HOSTS=a:1,b:2", "COLL_ADDR=c:1" }, COLL_ERR_ARGUMENT,
      0, 0, NULL, NULL, { "a:1", "COLL_ADDR=c:1" }, 0 },
    { "MLX", { "MLX_RANK=1", "MLX_HOSTFILE=/nowhere/hosts.json" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "MLX_RANK=1", "mlx.launch" }, 0 },
    { "srun --mpi=pmi2", { SRUN, "PMI_RANK=1", "PMI_SIZE=4", "SLURM_STEP_NODELIST=node[01-03,7]" }, COLL_OK, 1, 4, "MPICH",
      "node01:2", { 0 }, 0 },
    { "an mpirun whose daemons Slurm has started", { "PMI_RANK=1", "PMI_SIZE=4", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2",
      "SLURM_JOB_ID=77", "SLURM_STEP_NODELIST=node[01-02]" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "MPICH", "COLL_ADDR" }, 0 },
    { "rank 0 of PMIx and no size", { "PMIX_RANK=0" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "PMIX_RANK=0", "COLL_SIZE=1" }, 0 },
    { "a pod of an indexed job", { "JOB_COMPLETION_INDEX=2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "JOB_COMPLETION_INDEX=2", "COLL_RANK, COLL_SIZE", "COLL_SIZE=1" }, 0 },
    { "the first pod of an indexed job", { "JOB_COMPLETION_INDEX=0" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "JOB_COMPLETION_INDEX=0", "COLL_SIZE=1" }, 0 },
    { "a single pod", { "JOB_COMPLETION_INDEX=0", "COLL_SIZE=1" }, COLL_OK, 0, 1, "COLL_RANK and", "", { 0 }, 0 },
    { "a pod with all it needs", { "JOB_COMPLETION_INDEX=2", "COLL_RANK=2", "COLL_SIZE=3", "COLL_ADDR=h:1" }, COLL_OK, 2, 3,
      "COLL_RANK and", "h:1", { 0 }, 0 },
    { "torchrun in a pod of an indexed job", { TORCH, "JOB_COMPLETION_INDEX=0", "PET_NNODES=2" }, COLL_OK, 3, 16, "torchrun",
      "h1:29500", { 0 }, 0 },
    { "torchrun's queries without torchrun", { "PET_NNODES=2", "PET_NODE_RANK=0" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "PET_NNODES=2", "COLL_SIZE=1" }, 0 },
    { "an elastic torchrun's queries", { "PET_NNODES=1:4" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "PET_NNODES=1:4" }, 0 },
    { "torchrun's queries for one node", { "PET_NNODES=1" }, COLL_OK, 0, 1, "nothing", "", { 0 }, 0 },
    { "LeaderWorkerSet", { "LWS_WORKER_INDEX=1", "LWS_GROUP_SIZE=2", "COLL_ADDR=h:1" }, COLL_OK, 1, 2, "LeaderWorkerSet", "h:1",
      { 0 }, 0 },
    { "LeaderWorkerSet without an address", { "LWS_WORKER_INDEX=0", "LWS_GROUP_SIZE=2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "rank 0 of 2", "COLL_ADDR", "LWS_LEADER_ADDRESS" }, 0 },
    { "LeaderWorkerSet without an index", { "LWS_GROUP_SIZE=2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "LWS_GROUP_SIZE=2", "LWS_WORKER_INDEX", "COLL_SIZE=1" }, 0 },
    { "LeaderWorkerSet without a size", { "LWS_WORKER_INDEX=0" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "LWS_WORKER_INDEX=0", "LWS_GROUP_SIZE" }, 0 },
    { "LeaderWorkerSet of one", { "LWS_WORKER_INDEX=0", "LWS_GROUP_SIZE=1" }, COLL_OK, 0, 1, "LeaderWorkerSet", "", { 0 }, 0 },
    { "alone in a LeaderWorkerSet", { "LWS_WORKER_INDEX=1", "LWS_GROUP_SIZE=2", "COLL_SIZE=1" }, COLL_OK, 0, 1, "COLL_RANK and",
      "", { 0 }, 0 },
    { "four processes in each pod of a LeaderWorkerSet", { "LWS_WORKER_INDEX=1", "LWS_GROUP_SIZE=2", "COLL_RANK=5",
      "COLL_SIZE=8", "COLL_ADDR=h:1" }, COLL_OK, 5, 8, "COLL_RANK and", "h:1", { 0 }, 0 },
    { "SkyPilot", { "SKYPILOT_NODE_RANK=1", "SKYPILOT_NUM_NODES=2", "COLL_ADDR=h:1" }, COLL_OK, 1, 2, "SkyPilot", "h:1",
      { 0 }, 0 },
    { "SkyPilot without a size", { "SKYPILOT_NODE_RANK=0" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "SKYPILOT_NODE_RANK=0", "SKYPILOT_NUM_NODES" }, 0 },
    { "AWS Batch", { "AWS_BATCH_JOB_NODE_INDEX=1", "AWS_BATCH_JOB_NUM_NODES=2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "AWS Batch", "rank 1 of 2", "COLL_ADDR" }, 0 },
    { "AWS Batch without an index", { "AWS_BATCH_JOB_NUM_NODES=2" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL,
      { "AWS_BATCH_JOB_NUM_NODES=2", "AWS_BATCH_JOB_NODE_INDEX" }, 0 },
    { "COLL_SIZE=1 needs no rank", { "COLL_SIZE=1" }, COLL_OK, 0, 1, "COLL_RANK and", "", { 0 }, 0 },
    { "COLL_SIZE=1 with rank 1", { "COLL_SIZE=1", "COLL_RANK=1" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "COLL_RANK=1" }, 0 },
    { "a process that was to bring four ranks", { "COLL_RANK=0", "COLL_SIZE=8", "COLL_THREADS=4", "COLL_ADDR=h:1" },
      COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "makes 1 rank,", "COLL_THREADS=4", "--threads 1" }, 0 },
    { "the first of four processes of coll-run, which makes four ranks", { "COLL_RANK=0", "COLL_SIZE=4", "COLL_THREADS=1",
      "COLL_ADDR=h:1" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "makes 4 ranks", "COLL_THREADS=1", "--threads 4" }, 4 },
    { "the last of four processes of coll-run, which makes four ranks", { "COLL_RANK=3", "COLL_SIZE=4", "COLL_THREADS=1",
      "COLL_ADDR=h:1" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "makes 4 ranks", "COLL_THREADS=1", "--threads 4" }, 4 },
    { "one of eight processes of coll-run, which makes four ranks", { "COLL_RANK=1", "COLL_SIZE=8", "COLL_THREADS=1",
      "COLL_ADDR=h:1" }, COLL_ERR_ARGUMENT, 0, 0, NULL, NULL, { "makes 4 ranks", "--threads 4" }, 4 },
    { "COLL_THREADS=many", { "COLL_RANK=0", "COLL_SIZE=8", "COLL_THREADS=many", "COLL_ADDR=h:1" }, COLL_ERR_ARGUMENT, 0, 0, NULL,
      NULL, { "COLL_THREADS=many" }, 0 },
    { "coll-run -n 1 --threads 4", { "COLL_RANK=0", "COLL_SIZE=4", "COLL_THREADS=4" }, COLL_OK, 0, 4, "COLL_RANK and", "", { 0 },
      4 },
    { "coll-run -n 2 --threads 4", { "COLL_RANK=4", "COLL_SIZE=8", "COLL_THREADS=4", "COLL_ADDR=h:1" }, COLL_OK, 4, 8,
      "COLL_RANK and", "h:1", { 0 }, 4 },
    { "coll-run -n 1, four threads", { "COLL_RANK=0", "COLL_SIZE=1", "COLL_THREADS=1" }, COLL_OK, 0, 4, "COLL_RANK and", "",
      { 0 }, 4 },
    { "another launcher, and a COLL_THREADS of the user", { TORCH, "COLL_THREADS=8" }, COLL_OK, 3, 16, "torchrun", "h1:29500",
      { 0 }, 0 },
};

static void launch_case(const void *arg)
{
    const launched *l = arg;
    coll__settings s;
    coll__tcp_settings network = { .key = "" };

    clearenv();
    for (int i = 0; l->environment[i]; i++) putenv((char *)(uintptr_t)l->environment[i]);
    coll_status status = inside_settle(&s, NULL, l->count ? l->count : 1);
    if (status == COLL_OK && s.config.size > s.count) status = coll__tcp_configure(&network, &s);
    CHECK(status == l->status, "%s: status %d, \"%s\"", case_name, (int)status, coll__start_error);
    if (status < 0) {
        CHECK(says(coll__start_error, l->words, 3), "%s: \"%s\"", case_name, coll__start_error);
        return;
    }
    CHECK(s.config.rank == l->rank && s.config.size == l->size && !strncmp(s.source, l->source, strlen(l->source)),
          "%s: rank %d of %d, from %s", case_name,
          s.config.rank, s.config.size, s.source);
    const char *address = network.config.address ? network.config.address : "";
    CHECK(!strncmp(address, l->address, strlen(l->address)), "%s: address %s", case_name, address);
}

/* Slurm's port is in its range, the same for all ranks of a step, and another one for the next step. */
static void slurm_port_case(const void *arg)
{
    coll__settings s;
    coll__tcp_settings network;
    char ports[3][COLL__ADDRESS_ROOM], worlds[3][COLL__WORLD_ROOM];

    (void)arg;
    clearenv();
    putenv("SLURM_STEP_NUM_TASKS=4");
    putenv("SLURM_STEP_NODELIST=n[1-4]");
    putenv("SLURM_JOB_ID=4711");
    for (int i = 0; i < 3; i++) {
        putenv(i == 1 ? "SLURM_PROCID=3" : "SLURM_PROCID=0");
        putenv(i == 2 ? "SLURM_STEP_ID=1" : "SLURM_STEP_ID=0");
        CHECK(inside_settle(&s, NULL, 1) == COLL_OK && coll__tcp_configure(&network, &s) == COLL_OK,
              "%s: %s", case_name, coll__start_error);
        snprintf(ports[i], sizeof ports[i], "%s", network.config.address);
        snprintf(worlds[i], sizeof worlds[i], "%s", network.config.world);
    }
    const int port = atoi(strchr(ports[0], ':') + 1);
    CHECK(port >= 20000 && port <= 29999, "%s: %s", case_name, ports[0]);
    CHECK(!strcmp(ports[0], ports[1]) && strcmp(ports[0], ports[2]), "%s: %s, %s, %s", case_name, ports[0], ports[1], ports[2]);
    CHECK(!strcmp(worlds[0], worlds[1]) && strcmp(worlds[0], worlds[2]), "%s: %s, %s, %s", case_name, worlds[0], worlds[1],
          worlds[2]);
}

/* What the launcher calls the job is part of the world's name, wherever the address comes from. */
static const struct identity { const char *name, *environment[14], *world; } identities[] = {
    { "name: by hand", { "COLL_RANK=2", "COLL_SIZE=4", "COLL_ADDR=h:1" }, "w" },
    { "name: torchrun", { TORCH, "TORCHELASTIC_RUN_ID=r7", "TORCHELASTIC_RESTART_COUNT=0" }, "torchrun r7.0 w" },
    { "name: torchrun, again", { TORCH, "TORCHELASTIC_RUN_ID=r7", "TORCHELASTIC_RESTART_COUNT=1" }, "torchrun r7.1 w" },
    { "name: variables of torchrun by hand", { TORCH }, "w" },
    { "name: torchrun under srun", { TORCH, "TORCHELASTIC_RUN_ID=r7", "TORCHELASTIC_RESTART_COUNT=0", "SLURM_PROCID=3",
                               "SLURM_STEP_NUM_TASKS=16", "SLURM_JOB_ID=77", "SLURM_STEP_ID=3" }, "torchrun r7.0 w" },
    { "name: srun", { SRUN, "SLURM_STEP_NODELIST=n[1-4]" }, "Slurm 77.3 w" },
    { "name: srun, again", { SRUN, "SLURM_STEP_NODELIST=n[1-4]", "SLURM_RESTART_COUNT=1" }, "Slurm 77.3.1 w" },
    { "name: srun with an address", { SRUN, "COLL_ADDR=h:1" }, "Slurm 77.3 w" },
    { "name: srun, again, with an address", { SRUN, "COLL_ADDR=h:1", "SLURM_RESTART_COUNT=2" }, "Slurm 77.3.2 w" },
    { "name: srun with a list", { SRUN, "COLL_HOSTS=a:1,b:1,c:1,d:1" }, "Slurm 77.3 w" },
    { "name: srun with MASTER_ADDR", { SRUN, "MASTER_ADDR=h", "MASTER_PORT=1" }, "Slurm 77.3 w" },
    { "name: srun --mpi=pmi2 with an address", { SRUN, "PMI_RANK=1", "PMI_SIZE=4", "COLL_ADDR=h:1" }, "Slurm 77.3 w" },
    { "name: srun, numbered by hand", { SRUN, "COLL_RANK=1", "COLL_SIZE=4", "COLL_ADDR=h:1" }, "w" },
    { "name: srun starts the agents of mpirun", { SRUN, "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1",
                                            "COLL_ADDR=h:1" }, "w" },
    { "name: Open MPI with an address", { OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=12", "COLL_ADDR=h:1" },
      "Open MPI 12 w" },
};

static void identity_case(const void *arg)
{
    const struct identity *const i = arg;
    coll__settings s;
    coll__tcp_settings network;

    clearenv();
    putenv("COLL_WORLD=w");
    for (int k = 0; i->environment[k]; k++) putenv((char *)(uintptr_t)i->environment[k]);
    CHECK(inside_settle(&s, NULL, 1) == COLL_OK && coll__tcp_configure(&network, &s) == COLL_OK, "%s: %s", case_name,
          coll__start_error);
    CHECK(!strcmp(network.config.world, i->world), "%s: the world is \"%s\"", case_name, network.config.world);
}

/* Worker of a rank: does the world have `*arg` ranks? */
static int count_off(coll_comm *comm, void *arg)
{
    int32_t n = 1;
    const bool is_right = coll_allreduce(comm, &n, &n, 1, COLL_I32, COLL_SUM) == COLL_OK && n == *(int *)arg;

    if (!is_right) fprintf(stderr, "%s: rank %d: %d, %s\n", case_name, coll_rank(comm), (int)n, coll_error(comm));
    return !is_right;
}

/* Three processes as Hydra would start them find one another by the process at the other end of PMI_FD, with one or two ranks
 * each. */
static void started_case(const void *arg)
{
    enum { size = 3 };
    const bool has_threads = !strcmp(arg, "hydra threads");
    int ranks = has_threads ? 2 * size : size;
    char text[2][200];
    int pair[2], status, good = 0;
    pid_t pids[3];

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "%s: no pair", case_name);
    for (int rank = 0; rank < size; rank++) {
        if ((pids[rank] = fork()) != 0) continue;
        coll_comm *comm = NULL;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        clearenv();
        snprintf(text[0], sizeof text[0], "PMI_RANK=%d", rank);
        snprintf(text[1], sizeof text[1], "PMI_FD=%d", pair[1]);
        putenv(text[0]), putenv(text[1]), putenv("TMPDIR=/tmp"), putenv("PMI_SIZE=3"), putenv("MPI_LOCALNRANKS=3");
        const bool is_right = has_threads ? coll_spawn(2, count_off, &ranks, NULL) == 0
                              : coll_init(&comm, NULL) == COLL_OK && coll_rank(comm) == rank && count_off(comm, &ranks) == 0;
        coll_free(comm);
        _exit(is_right ? 0 : 1);
    }
    for (int rank = 0; rank < size; rank++) good += waitpid(pids[rank], &status, 0) == pids[rank] && status == 0;
    const int expected = SUPPORT_IS_PORTABLE ? 0 : size;      /* POSIX does not report which process holds the other end */
    CHECK(good == expected, "%s: %d of %d ranks, not %d", case_name, good, size, expected);
    for (int i = 0; i < 2; i++) close(pair[i]);
}

/* ---- >>main ---- */

int main(void)
{
    tally = support_need(mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    clearenv();
    test_nodelists();
    test_lists_of_hosts();
    test_ports();
    test_networks();
    test_other_words();
    test_rendezvous();
    world = "launchers";
    for (size_t i = 0; i < sizeof launches / sizeof *launches; i++)
        run_case_within(CASE_SECONDS, launch_case, &launches[i], launches[i].name);
    run_case_within(CASE_SECONDS, slurm_port_case, NULL, "Slurm's port");
    for (size_t i = 0; i < sizeof identities / sizeof *identities; i++)
        run_case_within(CASE_SECONDS, identity_case, &identities[i], identities[i].name);
    run_case_within(CASE_SECONDS, started_case, "hydra", "three ranks of Hydra");
    run_case_within(CASE_SECONDS, started_case, "hydra threads", "three processes of Hydra with two ranks each");
    return CHECK_DONE();
}
