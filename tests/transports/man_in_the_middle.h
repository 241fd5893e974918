/* man_in_the_middle.h - a proxy between two ranks, without the key: it listens in the place of a rank, dials that rank, and
 * forwards what a case lets through.  Used after coll.h, check.h, support.h, cases.h and joining_ranks.h; with COLL_WITH_OPENSSL
 * it negotiates TLS. */
#ifndef MAN_H
#define MAN_H

enum { PROXY_LINES = 64, MAN_RECORD = 1 << 15 };

typedef enum man_does {
    MAN_FORWARDS,                                 /* everything, as it is                                     */
    MAN_PLAYS_SERVER, MAN_PLAYS_CLIENT,           /* forwards the handshake; then negotiates TLS itself       */
    MAN_CHANGES, MAN_DROPS, MAN_REPEATS,          /* one record of TLS behind the greeting                    */
    MAN_REFUSES,                                  /* a control record in clear in the place of the answer     */
    MAN_RAVES,                                    /* noise there                                              */
    MAN_ANSWERS_AGAIN                             /* the answer that another dialling rank has got            */
} man_does;

/* How the proxy negotiates TLS. */
typedef enum man_tls { MAN_TLS13, MAN_TLS13_ASKING, MAN_TLS12, MAN_TLS_OTHER_SECRET, MAN_TLS_OTHER_NAME, MAN_TLS_LIMIT } man_tls;

/* Sockets to the dialling rank, and to the accepting rank. */
typedef struct proxy_line { pthread_t thread; struct man *man; man_does does; int fds[2]; } proxy_line;

typedef struct man {
    pthread_t   thread;
    man_does    does;
    man_tls     tls;
    int         most;                             /* on so many connections, then it only forwards; 0: on all  */
    int         from, record;                     /* whose record: 0 of the dialling rank, 1 of the other; counted from 0 */
    coll_status status;                           /* of a refusal                                             */
    const char *text;
    int         listener, port, to_port;
    int         count;                            /* connections; changed only by the proxy's thread          */
    int         done;                             /* how often it has acted                                   */
    int         stolen;                           /* bytes that it has read                                   */
    int         opened;                           /* completed TLS handshakes of its own                      */
    size_t      kept_length[2];                   /* of the first forwarded connection: what each side sent */
    unsigned char kept[2][4096];
    proxy_line    lines[PROXY_LINES];
    pthread_mutex_t lock;
} man;

SUPPORT int man_counts(const int *number) { return __atomic_load_n(number, __ATOMIC_ACQUIRE); }

/* ---- >>bytes ---- */

static bool man_reads(int fd, void *at, size_t length)
{
    for (size_t got = 0; got < length;) {
        const ssize_t n = recv(fd, (char *)at + got, length - got, 0);
        if (n <= 0) return false;
        got += (size_t)n;
    }
    return true;
}

static bool man_writes(int fd, const void *at, size_t length)
{
    for (size_t sent = 0; sent < length;) {
        const ssize_t n = send(fd, (const char *)at + sent, length - sent, MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += (size_t)n;
    }
    return true;
}

static int man_dials(int port)
{
    const struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                    .sin_port = htons((uint16_t)port) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!connect(fd, (const struct sockaddr *)&to, sizeof to)) return fd;
    close(fd);
    return -1;
}

static void man_keeps(man *m, int side, const void *at, size_t length)
{
    pthread_mutex_lock(&m->lock);
    const size_t part = coll__least(length, sizeof m->kept[side] - m->kept_length[side]);
    memcpy(m->kept[side] + m->kept_length[side], at, part);
    m->kept_length[side] += part;
    pthread_mutex_unlock(&m->lock);
}

/* ---- >>TLS of the proxy ---- */

#if defined(COLL_WITH_OPENSSL)

/* A certificate made by the proxy at run time. */
static bool man_certifies(SSL_CTX *context)
{
    EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    EVP_PKEY *key = NULL;
    X509 *x = X509_new();
    bool is_good = maker && x && EVP_PKEY_keygen_init(maker) == 1 && EVP_PKEY_keygen(maker, &key) == 1;

    if (is_good) {
        X509_set_version(x, 2);
        ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
        X509_gmtime_adj(X509_getm_notBefore(x), 0);
        X509_gmtime_adj(X509_getm_notAfter(x), 3600);
        X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const unsigned char *)"proxy", -1, -1, 0);
        X509_set_issuer_name(x, X509_get_subject_name(x));
        X509_set_pubkey(x, key);
        is_good = X509_sign(x, key, NULL) > 0 && SSL_CTX_use_certificate(context, x) == 1
               && SSL_CTX_use_PrivateKey(context, key) == 1;
    }
    X509_free(x);
    EVP_PKEY_free(key);
    EVP_PKEY_CTX_free(maker);
    return is_good;
}

