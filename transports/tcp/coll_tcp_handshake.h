/* coll_tcp_handshake.h - the handshake at the start of every connection, both sides.
 *
 * The caller (the rank that connects) sends its own rank and the rank that it wants; the other side checks that.  Without a
 * key that is all.  With a key, both sides prove that they know it before anything else is read:
 *
 *     caller -> hello_c                                     128 bytes, with a nonce
 *     caller <- hello_s                                     128 bytes, with a nonce and with proof S
 *     caller -> proof C                                     32 bytes
 *     (TLS, under the secret T, then goes on from here)
 *
 *     proof X = HMAC(K', X, hello_c, hello_s)               the proofs in the hellos count as zero
 *     K'      = HMAC(root, world, epoch)                    root = HMAC(key, "coll-v1")
 *
 * The nonces prevent replay; the letters tell the sides apart (reflection); both ranks and the purpose are in the hellos, so a
 * connection cannot be redirected to another rank.  All sums have a fixed length.  An unauthenticated peer costs at most two
 * sums, and only for an otherwise valid hello.  A budget bounds the number of such hellos that are answered; a proof refunds
 * its cost.
 *
 * A refused peer gets the reason as a control message in clear, in place of an answer.  Any host on the path could forge one.
 * So a rank with a key adds a proof for this hello and this text:
 *
 *     proof R = HMAC(root, R, hello_c, the message before it)   not K': the world ids may differ
 *
 * A caller with a key ignores other refusals and other answers: it retries until its deadline.  Only a wrong proof S, or a
 * failed start of TLS, shows at once that the keys differ.
 *
 * coll__handshake_advance never blocks.  Nothing is allocated for an unchecked caller. */
#ifndef COLL_TCP_HANDSHAKE_H
#define COLL_TCP_HANDSHAKE_H

/* What a rank knows of its job before it connects. */
typedef struct coll__identity {
    unsigned char world[COLL__WORLD_LENGTH], host[COLL__HOST_LENGTH];
    int rank, size;
    uint32_t epoch;                               /* number of shrinks                                        */
    const coll_allocator *memory;                 /* for connections                                          */
    int auth;                                     /* COLL__AUTH_...                                           */
    int more_lanes;                               /* connections to a peer, minus one                         */
    uint32_t arithmetic;                          /* coll__arithmetic                                         */
    unsigned char root[COLL__SHA_LENGTH];         /* derived from the key                                     */
    coll__tls *tls;                               /* for TLS                                                  */
    struct coll__past *past;                      /* NULL: the job has not shrunk                             */
} coll__identity;

/* Another identity of this process.  The agreement that made this job (coll_tcp_consensus.h): ranks that still connect for it get
 * the decision.  Or that of the job for newcomers (coll_tcp_join.h), without bytes. */
typedef struct coll__past {
    coll__identity us;                            /* contains the agreement before it                         */
    unsigned char *bytes;                         /* control messages with the decision                       */
    size_t        length;
} coll__past;

/* Bounds the answers to callers without a proof of the key: a burst, and then a rate. */
typedef struct coll__budget {
    int64_t until;                                /* when all answers given are paid for                      */
    int     most, a_second;
    bool    is_awaited;                           /* a caller waits: later ones queue behind it               */
} coll__budget;

typedef enum coll__handshake_step {
    COLL__HANDSHAKE_HEAR, COLL__HANDSHAKE_ANSWER, COLL__HANDSHAKE_HEAR_PROOF, /* the called side                  */
    COLL__HANDSHAKE_SAY, COLL__HANDSHAKE_HEAR_ANSWER, COLL__HANDSHAKE_HEAR_REFUSAL, COLL__HANDSHAKE_PROVE,    /* the caller */
    COLL__HANDSHAKE_TLS, COLL__HANDSHAKE_OVER
} coll__handshake_step;

typedef struct coll__handshake {
    coll__pipe  pipe;
    bool        is_caller;
    bool        is_reached;                       /* caller: the other host has accepted the connection       */
    const coll__past *past;                       /* the finished agreement that the caller means; NULL: none */
    coll__handshake_step step;
    short       want;                             /* poll events before the next advance                      */
    size_t      length;                           /* bytes of this step that are done                         */
    int64_t     deadline;
    coll__budget *budget;                         /* of the called side; NULL: unbounded                      */
    bool        is_waiting;                       /* for the budget                                           */
    bool        is_denied;                        /* the caller has got a wrong proof                         */
    coll__hello hello;                            /* caller: to be sent; called side: received                */
    bool        is_unauthenticated;               /* the failure is an unauthenticated refusal                */
    bool        is_near;                          /* the caller is one coll_shrink ahead or behind            */
    char        why[256];                         /* an error as a sentence                                   */
    unsigned char call[COLL__HELLO_LENGTH], answer[COLL__HELLO_LENGTH];       /* hello_c, hello_s, without proofs */
    unsigned char bytes[COLL__CONTROL_LENGTH];    /* being sent or received                                   */
} coll__handshake;

