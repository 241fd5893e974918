/* coll_nccl_load.h - finds NCCL and the CUDA driver: among what the program has loaded already, or by their names. */
#ifndef COLL_NCCL_LOAD_H
#define COLL_NCCL_LOAD_H

#include <dlfcn.h>

#define COLL__NCCL_POINTER(name, parameters) coll__nccl_result (*name) parameters;
#define COLL__NCCL_TEXT_POINTER(name, parameters) const char *(*name) parameters;
#define COLL__CUDA_POINTER(name, parameters) coll__cuda_result (*name) parameters;

typedef struct coll__nccl_calls {
    void *library;
    int   version;                                /* 22809 is 2.28.9                                          */
    COLL__NCCL_FUNCTIONS(COLL__NCCL_POINTER)
    COLL__NCCL_TEXTS(COLL__NCCL_TEXT_POINTER)
} coll__nccl_calls;

typedef struct coll__cuda_calls {
    void *library;
    COLL__CUDA_FUNCTIONS(COLL__CUDA_POINTER)
} coll__cuda_calls;

#undef COLL__NCCL_POINTER
#undef COLL__NCCL_TEXT_POINTER
#undef COLL__CUDA_POINTER

/* A library that has `symbol`: the one that `variable` names; or that of the program itself, or one it has loaded under this
 * name, so that there are never two; or that of the system.  It is never unloaded, because it has threads.  NULL, with the
 * sentence. */
static void *coll__library_open(const char *name, const char *variable, const char *symbol, char *why, size_t room)
{
    const char *asked = coll__variable(variable);
    void *library = NULL;

    if (asked && *asked) library = dlopen(asked, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    else asked = NULL;
    if (!asked) {
        void *const program = dlopen(NULL, RTLD_NOW);
        if (program && dlsym(program, symbol)) return program;
        if (program) dlclose(program);
        library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
        if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (library) return library;
    const char *said = dlerror();
    coll__print(why, room, "%s cannot be loaded: %s", asked ? asked : name, said ? said : "not found");
    return NULL;
}

/* A pointer to a function, which ISO C does not convert. */
static bool coll__library_find(void *library, const char *symbol, void *function)
{
    void *const at = dlsym(library, symbol);

    memcpy(function, &at, sizeof at);
    return at != NULL;
}

/* "2.28.9" */
static const char *coll__nccl_version_text(int version, char *text, size_t room)
{
    if (version >= 10000) coll__print(text, room, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    else coll__print(text, room, "%d.%d.%d", version / 1000, version / 100 % 10, version % 100);
    return text;
}

/* Both loaders: false, with the sentence; the library may then be open. */
static bool coll__nccl_load(coll__nccl_calls *nccl, char *why, size_t room)
{
    const char *missing = NULL;
    char text[32];

    memset(nccl, 0, sizeof *nccl);
    nccl->library = coll__library_open("libnccl.so.2", "COLL_NCCL_LIB", "ncclGetVersion", why, room);
    if (!nccl->library) return false;
#define COLL__FIND(name, parameters) \
    if (!coll__library_find(nccl->library, "nccl" #name, &nccl->name)) missing = "nccl" #name;
    COLL__NCCL_FUNCTIONS(COLL__FIND)
    COLL__NCCL_TEXTS(COLL__FIND)
#undef COLL__FIND
    if (nccl->GetVersion && nccl->GetVersion(&nccl->version) != COLL__NCCL_SUCCESS) nccl->version = 0;
    if (nccl->version >= COLL__NCCL_OLDEST && !missing) return true;
    if (nccl->version > 0 && nccl->version < COLL__NCCL_OLDEST)
        coll__print(why, room, "NCCL %s is too old, 2.18 or later is needed",
                    coll__nccl_version_text(nccl->version, text, sizeof text));
    else coll__print(why, room, "the library of NCCL has no %s", missing ? missing : "version");
    return false;
}

static bool coll__cuda_load(coll__cuda_calls *cuda, char *why, size_t room)
{
    const char *missing = NULL;

    memset(cuda, 0, sizeof *cuda);
    cuda->library = coll__library_open("libcuda.so.1", "COLL_CUDA_LIB", "cuInit", why, room);
    if (!cuda->library) return false;
#define COLL__FIND(name, parameters) if (!coll__library_find(cuda->library, "cu" #name, &cuda->name)) missing = "cu" #name;
    COLL__CUDA_FUNCTIONS(COLL__FIND)
#undef COLL__FIND
    if (!missing) return true;
    coll__print(why, room, "the driver of CUDA has no %s", missing);
    return false;
}

#endif /* COLL_NCCL_LOAD_H */
