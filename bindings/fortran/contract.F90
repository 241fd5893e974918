! Every collective in every form, for the types and operations that Fortran has, with odd counts, against sums worked out here;
! bits are compared.  1 to 5 threads; under coll-run the ranks of the job.  Ends with "N passed, N failed" of each process.
!     gfortran coll_raw.f90 contract_base.f90 contract.F90 -lcoll -o contract && ./contract && coll-run -n 4 ./contract
#define MODULE_NAME contract_i8
#define TYPE_IS integer(c_int8_t)
#define COLL_TYPE COLL_I8
#define IS_INTEGER
#define BITS 8
#define FACTOR 37
#include "contract_type.inc"
#define MODULE_NAME contract_i16
#define TYPE_IS integer(c_int16_t)
#define COLL_TYPE COLL_I16
#define IS_INTEGER
#define BITS 16
#define FACTOR 1001
#include "contract_type.inc"
#define MODULE_NAME contract_i32
#define TYPE_IS integer(c_int32_t)
#define COLL_TYPE COLL_I32
#define IS_INTEGER
#define BITS 32
#define FACTOR 2001
#include "contract_type.inc"
#define MODULE_NAME contract_i64
#define TYPE_IS integer(c_int64_t)
#define COLL_TYPE COLL_I64
#define IS_INTEGER
#define BITS 64
#define FACTOR 2001
#include "contract_type.inc"
#define MODULE_NAME contract_f32
#define TYPE_IS real(c_float)
#define COLL_TYPE COLL_F32
#define IS_REAL
#include "contract_type.inc"
#define MODULE_NAME contract_f64
#define TYPE_IS real(c_double)
#define COLL_TYPE COLL_F64
#define IS_REAL
#include "contract_type.inc"
#define MODULE_NAME contract_c64
#define TYPE_IS complex(c_float_complex)
#define COLL_TYPE COLL_C64
#define IS_COMPLEX
#include "contract_type.inc"
#define MODULE_NAME contract_c128
#define TYPE_IS complex(c_double_complex)
#define COLL_TYPE COLL_C128
#define IS_COMPLEX
#include "contract_type.inc"
#define MODULE_NAME contract_bool
#define TYPE_IS logical(c_bool)
#define COLL_TYPE COLL_BOOL
#define IS_LOGICAL
#include "contract_type.inc"

module contract_rank
    use contract_base
    implicit none
    private
    public :: rank_, tallies

    integer(c_long) :: tallies(2, 0:4) = 0      ! of each rank of this process: passed, failed

