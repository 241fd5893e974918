/* run_cores.h - part of coll-run.c: --bind, the cores of each local process.
 *
 * The usable processors are sorted by package and core, so that the threads of a core are neighbors.  Each process gets an
 * equal part.  If there are more processes than processors, they share these in turn. */
#ifndef RUN_CORES_H
#define RUN_CORES_H

struct core {
    int package, core, cpu;
};

static int read_topology(int cpu, const char *what)
{
    char path[120];
    int value = 0;

    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &value) != 1) value = 0;
    if (file) fclose(file);
    return value;
}

static int compare_cores(const void *left, const void *right)
{
    const struct core *a = left, *b = right;

    if (a->package != b->package) return a->package < b->package ? -1 : 1;
    if (a->core != b->core) return a->core < b->core ? -1 : 1;
    return a->cpu < b->cpu ? -1 : a->cpu > b->cpu;
}

/* The processors of process `at` of `count`.  Returns false if the kernel does not report them. */
static bool share_of_cores(int at, int count, cpu_set_t *share)
{
    struct core cores[CPU_SETSIZE];
    cpu_set_t all;
    int known = 0;

    if (sched_getaffinity(0, sizeof all, &all)) return false;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &all)) continue;
        cores[known++] = (struct core){ read_topology(cpu, "physical_package_id"), read_topology(cpu, "core_id"), cpu };
    }
    qsort(cores, (size_t)known, sizeof *cores, compare_cores);
    CPU_ZERO(share);
    if (count >= known) {
        CPU_SET((size_t)cores[at % known].cpu, share);
        return true;
    }
    for (int i = at * known / count; i < (at + 1) * known / count; i++) CPU_SET((size_t)cores[i].cpu, share);
    return true;
}

#endif /* RUN_CORES_H */
