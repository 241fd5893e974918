/* coll_p2p_hooks.h - messages by key (coll_p2p.h), as seen by the parts that every program links.
 *
 * With COLL__ON_DEMAND (boards), a session gets these functions with its first call that needs them (coll_carriers.h).  A
 * program without such calls does not link them.  Otherwise they are called directly. */
#ifndef COLL_P2P_HOOKS_H
#define COLL_P2P_HOOKS_H

/* What is still to be sent.  SHORT: its caller got COLL_OK for it. */
typedef enum coll__undelivered { COLL__UNDELIVERED_NONE, COLL__UNDELIVERED_LONG, COLL__UNDELIVERED_SHORT } coll__undelivered;

struct coll__by_key {
    const coll__carrier *carrier;                 /* of one message                                           */
    coll_status (*post)(const coll__order *order, coll_xfer *x, bool is_send);
    coll_status (*advance)(coll__session *session);
    coll_status (*unmatched)(const coll_comm *comm, coll_failure *failure);
    coll__undelivered (*undelivered)(const coll_comm *comm);
    bool        (*are_moving)(const coll_comm *comm);
    void        (*close)(coll_comm *comm, coll_status status);
    void        (*free)(coll__session *session);
    void        (*look_for_overflow)(coll_request *r);    /* COLL_DETECT_OVERFLOW also needs coll_call        */
};

#if COLL__HAS_MESSAGES
#define COLL__BY_KEY(session, call, ...) \
    (COLL__ON_DEMAND ? (session)->by_key->call(__VA_ARGS__) : coll__messages_##call(__VA_ARGS__))
#else
#define COLL__BY_KEY(session, call, ...) coll__no_messages()

/* COLL_LEAST: the transport executes every collective as a whole, and coll_check_arguments.h refuses messages. */
static inline int coll__no_messages(void) { return 0; }
static inline bool coll__messages_are_there(const coll__session *session) { return (void)session, false; }
static inline coll__undelivered coll__messages_undelivered(const coll_comm *comm) { return (void)comm, COLL__UNDELIVERED_NONE; }
static inline coll_status coll__messages_hear(const coll_comm *comm) { return (void)comm, COLL_OK; }
#endif

#endif /* COLL_P2P_HOOKS_H */
