/* coll_nccl_handshake.h - the ranks of an NCCL communicator join over TCP: rank 0 listens on any port, and NCCL broadcasts its
 * address and key. */
#ifndef COLL_NCCL_HANDSHAKE_H
#define COLL_NCCL_HANDSHAKE_H

enum { COLL__NCCL_HANDSHAKE_MS = 60000 };

/* What rank 0 broadcasts. */
typedef struct coll__nccl_notice { char address[128], key[72]; } coll__nccl_notice;

typedef struct coll__nccl_handshake {
    coll__gpu *gpu;
    struct ncclComm *comm;
    struct CUstream_st *stream;
    int  rank;
    bool is_known;
    coll__nccl_notice notice;
} coll__nccl_handshake;

/* Broadcasts the notice from rank 0, and waits for it, for a minute at most.  After a failure the copy may be pending, and keeps
 * its memory. */
static bool coll__nccl_tell(coll__nccl_handshake *m)
{
    const coll__gpu *gpu = m->gpu;
    const coll__nccl_calls *nccl = &gpu->nccl;
    const coll__cuda_calls *cuda = &gpu->cuda;
    struct CUevent_st *event = NULL;
    coll__cuda_address at = 0;
    void *host = NULL;

    m->is_known = true;
    if (!coll__gpu_enter(gpu)) return false;
    bool is_well = cuda->MemAlloc_v2(&at, sizeof m->notice) == 0 && cuda->MemAllocHost_v2(&host, sizeof m->notice) == 0
                && cuda->EventCreate(&event, COLL__CUDA_EVENT_DISABLE_TIMING) == 0;
    void *const there = (void *)(uintptr_t)at;
    if (is_well) {
        memcpy(host, &m->notice, sizeof m->notice);
        is_well = cuda->MemcpyHtoDAsync_v2(at, host, sizeof m->notice, m->stream) == 0;
        const coll__nccl_result is = nccl->Broadcast(there, there, sizeof m->notice, COLL__NCCL_U8, 0, m->comm, m->stream);
        is_well = is_well && (is == COLL__NCCL_SUCCESS || is == COLL__NCCL_IN_PROGRESS)
               && coll__gpu_wait(gpu, m->comm, NULL, COLL__NCCL_HANDSHAKE_MS)
               && cuda->MemcpyDtoHAsync_v2(host, at, sizeof m->notice, m->stream) == 0
               && cuda->EventRecord(event, m->stream) == 0 && coll__gpu_wait(gpu, m->comm, event, COLL__NCCL_HANDSHAKE_MS);
    }
    if (is_well) {
        memcpy(&m->notice, host, sizeof m->notice);
        (void)cuda->EventDestroy_v2(event);
        (void)cuda->MemFreeHost(host);
        (void)cuda->MemFree_v2(at);
    }
    coll__gpu_leave(gpu);
    return is_well;
}

static void coll__nccl_listening(void *context, const char *address)
{
    coll__nccl_handshake *m = (coll__nccl_handshake *)context;

    coll__print(m->notice.address, sizeof m->notice.address, "%s", address);
    (void)coll__nccl_tell(m);
}

/* A key of 64 hexadecimal digits. */
static bool coll__nccl_key(char *key, size_t room)
{
    unsigned char bytes[32];

    if (!coll__nonce(bytes, sizeof bytes)) return false;
    key[0] = '\0';
    for (size_t i = 0; i < sizeof bytes; i++) coll__append(key, room, "%02x", bytes[i]);
    return true;
}

/* A communicator over TCP of the ranks of NCCL's. */
static coll_status coll__nccl_handshake_run(const coll__program *program, coll__nccl_handshake *m, int size, coll_comm **out)
{
    coll_config config = { .rank = m->rank, .size = size, .transport = "tcp", .world = "nccl", .tcp.security = "key" };
    coll_status status = COLL_OK;

    if (size == 1) config.transport = "threads", config.tcp.security = NULL;
    else if (m->rank == 0) {
        if (!coll__nccl_key(m->notice.key, sizeof m->notice.key))
            status = coll__start_failed(COLL_ERR_SYSTEM, "coll_wrap_nccl: no random numbers");
        config.address = ":0";
        config.tcp.listening = coll__nccl_listening;
        config.tcp.listening_context = m;
    } else if (!coll__nccl_tell(m))
        status = coll__start_failed(COLL_ERR_SYSTEM, "coll_wrap_nccl: rank 0 has not said where it is");
    else if (!*m->notice.address) status = coll__start_failed(COLL_ERR_PEER, "coll_wrap_nccl: rank 0 cannot listen");
    else config.address = m->notice.address;
    m->notice.address[sizeof m->notice.address - 1] = m->notice.key[sizeof m->notice.key - 1] = '\0';
    if (size > 1) config.tcp.key = m->notice.key;
    if (status == COLL_OK) status = coll__open(program, 1, true, out, &config);
    if (m->rank == 0 && size > 1 && !m->is_known) {
        memset(&m->notice, 0, sizeof m->notice);  /* the others must not wait                                 */
        (void)coll__nccl_tell(m);
    }
    coll__wipe(&m->notice, sizeof m->notice);
    return status;
}

#endif /* COLL_NCCL_HANDSHAKE_H */