/* ---- >>budget ---- */

static int64_t coll__budget_cost(const coll__budget *b) { return 1000 * (int64_t)COLL__MS / b->a_second; }

static bool coll__budget_take(coll__budget *b)
{
    if (!b) return true;
    const int64_t now = coll__now(), from = b->until > now ? b->until : now, cost = coll__budget_cost(b);
    const bool is_there = !b->is_awaited && from - now <= (b->most - 1) * cost;
    if (is_there) b->until = from + cost;
    else __atomic_store_n(&b->is_awaited, true, __ATOMIC_RELAXED);
    return is_there;
}

static void coll__budget_give_back(coll__budget *b) { if (b) b->until -= coll__budget_cost(b); }

/* ---- >>past: finished agreements, for which a rank may still connect ---- */

static inline const coll__past *coll__past_of(const coll__handshake *g) { return COLL__HAS_SHRINK ? g->past : NULL; }

/* Does the caller's hello mean a finished agreement? */
static bool coll__past_is_meant(coll__handshake *g, const coll__identity *us)
{
    coll__hello hello;

    for (const coll__past *p = us->past; COLL__HAS_SHRINK && p; p = p->us.past) {
        if (coll__hello_read(g->call, p->us.world, p->us.size, &hello)) continue;
        if (hello.purpose != (p->bytes ? COLL__PURPOSE_JOIN : COLL__PURPOSE_NEWCOMER)) continue;
        g->hello = hello;
        g->past = p;
        return true;
    }
    return false;
}

static void coll__past_free(coll__identity *us)
{
    for (coll__past *past; COLL__HAS_SHRINK && (past = us->past);) {
        us->past = past->us.past;
        coll__wipe(past, sizeof *past);
        coll__give(past);
    }
}

/* The identity for this caller. */
static inline const coll__identity *coll__greeted_as(const coll__handshake *g, const coll__identity *us)
{
    return coll__past_of(g) ? &coll__past_of(g)->us : us;
}

/* ---- >>begin ---- */

static inline bool coll__purpose_joins(int purpose) { return purpose == COLL__PURPOSE_JOIN || purpose == COLL__PURPOSE_NEWCOMER; }

static void coll__hello_as(coll__hello *hello, const coll__identity *us)
{
    hello->rank = us->rank;
    hello->size = us->size;
    hello->epoch = us->epoch;
    hello->auth = (unsigned char)us->auth;
    hello->arithmetic = us->arithmetic;
    if (coll__purpose_joins(hello->purpose)) hello->more_lanes = us->more_lanes;
    memcpy(hello->world, us->world, sizeof us->world);
    memcpy(hello->host, us->host, sizeof us->host);
    memset(hello->nonce, 0, sizeof hello->nonce);
}

/* Begin as the caller on a connected socket; the handshake owns it. */
static void coll__handshake_call(coll__handshake *g, const coll__identity *us, int fd, coll__hello hello, int64_t deadline)
{
    *g = (coll__handshake){ .pipe = { .fd = fd }, .is_caller = true, .step = COLL__HANDSHAKE_SAY, .want = POLLOUT,
                            .deadline = deadline, .hello = hello };
    coll__hello_as(&g->hello, us);
}

/* Begin as the called side on an accepted socket; the handshake owns it. */
static void coll__handshake_answer(coll__handshake *g, int fd, int64_t deadline)
{
    *g = (coll__handshake){ .pipe = { .fd = fd }, .step = COLL__HANDSHAKE_HEAR, .want = POLLIN, .deadline = deadline };
}

/* ---- >>steps: each does what it can, and returns COLL_OK when the next one is due ---- */

static COLL__PRINTF(3, 4) coll_status coll__handshake_failed(coll__handshake *g, coll_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(g->why, sizeof g->why, format, list);
    va_end(list);
    return status;
}

static coll_status coll__handshake_next(coll__handshake *g, coll__handshake_step step)
{
    g->step = step;
    g->length = 0;
    return COLL_OK;
}