contains

    ! Refused before anything is sent: the ranks go on.
    recursive subroutine mistakes(t)
        type(trial), intent(inout) :: t
        real(c_float), target :: x(8), y(8)
        type(c_ptr) :: request, half
        integer(c_int) :: status
        type(coll_call), target :: call_
        character(len=400) :: was

        x = 1
        t%what = 'a mistake'
        call refused(t, 'a root that is none', coll_broadcast(t%comm, c_loc(x), 8_c_size_t, COLL_F32, t%size), &
            COLL_ERR_ARGUMENT)
        call refused(t, 'a type that is none', coll_allreduce(t%comm, c_loc(x), c_loc(y), 8_c_size_t, 77, COLL_SUM), &
            COLL_ERR_ARGUMENT)
        call refused(t, 'an operation that is none', coll_allreduce(t%comm, c_loc(x), c_loc(y), 8_c_size_t, COLL_F32, 77), &
            COLL_ERR_ARGUMENT)
        call refused(t, 'no buffer', coll_allreduce(t%comm, c_null_ptr, c_loc(y), 8_c_size_t, COLL_F32, COLL_SUM), &
            COLL_ERR_ARGUMENT)
        call refused(t, 'overlap', coll_allreduce(t%comm, c_loc(x), c_loc(x(3)), 4_c_size_t, COLL_F32, COLL_SUM), &
            COLL_ERR_ARGUMENT)
        call refused(t, 'a tag below 0', coll_send(t%comm, c_loc(x), 8_c_size_t, COLL_F32, 0, -7), COLL_ERR_ARGUMENT)
        call refused(t, 'bits of floats', coll_iallreduce(t%comm, c_loc(x), c_loc(y), 8_c_size_t, COLL_F32, COLL_BAND, &
            request), COLL_ERR_UNSUPPORTED)
        was = sentence(t%comm)
        call conclusion(t, index(was, 'allreduce') > 0, 'the sentence names the call: ' // trim(was))
        call_ = coll_call(kind=COLL_KIND_ALLREDUCE, send=c_loc(x), recv=c_loc(y), count=8, send_counts=c_null_ptr, &
            send_offsets=c_null_ptr, recv_counts=c_null_ptr, recv_offsets=c_null_ptr, send_types=c_null_ptr, &
            recv_types=c_null_ptr, recv_count=0, row=0, send_stride=0, recv_stride=0, type=COLL_F32, wire=COLL_BF16, &
            accumulate=0, op=COLL_SUM, fn=c_null_funptr, fn_context=c_null_ptr, not_commutative=.false._c_bool, scale=0.5d0, &
            flags=COLL_DETERMINISTIC, seed=0, residual=c_null_ptr, list=c_null_ptr, list_count=0, root=0, peer=0, source=0, &
            tag=0, timeout_ms=0, algorithm=c_null_ptr, name=c_null_ptr, first_leaf=0, leaves=0)
        status = coll_run(t%comm, c_loc(call_))
        call conclusion(t, status == COLL_OK .and. all(y == 0.5 * t%size), 'a call by its descriptor')
        y = 0
        status = coll_prepare(t%comm, c_loc(call_), request)
        if (status == COLL_OK) status = coll_restart(request)
        if (status == COLL_OK) status = ended(status, request)
        call conclusion(t, status == COLL_OK .and. all(y == 0.5 * t%size), 'a prepared call')
        status = coll_allreduce_mixed(t%comm, c_loc(x), c_loc(y), 8_c_size_t, COLL_F32, COLL_BF16, COLL_SUM)
        call conclusion(t, status == COLL_OK .and. all(y == t%size), 'allreduce_mixed')
        status = ended(coll_iallreduce_mixed(t%comm, c_loc(x), c_loc(y), 8_c_size_t, COLL_F32, COLL_BF16, COLL_MAX, request), &
            request)
        call conclusion(t, status == COLL_OK .and. all(y == 1), 'iallreduce_mixed')
        call conclusion(t, ended(coll_ibarrier(t%comm, request), request) == COLL_OK, 'ibarrier')
        call conclusion(t, coll_split(t%comm, mod(t%rank, 2), -t%rank, half) == COLL_OK, 'split')
        call conclusion(t, coll_size(half) == (t%size + 1 - mod(t%rank, 2)) / 2, 'the size of a half')
        call conclusion(t, coll_barrier(half) == COLL_OK, 'a barrier of a half')
        call conclusion(t, coll_free(half) == COLL_OK, 'free')
        call conclusion(t, coll_barrier(t%comm) == COLL_OK, 'barrier')
    end subroutine

    recursive function rank_(comm, arg) bind(c) result(result_)
        use contract_i8, only: i8 => all_of
        use contract_i16, only: i16 => all_of
        use contract_i32, only: i32 => all_of
        use contract_i64, only: i64 => all_of
        use contract_f32, only: f32 => all_of
        use contract_f64, only: f64 => all_of
        use contract_c64, only: c64 => all_of
        use contract_c128, only: c128 => all_of
        use contract_bool, only: bool => all_of
        type(c_ptr), value :: comm, arg
        integer(c_int) :: result_
        type(trial) :: t
        integer :: at

        t = trial(comm, coll_rank(comm), coll_size(comm))
        call i8(t, 'i8')
        call i16(t, 'i16')
        call i32(t, 'i32')
        call i64(t, 'i64')
        call f32(t, 'f32')
        call f64(t, 'f64')
        call c64(t, 'c64')
        call c128(t, 'c128')
        call bool(t, 'bool')
        call mistakes(t)
        at = merge(t%rank, 0, c_associated(arg))
        tallies(:, at) = tallies(:, at) + [t%passed, t%failed]
        result_ = merge(1, 0, t%failed > 0)
    end function

end module

program contract
    use contract_rank
    use contract_base
    implicit none
    integer, target :: threads
    type(c_ptr) :: comm
    integer(c_int) :: status
    logical :: is_joined
    character(len=400) :: why

    call get_environment_variable('COLL_SIZE', status=status)
    is_joined = status == 0
    if (is_joined) then
        if (coll_init(comm, c_null_ptr) < 0) then
            print '(a)', trim(sentence(c_null_ptr))
            error stop 1
        end if
        status = rank_(comm, c_null_ptr)
        if (coll_free(comm) < 0) error stop 1
    else
        do threads = 1, 5
            status = coll_spawn(threads, c_funloc(rank_), c_loc(threads), c_null_ptr)
            if (status < 0) print '(a)', trim(sentence(c_null_ptr))
            if (status /= 0) tallies(2, 0) = tallies(2, 0) + 1
        end do
        status = coll_spawn(0, c_funloc(rank_), c_null_ptr, c_null_ptr)
        why = sentence(c_null_ptr)
        if (status == COLL_ERR_ARGUMENT .and. len_trim(why) > 10) then
            tallies(1, 0) = tallies(1, 0) + 1
        else
            tallies(2, 0) = tallies(2, 0) + 1
        end if
    end if
    print '(i0,a,i0,a)', sum(tallies(1, :)), ' passed, ', sum(tallies(2, :)), ' failed'
    if (any(tallies(2, :) > 0)) error stop 1
end program
