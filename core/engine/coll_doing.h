/* coll_doing.h - what this rank is doing, for others to read: other threads, and by them other ranks. */
#ifndef COLL_DOING_H
#define COLL_DOING_H

#if COLL__HAS_OS

/* Something has changed.  Who is alone in the session counts without a locked instruction, with which he would wait until all
 * he has published has arrived at the other ranks. */
static inline void coll__doing_turn(coll__session *session)
{
    uint64_t *const turn = &session->doing.turn;

    if (coll__is_shared(session)) (void)__atomic_add_fetch(turn, 1, __ATOMIC_RELEASE);
    else __atomic_store_n(turn, __atomic_load_n(turn, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
}

/* Write a head where other threads read it. */
static inline void coll__doing_set(coll__session *session, uint64_t *words, const unsigned char *head)
{
    COLL__UNROLLED for (int i = 0; i < COLL_HEAD_LENGTH / 8; i++) {
        uint64_t word;
        memcpy(&word, head + 8 * i, 8);
        __atomic_store_n(&words[i], word, __ATOMIC_RELAXED);
    }
    coll__doing_turn(session);
}

/* It waits in the call with this head. */
static inline void coll__doing_begin(coll__session *session, const unsigned char *head)
{
    (void)__atomic_add_fetch(&session->doing.inside, 1, __ATOMIC_RELAXED);
    coll__doing_set(session, session->doing.now, head);
}

static inline void coll__doing_end(coll__session *session)
{
    (void)__atomic_sub_fetch(&session->doing.inside, 1, __ATOMIC_RELAXED);
    coll__doing_turn(session);
}

/* A call with COLL_DETECT_OVERFLOW has found one. */
static inline void coll__overflows_count(coll_comm *comm) { (void)__atomic_add_fetch(&comm->overflows, 1, __ATOMIC_RELAXED); }
static inline uint64_t coll__overflows_of(const coll_comm *comm) { return __atomic_load_n(&comm->overflows, __ATOMIC_RELAXED); }

#else

/* Nobody else reads. */
static inline void coll__doing_set(coll__session *session, uint64_t *words, const unsigned char *head)
{
    (void)session;
    memcpy(words, head, COLL_HEAD_LENGTH);
}

static inline void coll__doing_begin(coll__session *session, const unsigned char *head) { (void)session, (void)head; }
static inline void coll__doing_end(coll__session *session) { (void)session; }
static inline void coll__overflows_count(coll_comm *comm) { comm->overflows++; }
static inline uint64_t coll__overflows_of(const coll_comm *comm) { return comm->overflows; }

#endif
#endif /* COLL_DOING_H */