/* Move g->bytes until there are `length` of them. */
static coll_status coll__handshake_move(coll__handshake *g, size_t length, bool is_write)
{
    while (g->length < length) {
        const ssize_t n = coll__pipe_move(&g->pipe, g->bytes + g->length, length - g->length, is_write);
        g->want = is_write ? POLLOUT : POLLIN;
        if (n == -EAGAIN) return COLL_PENDING;
        if (n < 0) return coll__handshake_failed(g, COLL_ERR_PEER, "%s", coll__ending_text((int)-n));
        g->length += (size_t)n;
        if (!is_write && g->step == COLL__HANDSHAKE_HEAR && !coll__hello_may_begin(g->bytes, g->length)) return COLL_OK;
    }
    return COLL_OK;
}

/* ---- >>key: proofs, and the steps with a key ---- */

static inline bool coll__has_key(const coll__identity *us) { return COLL__HAS_SECURITY && us->auth & COLL__AUTH_KIND; }

/* Derive the root, and set up TLS.  false: TLS cannot be set up. */
static bool coll__identity_keyed(coll__identity *us, const char *key)
{
    static const char label[] = { 'c', 'o', 'l', 'l', '-', 'v', '1' };
    const struct iovec piece = { (void *)(uintptr_t)label, sizeof label };

    if (!COLL__HAS_SECURITY) return true;
    if (coll__has_key(us)) coll__hmac(us->root, key, strlen(key), &piece, 1);
    if ((us->auth & COLL__AUTH_KIND) != COLL__AUTH_TLS) return true;
    us->tls = coll__tls_new(us->memory);
    return us->tls;
}

/* HMAC of the letter, hello_c and more. */
static void coll__letter_sum(const coll__handshake *g, const unsigned char *key, char letter, const unsigned char *more,
                             size_t length, unsigned char *out)
{
    const struct iovec said[] = { { &letter, 1 }, { (void *)(uintptr_t)g->call, sizeof g->call },
                                  { (void *)(uintptr_t)more, length } };
    coll__hmac(out, key, COLL__SHA_LENGTH, said, 3);
}

/* The proof of the key for this handshake and purpose. */
static void coll__handshake_sum(const coll__handshake *g, const coll__identity *us, char letter, unsigned char *out)
{
    unsigned char epoch[4], key[COLL__SHA_LENGTH];
    const struct iovec world[] = { { (void *)(uintptr_t)us->world, sizeof us->world }, { epoch, sizeof epoch } };

    coll__put32(epoch, us->epoch);
    coll__hmac(key, us->root, sizeof us->root, world, 2);
    coll__letter_sum(g, key, letter, g->answer, sizeof g->answer, out);
    coll__wipe(key, sizeof key);
}

static bool coll__handshake_is_proved(const coll__handshake *g, const coll__identity *us, char letter, const unsigned char *proof)
{
    unsigned char expected[COLL__SHA_LENGTH];

    if (!COLL__HAS_SECURITY) return false;
    coll__handshake_sum(g, us, letter, expected);
    return coll__same_secret(expected, proof, sizeof expected);
}

/* Add the proof to a refusal if both sides have a key and a complete hello has arrived: the sender has the key, and answers this
 * hello. */
static void coll__refusal_prove(const coll__handshake *g, const coll__identity *us, unsigned char *note)
{
    const bool has_hello = g->step == COLL__HANDSHAKE_HEAR && g->length == COLL__HELLO_LENGTH;
    const int theirs = g->call[offsetof(coll__hello, auth)];

    if (!COLL__HAS_SECURITY || !has_hello || !coll__has_key(us) || !(theirs & COLL__AUTH_KIND)) return;
    if (!coll__budget_take(g->budget)) return;
    note[COLL__CONTROL_PROOF - 1] = 0;
    coll__letter_sum(g, us->root, 'R', note, COLL__CONTROL_PROOF, note + COLL__CONTROL_PROOF);
}

/* The hellos are exchanged: begin TLS or checksums, if configured. */
static coll_status coll__handshake_settle(coll__handshake *g, const coll__identity *us)
{
    unsigned char secret[COLL__SHA_LENGTH];
    bool is_good = true;

    if (!COLL__HAS_SECURITY) return coll__handshake_next(g, COLL__HANDSHAKE_OVER);
    if ((us->auth & COLL__AUTH_KIND) == COLL__AUTH_TLS) {
        coll__handshake_sum(g, us, 'T', secret);
        is_good = coll__pipe_tls(us->memory, &g->pipe, us->tls, secret, g->is_caller);
        coll__wipe(secret, sizeof secret);
    } else if (us->auth & COLL__AUTH_CHECK) {
        is_good = coll__pipe_check(us->memory, &g->pipe);
    }
    if (!is_good) return coll__handshake_failed(g, COLL_ERR_MEMORY, "no memory for the connection");
    return coll__handshake_next(g, (us->auth & COLL__AUTH_KIND) == COLL__AUTH_TLS ? COLL__HANDSHAKE_TLS : COLL__HANDSHAKE_OVER);
}

