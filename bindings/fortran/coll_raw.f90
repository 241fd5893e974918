! coll.h for Fortran: its declarations, and nothing else.  Written by bindings/generate.py; `make bindings`
! writes it anew.  Pointers are type(c_ptr); coll_init_threads and coll_wait_... take the address of an array.
module coll_raw
    use, intrinsic :: iso_c_binding
    implicit none
    public

    integer(c_int), parameter :: COLL_VERSION_MAJOR = 0
    integer(c_int), parameter :: COLL_VERSION_MINOR = 4
    integer(c_int), parameter :: COLL_VERSION_PATCH = 0

    integer(c_int), parameter :: COLL_OK = 0
    integer(c_int), parameter :: COLL_PENDING = 1
    integer(c_int), parameter :: COLL_ERR_ARGUMENT = -1
    integer(c_int), parameter :: COLL_ERR_MEMORY = -2
    integer(c_int), parameter :: COLL_ERR_SYSTEM = -3
    integer(c_int), parameter :: COLL_ERR_TIMEOUT = -4
    integer(c_int), parameter :: COLL_ERR_PEER = -5
    integer(c_int), parameter :: COLL_ERR_MISMATCH = -6
    integer(c_int), parameter :: COLL_ERR_PROTOCOL = -7
    integer(c_int), parameter :: COLL_ERR_DENIED = -8
    integer(c_int), parameter :: COLL_ERR_UNSUPPORTED = -9
    integer(c_int), parameter :: COLL_ERR_ABORTED = -10
    integer(c_int), parameter :: COLL_ERR_FORKED = -11

    integer(c_int), parameter :: COLL_I8 = 1
    integer(c_int), parameter :: COLL_I16 = 2
    integer(c_int), parameter :: COLL_I32 = 3
    integer(c_int), parameter :: COLL_I64 = 4
    integer(c_int), parameter :: COLL_U8 = 5
    integer(c_int), parameter :: COLL_U16 = 6
    integer(c_int), parameter :: COLL_U32 = 7
    integer(c_int), parameter :: COLL_U64 = 8
    integer(c_int), parameter :: COLL_BOOL = 9
    integer(c_int), parameter :: COLL_F16 = 10
    integer(c_int), parameter :: COLL_BF16 = 11
    integer(c_int), parameter :: COLL_F8E4M3 = 12
    integer(c_int), parameter :: COLL_F8E5M2 = 13
    integer(c_int), parameter :: COLL_F32 = 14
    integer(c_int), parameter :: COLL_F64 = 15
    integer(c_int), parameter :: COLL_C64 = 16
    integer(c_int), parameter :: COLL_C128 = 17
    integer(c_int), parameter :: COLL_F32_I32 = 18
    integer(c_int), parameter :: COLL_F64_I32 = 19
    integer(c_int), parameter :: COLL_F64_I64 = 20
    integer(c_int), parameter :: COLL_I32_I32 = 21
    integer(c_int), parameter :: COLL_I64_I32 = 22
    integer(c_int), parameter :: COLL_I64_I64 = 23
    integer(c_int), parameter :: COLL_MXI8 = 24
    integer(c_int), parameter :: COLL_MXF8E4M3 = 25
    integer(c_int), parameter :: COLL_MXF8E5M2 = 26

    integer(c_int), parameter :: COLL_SUM = 0
    integer(c_int), parameter :: COLL_PROD = 1
    integer(c_int), parameter :: COLL_MIN = 2
    integer(c_int), parameter :: COLL_MAX = 3
    integer(c_int), parameter :: COLL_AVG = 4
    integer(c_int), parameter :: COLL_BAND = 5
    integer(c_int), parameter :: COLL_BOR = 6
    integer(c_int), parameter :: COLL_BXOR = 7
    integer(c_int), parameter :: COLL_LAND = 8
    integer(c_int), parameter :: COLL_LOR = 9
    integer(c_int), parameter :: COLL_LXOR = 10
    integer(c_int), parameter :: COLL_MINLOC = 11
    integer(c_int), parameter :: COLL_MAXLOC = 12
    integer(c_int), parameter :: COLL_USER = 13

    integer(c_int), parameter :: COLL_KIND_BARRIER = 1
    integer(c_int), parameter :: COLL_KIND_BROADCAST = 2
    integer(c_int), parameter :: COLL_KIND_REDUCE = 3
    integer(c_int), parameter :: COLL_KIND_ALLREDUCE = 4
    integer(c_int), parameter :: COLL_KIND_REDUCE_SCATTER = 5
    integer(c_int), parameter :: COLL_KIND_REDUCE_SCATTERV = 6
    integer(c_int), parameter :: COLL_KIND_SCAN = 7
    integer(c_int), parameter :: COLL_KIND_EXSCAN = 8
    integer(c_int), parameter :: COLL_KIND_GATHER = 9
    integer(c_int), parameter :: COLL_KIND_GATHERV = 10
    integer(c_int), parameter :: COLL_KIND_SCATTER = 11
    integer(c_int), parameter :: COLL_KIND_SCATTERV = 12
    integer(c_int), parameter :: COLL_KIND_ALLGATHER = 13
    integer(c_int), parameter :: COLL_KIND_ALLGATHERV = 14
    integer(c_int), parameter :: COLL_KIND_ALLTOALL = 15
    integer(c_int), parameter :: COLL_KIND_ALLTOALLV = 16
    integer(c_int), parameter :: COLL_KIND_ALLTOALLW = 17
    integer(c_int), parameter :: COLL_KIND_NEIGHBOR_ALLGATHER = 18
    integer(c_int), parameter :: COLL_KIND_NEIGHBOR_ALLGATHERV = 19
    integer(c_int), parameter :: COLL_KIND_NEIGHBOR_ALLTOALL = 20
    integer(c_int), parameter :: COLL_KIND_NEIGHBOR_ALLTOALLV = 21
    integer(c_int), parameter :: COLL_KIND_NEIGHBOR_ALLTOALLW = 22
    integer(c_int), parameter :: COLL_KIND_ALLREDUCE_LIST = 23
    integer(c_int), parameter :: COLL_KIND_SEND = 24
    integer(c_int), parameter :: COLL_KIND_RECV = 25
    integer(c_int), parameter :: COLL_KIND_SENDRECV = 26

    integer(c_int), parameter :: COLL_RANK_NONE = -1
    integer(c_int), parameter :: COLL_COLOR_NONE = -1
    integer(c_int), parameter :: COLL_ANY_SOURCE = -2
    integer(c_int), parameter :: COLL_ANY_TAG = -2

    integer(c_int), parameter :: COLL_SIM_KILL = 1
    integer(c_int), parameter :: COLL_SIM_STOP = 2
    integer(c_int), parameter :: COLL_SIM_CUT = 3
    integer(c_int), parameter :: COLL_SIM_LOSE = 4
    integer(c_int), parameter :: COLL_SIM_LATE = 5
    integer(c_int), parameter :: COLL_SIM_SLOW = 6

    integer(c_int), parameter :: COLL_DEFAULT = 0
    integer(c_int), parameter :: COLL_ON = 1
    integer(c_int), parameter :: COLL_OFF = -1

    integer(c_int), parameter :: COLL_LOG_NONE = -1
    integer(c_int), parameter :: COLL_LOG_ERROR = 1
    integer(c_int), parameter :: COLL_LOG_WARN = 2
    integer(c_int), parameter :: COLL_LOG_INFO = 3

    integer(c_int), parameter :: COLL_DETERMINISTIC = 1
    integer(c_int), parameter :: COLL_SATURATE = 2
    integer(c_int), parameter :: COLL_REPRODUCIBLE = 4
    integer(c_int), parameter :: COLL_STOCHASTIC = 8
    integer(c_int), parameter :: COLL_DETECT_OVERFLOW = 16
    integer(c_int), parameter :: COLL_ROUND_TWICE = 32

    type, bind(c) :: coll_sim_fault
        integer(c_int) :: kind
        integer(c_int) :: rank
        integer(c_int) :: peer
        integer(c_int64_t) :: number
        real(c_double) :: time
        real(c_double) :: amount
    end type

    type, bind(c) :: coll_sim
        real(c_double) :: latency
        real(c_double) :: overhead
        real(c_double) :: seconds_per_byte
        real(c_double) :: seconds_per_byte_reduced
        real(c_double) :: local_latency
        real(c_double) :: local_seconds_per_byte
        integer(c_int) :: ranks_per_host
        integer(c_int) :: capacity
        real(c_double) :: jitter
        real(c_double) :: detection
        integer(c_int64_t) :: seed
        integer(c_size_t) :: stack
        type(c_ptr) :: faults
        integer(c_int) :: fault_count
        integer(c_int) :: hosts_per_site
        real(c_double) :: far_latency
        real(c_double) :: far_seconds_per_byte
        integer(c_int64_t) :: reserved(4) = 0
    end type

    type, bind(c) :: coll_tcp
        type(c_ptr) :: io
        type(c_ptr) :: hosts
        type(c_ptr) :: network
        type(c_ptr) :: ports
        type(c_funptr) :: listening
        type(c_ptr) :: listening_context
        type(c_ptr) :: key
        type(c_ptr) :: security
        integer(c_int) :: lanes
        integer(c_int) :: share_memory
        integer(c_int) :: shm_collectives
        integer(c_int64_t) :: reserved(4) = 0
    end type

    type, bind(c) :: coll_allocator
        type(c_funptr) :: allocate
        type(c_funptr) :: free
        type(c_ptr) :: context
    end type

    type, bind(c) :: coll_config
        type(c_ptr) :: transport
        integer(c_int) :: rank
        integer(c_int) :: size
        type(c_ptr) :: address
        type(c_ptr) :: world
        integer(c_int) :: start_timeout_ms
        integer(c_int) :: liveness_timeout_ms
        integer(c_int) :: stall_timeout_ms
        integer(c_int) :: spin_us
        integer(c_int) :: log_level
        type(c_funptr) :: log
        type(c_ptr) :: log_context
        type(c_ptr) :: sim
        type(c_ptr) :: tuning_file
        integer(c_int) :: background
        integer(c_int) :: elastic
        type(c_ptr) :: dump
        type(coll_tcp) :: tcp
        type(c_ptr) :: allocator
        type(c_ptr) :: site
        type(c_ptr) :: mpi
        integer(c_int64_t) :: reserved(8) = 0
    end type

    type, bind(c) :: coll_list_item
        type(c_ptr) :: send
        type(c_ptr) :: recv
        integer(c_size_t) :: count
        integer(c_int32_t) :: type
    end type

    type, bind(c) :: coll_call
        integer(c_int) :: kind
        type(c_ptr) :: send
        type(c_ptr) :: recv
        integer(c_size_t) :: count
        type(c_ptr) :: send_counts
        type(c_ptr) :: send_offsets
        type(c_ptr) :: recv_counts
        type(c_ptr) :: recv_offsets
        type(c_ptr) :: send_types
        type(c_ptr) :: recv_types
        integer(c_size_t) :: recv_count
        integer(c_size_t) :: row
        integer(c_size_t) :: send_stride
        integer(c_size_t) :: recv_stride
        integer(c_int32_t) :: type
        integer(c_int32_t) :: wire
        integer(c_int32_t) :: accumulate
        integer(c_int) :: op
        type(c_funptr) :: fn
        type(c_ptr) :: fn_context
        logical(c_bool) :: not_commutative
        real(c_double) :: scale
        integer(c_int) :: flags
        integer(c_int64_t) :: seed
        type(c_ptr) :: residual
        type(c_ptr) :: list
        integer(c_int) :: list_count
        integer(c_int) :: root
        integer(c_int) :: peer
        integer(c_int) :: source
        integer(c_int) :: tag
        integer(c_int) :: timeout_ms
        type(c_ptr) :: algorithm
        type(c_ptr) :: name
        integer(c_int64_t) :: first_leaf
        integer(c_int64_t) :: leaves
        integer(c_int64_t) :: reserved(2) = 0
    end type

    interface
        function coll_version() bind(c, name="coll_version") result(result_)
            import
            integer(c_int) :: result_
        end function

        function coll_status_text(status) bind(c, name="coll_status_text") result(result_)
            import
            integer(c_int), value :: status
            type(c_ptr) :: result_
        end function

        function coll_type_size(type) bind(c, name="coll_type_size") result(result_)
            import
            integer(c_int32_t), value :: type
            integer(c_size_t) :: result_
        end function

        function coll_type_name(type) bind(c, name="coll_type_name") result(result_)
            import
            integer(c_int32_t), value :: type
            type(c_ptr) :: result_
        end function

        function coll_op_name(op) bind(c, name="coll_op_name") result(result_)
            import
            integer(c_int), value :: op
            type(c_ptr) :: result_
        end function

        function coll_kind_name(kind) bind(c, name="coll_kind_name") result(result_)
            import
            integer(c_int), value :: kind
            type(c_ptr) :: result_
        end function

        function coll_init(out, config) bind(c, name="coll_init") result(result_)
            import
            type(c_ptr), intent(inout) :: out
            type(c_ptr), value :: config
            integer(c_int) :: result_
        end function

        function coll_init_threads(count, out, config) bind(c, name="coll_init_threads") result(result_)
            import
            integer(c_int), value :: count
            type(c_ptr), value :: out
            type(c_ptr), value :: config
            integer(c_int) :: result_
        end function

        function coll_free(comm) bind(c, name="coll_free") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_split(comm, color, key, out) bind(c, name="coll_split") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: color
            integer(c_int), value :: key
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_split_host(comm, out) bind(c, name="coll_split_host") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_dup(comm, out) bind(c, name="coll_dup") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_create(comm, ranks, count, tag, out) bind(c, name="coll_create") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: ranks
            integer(c_int), value :: count
            integer(c_int), value :: tag
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_world_rank(comm, rank) bind(c, name="coll_world_rank") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: rank
            integer(c_int) :: result_
        end function

        function coll_abort(comm, why) bind(c, name="coll_abort") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: why
            integer(c_int) :: result_
        end function

        function coll_shrink(comm, out) bind(c, name="coll_shrink") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_grow(comm, out) bind(c, name="coll_grow") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_replace(comm, out) bind(c, name="coll_replace") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_join(out, config) bind(c, name="coll_join") result(result_)
            import
            type(c_ptr), intent(inout) :: out
            type(c_ptr), value :: config
            integer(c_int) :: result_
        end function

        function coll_waiting(comm) bind(c, name="coll_waiting") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_former_rank(comm, rank) bind(c, name="coll_former_rank") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int), value :: rank
            integer(c_int) :: result_
        end function

        function coll_agree(comm, flags) bind(c, name="coll_agree") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: flags
            integer(c_int) :: result_
        end function

        function coll_failed_ranks(comm, ranks, capacity) bind(c, name="coll_failed_ranks") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: ranks
            integer(c_int), value :: capacity
            integer(c_int) :: result_
        end function

        function coll_neighbors(comm, sources, source_count, destinations, destination_count) bind(c, &
            name="coll_neighbors") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: sources
            integer(c_int), value :: source_count
            type(c_ptr), value :: destinations
            integer(c_int), value :: destination_count
            integer(c_int) :: result_
        end function

        function coll_rank(comm) bind(c, name="coll_rank") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_size(comm) bind(c, name="coll_size") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_local_rank(comm) bind(c, name="coll_local_rank") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_local_size(comm) bind(c, name="coll_local_size") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_error(comm) bind(c, name="coll_error") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr) :: result_
        end function

        function coll_barrier(comm) bind(c, name="coll_barrier") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_broadcast(comm, buffer, count, type, root) bind(c, name="coll_broadcast") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            integer(c_int) :: result_
        end function

        function coll_reduce(comm, send, recv, count, type, op, root) bind(c, name="coll_reduce") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            integer(c_int), value :: root
            integer(c_int) :: result_
        end function

        function coll_allreduce(comm, send, recv, count, type, op) bind(c, name="coll_allreduce") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            integer(c_int) :: result_
        end function

        function coll_allreduce_mixed(comm, send, recv, count, type, wire, op) bind(c, &
            name="coll_allreduce_mixed") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int32_t), value :: wire
            integer(c_int), value :: op
            integer(c_int) :: result_
        end function

        function coll_allreduce_list(comm, list, count, op) bind(c, name="coll_allreduce_list") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: list
            integer(c_int), value :: count
            integer(c_int), value :: op
            integer(c_int) :: result_
        end function

        function coll_reduce_scatter(comm, send, recv, recv_count, type, op) bind(c, &
            name="coll_reduce_scatter") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: recv_count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            integer(c_int) :: result_
        end function

        function coll_reduce_scatterv(comm, send, recv, counts, type, op) bind(c, name="coll_reduce_scatterv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            type(c_ptr), value :: counts
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            integer(c_int) :: result_
        end function

        function coll_scan(comm, send, recv, count, type, op) bind(c, name="coll_scan") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            integer(c_int) :: result_
        end function

        function coll_exscan(comm, send, recv, count, type, op) bind(c, name="coll_exscan") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            integer(c_int) :: result_
        end function

        function coll_gather(comm, send, recv, count, type, root) bind(c, name="coll_gather") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            integer(c_int) :: result_
        end function

        function coll_gatherv(comm, send, send_count, recv, counts, offsets, type, root) bind(c, &
            name="coll_gatherv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            type(c_ptr), value :: recv
            type(c_ptr), value :: counts
            type(c_ptr), value :: offsets
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            integer(c_int) :: result_
        end function

        function coll_scatter(comm, send, recv, count, type, root) bind(c, name="coll_scatter") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            integer(c_int) :: result_
        end function

        function coll_scatterv(comm, send, counts, offsets, recv, recv_count, type, root) bind(c, &
            name="coll_scatterv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: counts
            type(c_ptr), value :: offsets
            type(c_ptr), value :: recv
            integer(c_size_t), value :: recv_count
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            integer(c_int) :: result_
        end function

        function coll_allgather(comm, send, recv, count, type) bind(c, name="coll_allgather") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int) :: result_
        end function

        function coll_allgatherv(comm, send, send_count, recv, counts, offsets, type) bind(c, &
            name="coll_allgatherv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            type(c_ptr), value :: recv
            type(c_ptr), value :: counts
            type(c_ptr), value :: offsets
            integer(c_int32_t), value :: type
            integer(c_int) :: result_
        end function

        function coll_alltoall(comm, send, recv, count, type) bind(c, name="coll_alltoall") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int) :: result_
        end function

        function coll_alltoallv(comm, send, send_counts, send_offsets, recv, recv_counts, recv_offsets, type) bind(c, &
            name="coll_alltoallv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_offsets
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_offsets
            integer(c_int32_t), value :: type
            integer(c_int) :: result_
        end function

        function coll_alltoallw(comm, send, send_counts, send_bytes, send_types, recv, recv_counts, recv_bytes, &
            recv_types) bind(c, name="coll_alltoallw") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_bytes
            type(c_ptr), value :: send_types
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_bytes
            type(c_ptr), value :: recv_types
            integer(c_int) :: result_
        end function

        function coll_neighbor_allgather(comm, send, recv, count, type) bind(c, &
            name="coll_neighbor_allgather") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int) :: result_
        end function

        function coll_neighbor_allgatherv(comm, send, send_count, recv, counts, offsets, type) bind(c, &
            name="coll_neighbor_allgatherv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            type(c_ptr), value :: recv
            type(c_ptr), value :: counts
            type(c_ptr), value :: offsets
            integer(c_int32_t), value :: type
            integer(c_int) :: result_
        end function

        function coll_neighbor_alltoall(comm, send, recv, count, type) bind(c, name="coll_neighbor_alltoall") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int) :: result_
        end function

        function coll_neighbor_alltoallv(comm, send, send_counts, send_offsets, recv, recv_counts, recv_offsets, &
            type) bind(c, name="coll_neighbor_alltoallv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_offsets
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_offsets
            integer(c_int32_t), value :: type
            integer(c_int) :: result_
        end function

        function coll_neighbor_alltoallw(comm, send, send_counts, send_bytes, send_types, recv, recv_counts, recv_bytes, &
            recv_types) bind(c, name="coll_neighbor_alltoallw") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_bytes
            type(c_ptr), value :: send_types
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_bytes
            type(c_ptr), value :: recv_types
            integer(c_int) :: result_
        end function

        function coll_send(comm, buffer, count, type, peer, tag) bind(c, name="coll_send") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: peer
            integer(c_int), value :: tag
            integer(c_int) :: result_
        end function

        function coll_recv(comm, buffer, count, type, peer, tag) bind(c, name="coll_recv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: peer
            integer(c_int), value :: tag
            integer(c_int) :: result_
        end function

        function coll_sendrecv(comm, send, send_count, dest, recv, recv_count, source, type, tag) bind(c, &
            name="coll_sendrecv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            integer(c_int), value :: dest
            type(c_ptr), value :: recv
            integer(c_size_t), value :: recv_count
            integer(c_int), value :: source
            integer(c_int32_t), value :: type
            integer(c_int), value :: tag
            integer(c_int) :: result_
        end function

        function coll_ibarrier(comm, out) bind(c, name="coll_ibarrier") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ibroadcast(comm, buffer, count, type, root, out) bind(c, name="coll_ibroadcast") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ireduce(comm, send, recv, count, type, op, root, out) bind(c, name="coll_ireduce") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            integer(c_int), value :: root
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iallreduce(comm, send, recv, count, type, op, out) bind(c, name="coll_iallreduce") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iallreduce_mixed(comm, send, recv, count, type, wire, op, out) bind(c, &
            name="coll_iallreduce_mixed") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int32_t), value :: wire
            integer(c_int), value :: op
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iallreduce_list(comm, list, count, op, out) bind(c, name="coll_iallreduce_list") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: list
            integer(c_int), value :: count
            integer(c_int), value :: op
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ireduce_scatter(comm, send, recv, recv_count, type, op, out) bind(c, &
            name="coll_ireduce_scatter") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: recv_count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ireduce_scatterv(comm, send, recv, counts, type, op, out) bind(c, &
            name="coll_ireduce_scatterv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            type(c_ptr), value :: counts
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iscan(comm, send, recv, count, type, op, out) bind(c, name="coll_iscan") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iexscan(comm, send, recv, count, type, op, out) bind(c, name="coll_iexscan") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_igather(comm, send, recv, count, type, root, out) bind(c, name="coll_igather") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_igatherv(comm, send, send_count, recv, counts, offsets, type, root, out) bind(c, &
            name="coll_igatherv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            type(c_ptr), value :: recv
            type(c_ptr), value :: counts
            type(c_ptr), value :: offsets
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iscatter(comm, send, recv, count, type, root, out) bind(c, name="coll_iscatter") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iscatterv(comm, send, counts, offsets, recv, recv_count, type, root, out) bind(c, &
            name="coll_iscatterv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: counts
            type(c_ptr), value :: offsets
            type(c_ptr), value :: recv
            integer(c_size_t), value :: recv_count
            integer(c_int32_t), value :: type
            integer(c_int), value :: root
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iallgather(comm, send, recv, count, type, out) bind(c, name="coll_iallgather") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_iallgatherv(comm, send, send_count, recv, counts, offsets, type, out) bind(c, &
            name="coll_iallgatherv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            type(c_ptr), value :: recv
            type(c_ptr), value :: counts
            type(c_ptr), value :: offsets
            integer(c_int32_t), value :: type
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ialltoall(comm, send, recv, count, type, out) bind(c, name="coll_ialltoall") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ialltoallv(comm, send, send_counts, send_offsets, recv, recv_counts, recv_offsets, type, out) bind(c, &
            name="coll_ialltoallv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_offsets
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_offsets
            integer(c_int32_t), value :: type
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ialltoallw(comm, send, send_counts, send_bytes, send_types, recv, recv_counts, recv_bytes, &
            recv_types, out) bind(c, name="coll_ialltoallw") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_bytes
            type(c_ptr), value :: send_types
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_bytes
            type(c_ptr), value :: recv_types
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ineighbor_allgather(comm, send, recv, count, type, out) bind(c, &
            name="coll_ineighbor_allgather") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ineighbor_allgatherv(comm, send, send_count, recv, counts, offsets, type, out) bind(c, &
            name="coll_ineighbor_allgatherv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            type(c_ptr), value :: recv
            type(c_ptr), value :: counts
            type(c_ptr), value :: offsets
            integer(c_int32_t), value :: type
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ineighbor_alltoall(comm, send, recv, count, type, out) bind(c, &
            name="coll_ineighbor_alltoall") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: recv
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ineighbor_alltoallv(comm, send, send_counts, send_offsets, recv, recv_counts, recv_offsets, type, &
            out) bind(c, name="coll_ineighbor_alltoallv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_offsets
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_offsets
            integer(c_int32_t), value :: type
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_ineighbor_alltoallw(comm, send, send_counts, send_bytes, send_types, recv, recv_counts, recv_bytes, &
            recv_types, out) bind(c, name="coll_ineighbor_alltoallw") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            type(c_ptr), value :: send_counts
            type(c_ptr), value :: send_bytes
            type(c_ptr), value :: send_types
            type(c_ptr), value :: recv
            type(c_ptr), value :: recv_counts
            type(c_ptr), value :: recv_bytes
            type(c_ptr), value :: recv_types
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_isend(comm, buffer, count, type, peer, tag, out) bind(c, name="coll_isend") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: peer
            integer(c_int), value :: tag
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_irecv(comm, buffer, count, type, peer, tag, out) bind(c, name="coll_irecv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: buffer
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: peer
            integer(c_int), value :: tag
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_isendrecv(comm, send, send_count, dest, recv, recv_count, source, type, tag, out) bind(c, &
            name="coll_isendrecv") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: send
            integer(c_size_t), value :: send_count
            integer(c_int), value :: dest
            type(c_ptr), value :: recv
            integer(c_size_t), value :: recv_count
            integer(c_int), value :: source
            integer(c_int32_t), value :: type
            integer(c_int), value :: tag
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_test(request) bind(c, name="coll_test") result(result_)
            import
            type(c_ptr), value :: request
            integer(c_int) :: result_
        end function

        function coll_wait(request) bind(c, name="coll_wait") result(result_)
            import
            type(c_ptr), value :: request
            integer(c_int) :: result_
        end function

        function coll_wait_all(count, requests) bind(c, name="coll_wait_all") result(result_)
            import
            integer(c_int), value :: count
            type(c_ptr), value :: requests
            integer(c_int) :: result_
        end function

        function coll_wait_any(count, requests, index) bind(c, name="coll_wait_any") result(result_)
            import
            integer(c_int), value :: count
            type(c_ptr), value :: requests
            type(c_ptr), value :: index
            integer(c_int) :: result_
        end function

        function coll_wait_some(count, requests, indices, done) bind(c, name="coll_wait_some") result(result_)
            import
            integer(c_int), value :: count
            type(c_ptr), value :: requests
            type(c_ptr), value :: indices
            type(c_ptr), value :: done
            integer(c_int) :: result_
        end function

        function coll_test_any(count, requests, index) bind(c, name="coll_test_any") result(result_)
            import
            integer(c_int), value :: count
            type(c_ptr), value :: requests
            type(c_ptr), value :: index
            integer(c_int) :: result_
        end function

        function coll_test_all(count, requests) bind(c, name="coll_test_all") result(result_)
            import
            integer(c_int), value :: count
            type(c_ptr), value :: requests
            integer(c_int) :: result_
        end function

        function coll_received(request, source, tag, count) bind(c, name="coll_received") result(result_)
            import
            type(c_ptr), value :: request
            type(c_ptr), value :: source
            type(c_ptr), value :: tag
            type(c_ptr), value :: count
            integer(c_int) :: result_
        end function

        subroutine coll_request_free(request) bind(c, name="coll_request_free")
            import
            type(c_ptr), value :: request
        end subroutine

        function coll_progress(comm) bind(c, name="coll_progress") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_fd(comm) bind(c, name="coll_fd") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int) :: result_
        end function

        function coll_run(comm, call) bind(c, name="coll_run") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: call
            integer(c_int) :: result_
        end function

        function coll_start(comm, call, out) bind(c, name="coll_start") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: call
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_prepare(comm, call, out) bind(c, name="coll_prepare") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: call
            type(c_ptr), intent(inout) :: out
            integer(c_int) :: result_
        end function

        function coll_restart(request) bind(c, name="coll_restart") result(result_)
            import
            type(c_ptr), value :: request
            integer(c_int) :: result_
        end function

        function coll_f32_to_f16(value) bind(c, name="coll_f32_to_f16") result(result_)
            import
            real(c_float), value :: value
            integer(c_int16_t) :: result_
        end function

        function coll_f32_to_bf16(value) bind(c, name="coll_f32_to_bf16") result(result_)
            import
            real(c_float), value :: value
            integer(c_int16_t) :: result_
        end function

        function coll_f16_to_f32(bits) bind(c, name="coll_f16_to_f32") result(result_)
            import
            integer(c_int16_t), value :: bits
            real(c_float) :: result_
        end function

        function coll_bf16_to_f32(bits) bind(c, name="coll_bf16_to_f32") result(result_)
            import
            integer(c_int16_t), value :: bits
            real(c_float) :: result_
        end function

        function coll_f32_to_f8e4m3(value) bind(c, name="coll_f32_to_f8e4m3") result(result_)
            import
            real(c_float), value :: value
            integer(c_int8_t) :: result_
        end function

        function coll_f32_to_f8e5m2(value) bind(c, name="coll_f32_to_f8e5m2") result(result_)
            import
            real(c_float), value :: value
            integer(c_int8_t) :: result_
        end function

        function coll_f8e4m3_to_f32(bits) bind(c, name="coll_f8e4m3_to_f32") result(result_)
            import
            integer(c_int8_t), value :: bits
            real(c_float) :: result_
        end function

        function coll_f8e5m2_to_f32(bits) bind(c, name="coll_f8e5m2_to_f32") result(result_)
            import
            integer(c_int8_t), value :: bits
            real(c_float) :: result_
        end function

        function coll_convert(dst, dst_type, src, src_type, count) bind(c, name="coll_convert") result(result_)
            import
            type(c_ptr), value :: dst
            integer(c_int32_t), value :: dst_type
            type(c_ptr), value :: src
            integer(c_int32_t), value :: src_type
            integer(c_size_t), value :: count
            integer(c_int) :: result_
        end function

        function coll_convert_stochastic(dst, dst_type, src, src_type, count, seed, first) bind(c, &
            name="coll_convert_stochastic") result(result_)
            import
            type(c_ptr), value :: dst
            integer(c_int32_t), value :: dst_type
            type(c_ptr), value :: src
            integer(c_int32_t), value :: src_type
            integer(c_size_t), value :: count
            integer(c_int64_t), value :: seed
            integer(c_int64_t), value :: first
            integer(c_int) :: result_
        end function

        function coll_reduce_local(inout, in, count, type, op) bind(c, name="coll_reduce_local") result(result_)
            import
            type(c_ptr), value :: inout
            type(c_ptr), value :: in
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            integer(c_int), value :: op
            integer(c_int) :: result_
        end function

        function coll_explain(comm, call, text, length) bind(c, name="coll_explain") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: call
            type(c_ptr), value :: text
            integer(c_size_t), value :: length
            integer(c_int) :: result_
        end function

        subroutine coll_dump(comm, line, context) bind(c, name="coll_dump")
            import
            type(c_ptr), value :: comm
            type(c_funptr), value :: line
            type(c_ptr), value :: context
        end subroutine

        function coll_link_text(comm, text, length) bind(c, name="coll_link_text") result(result_)
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: text
            integer(c_size_t), value :: length
            integer(c_int) :: result_
        end function

        function coll_overflows(comm) bind(c, name="coll_overflows") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_int64_t) :: result_
        end function

        subroutine coll_traffic(comm, sent, received) bind(c, name="coll_traffic")
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: sent
            type(c_ptr), value :: received
        end subroutine

        function coll_sim_time(comm) bind(c, name="coll_sim_time") result(result_)
            import
            type(c_ptr), value :: comm
            real(c_double) :: result_
        end function

        function coll_arena_begin(memory, length) bind(c, name="coll_arena_begin") result(result_)
            import
            type(c_ptr), value :: memory
            integer(c_size_t), value :: length
            type(c_ptr) :: result_
        end function

        function coll_arena_end(arena) bind(c, name="coll_arena_end") result(result_)
            import
            type(c_ptr), value :: arena
            integer(c_int) :: result_
        end function

        function coll_arena_used(arena) bind(c, name="coll_arena_used") result(result_)
            import
            type(c_ptr), value :: arena
            integer(c_size_t) :: result_
        end function

        function coll_arena_most(arena) bind(c, name="coll_arena_most") result(result_)
            import
            type(c_ptr), value :: arena
            integer(c_size_t) :: result_
        end function

        function coll_alloc(comm, length) bind(c, name="coll_alloc") result(result_)
            import
            type(c_ptr), value :: comm
            integer(c_size_t), value :: length
            type(c_ptr) :: result_
        end function

        subroutine coll_dealloc(comm, at) bind(c, name="coll_dealloc")
            import
            type(c_ptr), value :: comm
            type(c_ptr), value :: at
        end subroutine

        function coll_sum_begin(out, first_leaf, count, type, memory) bind(c, name="coll_sum_begin") result(result_)
            import
            type(c_ptr), intent(inout) :: out
            integer(c_int64_t), value :: first_leaf
            integer(c_size_t), value :: count
            integer(c_int32_t), value :: type
            type(c_ptr), value :: memory
            integer(c_int) :: result_
        end function

        function coll_sum_restart(sum, first_leaf) bind(c, name="coll_sum_restart") result(result_)
            import
            type(c_ptr), value :: sum
            integer(c_int64_t), value :: first_leaf
            integer(c_int) :: result_
        end function

        function coll_sum_place(sum) bind(c, name="coll_sum_place") result(result_)
            import
            type(c_ptr), value :: sum
            type(c_ptr) :: result_
        end function

        function coll_sum_add(sum, leaf) bind(c, name="coll_sum_add") result(result_)
            import
            type(c_ptr), value :: sum
            type(c_ptr), value :: leaf
            integer(c_int) :: result_
        end function

        function coll_sum_end(sum, call) bind(c, name="coll_sum_end") result(result_)
            import
            type(c_ptr), value :: sum
            type(c_ptr), value :: call
            integer(c_int) :: result_
        end function

        subroutine coll_sum_free(sum) bind(c, name="coll_sum_free")
            import
            type(c_ptr), value :: sum
        end subroutine
    end interface
end module