static SSL_SESSION *man_guesses(SSL *ssl)
{
    static const unsigned char suite[2] = { 0x13, 0x01 }, secret[32] = { 1, 2, 3 };
    SSL_SESSION *session = SSL_SESSION_new();

    SSL_SESSION_set1_master_key(session, secret, sizeof secret);
    SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);
    return session;
}

static int man_finds(SSL *ssl, const unsigned char *name, size_t length, SSL_SESSION **session)
{
    (void)name, (void)length;
    *session = man_guesses(ssl);
    return 1;
}

static int man_uses(SSL *ssl, const EVP_MD *digest, const unsigned char **name, size_t *length, SSL_SESSION **session)
{
    const man *m = SSL_get_app_data(ssl);

    (void)digest;
    *name = (const unsigned char *)(m->tls == MAN_TLS_OTHER_NAME ? "else" : "coll");
    *length = 4;
    *session = man_guesses(ssl);
    return 1;
}

static int man_accepts_all(X509_STORE_CTX *store, void *argument) { (void)store, (void)argument; return 1; }

/* Handshake at the socket, then send what the other end waits for, and read the answer. */
static void man_speaks(man *m, int fd, bool is_server)
{
    static const unsigned char welcome[COLL__CONTROL_LENGTH] = { 0x13, 0xc0, COLL__CONTROL_WELCOME };
    char bytes[4096];
    int n;
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    const bool is_guess = m->tls == MAN_TLS_OTHER_SECRET || m->tls == MAN_TLS_OTHER_NAME;
    SSL *ssl = NULL;

    CHECK(context && man_certifies(context), "no certificate");
    if (m->tls == MAN_TLS12) SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    if (m->tls == MAN_TLS13_ASKING) SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_cert_verify_callback(context, man_accepts_all, NULL);
    if (is_guess) SSL_CTX_set_psk_find_session_callback(context, man_finds);
    if (is_guess) SSL_CTX_set_psk_use_session_callback(context, man_uses);
    ssl = SSL_new(context);
    SSL_set_app_data(ssl, (void *)m);
    SSL_set_fd(ssl, fd);
    if ((is_server ? SSL_accept(ssl) : SSL_connect(ssl)) == 1) {
        if (is_server) (void)SSL_write(ssl, welcome, sizeof welcome);
        while ((n = SSL_read(ssl, bytes, sizeof bytes)) > 0) __atomic_add_fetch(&m->stolen, n, __ATOMIC_ACQ_REL);
        __atomic_add_fetch(&m->opened, 1, __ATOMIC_ACQ_REL);
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
}

#else

static void man_speaks(man *m, int fd, bool is_server) { (void)m, (void)fd, (void)is_server; }

#endif

/* ---- >>connections ---- */

/* Forward one record of TLS, changed or unchanged. */
static bool man_passes_record(man *m, const int *fds, int from, int *records)
{
    unsigned char bytes[MAN_RECORD];

    if (!man_reads(fds[from], bytes, 5)) return false;
    const size_t length = (size_t)bytes[3] << 8 | bytes[4];
    if (length + 5 > sizeof bytes || !man_reads(fds[from], bytes + 5, length)) return false;
    const bool is_it = m->does >= MAN_CHANGES && m->does <= MAN_REPEATS && m->from == from && m->record == (*records)++;
    man_keeps(m, from, bytes, length + 5);
    if (is_it) __atomic_add_fetch(&m->done, 1, __ATOMIC_ACQ_REL);
    if (is_it && m->does == MAN_DROPS) return true;
    if (is_it && m->does == MAN_CHANGES) bytes[5 + length / 2] ^= 1;
    if (is_it && m->does == MAN_REPEATS && !man_writes(fds[!from], bytes, length + 5)) return false;
    return man_writes(fds[!from], bytes, length + 5);
}

/* Bytes behind the handshake: in records, or as they come if there are none. */
static void man_relays(man *m, const int *fds, bool has_records)
{
    struct pollfd p[2] = { { .fd = fds[0], .events = POLLIN }, { .fd = fds[1], .events = POLLIN } };
    int records[2] = { 0, 0 };
    bool is_open = true;

    while (is_open && poll(p, 2, -1) > 0)
        for (int i = 0; i < 2 && is_open; i++) {
            char bytes[4096];
            if (!p[i].revents) continue;
            const ssize_t n = has_records ? man_passes_record(m, fds, i, &records[i]) : recv(fds[i], bytes, sizeof bytes, 0);
            is_open = n > 0 && (has_records || man_writes(fds[!i], bytes, (size_t)n));
        }
}

/* In the place of the accepting rank. */
static void man_answers(man *m, int fd)
{
    unsigned char note[COLL__CONTROL_LENGTH];

    if (m->does == MAN_REFUSES) coll__control_write(note, COLL__CONTROL_REFUSE, m->status, -1, m->text);
    else memset(note, 'x', sizeof note);
    const bool is_again = m->does == MAN_ANSWERS_AGAIN;
    (void)man_writes(fd, is_again ? m->kept[1] : note, is_again ? COLL__HELLO_LENGTH : sizeof note);
    __atomic_add_fetch(&m->done, 1, __ATOMIC_ACQ_REL);
    while (man_reads(fd, note, 1)) { }            /* until the other end gives up                              */
}

static void *proxy_serves(void *at)
{
    proxy_line *const line = at;
    man *const m = line->man;
    unsigned char words[COLL__HELLO_LENGTH];

    if (!man_reads(line->fds[0], words, COLL__HELLO_LENGTH)) goto out;
    if (line->does >= MAN_REFUSES) {
        man_answers(m, line->fds[0]);
        goto out;
    }
    const int auth = words[offsetof(coll__hello, auth)] & COLL__AUTH_KIND;
    if (!man_writes(line->fds[1], words, sizeof words)) goto out;
    man_keeps(m, 0, words, sizeof words);
    if (auth) {
        if (!man_reads(line->fds[1], words, sizeof words) || !man_writes(line->fds[0], words, sizeof words)) goto out;
        man_keeps(m, 1, words, sizeof words);
        if (!man_reads(line->fds[0], words, COLL__SHA_LENGTH) || !man_writes(line->fds[1], words, COLL__SHA_LENGTH)) goto out;
        man_keeps(m, 0, words, COLL__SHA_LENGTH);
    }
    if (line->does == MAN_PLAYS_SERVER || line->does == MAN_PLAYS_CLIENT) {
        __atomic_add_fetch(&m->done, 1, __ATOMIC_ACQ_REL);
        man_speaks(m, line->fds[m->does == MAN_PLAYS_CLIENT], m->does == MAN_PLAYS_SERVER);
    } else {
        man_relays(m, line->fds, auth == COLL__AUTH_TLS);
    }
out:
    for (int i = 0; i < 2; i++) if (line->fds[i] >= 0) shutdown(line->fds[i], SHUT_RDWR);
    return NULL;
}

static void *man_listens(void *at)
{
    man *m = at;
    int fd;

    while (m->count < PROXY_LINES && (fd = accept(m->listener, NULL, NULL)) >= 0) {
        proxy_line *line = &m->lines[m->count];
        const man_does does = m->most && m->count >= m->most ? MAN_FORWARDS : m->does;
        const int one = 1, to = does >= MAN_REFUSES ? -1 : man_dials(m->to_port);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        *line = (proxy_line){ .man = m, .does = does, .fds = { fd, to } };
        m->count++;
        CHECK(!pthread_create(&line->thread, NULL, proxy_serves, line), "no thread");
    }
    return NULL;
}

/* Start the proxy.  `address`, of 64 bytes, is to be dialled instead of 127.0.0.1:to_port. */
SUPPORT void man_begins(man *m, int to_port, char *address)
{
    const int port = support_reserve_port(address, 64);

    m->to_port = to_port;
    m->port = atoi(strchr(address, ':') + 1);
    m->listener = port;
    pthread_mutex_init(&m->lock, NULL);
    CHECK(port >= 0 && !listen(port, 64) && !pthread_create(&m->thread, NULL, man_listens, m), "no man in the middle");
}

SUPPORT void man_ends(man *m)
{
    shutdown(m->listener, SHUT_RDWR);
    pthread_join(m->thread, NULL);
    for (int i = 0; i < m->count; i++) {
        for (int k = 0; k < 2; k++) if (m->lines[i].fds[k] >= 0) shutdown(m->lines[i].fds[k], SHUT_RDWR);
        pthread_join(m->lines[i].thread, NULL);
        for (int k = 0; k < 2; k++) if (m->lines[i].fds[k] >= 0) close(m->lines[i].fds[k]);
    }
    close(m->listener);
}

#endif /* MAN_H */