static coll_status coll__handshake_hear_answer(coll__handshake *g, const coll__identity *us)
{
    coll__hello answer;
    coll_status status = coll__handshake_move(g, 4, false);

    if (status != COLL_OK) return status;
    if (coll__begins_refusal(g->bytes)) {
        g->step = COLL__HANDSHAKE_HEAR_REFUSAL;   /* the bytes are the start of it                            */
        return COLL_OK;
    }
    if ((status = coll__handshake_move(g, COLL__HELLO_LENGTH, false)) != COLL_OK) return status;
    const char *wrong = coll__hello_read(g->bytes, us->world, us->size, &answer);
    const bool is_it = answer.rank == g->hello.to && answer.to == us->rank && answer.epoch == us->epoch && answer.auth == us->auth
        && answer.arithmetic == us->arithmetic && answer.more_lanes == g->hello.more_lanes && answer.lane == g->hello.lane
        && answer.purpose == g->hello.purpose && answer.channel == g->hello.channel;
    if (!wrong && !is_it) wrong = "another rank answers there, or another question";
    if (wrong) {
        g->is_unauthenticated = true;
        return coll__handshake_failed(g, COLL_ERR_PEER, "%s", wrong);
    }
    memcpy(g->answer, g->bytes, COLL__HELLO_PROOF);
    g->is_denied = !coll__handshake_is_proved(g, us, 'S', g->bytes + COLL__HELLO_PROOF);
    if (g->is_denied) memset(g->bytes, 0, COLL__SHA_LENGTH);      /* an invalid proof, so that it reports that, too */
    else if (COLL__HAS_SECURITY) coll__handshake_sum(g, us, 'C', g->bytes);
    return coll__handshake_next(g, COLL__HANDSHAKE_PROVE);
}

/* The hello is valid: answer it, with a proof. */
static coll_status coll__handshake_answer_hello(coll__handshake *g, const coll__identity *us)
{
    g->is_waiting = !coll__budget_take(g->budget);
    if (g->is_waiting) {                          /* poll for nothing                                         */
        g->want = 0;
        return COLL_PENDING;
    }
    coll__hello answer = g->hello;
    coll__hello_as(&answer, us);
    answer.to = g->hello.rank;
    if (!coll__nonce(answer.nonce, sizeof answer.nonce))
        return coll__handshake_failed(g, COLL_ERR_SYSTEM, "no random bytes: %s", strerror(errno));
    coll__hello_write(g->answer, &answer);
    memcpy(g->bytes, g->answer, sizeof g->answer);
    if (COLL__HAS_SECURITY) coll__handshake_sum(g, us, 'S', g->bytes + COLL__HELLO_PROOF);
    return coll__handshake_next(g, COLL__HANDSHAKE_ANSWER);
}

/* ---- >>without a key ---- */

/* Send the hello.  If the caller was late, the other side may have refused already. */
static coll_status coll__handshake_say(coll__handshake *g, const coll__identity *us)
{
    const bool has_key = coll__has_key(us);
    unsigned char peek;

    if (g->length == 0) {
        const ssize_t n = recv(g->pipe.fd, &peek, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0) return coll__handshake_failed(g, COLL_ERR_PEER, "%s", coll__ending_text(0));
        if (n > 0) return coll__handshake_next(g, COLL__HANDSHAKE_HEAR_REFUSAL);
        if (has_key && !coll__nonce(g->hello.nonce, sizeof g->hello.nonce))
            return coll__handshake_failed(g, COLL_ERR_SYSTEM, "no random bytes: %s", strerror(errno));
        coll__hello_write(g->call, &g->hello);
        memcpy(g->bytes, g->call, sizeof g->call);
    }
    const coll_status status = coll__handshake_move(g, COLL__HELLO_LENGTH, true);
    if (status != COLL_OK) return status;
    return has_key ? coll__handshake_next(g, COLL__HANDSHAKE_HEAR_ANSWER) : coll__handshake_settle(g, us);
}

