/* coll_nccl_kernels.cu - the kernels for GPUs: reductions of the inputs of ranks, conversions, detection of infinities.
 *
 * `make ptx` compiles this to the PTX text in coll_nccl_ptx.h; programs that use the library need no nvcc.  coll_nccl_abi.h
 * describes each kernel.  The bits are those of the processor (coll_types.h, coll_reduce_ops.h, coll_reduce_kernels.h): no fused
 * multiplications (-fmad=false), divisions and subnormals of IEEE 754, and conversions in integers. */

typedef unsigned long long u64;
typedef long long i64;

enum { I8 = 1, I16, I32, I64, U8, U16, U32, U64, BOOL, F16, BF16, F32 = 14, F64 = 15 };
enum { SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, LAND, LOR, LXOR };

/* ---- >>types ---- */

/* A subnormal half is a whole number of 2^-24. */
static __device__ float wide_f16(unsigned half)
{
    const unsigned magnitude = half & 0x7fffu, sign = (half & 0x8000u) << 16;
    const unsigned normal = (magnitude << 13) + (magnitude < 0x7c00u ? 112u << 23 : 224u << 23);
    const unsigned small = __float_as_uint((float)magnitude * 0x1p-24f);
    return __uint_as_float((magnitude < 0x400u ? small : normal) | sign);
}

static __device__ float wide_bf16(unsigned half) { return __uint_as_float(half << 16); }

static __device__ unsigned narrow_bf16(float value)
{
    const unsigned bits = __float_as_uint(value);
    return value == value ? (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16 : 0x7fc0u;
}

static __device__ unsigned narrow_f16(float value)
{
    const unsigned bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
    const unsigned shifted = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    const unsigned normal = shifted < 0x7c00u ? shifted : 0x7c00u;
    const unsigned small = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
    const unsigned number = magnitude < 0x38800000u ? small : normal;
    return value == value ? number | (bits >> 16 & 0x8000u) : 0x7e00u;
}

static __device__ float load_f32(const void *at, u64 i, int type)
{
    if (type == F32) return ((const float *)at)[i];
    const unsigned half = ((const unsigned short *)at)[i];
    return type == F16 ? wide_f16(half) : wide_bf16(half);
}

static __device__ void store_f32(void *at, u64 i, int type, float x)
{
    if (type == F32) ((float *)at)[i] = x == x ? x : __uint_as_float(0x7fc00000u);
    else ((unsigned short *)at)[i] = (unsigned short)(type == F16 ? narrow_f16(x) : narrow_bf16(x));
}

static __device__ double load_f64(const void *at, u64 i, int) { return ((const double *)at)[i]; }

static __device__ void store_f64(void *at, u64 i, int, double x)
{
    ((double *)at)[i] = x == x ? x : __longlong_as_double(0x7ff8000000000000ll);
}

static __device__ i64 load_i64(const void *at, u64 i, int type)
{
    switch (type) {
    case I8:   return ((const signed char *)at)[i];
    case I16:  return ((const short *)at)[i];
    case I32:  return ((const int *)at)[i];
    case U8:   return ((const unsigned char *)at)[i];
    case U16:  return ((const unsigned short *)at)[i];
    case U32:  return ((const unsigned *)at)[i];
    case BOOL: return ((const unsigned char *)at)[i] != 0;
    default:   return ((const i64 *)at)[i];
    }
}

static __device__ void store_i64(void *at, u64 i, int type, i64 x)
{
    switch (type) {
    case BOOL:          ((unsigned char *)at)[i] = x != 0;             break;
    case I8:  case U8:  ((unsigned char *)at)[i] = (unsigned char)x;   break;
    case I16: case U16: ((unsigned short *)at)[i] = (unsigned short)x; break;
    case I32: case U32: ((unsigned *)at)[i] = (unsigned)x;             break;
    default:            ((i64 *)at)[i] = x;
    }
}

/* ---- >>folds ---- */

/* If a and b are equal, the sign bit decides. */
static __device__ float least(float a, float b)
{
    return a < b ? a : b < a ? b : a == b ? __uint_as_float(__float_as_uint(a) | __float_as_uint(b)) : a + b;
}
static __device__ double least(double a, double b)
{
    return a < b ? a : b < a ? b : a == b ? __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b)) : a + b;
}

