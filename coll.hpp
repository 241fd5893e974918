// coll.hpp - coll.h for C++17 and later: communicators and requests that free themselves, sizes and types that are inferred
// and checked, results that are returned, errors that are exceptions.  The manual in coll.h tells what the calls mean,
// docs/cpp.md the rest.  The library is C11, in a C file of its own: g++ -std=c++17 train.cpp coll.o -pthread, or -lcoll.
//
//     coll::spawn(4, [](coll::communicator &comm) {             four ranks, threads of this process; between processes:
//         std::vector<float> x = { float(comm.rank()), 1 };     coll::communicator comm = coll::init();
//         comm.allreduce(coll::in_place(x));
//         std::printf("rank %d of %d: %g %g\n", comm.rank(), comm.size(), double(x[0]), double(x[1]));
//     });
//
//     buffers     x                        input alone: the result is returned, as a std::vector, or for one element as it is
//                 coll::from_to(x, y)      input and output
//                 coll::in_place(x)        the input is replaced; where there are blocks for all ranks, x is all of them
//                 coll::into(y)            output alone: for who has no input
//                 Each of x and y is a std::vector, std::array, std::span, coll::span, coll::buffer, C array, one element, or
//                 a coll::matrix_view.  One that is moved in is kept, and what it has become is returned
//     forms       comm.allreduce(x)                    returns when it is done
//                 comm.start().allreduce(x)            returns a coll::request, whose wait() gives the result
//                 comm.prepare().allreduce(...)        returns a coll::prepared: planned once, started many times
//                 comm.explain().allreduce(x)          returns the text of coll_explain
//     elements    integers, bool, float, double, std::complex, coll::f16, bf16, f8e4m3, f8e5m2, coll::located<value, index>.
//                 Any other type that is trivially copyable is moved as it is, and reduced by operations of your own
//     operations  coll::sum, prod, min, max, avg, band, ...; a function (low, high) that returns an element, or one of
//                 (coll::span<const T> low, coll::span<T> high) that changes `high`.  Low is of lower ranks
//     errors      coll::error is thrown: status(), rank(), what().  Where exceptions are off (-fno-exceptions, or
//                 COLL_CPP_NO_EXCEPTIONS), and for a communicator with throwing(false), results are empty after an error
//                 instead, and comm.last() is the error, or false
#if __cplusplus < 201703L
#error "coll.hpp is C++17: compile with -std=c++17 or later; coll.h is C++11"
#elif !defined(COLL_HPP)
#define COLL_HPP
#include "coll.h"

#include <complex>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if !defined(COLL_CPP_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define COLL_CPP_NO_EXCEPTIONS 1
#endif