/* Read a refusal in place of an answer; ignore it if it must be authenticated and is not. */
static coll_status coll__handshake_refused(coll__handshake *g, const coll__identity *us)
{
    unsigned char expected[COLL__SHA_LENGTH];
    coll__control control;
    const coll_status status = coll__handshake_move(g, COLL__CONTROL_LENGTH, false);

    if (status != COLL_OK) return status;
    const bool has_key = coll__has_key(us);
    g->is_unauthenticated = has_key;
    if (!coll__control_read(g->bytes, us->size, &control))
        return coll__handshake_failed(g, has_key ? COLL_ERR_PEER : COLL_ERR_PROTOCOL, "something else answers there");
    const char *text = *control.what.text ? control.what.text : coll_status_text(control.what.status);
    if (COLL__HAS_SECURITY && has_key) coll__letter_sum(g, us->root, 'R', g->bytes, COLL__CONTROL_PROOF, expected);
    if (!has_key || coll__same_secret(expected, g->bytes + COLL__CONTROL_PROOF, sizeof expected)) {
        g->is_unauthenticated = false;
        return coll__handshake_failed(g, control.what.status, "%s", text);
    }
    g->is_unauthenticated = control.what.status != COLL_ERR_PEER && control.what.status != COLL_ERR_TIMEOUT;
    return coll__handshake_failed(g, COLL_ERR_PEER, "an unauthenticated peer says: %.191s", text);
}

static coll_status coll__handshake_check_auth(coll__handshake *g, const coll__identity *us)
{
    const int theirs = g->hello.auth, ours = us->auth;
    const bool has_key = theirs & COLL__AUTH_KIND, have_we = ours & COLL__AUTH_KIND;

    if (has_key != have_we)
        return coll__handshake_failed(g, COLL_ERR_DENIED, "it has %s, and here there is %s (COLL_KEY)",
                                      has_key ? "a key" : "no key", have_we ? "one" : "none");
    return coll__handshake_failed(g, COLL_ERR_DENIED,
                                  "security mismatch: it uses \"%s\", and here it is \"%s\"; set COLL_SECURITY "
                                  "to the same on all ranks (\"tls\" needs -DCOLL_WITH_OPENSSL)", coll__security_name(theirs),
                                  coll__security_name(ours));
}

/* The two builds could compute different bits. */
static coll_status coll__handshake_differ(coll__handshake *g, const coll__identity *us)
{
    static const struct { uint32_t bit; const char *name; } parts[] = {
        { COLL__LACKS_CHOICE, "COLL_NO_CHOICE" }, { COLL__LACKS_HIERARCHY, "COLL_NO_HIERARCHY" }
    };
    char theirs[80], ours[80];

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!((g->hello.arithmetic ^ us->arithmetic) & parts[i].bit)) continue;
        return coll__handshake_failed(g, COLL_ERR_PROTOCOL, us->arithmetic & parts[i].bit
                                      ? "this rank was compiled with %s, and it was not"
                                      : "it was compiled with %s, and this rank was not", parts[i].name);
    }
    if ((g->hello.arithmetic ^ us->arithmetic) & COLL__OTHER_MASK)
        return coll__handshake_failed(g, COLL_ERR_PROTOCOL, "one of COLL_PACK_BYTES, COLL_SHORT_BYTES and COLL_CREDIT_BYTES was "
                                      "set for it and not for this rank, or otherwise");
    coll__arithmetic_text(g->hello.arithmetic, theirs, sizeof theirs);
    coll__arithmetic_text(us->arithmetic, ours, sizeof ours);
    return coll__handshake_failed(g, COLL_ERR_PROTOCOL, "its arithmetic %s, and here it %s (a part of it with -ffast-math?)",
                                  theirs, ours);
}