/* The numbers of logical operations are 0 and 1. */
template <typename T> static __device__ T fold(T a, T b, int op, int)
{
    if (op == SUM) return a + b;
    switch (op) {
    case MIN:             return least(a, b);
    case MAX: case LOR:   return -least(-a, -b);
    case LXOR:            return a != b;
    default:              return a * b;
    }
}

static __device__ i64 fold(i64 a, i64 b, int op, int type)
{
    const bool is_unsigned = type == U64;         /* shorter types were converted to signed                   */

    if (op == SUM) return (i64)((u64)a + (u64)b);
    switch (op) {
    case MIN:             return (is_unsigned ? (u64)a < (u64)b : a < b) ? a : b;
    case MAX:             return (is_unsigned ? (u64)a > (u64)b : a > b) ? a : b;
    case BAND: case LAND: return a & b;
    case BOR:  case LOR:  return a | b;
    case BXOR: case LXOR: return a ^ b;
    default:              return (i64)((u64)a * (u64)b);
    }
}

/* ---- >>the kernels ---- */

/* Keeps the compiler from writing a loop for every value of a parameter. */
#define ONE_LOOP(parameter) asm("" : "+r"(parameter))

#define EACH(i) (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x)

/* Element i of all n sources: as a tree, or one source after the other.  The tree is a binary counter: source k completes as many
 * sub-trees as k ends in ones, and the last source completes all. */
template <typename T, T load(const void *, u64, int)>
static __device__ T combine(const void *in, u64 stride, int n, u64 i, int type, int op, int order)
{
    T stack[33], x = 0;
    int depth = 0, k = 0;

    #pragma unroll 1
    do {
        ONE_LOOP(op);
        ONE_LOOP(type);
        if (k > 0) stack[depth++] = x;
        x = load((const char *)in + (u64)k * stride, i, type);
        if (op >= LAND) x = x != 0;
        #pragma unroll 1
        for (int carry = k | order; depth > 0 && ((carry & 1) || k == n - 1); carry >>= 1) x = fold(stack[--depth], x, op, type);
    } while (++k < n);
    return x;
}

#define COMBINE_REALS(name, T, LOAD, STORE)                                                                \
    extern "C" __global__ void name(const void *in, u64 stride, int n, void *out, u64 count, int in_type, int out_type, int op, \
                                    int order, T divisor, T scale)                                         \
    {                                                                                                      \
        for EACH(i) {                                                                                      \
            const T x = combine<T, LOAD>(in, stride, n, i, in_type, op, order);                            \
            STORE(out, i, out_type, x / divisor * scale);                                                  \
        }                                                                                                  \
    }
COMBINE_REALS(coll_combine_f32, float, load_f32, store_f32)
COMBINE_REALS(coll_combine_f64, double, load_f64, store_f64)

extern "C" __global__ void coll_combine_i64(const void *in, u64 stride, int n, void *out, u64 count, int in_type, int out_type,
                                            int op, int order, int divisor)
{
    for EACH(i) {
        ONE_LOOP(divisor);
        ONE_LOOP(out_type);
        const i64 x = combine<i64, load_i64>(in, stride, n, i, in_type, op, order);
        store_i64(out, i, out_type, divisor > 1 ? x / divisor : x);
    }
}

/* The bits of the exponent are all 1. */
extern "C" __global__ void coll_overflow(const void *in, u64 count, int type, unsigned *found)
{
    const u64 mask = type == F64 ? 0x7ffull << 52 : type == F32 ? 0x7f800000 : type == BF16 ? 0x7f80 : 0x7c00;

    for EACH(i) {
        ONE_LOOP(type);
        const u64 bits = type == F64 ? ((const u64 *)in)[i] : type == F32 ? ((const unsigned *)in)[i]
                       : ((const unsigned short *)in)[i];
        if ((bits & mask) == mask) *found = 1;
    }
}
