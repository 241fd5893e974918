/* coll_tcp_tls.h - encrypted pipes: TLS 1.3 by OpenSSL, compiled in with COLL_WITH_OPENSSL.
 *
 * There are no certificates.  Both ends derive a secret from the key and the two hellos (coll_tcp_handshake.h).  TLS uses it as
 * an external pre-shared key, with a fresh Diffie-Hellman exchange: recorded traffic stays unreadable if the key leaks.  The
 * hellos, hence the secret, contain both ranks, the world id and the purpose.  TLS begins after both ends have proved the key.
 * A host on the path could relay that handshake and then speak TLS itself.  So a TLS handshake must have used the secret:
 * OpenSSL would otherwise also take a certificate, by default from any peer.
 *
 * OpenSSL reads and writes memory buffers, never the socket, so there is no SIGPIPE.  No close_notify is sent: control
 * messages announce an orderly leave.  OpenSSL has global state and an exit handler, so it is absent without
 * COLL_WITH_OPENSSL. */
#ifndef COLL_TCP_TLS_H
#define COLL_TCP_TLS_H

#if !defined(COLL_WITH_OPENSSL)

typedef struct coll__tls coll__tls;

static coll__tls *coll__tls_new(const coll_allocator *memory) { return (void)memory, NULL; }
static coll__tls *coll__tls_share(coll__tls *tls) { return tls; }
static void coll__tls_free(coll__tls *tls) { (void)tls; }

static bool coll__pipe_tls(const coll_allocator *memory, coll__pipe *p, coll__tls *tls, const unsigned char *secret,
                           bool is_caller)
{
    (void)memory, (void)p, (void)tls, (void)secret, (void)is_caller;
    return false;
}

static coll_status coll__tls_advance(coll__pipe *p, short *want)
{
    (void)p, (void)want;
    return COLL_ERR_UNSUPPORTED;
}

#else

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#if !defined(COLL__TLS_RENEW)
#define COLL__TLS_RENEW (UINT64_C(1) << 36)       /* bytes per key; the limit of AES-GCM is about 2^38        */
#endif

/* Shared by all connections of a job, also after a shrink, when the new job keeps old connections. */
typedef struct coll__tls {
    int         users;                            /* atomic: number of jobs                                   */
    SSL_CTX    *context;
    BIO_METHOD *method;
} coll__tls;

typedef struct coll__tls_pipe {
    coll__records io;
    SSL     *ssl;
    int      fd;
    int      error;                               /* if is_dry: errno of the last read; 0: end of stream      */
    bool     is_dry;                              /* the last read of the socket gave nothing                 */
    uint64_t under_key;                           /* bytes sent with the current key                          */
    unsigned char secret[COLL__SHA_LENGTH];       /* wiped after the handshake                                */
} coll__tls_pipe;

/* ---- >>between OpenSSL and the buffers ---- */

static int coll__tls_write(BIO *bio, const char *bytes, int length)
{
    coll__tls_pipe *s = (coll__tls_pipe *)BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (length <= 0 || (size_t)length > sizeof s->io.out - s->io.out_length) return -1;
    memcpy(s->io.out + s->io.out_length, bytes, (size_t)length);
    s->io.out_length += (size_t)length;
    return length;
}

static int coll__tls_read(BIO *bio, char *bytes, int room)
{
    coll__tls_pipe *s = (coll__tls_pipe *)BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (room <= 0) return 0;
    if (s->io.in_at == s->io.in_length) {
        const ssize_t n = coll__records_fill(&s->io, s->fd);
        s->is_dry = n <= 0;
        s->error = n < 0 ? (errno == EINTR ? EAGAIN : errno) : 0;
        if (s->is_dry && s->error == EAGAIN) BIO_set_retry_read(bio);
        if (s->is_dry) return s->error ? -1 : 0;
    }
    const size_t part = coll__least((size_t)room, s->io.in_length - s->io.in_at);
    memcpy(bytes, s->io.in + s->io.in_at, part);
    s->io.in_at += part;
    return (int)part;
}

static long coll__tls_ctrl(BIO *bio, int what, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return what == BIO_CTRL_FLUSH;
}

/* ---- >>the secret as a pre-shared key ---- */

static const unsigned char coll__tls_name[] = { 'c', 'o', 'l', 'l' };      /* identity of the key, and session context */

