/* switch_types.h - every type of elements in a program that may have left it out: reductions, wires and conversions give the
 * right bits, or are refused with the name of a switch; and elements of all types are moved. */
#ifndef SWITCH_TYPES_H
#define SWITCH_TYPES_H

enum { TYPE_RANKS = 3, TYPE_SUM = 6, TYPE_COUNT = 70 };               /* ranks give 1, 2 and 3; more than two groups of a wire  */

/* Whole numbers from 0 to 6 as floats of few bits. */
static uint16_t small_float(coll_type type, int value)
{
    static const uint16_t f16[] = { 0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600 };
    static const uint16_t bf16[] = { 0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0 };
    static const uint16_t e4m3[] = { 0, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c }, e5m2[] = { 0, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46 };
    return (type == COLL_F16 ? f16 : type == COLL_BF16 ? bf16 : type == COLL_F8E4M3 ? e4m3 : e5m2)[value];
}

/* One element: the value, and in a pair an index that is the value, too. */
static void put(coll_type type, unsigned char *to, int value)
{
    const int32_t word = value;
    const int64_t longer = value;
    const float f32 = (float)value;
    const double f64 = value;

    memset(to, 0, coll_type_size(type));
    switch (type) {
    case COLL_I8: case COLL_U8:   *to = (unsigned char)value;                                          break;
    case COLL_BOOL:               *to = value != 0;                                                    break;
    case COLL_I16: case COLL_U16: memcpy(to, &(uint16_t){ (uint16_t)value }, 2);                       break;
    case COLL_I32: case COLL_U32: memcpy(to, &word, 4);                                                break;
    case COLL_I64: case COLL_U64: memcpy(to, &longer, 8);                                              break;
    case COLL_F8E4M3: case COLL_F8E5M2: *to = (unsigned char)small_float(type, value);                 break;
    case COLL_F16: case COLL_BF16: memcpy(to, &(uint16_t){ small_float(type, value) }, 2);             break;
    case COLL_F32: case COLL_C64:  memcpy(to, &f32, 4);                                                break;
    case COLL_F64: case COLL_C128: memcpy(to, &f64, 8);                                                break;
    case COLL_F32_I32:            memcpy(to, &f32, 4), memcpy(to + 4, &word, 4);                       break;
    case COLL_I32_I32:            memcpy(to, &word, 4), memcpy(to + 4, &word, 4);                      break;
    case COLL_F64_I32:            memcpy(to, &f64, 8), memcpy(to + 8, &word, 4);                       break;
    case COLL_I64_I32:            memcpy(to, &longer, 8), memcpy(to + 8, &word, 4);                    break;
    case COLL_F64_I64:            memcpy(to, &f64, 8), memcpy(to + 8, &longer, 8);                     break;
    default:                      memcpy(to, &longer, 8), memcpy(to + 8, &longer, 8);                  break;
    }
}

static bool holds(coll_type type, const unsigned char *at, int value)
{
    const size_t size = coll_type_size(type);
    unsigned char wanted[16];

    put(type, wanted, value);
    for (int i = 0; i < TYPE_COUNT; i++) if (memcmp(at + (size_t)i * size, wanted, size)) return false;
    return true;
}

/* What an operation makes of 1, 2 and 3. */
static int outcome(coll_type type, coll_op op)
{
    if (type == COLL_BOOL) return 1;
    return op == COLL_SUM || op == COLL_PROD ? TYPE_SUM : op == COLL_AVG ? 2 : op == COLL_MAX || op == COLL_MAXLOC ? 3 : 1;
}

/* A sentence that names the switch, or says nothing of a type that is there. */
static void refusal_names(coll_comm *comm, coll_type type)
{
    CHECK(says(coll_error(comm), "this program was compiled with") && says(coll_error(comm), coll_type_name(type))
          && says(coll_error(comm), "COLL_ONLY_TYPES"), "%s: \"%s\"", coll_type_name(type), coll_error(comm));
}

/* An allreduce over ranks in turns: it is right, or refused if `is_there` is false. */
static void allreduce_of(loop_world *w, coll_call call, bool is_there, coll_type missing)
{
    static unsigned char in[TYPE_RANKS][TYPE_COUNT * 16], out[TYPE_RANKS][TYPE_COUNT * 16];
    const size_t size = coll_type_size(call.type);
    coll_call calls[TYPE_RANKS];

    for (int r = 0; r < TYPE_RANKS; r++) {
        for (size_t i = 0; i < TYPE_COUNT; i++) put(call.type, in[r] + i * size, r + 1);
        calls[r] = call;
        calls[r].kind = COLL_ALLREDUCE, calls[r].send = in[r], calls[r].recv = out[r], calls[r].count = TYPE_COUNT;
    }
    if (!is_there) {
        const coll_status status = coll_run(w->comms[0], &calls[0]);
        CHECK(status == COLL_ERR_UNSUPPORTED, "%s of %s without it: %d", coll_op_name(call.op), coll_type_name(call.type),
              (int)status);
        if (missing) refusal_names(w->comms[0], missing);
        return;
    }
    CHECK(loop_run(w, calls) == COLL_OK, "%s of %s: %s", coll_op_name(call.op), coll_type_name(call.type),
          coll_error(w->comms[0]));
    for (int r = 0; r < TYPE_RANKS; r++)
        CHECK(holds(call.type, out[r], outcome(call.type, call.op)), "%s of %s over %s with flags %x, rank %d",
              coll_op_name(call.op), coll_type_name(call.type), coll_type_name(call.wire), call.flags, r);
}

