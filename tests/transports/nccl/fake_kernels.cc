/* fake_kernels.cc - the library's kernels on the host: their source, compiled as C++ with the parts of CUDA's language that it
 * uses.  This tests what the kernels compute, not that nvcc compiles them to the same.
 *
 * Before a kernel runs, all memory in its parameters is looked up, to the byte. */
#include "fake_kernels.h"

#include <cmath>

namespace {

struct place3 { unsigned x; };
thread_local place3 blockIdx, threadIdx, blockDim, gridDim;

inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, sizeof bits); return bits; }
inline float __uint_as_float(unsigned x) { float number; memcpy(&number, &x, sizeof number); return number; }
inline long long __double_as_longlong(double x) { long long bits; memcpy(&bits, &x, sizeof bits); return bits; }
inline double __longlong_as_double(long long x) { double number; memcpy(&number, &x, sizeof number); return number; }

}

#define __device__ __attribute__((unused))
#define __global__ __attribute__((visibility("hidden")))
#include "../../../carriers/nccl/coll_nccl_kernels.cu"

namespace {

/* ---- >>memory: what a kernel is given becomes what its work can touch ---- */

uint64_t size_of(const char *kernel, uint64_t type)
{
    static const uint64_t sizes[] = { 0, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 2, 0, 0, 4, 8 };
    const unsigned number = (unsigned)type;

    if (number >= sizeof sizes / sizeof *sizes || !sizes[number]) fake_fail("kernel %s has no type %u", kernel, number);
    return sizes[number];
}

uint64_t seen(const char *kernel, uint64_t address, uint64_t length)
{
    return (uint64_t)(uintptr_t)fake_view((const void *)(uintptr_t)address, (size_t)length, kernel);
}

/* in, stride, n, out, count, in_type, out_type: of the combining ones. */
void see_combine(const char *kernel, uint64_t *v)
{
    const uint64_t length = v[4] * size_of(kernel, v[5]), in = v[0];
    const int n = (int)(unsigned)v[2];

    if (n < 1) fake_fail("kernel %s has %d sources", kernel, n);
    for (int k = n - 1; k >= 0; k--) v[0] = seen(kernel, in + (uint64_t)k * v[1], length);
    v[3] = seen(kernel, v[3], v[4] * size_of(kernel, v[6]));
}

void see_overflow(const char *kernel, uint64_t *v)
{
    v[0] = seen(kernel, v[0], v[1] * size_of(kernel, v[2]));
    v[3] = seen(kernel, v[3], sizeof(unsigned));
}

/* ---- >>calls: a kernel's parameters from their bytes, whatever their types ---- */

template <typename T> T parameter(uint64_t value)
{
    T out;
    memcpy(&out, &value, sizeof out);
    return out;
}

template <int... I> struct numbers {};
template <int N, int... I> struct count_up : count_up<N - 1, N - 1, I...> {};
template <int... I> struct count_up<0, I...> { typedef numbers<I...> type; };

template <typename... T, int... I> void call(void (*kernel)(T...), const uint64_t *v, numbers<I...>)
{
    kernel(parameter<T>(v[I])...);
}

template <typename... T> void call_all(void (*kernel)(T...), const uint64_t *v)
{
    call(kernel, v, typename count_up<sizeof...(T)>::type());
}

typedef void runner(const uint64_t *values, uint64_t blocks, uint64_t threads);

template <typename... T> fake_kernel described(const char *name, void (*)(T...), runner *run)
{
    return fake_kernel{ name, { (char)('0' + sizeof(T))..., 0 }, run };
}

/* Every thread of the grid that may have an element; the others find nothing to do. */
#define RUN(kernel, see, count_at)                                                                \
    void run_##kernel(const uint64_t *given, uint64_t blocks, uint64_t threads)                   \
    {                                                                                             \
        uint64_t v[FAKE_PARAMETERS_MOST];                                                         \
        memcpy(v, given, sizeof v);                                                               \
        see(#kernel, v);                                                                          \
        gridDim.x = (unsigned)blocks, blockDim.x = (unsigned)threads;                             \
        for (uint64_t i = 0; i < v[count_at] && i < blocks * threads; i++) {                      \
            blockIdx.x = (unsigned)(i / threads), threadIdx.x = (unsigned)(i % threads);          \
            call_all(kernel, v);                                                                  \
        }                                                                                         \
    }
RUN(coll_combine_f32, see_combine, 4)
RUN(coll_combine_f64, see_combine, 4)
RUN(coll_combine_i64, see_combine, 4)
RUN(coll_overflow, see_overflow, 1)

#define DESCRIBED(kernel) described(#kernel, kernel, run_##kernel)
const fake_kernel kernels[] = { DESCRIBED(coll_combine_f32), DESCRIBED(coll_combine_f64), DESCRIBED(coll_combine_i64),
                                DESCRIBED(coll_overflow) };

}

const fake_kernel *fake_kernel_at(int i)
{
    return i < (int)(sizeof kernels / sizeof *kernels) ? &kernels[i] : nullptr;
}
