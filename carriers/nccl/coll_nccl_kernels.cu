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
    case I8: case U8: case BOOL: ((unsigned char *)at)[i] = (unsigned char)x;   break;
    case I16: case U16:          ((unsigned short *)at)[i] = (unsigned short)x; break;
    case I32: case U32:          ((unsigned *)at)[i] = (unsigned)x;             break;
    default:                     ((i64 *)at)[i] = x;
    }
}

/* ---- >>folds ---- */

/* If a and b are equal, the sign bit decides. */
static __device__ float least(float a, float b)
{
    return a < b ? a : b < a ? b : a == b ? __uint_as_float(__float_as_uint(a) | __float_as_uint(b)) : a + b;
}
static __device__ float most(float a, float b)
{
    return a > b ? a : b > a ? b : a == b ? __uint_as_float(__float_as_uint(a) & __float_as_uint(b)) : a + b;
}
static __device__ double least(double a, double b)
{
    return a < b ? a : b < a ? b : a == b ? __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b)) : a + b;
}
static __device__ double most(double a, double b)
{
    return a > b ? a : b > a ? b : a == b ? __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b)) : a + b;
}

template <typename T> static __device__ T fold(T a, T b, int op, int)
{
    switch (op) {
    case PROD: return a * b;
    case MIN:  return least(a, b);
    case MAX:  return most(a, b);
    case LAND: return (T)(a != 0 && b != 0);
    case LOR:  return (T)(a != 0 || b != 0);
    case LXOR: return (T)((a != 0) != (b != 0));
    default:   return a + b;
    }
}

static __device__ i64 fold(i64 a, i64 b, int op, int type)
{
    const bool is_unsigned = type == U64;         /* shorter types were converted to signed                   */

    switch (op) {
    case PROD: return (i64)((u64)a * (u64)b);
    case MIN:  return (is_unsigned ? (u64)a < (u64)b : a < b) ? a : b;
    case MAX:  return (is_unsigned ? (u64)a > (u64)b : a > b) ? a : b;
    case BAND: return a & b;
    case BOR:  return a | b;
    case BXOR: return a ^ b;
    case LAND: return a != 0 && b != 0;
    case LOR:  return a != 0 || b != 0;
    case LXOR: return (a != 0) != (b != 0);
    default:   return (i64)((u64)a + (u64)b);
    }
}

static __device__ bool is_logical(int op) { return op >= LAND && op <= LXOR; }

/* ---- >>the kernels ---- */

#define EACH(i) (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x)

/* Element i of all n sources: as a tree, or one source after the other.  The tree is a binary counter: source k completes as many
 * sub-trees as k ends in ones, and the last source completes all. */
template <typename T, T load(const void *, u64, int)>
static __device__ T combine(const void *in, u64 stride, int n, u64 i, int type, int op, int order)
{
    T stack[33], x = load(in, i, type);
    int depth = 0;

    #pragma unroll 1
    for (int k = 1; k < n; k++) {
        const T next = load((const char *)in + (u64)k * stride, i, type);
        if (order) {
            x = fold(x, next, op, type);
            continue;
        }
        stack[depth++] = x;
        x = next;
        #pragma unroll 1
        for (int carry = k; depth > 0 && ((carry & 1) || k == n - 1); carry >>= 1) x = fold(stack[--depth], x, op, type);
    }
    return x;
}

#define COMBINE_REALS(name, T, LOAD, STORE)                                                                \
    extern "C" __global__ void name(const void *in, u64 stride, int n, void *out, u64 count, int type, int op, int order, \
                                    T divisor, T scale)                                                    \
    {                                                                                                      \
        for EACH(i) {                                                                                      \
            T x = combine<T, LOAD>(in, stride, n, i, type, op, order);                                     \
            if (is_logical(op)) x = (T)(x != 0);                                                           \
            STORE(out, i, type, x / divisor * scale);                                                      \
        }                                                                                                  \
    }
COMBINE_REALS(coll_combine_f32, float, load_f32, store_f32)
COMBINE_REALS(coll_combine_f64, double, load_f64, store_f64)

extern "C" __global__ void coll_combine_i64(const void *in, u64 stride, int n, void *out, u64 count, int type, int op, int order,
                                            i64 divisor)
{
    for EACH(i) {
        i64 x = combine<i64, load_i64>(in, stride, n, i, type, op, order);
        if (is_logical(op) || type == BOOL) x = x != 0;
        store_i64(out, i, type, divisor > 1 ? x / divisor : x);
    }
}

extern "C" __global__ void coll_convert(const void *in, int in_type, void *out, int out_type, u64 count)
{
    for EACH(i) store_f32(out, i, out_type, load_f32(in, i, in_type));
}

extern "C" __global__ void coll_overflow(const void *in, u64 count, int type, unsigned *found)
{
    bool is_beyond = false;

    for EACH(i) {
        if (type == F64) is_beyond |= ((((const u64 *)in)[i] >> 52) & 0x7ff) == 0x7ff;
        else is_beyond |= (__float_as_uint(load_f32(in, i, type)) & 0x7f800000u) == 0x7f800000u;
    }
    if (is_beyond) *found = 1;
}
