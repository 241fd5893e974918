/* coll_p2p_none.h - replaces messages in a program without them (COLL_LEAST): the transport executes every collective as a
 * whole, and coll_check_arguments.h refuses messages. */
#ifndef COLL_P2P_NONE_H
#define COLL_P2P_NONE_H

static inline void coll__messages_use(coll_comm *comm) { (void)comm; }
static inline bool coll__messages_are_there(const coll__session *session) { return (void)session, false; }
static inline coll_status coll__messages_advance(const coll__session *session) { return (void)session, COLL_OK; }
static inline coll__undelivered coll__messages_undelivered(const coll_comm *comm) { return (void)comm, COLL__UNDELIVERED_NONE; }
static inline bool coll__messages_are_moving(const coll_comm *comm) { return (void)comm, false; }
static inline coll_status coll__messages_unmatched(const coll_comm *comm, const coll_failure *failure)
{
    return (void)comm, (void)failure, COLL_OK;
}

static inline coll_status coll__messages_hear(const coll_comm *comm) { return (void)comm, COLL_OK; }
static inline void coll__messages_close(const coll_comm *comm, coll_status status) { (void)comm, (void)status; }
static inline void coll__messages_free(const coll__session *session) { (void)session; }

#endif /* COLL_P2P_NONE_H */
