/* ggml_tokens.c - a language model in a GGUF file, computed by ggml on several ranks: tensor parallelism over coll.h.
 *
 *     ggml_tokens make FILE [SEED [WIDTH FORWARD LAYERS]]               write a model with random weights; 240, 640, 4
 *     coll-run -n 3 ggml_tokens run FILE 64      print 64 tokens, each the most likely one, and tokens/s on stderr
 *     coll-run -n 3 ggml_tokens run FILE 64 bf16 the same with bf16 in the messages
 *
 * The file has the names, shapes and keys of llama.cpp's architecture "llama", with weights of f32.  Every rank reads and
 * computes its heads of the attention and its columns of the feed-forward.  Two sums in each layer join them: the nodes of
 * examples/inference/ggml_coll.h.  The rest is computed by all ranks, from the same bits, so all choose the same token.
 *
 * ggml_check.sh compiles it with ggml, and compares the tokens of 1, 2, 3 and 4 processes. */
#define _GNU_SOURCE 1
#include "ggml.h"
#include "ggml-cpu.h"
#include "gguf.h"

#include "../inference/ggml_coll.h"

#include <stdlib.h>
#include <time.h>

enum { HEADS = 12, WORDS = 512, CONTEXT = 256, MOST_LAYERS = 128 };

/* ---- the file -------------------------------------------------------------------------------------------------------------- */

static uint64_t state;