static SSL_SESSION *coll__tls_session(SSL *ssl)
{
    static const unsigned char suite[2] = { 0x13, 0x01 };                 /* TLS_AES_128_GCM_SHA256           */
    const coll__tls_pipe *s = (const coll__tls_pipe *)SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session && cipher && SSL_SESSION_set1_master_key(session, s->secret, sizeof s->secret)
        && SSL_SESSION_set1_id_context(session, coll__tls_name, sizeof coll__tls_name)
        && SSL_SESSION_set_cipher(session, cipher) && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION)) return session;
    SSL_SESSION_free(session);
    return NULL;
}

static int coll__tls_use(SSL *ssl, const EVP_MD *digest, const unsigned char **name, size_t *length, SSL_SESSION **session)
{
    (void)digest;                                 /* the only suite uses SHA-256                              */
    *session = coll__tls_session(ssl);
    *name = coll__tls_name;
    *length = sizeof coll__tls_name;
    return *session != NULL;
}

static int coll__tls_find(SSL *ssl, const unsigned char *name, size_t length, SSL_SESSION **session)
{
    const bool is_known = length == sizeof coll__tls_name && !memcmp(name, coll__tls_name, length);

    *session = is_known ? coll__tls_session(ssl) : NULL;
    return !is_known || *session;
}

/* Reject every certificate. */
static int coll__tls_verify(X509_STORE_CTX *store, void *argument)
{
    (void)argument;
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED);
    return 0;
}

/* ---- >>context: shared by jobs ---- */

static coll__tls *coll__tls_share(coll__tls *tls)
{
    if (tls) __atomic_add_fetch(&tls->users, 1, __ATOMIC_RELAXED);
    return tls;
}

static void coll__tls_free(coll__tls *tls)
{
    if (!tls || __atomic_sub_fetch(&tls->users, 1, __ATOMIC_ACQ_REL) > 0) return;
    SSL_CTX_free(tls->context);
    BIO_meth_free(tls->method);
    coll__give(tls);
}

/* NULL: OpenSSL is out of memory, or lacks a feature. */
static coll__tls *coll__tls_new(const coll_allocator *memory)
{
    coll__tls *tls = (coll__tls *)coll__take_zeros(memory, 1, sizeof *tls);

    if (!tls) return NULL;
    tls->users = 1;
    (void)ERR_set_mark();
    tls->context = SSL_CTX_new(TLS_method());
    tls->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "coll");
    const bool is_good = tls->context && tls->method && SSL_CTX_set_min_proto_version(tls->context, TLS1_3_VERSION)
                         && SSL_CTX_set_ciphersuites(tls->context, "TLS_AES_128_GCM_SHA256")
                         && SSL_CTX_set_session_id_context(tls->context, coll__tls_name, sizeof coll__tls_name)
                         && SSL_CTX_set_num_tickets(tls->context, 0) && BIO_meth_set_write(tls->method, coll__tls_write)
                         && BIO_meth_set_read(tls->method, coll__tls_read) && BIO_meth_set_ctrl(tls->method, coll__tls_ctrl);
    (void)ERR_pop_to_mark();
    if (!is_good) {
        coll__tls_free(tls);
        return NULL;
    }
    SSL_CTX_set_psk_use_session_callback(tls->context, coll__tls_use);
    SSL_CTX_set_psk_find_session_callback(tls->context, coll__tls_find);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_cert_verify_callback(tls->context, coll__tls_verify, NULL);
    (void)SSL_CTX_set_session_cache_mode(tls->context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_quiet_shutdown(tls->context, 1);
    return tls;
}

/* ---- >>the pipe ---- */

/* Calls leave the program's OpenSSL error queue unchanged.  It is not needed: either the socket has no data (is_dry), or the
 * data was modified. */
static ssize_t coll__tls_pipe_send(coll__pipe *p, const struct iovec *pieces, int count)
{
    coll__tls_pipe *s = (coll__tls_pipe *)p->state;
    size_t written;
    bool is_good = true;

    (void)ERR_set_mark();
    if (s->io.accepted == 0 && s->under_key >= COLL__TLS_RENEW) {
        is_good = SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
        s->under_key = 0;
    }
    if (s->io.accepted == 0)
        for (int i = 0; is_good && i < count && s->io.accepted < COLL__RECORD_MOST; i++) {
            const size_t part = coll__least(pieces[i].iov_len, COLL__RECORD_MOST - s->io.accepted);
            if (part == 0) continue;
            is_good = SSL_write_ex(s->ssl, pieces[i].iov_base, part, &written) == 1 && written == part;
            s->io.accepted += part;
            s->under_key += part;
        }
    (void)ERR_pop_to_mark();
    if (is_good) return coll__records_send(&s->io, p->fd);
    errno = EBADMSG;
    return -1;
}

