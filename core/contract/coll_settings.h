/* coll_settings.h - what a communicator is to be, when nothing is left to ask for. */
#ifndef COLL_SETTINGS_H
#define COLL_SETTINGS_H

#include "coll_shape.h"
#include "coll_tuning.h"

enum { COLL__SIZE_MOST = 65536 };

enum { COLL__HOSTS_ROOM = COLL__HAS_ENV ? 4096 : 1 };

/* Of COLL_ALGORITHM: its length, and the kinds for which it may name one. */
enum {
    COLL__HAS_FORCED = COLL__HAS_ENV && COLL__HAS_CHOICE,
    COLL__FORCED_ROOM = COLL__HAS_FORCED ? 256 : 1, COLL__FORCED_KINDS = COLL__HAS_FORCED ? COLL__KIND_COUNT : 1
};

/* A launcher: the names of the variables by which it tells. */
typedef struct coll__launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
    const char *job;                              /* what names the job on a host; NULL: nothing does         */
    bool        is_strict;                        /* half of this row is a mistake, not somebody else's word  */
    bool        is_of_hosts;                      /* it counts hosts or pods, which may hold several processes */
    const char *where;                            /* tells a person which host is that of rank 0              */
} coll__launcher;

/* What the environment says. */
typedef struct coll__launched {
    const char *source;                           /* the name of the launcher, or "nothing in the environment" */
    const coll__launcher *by;                     /* NULL: none                                               */
    int  rank, size, local_rank, local_size;      /* local_size 0: not said                                   */
    char hosts[COLL__HOSTS_ROOM];                 /* where each rank listens; "": not said                    */
} coll__launched;

/* How many entries "a:1,b:2,c:3" has. */
static int coll__hosts_count(const char *hosts)
{
    int n = 1;
    for (; *hosts; hosts++) n += *hosts == ',';
    return n;
}

typedef struct coll__extension coll__extension;   /* core/engine/coll_comm.h                                  */

/* A configuration without defaults left in it. */
typedef struct coll__settings {
    coll_config config;
    int         count;                            /* ranks of this process, config.rank being the first       */
    int         processors;                       /* that this process may use                                */
    coll_status status;                           /* < 0: they make no sense                                  */
    const char *source;                           /* who said the rank: "the configuration", "torchrun", ...  */
    coll__launched launch;                        /* what the environment says, where it was asked            */
    const coll__extension *extension;             /* of this program                                          */
    uint32_t    arithmetic;                       /* of this program: coll__arithmetic                        */
    coll__numbers numbers;                        /* what the tuner is to believe of the wire                 */
    char        forced_text[COLL__FORCED_ROOM];                 /* names of COLL_ALGORITHM, each ended by '\0'              */
    int         forced_at[COLL__FORCED_KINDS];    /* 1 + where that of each kind begins; 0: none              */
} coll__settings;

#endif /* COLL_SETTINGS_H */