/* Uniform, with mean 0 and the given deviation. */
static float random_of(double deviation)
{
    state += 0x9e3779b97f4a7c15u;
    uint64_t x = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (float)(((double)((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1) * deviation * 1.7320508);
}

static void add(struct gguf_context *file, struct ggml_context *ctx, int64_t width, int64_t rows, const char *name)
{
    struct ggml_tensor *const t = rows ? ggml_new_tensor_2d(ctx, GGML_TYPE_F32, width, rows)
                                       : ggml_new_tensor_1d(ctx, GGML_TYPE_F32, width);
    float *const data = ggml_get_data_f32(t);

    for (int64_t i = 0; i < ggml_nelements(t); i++) data[i] = rows ? random_of(2 / __builtin_sqrt((double)width)) : 1;
    ggml_set_name(t, name);
    gguf_add_tensor(file, t);
}

/* `width` is a multiple of 2 * HEADS. */
static int make(const char *path, uint32_t width, uint32_t forward, uint32_t layers)
{
    const struct { const char *name; int64_t width, rows; } layer[] = {
        { "attn_norm", width, 0 }, { "attn_q", width, width }, { "attn_k", width, width }, { "attn_v", width, width },
        { "attn_output", width, width }, { "ffn_norm", width, 0 }, { "ffn_gate", width, forward }, { "ffn_up", width, forward },
        { "ffn_down", forward, width },
    };
    const size_t rows = 2 * WORDS + 1 + (size_t)layers * (4 * (size_t)width + 3 * (size_t)forward + 2);
    const size_t room = 4 * rows * width + ((size_t)layers << 12) + 65536;
    struct ggml_context *const ctx = ggml_init((struct ggml_init_params){ .mem_size = room });
    struct gguf_context *const file = gguf_init_empty();
    char name[64];

    gguf_set_val_str(file, "general.architecture", "llama");
    gguf_set_val_u32(file, "llama.vocab_size", WORDS);
    gguf_set_val_u32(file, "llama.context_length", CONTEXT);
    gguf_set_val_u32(file, "llama.embedding_length", width);
    gguf_set_val_u32(file, "llama.block_count", layers);
    gguf_set_val_u32(file, "llama.feed_forward_length", forward);
    gguf_set_val_u32(file, "llama.attention.head_count", HEADS);
    gguf_set_val_u32(file, "llama.attention.head_count_kv", HEADS);
    gguf_set_val_u32(file, "llama.rope.dimension_count", width / HEADS);
    gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_set_val_str(file, "tokenizer.ggml.model", "no_vocab");
    add(file, ctx, width, WORDS, "token_embd.weight");
    add(file, ctx, width, 0, "output_norm.weight");
    add(file, ctx, width, WORDS, "output.weight");
    for (uint32_t i = 0; i < layers; i++)
        for (size_t k = 0; k < sizeof layer / sizeof *layer; k++) {
            snprintf(name, sizeof name, "blk.%u.%s.weight", i, layer[k].name);
            add(file, ctx, layer[k].width, layer[k].rows, name);
        }
    const bool is_written = gguf_write_to_file(file, path, false);
    gguf_free(file);
    ggml_free(ctx);
    return is_written ? 0 : (fprintf(stderr, "cannot write %s\n", path), 1);
}

/* ---- the part of a rank ---------------------------------------------------------------------------------------------------- */

typedef struct layer {
    struct ggml_tensor *attention_norm, *q, *k, *v, *out, *forward_norm, *gate, *up, *down, *keys, *values;
} layer;

typedef struct model {
    tensor_job           job;
    FILE                *stream;
    struct gguf_context *file;
    struct ggml_context *shapes, *weights, *pass; /* of the file; of this rank; of one graph                  */
    struct ggml_tensor  *words, *norm, *output;
    int                  layers, width, heads, forward, count, context;      /* count: of words               */
    int                  own_heads, first_head, own_forward, first_forward;  /* of this rank                  */
    float                epsilon;
    layer                layer[MOST_LAYERS];
    char                 why[256];
} model;

/* Rows `first` to `first + rows` of a tensor of the file, and of these `columns` from `start` on.  NULL: m->why says it. */
static struct ggml_tensor *part(model *m, const char *name, int64_t first, int64_t rows, int64_t start, int64_t columns)
{
    const int64_t id = gguf_find_tensor(m->file, name);

    if (m->why[0]) return NULL;
    if (id < 0 || gguf_get_tensor_type(m->file, id) != GGML_TYPE_F32) {
        snprintf(m->why, sizeof m->why, "the file has no tensor %s of f32", name);
        return NULL;
    }
    const int64_t *const shape = ggml_get_tensor(m->shapes, name)->ne;
    if (start + columns > shape[0] || first + rows > shape[1]) {
        snprintf(m->why, sizeof m->why, "tensor %s is [%lld, %lld]: too small", name, (long long)shape[0], (long long)shape[1]);
        return NULL;
    }
    struct ggml_tensor *const t = rows > 1 ? ggml_new_tensor_2d(m->weights, GGML_TYPE_F32, columns, rows)
                                           : ggml_new_tensor_1d(m->weights, GGML_TYPE_F32, columns);
    const size_t at = gguf_get_data_offset(m->file) + gguf_get_tensor_offset(m->file, id);
    for (int64_t i = 0; i < rows; i++)
        if (fseek(m->stream, (long)(at + (size_t)((first + i) * shape[0] + start) * 4), SEEK_SET) ||
            fread(ggml_get_data_f32(t) + i * columns, 4, (size_t)columns, m->stream) != (size_t)columns) {
            snprintf(m->why, sizeof m->why, "cannot read tensor %s", name);
            return NULL;
        }
    return t;
}

static int number(model *m, const char *key)
{
    const int64_t id = gguf_find_key(m->file, key);

    if (id >= 0 && gguf_get_kv_type(m->file, id) == GGUF_TYPE_UINT32) return (int)gguf_get_val_u32(m->file, id);
    snprintf(m->why, sizeof m->why, "the file has no number %s", key);
    return 1;
}

static void read_layer(model *m, int i)
{
    layer *const l = &m->layer[i];
    const int64_t width = m->width, head = width / m->heads, first = m->first_head * head, own = m->own_heads * head;
    char name[64];

#define PART(what, ...) (snprintf(name, sizeof name, "blk.%d." what ".weight", i), part(m, name, __VA_ARGS__))
    l->attention_norm = PART("attn_norm", 0, 1, 0, width);
    l->q = PART("attn_q", first, own, 0, width);
    l->k = PART("attn_k", first, own, 0, width);
    l->v = PART("attn_v", first, own, 0, width);
    l->out = PART("attn_output", 0, width, first, own);
    l->forward_norm = PART("ffn_norm", 0, 1, 0, width);
    l->gate = PART("ffn_gate", m->first_forward, m->own_forward, 0, width);
    l->up = PART("ffn_up", m->first_forward, m->own_forward, 0, width);
    l->down = PART("ffn_down", 0, width, m->first_forward, m->own_forward);
    l->keys = ggml_new_tensor_2d(m->weights, GGML_TYPE_F32, own, m->context);
    l->values = ggml_new_tensor_2d(m->weights, GGML_TYPE_F32, own, m->context);
#undef PART
}

/* false: m->why says why. */
static bool model_open(model *m, const char *path, coll_comm *comm, coll_type wire)
{
    const int rank = coll_rank(comm), size = coll_size(comm);

    m->job = (tensor_job){ .comm = comm, .wire = wire };
    m->stream = fopen(path, "rb");
    m->file = gguf_init_from_file(path, (struct gguf_init_params){ .no_alloc = true, .ctx = &m->shapes });
    if (!m->stream || !m->file) return snprintf(m->why, sizeof m->why, "cannot read %s", path), false;
    m->layers = number(m, "llama.block_count"), m->width = number(m, "llama.embedding_length");
    m->heads = number(m, "llama.attention.head_count"), m->forward = number(m, "llama.feed_forward_length");
    m->count = number(m, "llama.vocab_size"), m->context = number(m, "llama.context_length");
    if (!m->why[0] && number(m, "llama.attention.head_count_kv") != m->heads)
        snprintf(m->why, sizeof m->why, "heads that share keys are not supported");
    if (!m->why[0] && (size > m->heads || m->layers > MOST_LAYERS))
        snprintf(m->why, sizeof m->why, "%d ranks, %d heads, %d layers: every rank needs a head, and %d layers are the most",
                 size, m->heads, m->layers, MOST_LAYERS);
    if (m->why[0]) return false;
    m->epsilon = gguf_get_val_f32(m->file, gguf_find_key(m->file, "llama.attention.layer_norm_rms_epsilon"));
    m->first_head = m->heads * rank / size, m->own_heads = m->heads * (rank + 1) / size - m->first_head;
    m->first_forward = m->forward * rank / size, m->own_forward = m->forward * (rank + 1) / size - m->first_forward;
    const size_t floats = (size_t)m->width * ((size_t)m->count * 2 + (size_t)m->layers * ((size_t)m->width * 4 +
                          (size_t)m->forward * 3 + 2 * (size_t)m->context + 8)) + 65536;
    m->weights = ggml_init((struct ggml_init_params){ .mem_size = floats * 4 });
    m->words = part(m, "token_embd.weight", 0, m->count, 0, m->width);
    m->norm = part(m, "output_norm.weight", 0, 1, 0, m->width);
    m->output = part(m, "output.weight", 0, m->count, 0, m->width);
    for (int i = 0; i < m->layers; i++) read_layer(m, i);
    return !m->why[0];
}

static void model_close(model *m)
{
    if (m->weights) ggml_free(m->weights);
    if (m->shapes) ggml_free(m->shapes);
    if (m->file) gguf_free(m->file);
    if (m->stream) fclose(m->stream);
}

/* ---- the graph ------------------------------------------------------------------------------------------------------------- */

static struct ggml_tensor *sum(model *m, struct ggml_tensor *x)
{
    return ggml_map_custom1_inplace(m->pass, x, tensor_job_sum, 1, &m->job);
}

static struct ggml_tensor *normed(model *m, struct ggml_tensor *x, struct ggml_tensor *weight)
{
    return ggml_mul(m->pass, ggml_rms_norm(m->pass, x, m->epsilon), weight);
}

/* The attention of `count` tokens behind `past` ones, by this rank's heads. */
static struct ggml_tensor *attention(model *m, struct ggml_cgraph *graph, const layer *l, struct ggml_tensor *x,
                                     struct ggml_tensor *places, int past, int count)
{
    struct ggml_context *const c = m->pass;
    const int64_t heads = m->own_heads, head = m->width / m->heads, own = heads * head, all = past + count;
    const size_t row = (size_t)own * 4;
    struct ggml_tensor *q = ggml_reshape_3d(c, ggml_mul_mat(c, l->q, x), head, heads, count);
    struct ggml_tensor *k = ggml_reshape_3d(c, ggml_mul_mat(c, l->k, x), head, heads, count);
    struct ggml_tensor *v = ggml_mul_mat(c, l->v, x);

    q = ggml_rope(c, q, places, (int)head, 0);
    k = ggml_reshape_2d(c, ggml_rope(c, k, places, (int)head, 0), own, count);
    ggml_build_forward_expand(graph, ggml_cpy(c, k, ggml_view_2d(c, l->keys, own, count, row, row * (size_t)past)));
    ggml_build_forward_expand(graph, ggml_cpy(c, v, ggml_view_2d(c, l->values, own, count, row, row * (size_t)past)));
    k = ggml_permute(c, ggml_view_3d(c, l->keys, head, heads, all, (size_t)head * 4, row, 0), 0, 2, 1, 3);
    v = ggml_cont(c, ggml_permute(c, ggml_view_3d(c, l->values, head, heads, all, (size_t)head * 4, row, 0), 1, 2, 0, 3));
    x = ggml_mul_mat(c, k, ggml_permute(c, q, 0, 2, 1, 3));
    x = ggml_diag_mask_inf(c, ggml_scale(c, x, 1 / (float)__builtin_sqrt((double)head)), past);
    x = ggml_mul_mat(c, v, ggml_soft_max(c, x));
    return ggml_mul_mat(c, l->out, ggml_cont_2d(c, ggml_permute(c, x, 0, 2, 1, 3), own, count));
}

/* The most likely word after `count` more tokens, which follow `past` ones.  -1 after an error; job.why says it. */
static int next(model *m, const int32_t *tokens, int past, int count)
{
    m->pass = ggml_init((struct ggml_init_params){ .mem_size = (size_t)96 << 20 });
    struct ggml_context *const c = m->pass;
    struct ggml_cgraph *const graph = ggml_new_graph_custom(c, (size_t)m->layers * 64 + 64, false);
    struct ggml_tensor *const ids = ggml_new_tensor_1d(c, GGML_TYPE_I32, count);
    struct ggml_tensor *const places = ggml_new_tensor_1d(c, GGML_TYPE_I32, count);
    int best = 0;

    for (int i = 0; i < count; i++) ((int32_t *)ids->data)[i] = tokens[i], ((int32_t *)places->data)[i] = past + i;
    struct ggml_tensor *x = ggml_get_rows(c, m->words, ids);
    for (int i = 0; i < m->layers; i++) {
        const layer *const l = &m->layer[i];
        x = ggml_add(c, x, sum(m, attention(m, graph, l, normed(m, x, l->attention_norm), places, past, count)));
        struct ggml_tensor *const h = normed(m, x, l->forward_norm);
        struct ggml_tensor *const gated = ggml_mul(c, ggml_silu(c, ggml_mul_mat(c, l->gate, h)), ggml_mul_mat(c, l->up, h));
        x = ggml_add(c, x, sum(m, ggml_mul_mat(c, l->down, gated)));
    }
    x = ggml_view_1d(c, x, m->width, (size_t)(count - 1) * (size_t)m->width * 4);
    x = ggml_mul_mat(c, m->output, normed(m, x, m->norm));
    ggml_build_forward_expand(graph, x);
    if (ggml_graph_compute_with_ctx(c, graph, 1) != GGML_STATUS_SUCCESS && !m->job.status)
        m->job.status = COLL_ERR_SYSTEM, snprintf(m->job.why, sizeof m->job.why, "ggml cannot compute the graph");
    const float *const logits = ggml_get_data_f32(x);
    for (int i = 1; i < m->count; i++) if (logits[i] > logits[best]) best = i;
    ggml_free(c);
    return m->job.status ? -1 : best;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int run(const char *path, int count, coll_type wire)
{
    static model m;
    static const int32_t prompt[] = { 1, 5, 8, 13 };
    const int length = sizeof prompt / sizeof *prompt;
    coll_comm *comm;
    int32_t token;

    if (coll_init(&comm, NULL)) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
    if (!model_open(&m, path, comm, wire)) return fprintf(stderr, "%s\n", m.why), 1;
    if (count < 1 || count + length > m.context) return fprintf(stderr, "1 to %d tokens are possible\n", m.context - length), 1;
    token = next(&m, prompt, 0, length);
    const double began = now_s();
    for (int i = 0; i < count && token >= 0; i++) {
        if (coll_rank(comm) == 0) printf("%d%c", (int)token, i + 1 < count ? ' ' : '\n');
        if (i + 1 < count) token = next(&m, &token, length + i, 1);
    }
    if (token < 0) return fprintf(stderr, "rank %d: %s\n", coll_rank(comm), m.job.why), 1;
    if (coll_rank(comm) == 0 && count > 1)
        fprintf(stderr, "%d ranks: %.0f tokens/s\n", coll_size(comm), (count - 1) / (now_s() - began));
    model_close(&m);
    return coll_free(comm) != COLL_OK;
}

int main(int argc, char **argv)
{
    if ((argc == 3 || argc == 4 || argc == 7) && strcmp(argv[1], "make") == 0) {
        const uint32_t width = argc > 4 ? (uint32_t)atoi(argv[4]) / (2 * HEADS) * (2 * HEADS) : 240;
        state = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
        return make(argv[2], width, argc > 4 ? (uint32_t)atoi(argv[5]) : 640, argc > 4 ? (uint32_t)atoi(argv[6]) : 4);
    }
    if (argc >= 4 && argc <= 5 && strcmp(argv[1], "run") == 0)
        return run(argv[2], atoi(argv[3]), argc > 4 && strcmp(argv[4], "bf16") == 0 ? COLL_BF16 : 0);
    fprintf(stderr, "usage: ggml_tokens make FILE [SEED [WIDTH FORWARD LAYERS]], or ggml_tokens run FILE TOKENS [bf16]\n");
    return 2;
}