static coll_status coll__handshake_hear(coll__handshake *g, const coll__identity *us)
{
    const coll_status status = coll__handshake_move(g, COLL__HELLO_LENGTH, false);

    if (status != COLL_OK) return status;
    memcpy(g->call, g->bytes, COLL__HELLO_LENGTH);
    const char *wrong = coll__hello_read(g->call, us->world, us->size, &g->hello);
    uint32_t epoch = us->epoch;
    if (coll__hello_may_begin(g->call, g->length)) memcpy(&epoch, g->call + offsetof(coll__hello, epoch), sizeof epoch);
    g->is_near = epoch == us->epoch + 1 || epoch + 1 == us->epoch;
    if (wrong && coll__past_is_meant(g, us)) wrong = NULL;
    us = coll__greeted_as(g, us);
    if (!wrong && g->hello.epoch != us->epoch) wrong = "it has shrunk, or has not";
    if (wrong) return coll__handshake_failed(g, COLL_ERR_PROTOCOL, "%s", wrong);
    if (g->hello.to != us->rank)
        return coll__handshake_failed(g, COLL_ERR_PROTOCOL, "it calls rank %d, and this is rank %d", g->hello.to, us->rank);
    if (g->hello.auth != us->auth) return coll__handshake_check_auth(g, us);
    if (g->hello.arithmetic != us->arithmetic) return coll__handshake_differ(g, us);
    const bool needs_one = !coll__purpose_joins(g->hello.purpose) && g->hello.more_lanes == 0;
    if (g->hello.more_lanes != us->more_lanes && !needs_one)
        return coll__handshake_failed(g, COLL_ERR_PROTOCOL, "it makes %d connections to a peer, and here it is %d (COLL_LANES)",
                                      g->hello.more_lanes + 1, us->more_lanes + 1);
    for (int i = COLL__HELLO_PROOF; i < COLL__HELLO_LENGTH; i++)
        if (g->call[i]) return coll__handshake_failed(g, COLL_ERR_PROTOCOL, "its hello is not well formed");
    return coll__has_key(us) ? coll__handshake_answer_hello(g, us) : coll__handshake_settle(g, us);
}

static coll_status coll__handshake_take_step(coll__handshake *g, const coll__identity *us)
{
    coll_status status;

    us = coll__greeted_as(g, us);
    switch ((int)g->step) {
    case COLL__HANDSHAKE_SAY: return coll__handshake_say(g, us);
    case COLL__HANDSHAKE_HEAR_REFUSAL: return coll__handshake_refused(g, us);
    case COLL__HANDSHAKE_HEAR: return coll__handshake_hear(g, us);
    }
    if (!COLL__HAS_SECURITY) return coll__handshake_settle(g, us);
    switch ((int)g->step) {
    case COLL__HANDSHAKE_HEAR_ANSWER: return coll__handshake_hear_answer(g, us);
    case COLL__HANDSHAKE_ANSWER:
        status = coll__handshake_move(g, COLL__HELLO_LENGTH, true);
        return status == COLL_OK ? coll__handshake_next(g, COLL__HANDSHAKE_HEAR_PROOF) : status;
    case COLL__HANDSHAKE_PROVE:
    case COLL__HANDSHAKE_HEAR_PROOF:
        status = coll__handshake_move(g, COLL__SHA_LENGTH, g->is_caller);
        if (status != COLL_OK) return status;
        if (g->is_caller ? g->is_denied : !coll__handshake_is_proved(g, us, 'C', g->bytes))
            return coll__handshake_failed(g, COLL_ERR_DENIED, "its key is another one (COLL_KEY differs)");
        if (!g->is_caller) coll__budget_give_back(g->budget);
        return coll__handshake_settle(g, us);
    case COLL__HANDSHAKE_TLS:
        status = coll__tls_advance(&g->pipe, &g->want);
        if (status < 0)
            return coll__handshake_failed(g, status, "TLS could not begin: its bytes were changed on the way, "
                                                     "or speaks in its place");
        return status == COLL_OK ? coll__handshake_next(g, COLL__HANDSHAKE_OVER) : status;
    }
    return COLL_OK;
}

/* Advance.  COLL_OK: both sides are identified, and the pipe is ready.  COLL_PENDING: poll for g->want first.  An error: see
 * g->why; COLL_ERR_PEER: closed without a reason.  The handshake owns the pipe until it is taken. */
static coll_status coll__handshake_advance(coll__handshake *g, const coll__identity *us)
{
    coll_status status = COLL_OK;

    while (status == COLL_OK && g->step != COLL__HANDSHAKE_OVER) status = coll__handshake_take_step(g, us);
    return status;
}

/* The same, blocking until the deadline. */
static coll_status coll__handshake_finish(coll__handshake *g, const coll__identity *us)
{
    coll_status status;

    while ((status = coll__handshake_advance(g, us)) == COLL_PENDING) {
        const int ms = coll__ms_until(g->deadline, 60000);
        struct pollfd p = { .fd = g->pipe.fd, .events = g->want };
        if (ms == 0) {
            coll__print(g->why, sizeof g->why, "no answer");
            return COLL_ERR_TIMEOUT;
        }
        (void)poll(&p, 1, ms);
    }
    return status;
}

#endif /* COLL_TCP_HANDSHAKE_H */