namespace coll {
// The two ways to compile it may meet in one program.
#if defined(COLL_CPP_NO_EXCEPTIONS)
inline namespace quiet {
#else
inline namespace throwing {
#endif
// ---- >>elements: which coll_type a type is

// A float of 16 or 8 bits: its bits, which convert from and to float as the library does, rounding to nearest even.
template <coll_type Type, class Bits, Bits (*Round)(float), float (*Widen)(Bits)> struct small_float {
    Bits bits;
    small_float() = default;
    small_float(float value) : bits(Round(value)) {}
    operator float() const { return Widen(bits); }
};

using f16 = small_float<COLL_F16, std::uint16_t, coll_f32_to_f16, coll_f16_to_f32>;
using bf16 = small_float<COLL_BF16, std::uint16_t, coll_f32_to_bf16, coll_bf16_to_f32>;
using f8e4m3 = small_float<COLL_F8E4M3, std::uint8_t, coll_f32_to_f8e4m3, coll_f8e4m3_to_f32>;
using f8e5m2 = small_float<COLL_F8E5M2, std::uint8_t, coll_f32_to_f8e5m2, coll_f8e5m2_to_f32>;

// An element of coll::minloc and coll::maxloc.
template <class Value, class Index> struct located { Value value; Index index; };

namespace detail {

template <class T, class = void> struct element : std::integral_constant<coll_type, COLL_BLOB(sizeof(T))> {
    static_assert(std::is_trivially_copyable<T>::value && !std::is_pointer<T>::value,
                  "coll: an element has to be trivially copyable, and no pointer (std::vector<bool> is no range of elements)");
};
constexpr coll_type integer(std::size_t length, coll_type shortest)
{ return length == 1 ? shortest : integer(length / 2, shortest) + 1; }
template <class T> struct element<T, std::enable_if_t<std::is_integral<T>::value>>
    : std::integral_constant<coll_type, integer(sizeof(T), std::is_signed<T>::value ? COLL_I8 : COLL_U8)> {};

template <coll_type Type> using is_type = std::integral_constant<coll_type, Type>;
template <> struct element<bool> : is_type<COLL_BOOL> { static_assert(sizeof(bool) == 1, "coll: bool is one byte"); };
template <> struct element<float> : is_type<COLL_F32> {};
template <> struct element<double> : is_type<COLL_F64> {};
template <> struct element<std::complex<float>> : is_type<COLL_C64> {};
template <> struct element<std::complex<double>> : is_type<COLL_C128> {};
template <> struct element<located<float, std::int32_t>> : is_type<COLL_F32_I32> {};
template <> struct element<located<double, std::int32_t>> : is_type<COLL_F64_I32> {};
template <> struct element<located<double, std::int64_t>> : is_type<COLL_F64_I64> {};
template <> struct element<located<std::int32_t, std::int32_t>> : is_type<COLL_I32_I32> {};
template <> struct element<located<std::int64_t, std::int32_t>> : is_type<COLL_I64_I32> {};
template <> struct element<located<std::int64_t, std::int64_t>> : is_type<COLL_I64_I64> {};
template <coll_type Type, class Bits, Bits (*Round)(float), float (*Widen)(Bits)>
struct element<small_float<Type, Bits, Round, Widen>> : is_type<Type> {};

template <class X, class = void> struct is_range : std::false_type {};
template <class X>
struct is_range<X, std::void_t<decltype(std::data(std::declval<X &>())), decltype(std::size(std::declval<X &>()))>>
    : std::true_type {};

} // namespace detail

template <class T> constexpr coll_type type_of = detail::element<std::remove_cv_t<T>>::value;

constexpr coll_op sum = COLL_SUM, prod = COLL_PROD, min = COLL_MIN, max = COLL_MAX, avg = COLL_AVG, band = COLL_BAND,
                  bor = COLL_BOR, bxor = COLL_BXOR, land = COLL_LAND, lor = COLL_LOR, lxor = COLL_LXOR,
                  minloc = COLL_MINLOC, maxloc = COLL_MAXLOC;

// ---- >>spans: elements in other memory

template <class T> class span {
public:
    using element_type = T;
    using value_type = std::remove_cv_t<T>;

    constexpr span() = default;
    constexpr span(T *at, std::size_t count) : at_(at), count_(count) {}
    template <class X, class = std::enable_if_t<
        std::is_convertible<std::remove_pointer_t<decltype(std::data(std::declval<X &>()))> (*)[], T (*)[]>::value>>
    constexpr span(X &&x) : at_(std::data(x)), count_(std::size(x)) {}

    constexpr T *data() const { return at_; }
    constexpr std::size_t size() const { return count_; }
    constexpr bool empty() const { return count_ == 0; }
    constexpr T &operator[](std::size_t i) const { return at_[i]; }
    constexpr T *begin() const { return at_; }
    constexpr T *end() const { return at_ + count_; }

private:
    T *at_ = nullptr;
    std::size_t count_ = 0;
};

// Elements of a type that is known at run time; Void is void or const void.
template <class Void> struct any_span {
    Void *at;
    std::size_t count;
    coll_type type;

    template <class X, class = std::enable_if_t<
        detail::is_range<X>::value && std::is_convertible<decltype(std::data(std::declval<X &>())), Void *>::value>>
    any_span(X &&x)
        : at(std::data(x)), count(std::size(x)), type(type_of<std::remove_pointer_t<decltype(std::data(x))>>) {}
};

// Rows of so many elements in memory of the program, each `stride` elements behind the last one (0: no more than a row has);
// the first begins at element `first`.  In broadcast, gather, scatter, allgather and alltoall it is a buffer, which may have
// another shape on every rank; where a buffer has a block for every rank, these are columns of it, side by side.
template <class T> struct matrix_view {
    using element_type = T;
    using value_type = std::remove_cv_t<T>;

    span<T> memory;
    std::size_t rows, columns, stride, first;

    matrix_view(span<T> of, std::size_t n_rows, std::size_t n_columns, std::size_t apart = 0, std::size_t begin = 0)
        : memory(of), rows(n_rows), columns(n_columns), stride(apart ? apart : n_columns), first(begin) {}

    span<T> operator[](std::size_t row) const { return { memory.data() + first + row * stride, columns }; }
};
template <class X, class... N>
matrix_view(X &&, N...) -> matrix_view<std::remove_pointer_t<decltype(std::data(std::declval<X &>()))>>;

// How many elements the blocks of a v form have, and where they begin; without offsets one after the other.
struct blocks {
    std::vector<std::size_t> counts, offsets;

    blocks() = default;
    blocks(std::initializer_list<std::size_t> of) : counts(of) {}
    template <class C, class = std::enable_if_t<detail::is_range<C>::value>>
    blocks(const C &of) : counts(std::begin(of), std::end(of)) {}
    template <class C, class O>
    blocks(const C &of, const O &at) : counts(std::begin(of), std::end(of)), offsets(std::begin(at), std::end(at)) {}
};

// ---- >>errors

class error : public std::exception {
public:
    error() = default;
    error(coll_status status, int rank, std::string sentence)
        : status_(status), rank_(rank), sentence_(std::move(sentence))
    { if (sentence_.empty()) sentence_ = coll_status_text(status); }

    coll_status status() const noexcept { return status_; }
    int rank() const noexcept { return rank_; }                           // on which it was found; COLL_RANK_NONE: on none
    const char *what() const noexcept override { return sentence_.c_str(); }
    explicit operator bool() const noexcept { return status_ < 0; }       // is it one?

private:
    coll_status status_ = COLL_OK;
    int rank_ = COLL_RANK_NONE;
    std::string sentence_;
};

// ---- >>options: of any call; zero means default

struct options {
    coll_type wire = 0, accumulate = 0;           // coll::type_of<coll::bf16>, COLL_MXI8, ...
    double scale = 0;
    unsigned flags = 0;                           // COLL_DETERMINISTIC | ...
    std::uint64_t seed = 0;
    bool not_commutative = false;
    span<float> residual = {};                    // as long as the input; it must live until the call is finished
    int timeout_ms = 0;
    std::int64_t first_leaf = 0, leaves = 0;      // allreduce of a run that is one node, as a single leaf is; see leaf_sum
    const char *algorithm = nullptr, *name = nullptr;
};
struct received { int source = COLL_RANK_NONE, tag = -1; std::size_t count = 0; };          // what a receive got

template <class T> class leaf_sum;

namespace detail {

#if defined(COLL_CPP_NO_EXCEPTIONS)
constexpr bool can_throw = false;
[[noreturn]] inline void raise(const error &) { std::abort(); }
template <class F> void guarded(std::exception_ptr &, F &&fn) { fn(); }
#else
constexpr bool can_throw = true;
[[noreturn]] inline void raise(const error &what) { throw what; }
template <class F> void guarded(std::exception_ptr &thrown, F &&fn)       // C must not be unwound
{ try { fn(); } catch (...) { if (!thrown) thrown = std::current_exception(); } }
#endif
inline void raise_again(const std::exception_ptr &thrown) { if (thrown) std::rethrow_exception(thrown); }

// ---- >>shapes: the rows of core/contract/coll_shape.h, which tests/bindings/test_cpp.sh compares

enum who { NONE, ALL, ROOT, LATER };
enum over { ONE, RANKS, SOURCES, DESTINATIONS };
enum from { COUNT, RECV_COUNT, OWN_RECV, LIST, RECV_LIST, TYPED };
enum place { NEVER, SAME, ASIDE, BLOCK, START };

struct side_shape { detail::who who; detail::over over; detail::from from; };
struct shape { side_shape send, recv; detail::place in_place; };

template <coll_kind> inline constexpr shape shape_of = {};
#define COLL__CPP_SHAPE(kind, send_who, send_over, send_from, recv_who, recv_over, recv_from, in_place)                     \
    template <> inline constexpr shape shape_of<COLL_##kind> = { { send_who, send_over, send_from },                         \
                                                                 { recv_who, recv_over, recv_from }, in_place };
COLL__CPP_SHAPE(BARRIER,             NONE,   ONE,          COUNT,     NONE,   ONE,     COUNT,      NEVER)
COLL__CPP_SHAPE(BROADCAST,           NONE,   ONE,          COUNT,     ALL,    ONE,     COUNT,      SAME)
COLL__CPP_SHAPE(REDUCE,              ALL,    ONE,          COUNT,     ROOT,   ONE,     COUNT,      SAME)
COLL__CPP_SHAPE(ALLREDUCE,           ALL,    ONE,          COUNT,     ALL,    ONE,     COUNT,      SAME)
COLL__CPP_SHAPE(REDUCE_SCATTER,      ALL,    RANKS,        COUNT,     ALL,    ONE,     COUNT,      START)
COLL__CPP_SHAPE(REDUCE_SCATTERV,     ALL,    RANKS,        RECV_LIST, ALL,    ONE,     OWN_RECV,   START)
COLL__CPP_SHAPE(SCAN,                ALL,    ONE,          COUNT,     ALL,    ONE,     COUNT,      SAME)
COLL__CPP_SHAPE(EXSCAN,              ALL,    ONE,          COUNT,     LATER,  ONE,     COUNT,      SAME)
COLL__CPP_SHAPE(GATHER,              ALL,    ONE,          COUNT,     ROOT,   RANKS,   COUNT,      BLOCK)
COLL__CPP_SHAPE(GATHERV,             ALL,    ONE,          COUNT,     ROOT,   RANKS,   LIST,       BLOCK)
COLL__CPP_SHAPE(SCATTER,             ROOT,   RANKS,        COUNT,     ALL,    ONE,     COUNT,      BLOCK)
COLL__CPP_SHAPE(SCATTERV,            ROOT,   RANKS,        LIST,      ALL,    ONE,     RECV_COUNT, BLOCK)
COLL__CPP_SHAPE(ALLGATHER,           ALL,    ONE,          COUNT,     ALL,    RANKS,   COUNT,      BLOCK)
COLL__CPP_SHAPE(ALLGATHERV,          ALL,    ONE,          COUNT,     ALL,    RANKS,   LIST,       BLOCK)
COLL__CPP_SHAPE(ALLTOALL,            ALL,    RANKS,        COUNT,     ALL,    RANKS,   COUNT,      ASIDE)
COLL__CPP_SHAPE(ALLTOALLV,           ALL,    RANKS,        LIST,      ALL,    RANKS,   LIST,       ASIDE)
COLL__CPP_SHAPE(ALLTOALLW,           ALL,    RANKS,        TYPED,     ALL,    RANKS,   TYPED,      ASIDE)
COLL__CPP_SHAPE(NEIGHBOR_ALLGATHER,  ALL,    ONE,          COUNT,     ALL,    SOURCES, COUNT,      NEVER)
COLL__CPP_SHAPE(NEIGHBOR_ALLGATHERV, ALL,    ONE,          COUNT,     ALL,    SOURCES, LIST,       NEVER)
COLL__CPP_SHAPE(NEIGHBOR_ALLTOALL,   ALL,    DESTINATIONS, COUNT,     ALL,    SOURCES, COUNT,      NEVER)
COLL__CPP_SHAPE(NEIGHBOR_ALLTOALLV,  ALL,    DESTINATIONS, LIST,      ALL,    SOURCES, LIST,       NEVER)
COLL__CPP_SHAPE(NEIGHBOR_ALLTOALLW,  ALL,    DESTINATIONS, TYPED,     ALL,    SOURCES, TYPED,      NEVER)
COLL__CPP_SHAPE(ALLREDUCE_LIST,      NONE,   ONE,          COUNT,     NONE,   ONE,     COUNT,      NEVER)
COLL__CPP_SHAPE(SEND,                ALL,    ONE,          COUNT,     NONE,   ONE,     COUNT,      NEVER)
COLL__CPP_SHAPE(RECV,                NONE,   ONE,          COUNT,     ALL,    ONE,     COUNT,      NEVER)
COLL__CPP_SHAPE(SENDRECV,            ALL,    ONE,          COUNT,     ALL,    ONE,     RECV_COUNT, NEVER)
#undef COLL__CPP_SHAPE

// ---- >>state: a communicator as all that belongs to it shares it; the last one leaves

struct state {
    coll_comm *handle = nullptr;
    bool throws = can_throw;
    int rank = COLL_RANK_NONE, size = 0, sources = 0, destinations = 0;
    int buffers = 0;                              // that are not freed yet
    error last;
    received got;                                 // by the last receive

    state(coll_comm *comm, bool is_throwing) : handle(comm), throws(can_throw && is_throwing)
    { if (comm) rank = coll_rank(comm), size = coll_size(comm); }
    state(state &&) = delete;
    ~state() { coll_free(handle); }

    bool fail(error what)
    {
        last = std::move(what);
        if (throws) raise(last);
        return false;
    }
    bool refuse(const std::string &why)
    { return fail({ COLL_ERR_ARGUMENT, rank, "rank " + std::to_string(rank) + ": " + why }); }
    bool check(coll_status status)                // did it go well?
    {
        const char *text = status < 0 && handle ? coll_error(handle) : "";
        if (status == COLL_ERR_ARGUMENT && !*text) text = coll_error(nullptr);            // another thread's communicator
        if (status < 0) return fail({ status, rank, text });
        if (last) last = {};
        return true;
    }
    int count_of(over side) const
    { return side == ONE ? 1 : side == RANKS ? size : side == SOURCES ? sources : destinations; }
    bool has(side_shape side, int root) const
    { return side.who == ALL || (side.who == ROOT && rank == root) || (side.who == LATER && rank > 0); }
};

using shared = std::shared_ptr<state>;

inline state &of(const shared &comm, const char *what = "communicator")           // of one that may have been moved away
{
    static thread_local state none(nullptr, true);
    if (comm && comm->handle) return *comm;
    state &found = comm ? *comm : none;
    found.fail({ COLL_ERR_ARGUMENT, found.rank, std::string("there is no ") + what
                     + ": it was freed or moved away, or never made" });
    return found;
}

// ---- >>buffers: what a call is given

template <class X> struct is_matrix : std::false_type {};
template <class T> struct is_matrix<matrix_view<T>> : std::true_type {};
template <class T> struct is_matrix<const matrix_view<T>> : std::true_type {};

template <class X> auto view(X &x)
{
    if constexpr (is_matrix<X>::value) return x;
    else if constexpr (is_range<X>::value) return span<std::remove_pointer_t<decltype(std::data(x))>>(x);
    else return span<X>(&x, 1);
}

template <class X, class = void> struct is_view : is_matrix<X> {};
template <class X>
struct is_view<X, std::enable_if_t<is_range<X>::value && std::is_trivially_copyable<X>::value
                                   && std::is_same<decltype(std::data(std::declval<X &>())),
                                                   decltype(std::data(std::declval<const X &>()))>::value>> : std::true_type {};

template <class T> void shorten(std::vector<T> &x, std::size_t count) { if (count < x.size()) x.resize(count); }
template <class X> void shorten(X &, std::size_t) {}

constexpr std::size_t unknown = ~std::size_t();

// A buffer as a call has it: where, how many elements, and of a matrix how they lie in how much room.
struct given { const void *at = nullptr; std::size_t size = unknown; };
struct given_matrix : given { std::size_t rows, columns, stride, room; };
struct given_sum : given { coll_sum *sum; };
template <class T> given given_of(span<T> x) { return { x.data(), x.size() }; }
template <class T> given_matrix given_of(const matrix_view<T> &x)
{
    const std::size_t room = x.memory.size(), skipped = x.first < room ? x.first : room;
    return { { x.memory.data() + skipped, x.rows * x.columns }, x.rows, x.columns, x.stride, room - skipped };
}

// X is as a forwarding reference has it: what comes as an lvalue, or is a view, stays where it is; the rest is kept here.
template <class X> struct kept {
    using told = std::remove_reference_t<X>;
    static constexpr bool is_there = std::is_lvalue_reference<X>::value || is_view<X>::value;
    using plain = std::conditional_t<is_there, told, std::remove_const_t<told>>;
    using elements = decltype(detail::view(std::declval<plain &>()));
    using value = typename elements::value_type;
    using result = std::conditional_t<is_there, void, plain>;
    static constexpr bool is_matrix = detail::is_matrix<plain>::value, is_one = !is_range<plain>::value && !is_matrix;
    static constexpr bool is_const = std::is_const<typename elements::element_type>::value;
    std::conditional_t<is_there, elements, plain> object;

    explicit kept(told &x) : object(taken(x)) {}
    static decltype(auto) taken(told &x)
    {
        if constexpr (is_there) return detail::view(x);
        else return std::move(x);
    }
    auto where() { return given_of(detail::view(object)); }
    result take() { if constexpr (!is_there) return std::move(object); }
    void shorten(std::size_t count) { detail::shorten(object, count); }
};

// The leaves of this rank: an input, which stays where it is.
template <class T> struct kept<leaf_sum<T> &> {
    using value = T;
    static constexpr bool is_const = true, is_matrix = false, is_one = false;
    leaf_sum<T> &object;

    explicit kept(leaf_sum<T> &x) : object(x) {}
    given_sum where() { return { { nullptr, object.size() }, object.handle() }; }
};

// No buffer, and an input that is the output.
struct absent {}; struct same {};
template <> struct kept<absent> {
    using value = unsigned char;
    using result = void;
    static constexpr bool is_const = false, is_matrix = false;
    given where() { return {}; }
    void take() {}
    void shorten(std::size_t) {}
};
template <> struct kept<same> : kept<absent> {};

// The forms in which buffers are given.  Each has send() and recv(), make() for a result that is not there yet, and take().
template <class X> struct alone {
    using plain = std::remove_reference_t<X>;
    using input = kept<std::conditional_t<kept<X>::is_one, plain, X>>;                    // one element is always copied
    using value = typename input::value;
    static constexpr bool is_in_place = false, is_matrix = input::is_matrix;
    template <coll_kind K> static constexpr bool is_one = input::is_one && shape_of<K>.recv.over == ONE;
    template <coll_kind K> static constexpr bool gives = shape_of<K>.recv.who != NONE;
    template <coll_kind K>
    using result = std::conditional_t<!gives<K>, void, std::conditional_t<is_one<K>, value, std::vector<value>>>;

    input from;
    std::conditional_t<std::is_same<value, bool>::value, std::vector<unsigned char>, std::vector<value>> made;

    explicit alone(plain &&x) : from(x) {}
    auto send() { return from.where(); }
    given recv() { return {}; }
    void *make(std::size_t count) { made.resize(count); return made.data(); }
    template <coll_kind K> result<K> take()
    {
        if constexpr (!gives<K>) return;
        else if constexpr (is_one<K>) return made.empty() ? value() : value(made[0]);
        else {
            static_assert(!std::is_same<value, bool>::value,
                          "coll: a std::vector<bool> is no range of elements: give an output, by from_to");
            return std::move(made);
        }
    }
    void shorten(std::size_t count) { detail::shorten(made, count); }
};

template <class X, class Y> struct placed {
    using value = typename kept<Y>::value;
    static constexpr bool is_in_place = std::is_same<X, same>::value, is_matrix = kept<X>::is_matrix || kept<Y>::is_matrix;
    template <coll_kind> using result = typename kept<Y>::result;
    static_assert(std::is_base_of<kept<absent>, kept<X>>::value || std::is_same<typename kept<X>::value, value>::value,
                  "coll: input and output have elements of the same type");
    static_assert(!kept<Y>::is_const, "coll: an output is not const");

    kept<X> from;
    kept<Y> to;

    auto send() { if constexpr (is_in_place) return to.where(); else return from.where(); }
    auto recv() { return to.where(); }
    static void *make(std::size_t) { return nullptr; }
    template <coll_kind> typename kept<Y>::result take() { return to.take(); }
    void shorten(std::size_t count) { to.shorten(count); }
};
using none = placed<absent, absent>;
struct lists { std::vector<any_span<const void>> from; std::vector<any_span<void>> to; };         // blocks of any types

template <class B, class X> struct form_of { using type = alone<X>; };
template <class A, class B, class X> struct form_of<placed<A, B>, X> { using type = placed<A, B>; };
template <class X> struct form_of<lists, X> { using type = lists; };
template <class X> using form = typename form_of<std::remove_cv_t<std::remove_reference_t<X>>, X>::type;

// ---- >>tasks: one call, and all that it points to

struct details {                                  // what else describes a call
    blocks send = {}, recv = {};
    int rank = 0;                                 // the root, or the peer of a message
    std::size_t expected = unknown;               // elements that come to this rank
    int tag = 0, source = 0;
};

struct task {
    coll_call call{};
    details more;
    std::vector<coll_type> send_types, recv_types;
    std::vector<coll_list_item> list;
    std::string algorithm, name;
    std::exception_ptr thrown;                    // by an operation of the program's own

    task(coll_kind kind, details &&told, const options &with) : more(std::move(told))
    {
        call.kind = kind, (kind >= COLL_SEND ? call.peer : call.root) = more.rank, call.tag = more.tag, call.source = more.source;
        call.wire = with.wire, call.accumulate = with.accumulate, call.first_leaf = with.first_leaf, call.leaves = with.leaves;
        call.scale = with.scale, call.flags = with.flags, call.seed = with.seed;
        call.not_commutative = with.not_commutative, call.residual = with.residual.data(), call.timeout_ms = with.timeout_ms;
        if (with.algorithm) algorithm = with.algorithm, call.algorithm = algorithm.c_str();
        if (with.name) name = with.name, call.name = name.c_str();
    }
    task(task &&) = delete;

    // Lists of the v forms: as many counts as there are blocks, and what they reach over.
    static std::string listed(const blocks &from, int count, const char *what, std::size_t &extent)
    {
        const std::size_t n = static_cast<std::size_t>(count);
        extent = 0;
        if (from.counts.size() != n || (!from.offsets.empty() && from.offsets.size() != n))
            return std::string("there are ") + std::to_string(from.counts.size()) + " counts and "
                + std::to_string(from.offsets.size()) + " offsets for the " + std::to_string(n) + " blocks of the " + what;
        for (std::size_t i = 0; i < n; i++) {
            const std::size_t at = from.offsets.empty() ? extent : from.offsets[i], end = at + from.counts[i];
            if (end < at) return std::string("the blocks of the ") + what + " reach beyond any memory";
            if (from.counts[i] && end > extent) extent = end;
        }
        return {};
    }

    // One side of the call: fits `size`, the elements that were given, to its shape; where none were, says how many it takes.
    std::string fit(const state &comm, side_shape side, bool is_send, std::size_t &size)
    {
        const char *what = is_send ? "input" : "output";
        const int count = comm.count_of(side.over);
        const blocks &lists = is_send && side.from != RECV_LIST ? more.send : more.recv;
        const bool is_exact = side.from < LIST || lists.offsets.empty();
        std::size_t needs = side.from == COUNT ? static_cast<std::size_t>(count) * call.count : call.recv_count;

        if (side.from == OWN_RECV) needs = more.recv.counts[static_cast<std::size_t>(comm.rank)];
        std::string wrong;
        if (side.from >= LIST && !(wrong = listed(lists, count, what, needs)).empty()) return wrong;
        if (size != unknown && (is_exact ? size != needs : size < needs))
            return std::string("the ") + what + " has " + std::to_string(size) + " elements, and "
                + (side.over == ONE ? "needs " : std::to_string(count) + " blocks are ") + std::to_string(needs);
        if (size == unknown) size = needs;
        return {};
    }

    // How many elements a block has, where all have the same number.
    std::string measure(const state &comm, const shape &of, std::size_t send, std::size_t recv)
    {
        const bool sends = send != unknown && of.send.from == COUNT, receives = recv != unknown && of.recv.from == COUNT;
        const std::size_t size = sends ? send : recv;
        const int count = comm.count_of(sends ? of.send.over : of.recv.over);

        call.count = more.expected != unknown ? more.expected : 0;
        call.recv_count = recv != unknown ? recv : more.expected != unknown ? more.expected : send;
        if (!sends && !receives) return {};
        if (count ? size % static_cast<std::size_t>(count) : size)
            return std::string("the ") + (sends ? "input" : "output") + " has " + std::to_string(size)
                + " elements, which is no multiple of its " + std::to_string(count) + " blocks";
        if (count) call.count = size / static_cast<std::size_t>(count);
        return more.expected != unknown && more.expected != call.count && of.recv.from == COUNT
            ? "the blocks have " + std::to_string(call.count) + " elements, and " + std::to_string(more.expected)
                + " were to come" : std::string();
    }

    // Everything of the call that follows from its shape and from what was given.  Returns what is wrong, or nothing;
    // `recv.size` becomes what the result takes.
    std::string bind(const state &comm, const shape &of, given &send, given &recv, bool is_in_place, std::size_t length)
    {
        const bool sends = comm.has(of.send, call.root), receives = comm.has(of.recv, call.root);
        const bool is_blocks = is_in_place && (of.in_place == BLOCK || of.in_place == START);
        const bool is_whole_send = of.send.over == RANKS, has_whole = is_whole_send ? sends : receives;

        if (is_blocks) (is_whole_send == has_whole ? recv : send).size = unknown;          // x is the other one
        if (is_in_place && of.in_place == ASIDE) more.send = more.recv;
        if (!sends) send.size = unknown;
        if (!receives && of.recv.who != LATER) recv.size = unknown;
        if (sends && send.size == unknown && !is_in_place) return "this rank sends, and has no input";
        if (!sends && of.send.who == ROOT && recv.size == unknown && more.expected == unknown)
            return "this rank has no input: it needs the number of elements to receive, or be given an output";
        std::string wrong = measure(comm, of, send.size, recv.size);
        const std::vector<std::size_t> &counts = (is_whole_send ? more.send : more.recv).counts;
        if (is_blocks && has_whole && counts.size() == static_cast<std::size_t>(comm.size))     // one's own is among them
            (is_whole_send ? call.recv_count : call.count) = counts[static_cast<std::size_t>(comm.rank)];
        if (wrong.empty() && sends) wrong = fit(comm, of.send, true, send.size);
        if (wrong.empty() && (receives || of.recv.who == LATER)) wrong = fit(comm, of.recv, false, recv.size);
        if (!wrong.empty()) return wrong;

        call.send_counts = more.send.counts.data(), call.recv_counts = more.recv.counts.data();
        call.send_offsets = more.send.offsets.empty() ? nullptr : more.send.offsets.data();
        call.recv_offsets = more.recv.offsets.empty() ? nullptr : more.recv.offsets.data();
        call.send = sends ? send.at : nullptr;
        call.recv = receives ? const_cast<void *>(recv.at) : nullptr;
        if (!is_blocks || !has_whole) return {};
        if (of.in_place == BLOCK && is_whole_send) call.recv = COLL_IN_PLACE;
        else if (of.in_place == BLOCK) call.send = COLL_IN_PLACE;
        else {
            const auto begin = more.recv.counts.begin();
            const std::size_t at = of.recv.from == OWN_RECV ? std::accumulate(begin, begin + comm.rank, std::size_t())
                                                            : static_cast<std::size_t>(comm.rank) * call.count;
            call.recv = static_cast<unsigned char *>(const_cast<void *>(recv.at)) + at * length;
        }
        return {};
    }

    static std::string lay(const state &, side_shape, const given &, const void *, std::size_t &) { return {}; }
    // A side that the call has `at` a matrix: its blocks are columns of it.  `stride` stays 0 where they lie in one piece.
    std::string lay(const state &comm, side_shape side, const given_matrix &x, const void *at, std::size_t &stride)
    {
        const auto wrong = [&](const std::string &why) {
            return "a matrix of " + std::to_string(x.rows) + " rows of " + std::to_string(x.columns) + " elements, "
                + std::to_string(x.stride) + " apart, " + why;
        };
        if (!comm.has(side, call.root) || x.at != at || !x.rows || !x.columns) return {};
        const std::size_t count = static_cast<std::size_t>(comm.count_of(side.over)), row = x.columns / count;
        if (x.columns > x.room || (x.rows > 1 && x.rows - 1 > (x.room - x.columns) / x.stride))
            return wrong("reaches beyond the " + std::to_string(x.room) + " elements of its memory");
        if (x.columns % count) return wrong("has rows that are no multiple of its " + std::to_string(count) + " blocks");
        if (x.rows == 1 || (count == 1 && x.stride == x.columns)) return {};
        if (call.row && call.row != row)
            return wrong("has " + std::to_string(row) + " in a block, and the input " + std::to_string(call.row));
        call.row = row, stride = x.stride;
        return {};
    }

    static std::string sums(const given &) { return {}; }
    std::string sums(const given_sum &x) { return coll_sum_end(x.sum, &call) < 0 ? coll_error(nullptr) : ""; }
};

// An operation of the library, or of the program's own, for elements or for ranges of them.
template <class T, class Op> struct folding {
    Op op;
    task *of;

    void set(coll_call &call)
    {
        if constexpr (std::is_convertible<Op, coll_op>::value) call.op = op;
        else call.op = COLL_USER, call.fn = fold, call.fn_context = this;
    }
    static void fold(const void *in, void *inout, std::size_t count, coll_type, void *context)
    {
        folding &self = *static_cast<folding *>(context);
        const span<const T> low(static_cast<const T *>(in), count);
        const span<T> high(static_cast<T *>(inout), count);

        guarded(self.of->thrown, [&] {
            if constexpr (std::is_invocable_r<T, Op &, const T &, const T &>::value)
                for (std::size_t i = 0; i < count; i++) high[i] = self.op(low[i], high[i]);
            else {
                static_assert(std::is_invocable<Op &, span<const T>, span<T>>::value,
                              "coll: an operation is (low, high) -> element, or (span<const T> low, span<T> high)");
                self.op(low, high);
            }
        });
    }
};

constexpr bool is_receive(coll_kind kind) { return kind == COLL_RECV || kind == COLL_SENDRECV; }
// Wait, and note what a receive got.
inline coll_status finish(state &comm, coll_request *request, const task &of)
{
    const coll_status status = coll_wait(request);
    if (status == COLL_OK && is_receive(of.call.kind))
        coll_received(request, &comm.got.source, &comm.got.tag, &comm.got.count);
    return status;
}

template <class R> struct task_of : task {
    using task::task;
    virtual ~task_of() = default;
    virtual R result(const state &comm) = 0;

    shared home;                                  // of one that was started, which waits before it goes
    coll_request *handle = nullptr;
    struct drop {
        void operator()(task_of *one) const
        {
            if (one->handle) coll_wait(one->handle), coll_request_free(one->handle);
            delete one;
        }
    };
    using owner = std::unique_ptr<task_of, drop>;
};

// Ask which of some requests have ended.  Their wait says how; where none has, the status is of the call itself.
template <class Q, class F> std::vector<std::size_t> ended(const std::vector<Q> &requests, F &&ask, bool *is_left = nullptr)
{
    std::vector<coll_request *> handles;
    std::vector<int> which(requests.size() + 1, -1);
    const shared *home = nullptr;
    int count = 0;

    for (const Q &one : requests) handles.push_back(one.handle()), home = one.valid() ? &one.task_->home : home;
    const coll_status status = ask(static_cast<int>(handles.size()), handles.data(), which.data());
    if (is_left) *is_left = status == COLL_PENDING;
    if (status < 0 && which[0] < 0 && home) (*home)->check(status);
    while (which[static_cast<std::size_t>(count)] >= 0) count++;
    return { which.begin(), which.begin() + count };
}
inline std::optional<std::size_t> first(const std::vector<std::size_t> &of)
{ return of.empty() ? std::nullopt : std::optional<std::size_t>(of[0]); }

// A collective or a message: its buffers, and its operation.
template <coll_kind K, class B, class Op> struct call_task final : task_of<typename B::template result<K>> {
    using result_type = typename B::template result<K>;
    using value = typename B::value;
    using task_of<result_type>::call;
    static_assert(!B::is_in_place || shape_of<K>.in_place != NEVER, "coll: this call has no form in place");
    static_assert(!B::is_matrix || K == COLL_BROADCAST || K == COLL_GATHER || K == COLL_SCATTER || K == COLL_ALLGATHER
                  || K == COLL_ALLTOALL, "coll: a matrix_view is for broadcast, gather, scatter, allgather and alltoall");

    B buffers;
    folding<value, Op> operation;
    std::size_t residual;

    call_task(B &&given_buffers, Op &&op, details &&told, const options &with)
        : task_of<result_type>(K, std::move(told), with), buffers(std::move(given_buffers)),
          operation{ std::move(op), this }, residual(with.residual.size()) {}

    std::string ready(const state &comm)
    {
        auto send = buffers.send();
        auto recv = buffers.recv();
        const bool is_given = recv.size != unknown;
        const std::size_t sent = send.size;

        call.type = type_of<value>, operation.set(call);
        if (residual && residual != sent)
            return "the residual has " + std::to_string(residual) + " elements, and the input " + std::to_string(sent);
        std::string wrong = this->bind(comm, shape_of<K>, send, recv, B::is_in_place, sizeof(value));
        if (B::is_matrix && wrong.empty()) wrong = this->lay(comm, shape_of<K>.send, send, call.send, call.send_stride);
        if (B::is_matrix && wrong.empty()) wrong = this->lay(comm, shape_of<K>.recv, recv, call.recv, call.recv_stride);
        if (wrong.empty()) wrong = this->sums(send);
        if (wrong.empty() && !is_given && recv.size != unknown) {
            void *made = buffers.make(recv.size);
            if (!call.recv && comm.has(shape_of<K>.recv, call.root)) call.recv = made;
        }
        return wrong;
    }
    result_type result(const state &comm) override
    {
        if (is_receive(K)) buffers.shorten(comm.got.count);
        return buffers.template take<K>();
    }
};

// The same of blocks of any types: allreduce_list and the w forms.
template <coll_kind K, class Op> struct call_task<K, lists, Op> final : task_of<void> {
    using result_type = void;

    lists buffers;
    folding<unsigned char, Op> operation;

    call_task(lists &&given_lists, Op &&op, details &&told, const options &with)
        : task_of<void>(K, std::move(told), with), buffers(std::move(given_lists)), operation{ std::move(op), this } {}

    // Offsets are bytes from the block that comes first in memory.
    template <class Span>
    static const void *lay(const std::vector<Span> &blocks_of, blocks &lists, std::vector<coll_type> &types)
    {
        std::uintptr_t first = ~std::uintptr_t();
        const auto at = [](const Span &one) { return reinterpret_cast<std::uintptr_t>(one.at); };

        for (const Span &one : blocks_of) if (one.count && at(one) < first) first = at(one);
        for (const Span &one : blocks_of) {
            lists.counts.push_back(one.count), types.push_back(one.type);
            lists.offsets.push_back(one.count ? at(one) - first : 0);
        }
        return first == ~std::uintptr_t() ? nullptr : reinterpret_cast<const void *>(first);
    }
    std::string ready(const state &comm)
    {
        const auto &[from, to] = buffers;
        operation.set(call);
        if (K == COLL_ALLREDUCE_LIST) {
            for (const any_span<void> &one : to) list.push_back({ one.at, one.at, one.count, one.type });
            call.list = list.data(), call.list_count = static_cast<int>(list.size());
            return {};
        }
        const int sends = comm.count_of(shape_of<K>.send.over), receives = comm.count_of(shape_of<K>.recv.over);
        if (from.size() != static_cast<std::size_t>(sends) || to.size() != static_cast<std::size_t>(receives))
            return "there are " + std::to_string(from.size()) + " blocks to send and " + std::to_string(to.size())
                + " to receive, and it takes " + std::to_string(sends) + " and " + std::to_string(receives);
        call.send = lay(from, more.send, send_types);
        call.recv = const_cast<void *>(lay(to, more.recv, recv_types));
        call.send_counts = more.send.counts.data(), call.send_offsets = more.send.offsets.data();
        call.recv_counts = more.recv.counts.data(), call.recv_offsets = more.recv.offsets.data();
        call.send_types = send_types.data(), call.recv_types = recv_types.data();
        return {};
    }
    void result(const state &) override {}
};

template <class Task> bool is_ready(state &comm, Task &made)
{
    if (!comm.handle) return false;
    const std::string wrong = made.ready(comm);
    return wrong.empty() || comm.refuse(std::string(coll_kind_name(made.call.kind)) + ": " + wrong);
}

} // namespace detail

// x is input and output.  Where one of the two has blocks for all ranks, x is that one, with this rank's block in its place.
template <class X> auto in_place(X &&x) { return detail::placed<detail::same, X>{ {}, detail::kept<X>(x) }; }

// x is the input, y the output.
template <class X, class Y> auto from_to(X &&x, Y &&y)
{ return detail::placed<X, Y>{ detail::kept<X>(x), detail::kept<Y>(y) }; }

// y is the output, and there is no input, as in a scatter where this rank is not the root.
template <class Y> auto into(Y &&y) { return detail::placed<detail::absent, Y>{ {}, detail::kept<Y>(y) }; }

// ---- >>requests

// A call that was started, and what it works on.  wait() gives the result, once.  The destructor waits, and drops errors.
template <class R> class request {
public:
    request() = default;
    explicit request(typename detail::task_of<R>::owner made) : task_(std::move(made)) {}

    bool valid() const { return handle() != nullptr; }       // is there a result to wait for?
    coll_request *handle() const { return task_ ? task_->handle : nullptr; }

    // Move all operations on, and say whether this one is finished; wait says with which status.
    bool test() { return !valid() || coll_test(handle()) != COLL_PENDING; }

    R wait()
    {
        if (!is_there()) return R();
        const typename detail::task_of<R>::owner over = std::move(task_);
        const coll_status status = detail::finish(*over->home, over->handle, *over);
        detail::raise_again(over->thrown);
        return over->home->check(status) ? over->result(*over->home) : R();
    }

protected:
    bool is_there() const                         // one that could not be started has told why
    {
        if (!task_) detail::of(nullptr, "request");
        return valid();
    }

    template <class Q, class F> friend std::vector<std::size_t> detail::ended(const std::vector<Q> &, F &&, bool *);
    typename detail::task_of<R>::owner task_;
};

// A call that is planned once, and started many times, each time on what its buffers then hold.
class prepared : public request<void> {
public:
    using request<void>::request;
    void restart() { if (is_there()) task_->home->check(coll_restart(handle())); }
    void wait()
    {
        if (!is_there()) return;
        const coll_status status = detail::finish(*task_->home, handle(), *task_);
        detail::raise_again(std::exchange(task_->thrown, nullptr));
        task_->home->check(status);
    }
    void operator()() { restart(), wait(); }
};

// Wait for all of a range of requests, or of prepared calls.  Returns their results, if they have any.
template <class Q> auto wait_all(std::vector<Q> &requests)
{
    using R = decltype(requests[0].wait());
    if constexpr (std::is_void<R>::value) for (Q &one : requests) one.wait();
    else {
        std::vector<R> results;
        for (Q &one : requests) results.push_back(one.wait());
        return results;
    }
}

// Wait for requests of any kinds; what they give is dropped.
template <class... Q> void wait_all(Q &...requests) { (static_cast<void>(requests.wait()), ...); }

// Wait for one: which of them is finished and was not handed out yet; its wait() then gives the result, or what went wrong.
// Nothing: none is left.
template <class Q> std::optional<std::size_t> wait_any(const std::vector<Q> &requests)
{ return detail::first(detail::ended(requests, coll_wait_any)); }

// The same without waiting.  Nothing: none is finished yet, and *is_left, or none is left.
template <class Q> std::optional<std::size_t> test_any(const std::vector<Q> &requests, bool *is_left = nullptr)
{ return detail::first(detail::ended(requests, coll_test_any, is_left)); }

// Wait for one, and give all that are finished and were not handed out yet.  Empty: none is left.
template <class Q> std::vector<std::size_t> wait_some(const std::vector<Q> &requests)
{
    int count;
    return detail::ended(requests, [&](int n, coll_request **of, int *at) { return coll_wait_some(n, of, at, &count); });
}

// ---- >>forms: what is done with a call, once it is put together.  A form is given a task where it lies.

namespace detail {

struct running {
    template <class Task, class... A> static typename Task::result_type take(const shared &to, A &&...a)
    {
        using R = typename Task::result_type;
        state &comm = of(to);
        Task made(std::forward<A>(a)...);
        if (!is_ready(comm, made)) return R();
        coll_request *request = nullptr;
        coll_status status = (is_receive(made.call.kind) ? coll_start(comm.handle, &made.call, &request)
                                                         : coll_run(comm.handle, &made.call));
        if (request) status = finish(comm, request, made), coll_request_free(request);
        raise_again(made.thrown);
        return comm.check(status) ? made.result(comm) : R();
    }
};

template <bool IsPrepared> struct starting {
    template <class Task, class... A> static auto take(const shared &to, A &&...a)
    {
        using R = typename Task::result_type;
        using request_type = std::conditional_t<IsPrepared, prepared, request<R>>;
        static_assert(!IsPrepared || std::is_void<R>::value,
                      "coll: a prepared call is given buffers that stay: in_place or from_to, of what is not moved in");
        state &comm = of(to);
        Task *made = new Task(std::forward<A>(a)...);
        request_type request{ typename task_of<R>::owner(made) };
        made->home = to;
        constexpr auto begin = IsPrepared ? coll_prepare : coll_start;
        if (is_ready(comm, *made)) comm.check(begin(comm.handle, &made->call, &made->handle));
        return request;
    }
};

struct explaining {
    template <class Task, class... A> static std::string take(const shared &to, A &&...a)
    {
        state &comm = of(to);
        Task made(std::forward<A>(a)...);
        char text[1024] = "";
        if (!is_ready(comm, made)) return {};
        const int length = coll_explain(comm.handle, &made.call, text, sizeof text);
        return comm.check(length < 0 ? static_cast<coll_status>(length) : COLL_OK) ? text : std::string();
    }
};

struct nothing { template <class... A> void operator()(A &&...) const {} operator coll_op() const { return COLL_SUM; } };

} // namespace detail

// ---- >>calls: every collective and message, in the form that Form is.  `x` is any form of buffers (see above); n is the
// number of ranks.  What is said to be returned is what a request's wait() gives.

template <class Form> class calls {
public:
    explicit calls(detail::shared comm) : comm_(std::move(comm)) {}

    // Return when every rank has called it.
    auto barrier(const options &with = {}) const { return make<COLL_BARRIER>(detail::none(), {}, with); }

    // Every rank gets the root's elements, in x, which may be in_place(x).  One that is moved in is returned.
    template <class X> auto broadcast(X &&x, int root = 0, const options &with = {}) const
    { return make<COLL_BROADCAST>(output(std::forward<X>(x)), { {}, {}, root }, with); }

    // The root gets x of all ranks, combined by op.  Nothing comes to the others.
    template <class X, class Op = coll_op> auto reduce(X &&x, Op op = Op(), int root = 0, const options &with = {}) const
    { return make<COLL_REDUCE>(std::forward<X>(x), std::move(op), { {}, {}, root }, with); }

    // Every rank gets x of all ranks, combined by op, with the same bits.
    template <class X, class Op = coll_op> auto allreduce(X &&x, Op op = Op(), const options &with = {}) const
    { return make<COLL_ALLREDUCE>(std::forward<X>(x), std::move(op), {}, with); }

    // The same for every one of some ranges of any types, in place: comm.allreduce_list({ weights, biases }, coll::avg).
    template <class Op = coll_op>
    auto allreduce_list(std::vector<any_span<void>> list, Op op = Op(), const options &with = {}) const
    { return make<COLL_ALLREDUCE_LIST>(detail::lists{ {}, std::move(list) }, std::move(op), {}, with); }

    // x has n blocks, which are combined by op; rank r gets block r.  In place: block r of x.
    template <class X, class Op = coll_op> auto reduce_scatter(X &&x, Op op = Op(), const options &with = {}) const
    { return make<COLL_REDUCE_SCATTER>(std::forward<X>(x), std::move(op), {}, with); }
    // The same with a number of elements for every block, equal on all ranks.
    template <class X, class Op = coll_op>
    auto reduce_scatterv(X &&x, blocks counts, Op op = Op(), const options &with = {}) const
    { return make<COLL_REDUCE_SCATTERV>(std::forward<X>(x), std::move(op), { {}, std::move(counts) }, with); }

    // Rank r gets x of ranks 0 to r, combined by op.  There is no avg.
    template <class X, class Op = coll_op> auto scan(X &&x, Op op = Op(), const options &with = {}) const
    { return make<COLL_SCAN>(std::forward<X>(x), std::move(op), {}, with); }
    // Of ranks 0 to r - 1.  On rank 0 an output stays as it was, and what is returned is zeros.
    template <class X, class Op = coll_op> auto exscan(X &&x, Op op = Op(), const options &with = {}) const
    { return make<COLL_EXSCAN>(std::forward<X>(x), std::move(op), {}, with); }

    // The root gets x of all ranks, one behind the other.
    template <class X> auto gather(X &&x, int root = 0, const options &with = {}) const
    { return make<COLL_GATHER>(std::forward<X>(x), { {}, {}, root }, with); }
    // The same where x is of any size; counts are the root's: comm.gatherv(x, comm.gather(x.size())).
    template <class X> auto gatherv(X &&x, blocks counts, int root = 0, const options &with = {}) const
    { return make<COLL_GATHERV>(std::forward<X>(x), { {}, std::move(counts), root }, with); }

    // Rank r gets block r of the root's x.  Other ranks give an output (coll::into), or the count that comes and any x.
    template <class X> auto scatter(X &&x, int root = 0, std::size_t count = detail::unknown, const options &with = {}) const
    { return make<COLL_SCATTER>(std::forward<X>(x), { {}, {}, root, count }, with); }
    // The same with the root's number of elements for every block; `count` comes to this rank.
    template <class X>
    auto scatterv(X &&x, blocks counts, int root = 0, std::size_t count = detail::unknown, const options &with = {}) const
    { return make<COLL_SCATTERV>(std::forward<X>(x), { std::move(counts), {}, root, count }, with); }

    // Every rank gets x of all ranks, one behind the other.
    template <class X> auto allgather(X &&x, const options &with = {}) const
    { return make<COLL_ALLGATHER>(std::forward<X>(x), {}, with); }
    // The same where x is of any size; all ranks know the counts: comm.allgatherv(x, comm.allgather(x.size())).
    template <class X> auto allgatherv(X &&x, blocks counts, const options &with = {}) const
    { return make<COLL_ALLGATHERV>(std::forward<X>(x), { {}, std::move(counts) }, with); }

    // Block r of x goes to rank r, block r of the result comes from rank r.
    template <class X> auto alltoall(X &&x, const options &with = {}) const
    { return make<COLL_ALLTOALL>(std::forward<X>(x), {}, with); }
    // The same with counts: comm.alltoallv(x, sends, comm.alltoall(sends)).  In place both ways have the counts of `receives`.
    template <class X> auto alltoallv(X &&x, blocks sends, blocks receives, const options &with = {}) const
    { return make<COLL_ALLTOALLV>(std::forward<X>(x), { std::move(sends), std::move(receives) }, with); }
    // The same for ranges that lie anywhere, each of its own type: range r goes to rank r, range r of `to` comes from it.
    auto alltoallw(std::vector<any_span<const void>> from, std::vector<any_span<void>> to, const options &with = {}) const
    { return make<COLL_ALLTOALLW>(detail::lists{ std::move(from), std::move(to) }, {}, with); }

    // The neighbours of communicator::neighbors: x goes to every destination, block i of the result comes from source i.
    template <class X> auto neighbor_allgather(X &&x, const options &with = {}) const
    { return make<COLL_NEIGHBOR_ALLGATHER>(std::forward<X>(x), {}, with); }
    template <class X> auto neighbor_allgatherv(X &&x, blocks counts, const options &with = {}) const
    { return make<COLL_NEIGHBOR_ALLGATHERV>(std::forward<X>(x), { {}, std::move(counts) }, with); }
    // Block i of x goes to destination i, block i of the result comes from source i.
    template <class X> auto neighbor_alltoall(X &&x, const options &with = {}) const
    { return make<COLL_NEIGHBOR_ALLTOALL>(std::forward<X>(x), {}, with); }
    template <class X> auto neighbor_alltoallv(X &&x, blocks sends, blocks receives, const options &with = {}) const
    { return make<COLL_NEIGHBOR_ALLTOALLV>(std::forward<X>(x), { std::move(sends), std::move(receives) }, with); }
    auto neighbor_alltoallw(std::vector<any_span<const void>> from, std::vector<any_span<void>> to,
                            const options &with = {}) const
    { return make<COLL_NEIGHBOR_ALLTOALLW>(detail::lists{ std::move(from), std::move(to) }, {}, with); }

    // Messages, matched by (source, tag), in the order sent.
    template <class X> auto send(X &&x, int dest, int tag = 0, const options &with = {}) const
    { return make<COLL_SEND>(std::forward<X>(x), { {}, {}, dest, detail::unknown, tag }, with); }
    // x is room for what comes.  One that is moved in is returned, no longer than what has come (as a std::vector).
    template <class X> auto recv(X &&x, int source = COLL_ANY_SOURCE, int tag = COLL_ANY_TAG, const options &with = {}) const
    { return make<COLL_RECV>(output(std::forward<X>(x)), { {}, {}, source, detail::unknown, tag }, with); }
    // Both at once.  Without an output there is room for as many elements as x has.
    template <class X> auto sendrecv(X &&x, int dest, int source, int tag = 0, const options &with = {}) const
    { return make<COLL_SENDRECV>(std::forward<X>(x), { {}, {}, dest, detail::unknown, tag, source }, with); }

protected:
    using nothing = detail::nothing;

    // The one place in which a call is put together: the kind, its buffers, its operation, and what else describes it.
    template <class X> static auto output(X &&x) { return into(std::forward<X>(x)); }
    template <class A, class Y> static auto output(detail::placed<A, Y> x)
    {
        static_assert(std::is_base_of<detail::kept<detail::absent>, detail::kept<A>>::value,
                      "coll: this call has one buffer: give x, in_place(x) or into(x)");
        return x;
    }
    template <coll_kind K, class X, class Op>
    auto make(X &&x, Op &&op, detail::details &&more, const options &with) const
    {
        using buffers = detail::form<X>;
        using task = detail::call_task<K, buffers, std::decay_t<Op>>;
        return Form::template take<task>(comm_, buffers(std::move(x)), std::move(op), std::move(more), with);
    }
    template <coll_kind K, class X> auto make(X &&x, detail::details &&more, const options &with) const
    { return make<K>(std::forward<X>(x), nothing(), std::move(more), with); }

    detail::shared comm_;
};

// ---- >>memory: what the ranks of a host read and write where it lies (coll_alloc)

template <class T> class buffer {
public:
    using value_type = T;
    static_assert(std::is_trivially_copyable<T>::value, "coll: a buffer has elements that are trivially copyable");

    buffer() = default;
    T *data() { return at_.get(); }
    const T *data() const { return at_.get(); }
    std::size_t size() const { return at_ ? count_ : 0; }
    T &operator[](std::size_t i) { return data()[i]; }
    const T &operator[](std::size_t i) const { return data()[i]; }
    T *begin() { return data(); }
    T *end() { return data() + size(); }

private:
    struct give_back {
        detail::shared comm;
        void operator()(T *at) const { coll_dealloc(comm->handle, at), comm->buffers--; }
    };
    std::unique_ptr<T[], give_back> at_;
    std::size_t count_ = 0;

    friend class communicator;
    buffer(detail::shared comm, T *at, std::size_t count) : at_(at, give_back{ comm }), count_(count)
    {
        comm->buffers++;
        for (T &one : *this) new (static_cast<void *>(&one)) T();
    }
};

// ---- >>leaves: sums with the same bits on every number of ranks (Leaves in coll.h)

// The leaves of this rank, added up.  It is the input of an allreduce, as an lvalue: comm.allreduce(leaves, coll::avg), or
// from_to(leaves, y).  It must live and stay as it is until the call is finished.
template <class T> class leaf_sum {
public:
    explicit leaf_sum(std::size_t count, std::int64_t first_leaf = 0) : count_(count)
    {
        coll_sum *made = nullptr;
        check(coll_sum_begin(&made, first_leaf, count, type_of<T>, nullptr));
        sum_.reset(made);
    }

    std::size_t size() const { return count_; }   // elements of a leaf
    coll_sum *handle() const { return sum_.get(); }

    void restart(std::int64_t first_leaf) { check(coll_sum_restart(handle(), first_leaf)); }      // for the next step
    void add(span<const T> leaf)
    {
        if (leaf.size() == count_) return check(coll_sum_add(handle(), leaf.data()));
        fail(COLL_ERR_ARGUMENT, "leaf_sum: the leaf has " + std::to_string(leaf.size()) + " elements, and the sum "
                                    + std::to_string(count_));
    }
    // Where the next leaf may be written; add(place()) then copies nothing.  Empty: this type has no such place.
    span<T> place()
    {
        T *const at = static_cast<T *>(coll_sum_place(handle()));
        return { at, at ? count_ : 0 };
    }

    const error &last() const { return last_; }   // where exceptions are off: of the last function, or false

private:
    struct give_back { void operator()(coll_sum *at) const { coll_sum_free(at); } };
    void check(coll_status status)
    {
        if (status < 0) return fail(status, coll_error(nullptr));
        last_ = {};
    }
    void fail(coll_status status, std::string why)
    {
        last_ = { status, COLL_RANK_NONE, std::move(why) };
        if (detail::can_throw) detail::raise(last_);
    }

    std::unique_ptr<coll_sum, give_back> sum_;
    std::size_t count_;
    error last_;
};

// ---- >>communicators

namespace detail { template <class F> struct worker_threads; }

// Ranks that make collectives together.  It is left when it is gone, with the last request and buffer that came from it.
class communicator : public calls<detail::running> {
public:
    communicator() : calls(nullptr) {}
    explicit communicator(coll_comm *comm, bool is_throwing = true)       // one of C's, which is freed from here on
        : calls(std::make_shared<detail::state>(comm, is_throwing)) {}
    communicator(communicator &&) = default;
    communicator &operator=(communicator &&) = default;

    bool valid() const { return comm_ && comm_->handle; }
    coll_comm *handle() const { return comm_ ? comm_->handle : nullptr; }
    int rank() const { return detail::of(comm_).rank; }
    int size() const { return detail::of(comm_).size; }
    int local_rank() const { return coll_local_rank(detail::of(comm_).handle); }
    int local_size() const { return coll_local_size(detail::of(comm_).handle); }
    int world_rank(int rank) const { return coll_world_rank(detail::of(comm_).handle, rank); }

    // Are errors thrown?  If not, last() is the error of the last call, or false.  What is made from it inherits that.
    void throwing(bool is_throwing) { detail::of(comm_).throws = is_throwing && detail::can_throw; }
    const error &last() const
    {
        static const error gone(COLL_ERR_ARGUMENT, COLL_RANK_NONE, "there is no communicator: it was moved away, or never made");
        return comm_ ? comm_->last : gone;
    }

    // The same calls in other forms.
    calls<detail::starting<false>> start() const { return calls<detail::starting<false>>(comm_); }
    calls<detail::starting<true>> prepare() const { return calls<detail::starting<true>>(comm_); }
    calls<detail::explaining> explain() const { return calls<detail::explaining>(comm_); }

    coll::received received() const { return detail::of(comm_).got; }             // the last receive whose end was reported

    // Any call of C's.
    void run(const coll_call &call) const { ask([&](coll_comm *comm) { return coll_run(comm, &call); }); }
    void progress() const { ask(coll_progress); }
    int fd() const { return coll_fd(detail::of(comm_).handle); }

    // Leave now.  Pending requests end with COLL_ERR_ABORTED.  Buffers go first.
    void free()
    {
        if (!valid()) return;
        if (comm_->buffers) return (void)comm_->refuse("free: there are buffers of this communicator; they go first");
        coll_free(std::exchange(comm_->handle, nullptr));
    }

    // The ranks of the same color, ordered by key; COLL_COLOR_NONE: none for this rank, which is not valid().
    communicator split(int color, int key = 0) const
    { return derived([&](coll_comm *comm, coll_comm **out) { return coll_split(comm, color, key, out); }); }
    communicator split_host() const { return derived(coll_split_host); }
    communicator dup() const { return derived(coll_dup); }
    communicator shrink() const { return derived(coll_shrink); }
    communicator create(span<const int> ranks, int tag = 0) const
    { return derived([&](coll_comm *comm, coll_comm **out)
      { return coll_create(comm, ranks.data(), static_cast<int>(ranks.size()), tag, out); }); }
    // 0 after an error that was not thrown
    std::uint64_t agree(std::uint64_t flags) const { return ask([&](auto *c) { return coll_agree(c, &flags); }) ? flags : 0; }

    void neighbors(span<const int> sources, span<const int> destinations) const
    {
        const int from = static_cast<int>(sources.size()), to = static_cast<int>(destinations.size());
        if (ask([&](coll_comm *comm) { return coll_neighbors(comm, sources.data(), from, destinations.data(), to); }))
            comm_->sources = from, comm_->destinations = to;
    }

    // The ranks that are known to have failed, the one that ended the communicator first.
    std::vector<int> failed_ranks() const
    {
        detail::state &comm = detail::of(comm_);
        std::vector<int> ranks(static_cast<std::size_t>(comm.size));
        const int count = coll_failed_ranks(comm.handle, ranks.data(), comm.size);
        ranks.resize(static_cast<std::size_t>(count < 0 ? 0 : count < comm.size ? count : comm.size));
        return ranks;
    }
    void abort(const char *why) const { coll_abort(detail::of(comm_).handle, why); }

    // Memory that the ranks of this host read and write where it lies, in which every element is T().
    template <class T> buffer<T> alloc(std::size_t count) const
    {
        detail::state &comm = detail::of(comm_);
        void *at = count <= ~std::size_t() / sizeof(T) && comm.handle ? coll_alloc(comm.handle, count * sizeof(T)) : nullptr;
        if (at) return buffer<T>(comm_, static_cast<T *>(at), count);
        if (comm.handle) comm.fail({ COLL_ERR_MEMORY, comm.rank, coll_error(comm.handle) });
        return {};
    }

private:
    template <class F> friend struct detail::worker_threads;
    template <class F> bool ask(F &&fn) const
    { return detail::of(comm_).handle && detail::of(comm_).check(fn(detail::of(comm_).handle)); }
    template <class F> communicator derived(F &&make) const
    {
        detail::state &comm = detail::of(comm_);
        coll_comm *out = nullptr;
        if (comm.handle) comm.check(make(comm.handle, &out));
        communicator made(out, comm.throws);
        if (!out) made.comm_->last = comm.last;
        return made;
    }
};

// Join the ranks of this job; what `settings` leaves at zero comes from the environment.  With `why` nothing is thrown, here or
// by the communicator: *why is the error, or false.
inline communicator init(const coll_config &settings = {}, error *why = nullptr)
{
    coll_comm *comm = nullptr;
    const coll_status status = coll_init(&comm, &settings);
    const error wrong = status < 0 ? error(status, settings.rank, coll_error(nullptr)) : error();
    if (wrong && !why && detail::can_throw) detail::raise(wrong);
    if (why) *why = wrong;
    return communicator(comm, !why);
}

namespace detail {
// The ranks under spawn, and what they return.
template <class F> struct worker_threads {
    using R = std::invoke_result_t<F &, communicator &>;
    using kept_result = std::conditional_t<std::is_void<R>::value, char, R>;

    F &fn;
    bool is_throwing;
    std::mutex comm_lock;
    std::exception_ptr thrown;                    // the first
    error wrong;                                  // the first that was not thrown
    std::vector<std::pair<int, kept_result>> results;

    static int work(coll_comm *handle, void *arg)
    {
        worker_threads &self = *static_cast<worker_threads *>(arg);
        std::exception_ptr thrown;
        communicator comm(handle, self.is_throwing);
        const std::weak_ptr<state> own = comm.comm_;
        const int rank = coll_rank(handle);
        guarded(thrown, [&] {
            if constexpr (std::is_void<R>::value) self.fn(comm);
            else {
                R result = self.fn(comm);
                const std::lock_guard<std::mutex> inside(self.comm_lock);
                self.results.emplace_back(rank, std::move(result));
            }
        });
        {
            const std::lock_guard<std::mutex> inside(self.comm_lock);
            if (thrown && !self.thrown) self.thrown = thrown;
            if (comm.last() && comm.valid() && !self.wrong) self.wrong = comm.last();
        }
        comm = communicator();
        if (const shared left = own.lock()) coll_free(std::exchange(left->handle, nullptr));      // a request was carried out
        return thrown ? 1 : 0;
    }
};

} // namespace detail

// Call fn(comm) on `count` threads, each of them a rank.  Returns what they return, in the order of the ranks.  Throws what the
// first one throws; the others then find that this rank is gone.  With `why` as init.
template <class F> auto spawn(int count, F &&fn, const coll_config &settings = {}, error *why = nullptr)
{
    detail::worker_threads<std::remove_reference_t<F>> worker_threads{ fn, !why, {}, {}, {}, {} };
    const int status = coll_spawn(count, worker_threads.work, &worker_threads, &settings);
    detail::raise_again(worker_threads.thrown);
    if (status < 0) worker_threads.wrong = error(static_cast<coll_status>(status), COLL_RANK_NONE, coll_error(nullptr));
    if (status < 0 && !why && detail::can_throw) detail::raise(worker_threads.wrong);
    if (why) *why = worker_threads.wrong;
    if constexpr (!std::is_void<typename decltype(worker_threads)::R>::value) {
        std::vector<typename decltype(worker_threads)::R> results;
        for (int rank = 0; results.size() < worker_threads.results.size(); rank++)
            for (auto &one : worker_threads.results) if (one.first == rank) results.push_back(std::move(one.second));
        return results;
    }
}

} // inline namespace
} // namespace coll
#endif // COLL_HPP