static void gathered(loop_world *w, coll_type type)
{
    static unsigned char in[TYPE_RANKS][TYPE_COUNT * 16], out[TYPE_RANKS][TYPE_RANKS * TYPE_COUNT * 16];
    const size_t size = coll_type_size(type);
    coll_call calls[TYPE_RANKS];

    for (int r = 0; r < TYPE_RANKS; r++) {
        for (size_t i = 0; i < TYPE_COUNT; i++) put(type, in[r] + i * size, r + 1);
        calls[r] = (coll_call){ .kind = COLL_ALLGATHER, .send = in[r], .recv = out[r], .count = TYPE_COUNT, .type = type };
    }
    CHECK(loop_run(w, calls) == COLL_OK, "allgather of %s: %s", coll_type_name(type), coll_error(w->comms[0]));
    for (int r = 0; r < TYPE_RANKS; r++)
        for (int from = 0; from < TYPE_RANKS; from++)
            CHECK(holds(type, out[r] + (size_t)from * TYPE_COUNT * size, from + 1), "allgather of %s, rank %d",
                  coll_type_name(type), r);
}

/* Wires and conversions of a type, from f32. */
static void beside_f32(loop_world *w, coll_type type)
{
    const bool is_there = COLL__HAS(COLL_F32) && (COLL__TYPES_THERE >> type & 1u), is_wire_only = coll_type_size(type) == 0;
    const coll_type missing = COLL__HAS(COLL_F32) ? type : COLL_F32;
    unsigned char out[TYPE_COUNT * 16];
    float in[TYPE_COUNT];

    if (type != COLL_F64) allreduce_of(w, (coll_call){ .type = COLL_F32, .wire = type, .op = COLL_SUM }, is_there, missing);
    for (int i = 0; i < TYPE_COUNT; i++) in[i] = 3;
    if (is_wire_only) return;
    const coll_status status = coll_convert(out, type, in, COLL_F32, TYPE_COUNT);
    CHECK(status == (is_there ? COLL_OK : COLL_ERR_UNSUPPORTED), "f32 to %s: %d", coll_type_name(type), (int)status);
    if (is_there) CHECK(holds(type, out, 3), "f32 to %s: other bits", coll_type_name(type));
}

static void types(void)
{
    static loop_world w;

    CHECK(loop_open(&w, TYPE_RANKS, &loop_transport), "ranks in turns: %s", coll_error(NULL));
    for (coll_type type = COLL_I8; type <= COLL_MXF8E5M2; type++) {
        const bool is_there = COLL__TYPES_THERE >> type & 1u, is_float = type >= COLL_F16 && type <= COLL_F64;
        if (is_float || type >= COLL_MXI8) if (type != COLL_F32) beside_f32(&w, type);
        if (type >= COLL_MXI8) continue;
        gathered(&w, type);
        for (coll_op op = COLL_SUM; op < COLL_USER; op++) {
            const bool is_bitwise = op == COLL_BAND || op == COLL_BOR || op == COLL_BXOR;
            const bool is_truth = op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR;
            const bool is_pair = op == COLL_MINLOC || op == COLL_MAXLOC, is_kept = type == COLL_U64 && op == COLL_MAX;
            if (is_bitwise || is_truth || is_pair != (type >= COLL_F32_I32)) continue;
            if (type == COLL_BOOL && op != COLL_MIN && op != COLL_MAX) continue;
            if ((type == COLL_C64 || type == COLL_C128) && (op == COLL_MIN || op == COLL_MAX)) continue;
            allreduce_of(&w, (coll_call){ .type = type, .op = op }, is_there || is_kept, type);
        }
    }
    const bool has_f32 = COLL__HAS(COLL_F32), has_bf16 = COLL__HAS(COLL_BF16);
    allreduce_of(&w, (coll_call){ .type = COLL_F32, .op = COLL_SUM, .flags = COLL_REPRODUCIBLE },
                 has_f32 && COLL__HAS(COLL_F64) && COLL__IS_WHOLE, 0);
    allreduce_of(&w, (coll_call){ .type = COLL_BF16, .op = COLL_SUM, .flags = COLL_STOCHASTIC, .seed = 1 },
                 has_bf16 && COLL__IS_WHOLE, 0);
    allreduce_of(&w, (coll_call){ .type = COLL_F32, .op = COLL_SUM, .accumulate = COLL_F64 }, has_f32 && COLL__HAS(COLL_F64), 0);
    loop_free(&w);
}

#endif /* SWITCH_TYPES_H */