static ssize_t coll__tls_pipe_recv(coll__pipe *p, const struct iovec *pieces, int count)
{
    coll__tls_pipe *s = (coll__tls_pipe *)p->state;
    size_t total = 0, got = 0, at = 0;

    s->is_dry = false;
    (void)ERR_set_mark();
    for (int i = 0; i < count;) {
        const size_t room = pieces[i].iov_len - at;
        if (room > 0 && SSL_read_ex(s->ssl, (unsigned char *)pieces[i].iov_base + at, room, &got) != 1) break;
        if (room > 0) total += got, at += got;
        if (at < pieces[i].iov_len) continue;
        at = 0;
        i++;
    }
    (void)ERR_pop_to_mark();
    if (total > 0) return (ssize_t)total;
    if (s->is_dry && s->error == 0) return 0;
    errno = s->is_dry ? s->error : EBADMSG;
    return -1;
}

static short coll__tls_pipe_await(coll__pipe *p, short want)
{
    const coll__tls_pipe *s = (const coll__tls_pipe *)p->state;
    return (want & POLLIN) && (s->io.in_at < s->io.in_length || SSL_pending(s->ssl) > 0) ? 0 : want;
}

static void coll__tls_pipe_close(coll__pipe *p)
{
    coll__tls_pipe *s = (coll__tls_pipe *)p->state;

    SSL_free(s->ssl);
    coll__wipe(s->secret, sizeof s->secret);
    coll__give(s);
}

static const coll__pipe_kind coll__tls_pipe_pipe = {
    "tls", coll__tls_pipe_send, coll__tls_pipe_recv, coll__tls_pipe_await, coll__tls_pipe_close, NULL, NULL
};

/* Use TLS on this pipe.  coll__tls_advance must return COLL_OK before data is moved.  false: out of memory. */
static bool coll__pipe_tls(const coll_allocator *memory, coll__pipe *p, coll__tls *tls, const unsigned char *secret,
                           bool is_caller)
{
    coll__tls_pipe *s = (coll__tls_pipe *)coll__allocate(memory, sizeof *s);
    BIO *bio = NULL;

    if (!s) return false;
    (void)ERR_set_mark();
    s->ssl = SSL_new(tls->context);
    if (s->ssl) bio = BIO_new(tls->method);
    (void)ERR_pop_to_mark();
    if (!bio) {
        SSL_free(s->ssl);
        coll__give(s);
        return false;
    }
    s->fd = p->fd;
    memcpy(s->secret, secret, sizeof s->secret);
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    SSL_set_app_data(s->ssl, s);
    if (is_caller) SSL_set_connect_state(s->ssl);
    else SSL_set_accept_state(s->ssl);
    p->kind = &coll__tls_pipe_pipe;
    p->state = s;
    return true;
}

/* Continue the TLS handshake.  COLL_PENDING: *want is what to poll for. */
static coll_status coll__tls_advance(coll__pipe *p, short *want)
{
    coll__tls_pipe *s = (coll__tls_pipe *)p->state;

    s->is_dry = false;
    (void)ERR_set_mark();
    const bool is_over = SSL_do_handshake(s->ssl) == 1;
    const bool has_secret = is_over && SSL_session_reused(s->ssl) == 1;   /* the only session holds the secret */
    (void)ERR_pop_to_mark();
    if (is_over && !has_secret) return COLL_ERR_DENIED;
    const bool is_waiting = !is_over && s->is_dry && s->error == EAGAIN;
    const int error = coll__records_flush(&s->io, p->fd);
    *want = error ? POLLOUT : POLLIN;
    if (error && error != EAGAIN) return COLL_ERR_PEER;
    if (!is_over && !is_waiting) return s->is_dry ? COLL_ERR_PEER : COLL_ERR_DENIED;
    if (!is_over || error) return COLL_PENDING;
    coll__wipe(s->secret, sizeof s->secret);
    return COLL_OK;
}

#endif

#endif /* COLL_TCP_TLS_H */
