/* run_show.h - part of coll-run.c: --dry-run prints what would be started, as shell commands.
 *
 * Values known only at run time, the port and the job's name, are in capitals.  A key is never printed. */
#ifndef RUN_SHOW_H
#define RUN_SHOW_H

/* One process: "rank 3 on host-b: COLL_RANK=3 ... './program' 'argument'". */
static void show_process(const struct options *asked, int number, int local, int local_count, const char *host, const char *root)
{
    const int threads = asked->threads ? asked->threads : 1;

    printf("rank %d%s%s: ", number * threads, host ? " on " : "", host ? host : "");
    printf("COLL_RANK=%d COLL_SIZE=%d COLL_LOCAL_RANK=%d COLL_LOCAL_SIZE=%d COLL_ADDR=%s COLL_WORLD=NAME ", number * threads,
           asked->begin * threads, local * threads, local_count * threads, root);
    printf("COLL_THREADS=%d ", threads);
    if (asked->key || asked->role == ROLE_HEAD) printf("COLL_KEY=... ");
    for (size_t i = 0; i < asked->settings.count; i++) {
        char *value = quote(strchr(asked->settings.list[i], '=') + 1);
        printf("%.*s=%s ", (int)strcspn(asked->settings.list[i], "="), asked->settings.list[i], value);
        free(value);
    }
    if (asked->check) printf("coll-check");
    for (char **word = asked->program; *word; word++) {
        char *quoted = quote(*word);
        printf("%s%s", word > asked->program ? " " : "", quoted);
        free(quoted);
    }
    putchar('\n');
}

static void show_hosts(const struct job *job, char *root)
{
    const struct options *asked = &job->options;
    char *command = remote_command(job), *rsh = rsh_command(asked->rsh);

    rsh[strlen(rsh) - strlen(" \"$@\"")] = '\0';
    for (int i = 0, number = 0; i < asked->slot_count; i++) {
        const struct slot *slot = &asked->slots[i];
        char *words = quote(command);
        if (is_here(job, slot->target)) printf("%s: %s --agent\n", slot->target, job->own_path);
        else printf("%s: %s %s %s\n", slot->target, rsh + strlen("exec "), slot->target, words);
        free(words);
        for (int k = 0; k < slot->count && number < asked->begin; k++, number++)
            show_process(asked, number, k, slot->count, slot->target, root);
    }
    free(command);
    free(rsh);
}

static int show_plan(const struct job *job)
{
    const struct options *asked = &job->options;
    char root[300] = "127.0.0.1:PORT";

    if (asked->address) snprintf(root, sizeof root, "%s", asked->address);
    else if (asked->role == ROLE_HEAD) snprintf(root, sizeof root, "%s:PORT", host_part(asked->slots[0].target));
    else if (asked->role == ROLE_JOIN) snprintf(root, sizeof root, "%.*s:PORT", (int)strcspn(asked->join, ":"), asked->join);
    if (asked->role == ROLE_HEAD) {
        show_hosts(job, root);
    } else {
        if (asked->role == ROLE_JOIN) printf("if this machine is the first at %s:\n", asked->join);
        for (int i = 0; i < asked->start; i++) show_process(asked, i, i, asked->count, NULL, root);
    }
    return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif /* RUN_SHOW_H */
