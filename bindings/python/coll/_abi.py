"""coll.h for ctypes.  Written by bindings/generate.py from its declarations; `make bindings` writes it anew."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint,
                    c_uint8, c_uint16, c_uint64, c_void_p)
from typing import Any, Dict, NamedTuple, Tuple


class Side(NamedTuple):
    """The blocks of a call on one side: which rank has them, what they run over, and where their counts are."""
    who: str
    over: str
    counts: str


class Kind(NamedTuple):
    """A row of core/contract/coll_shape.h."""
    number: int
    send: Side
    recv: Side
    in_place: str
    traits: Tuple[str, ...]


VERSION = (0, 4, 0)

# coll_status
COLL_OK = 0
COLL_PENDING = 1
COLL_ERR_ARGUMENT = -1
COLL_ERR_MEMORY = -2
COLL_ERR_SYSTEM = -3
COLL_ERR_TIMEOUT = -4
COLL_ERR_PEER = -5
COLL_ERR_MISMATCH = -6
COLL_ERR_PROTOCOL = -7
COLL_ERR_DENIED = -8
COLL_ERR_UNSUPPORTED = -9
COLL_ERR_ABORTED = -10
COLL_ERR_FORKED = -11

COLL_I8 = 1
COLL_I16 = 2
COLL_I32 = 3
COLL_I64 = 4
COLL_U8 = 5
COLL_U16 = 6
COLL_U32 = 7
COLL_U64 = 8
COLL_BOOL = 9
COLL_F16 = 10
COLL_BF16 = 11
COLL_F8E4M3 = 12
COLL_F8E5M2 = 13
COLL_F32 = 14
COLL_F64 = 15
COLL_C64 = 16
COLL_C128 = 17
COLL_F32_I32 = 18
COLL_F64_I32 = 19
COLL_F64_I64 = 20
COLL_I32_I32 = 21
COLL_I64_I32 = 22
COLL_I64_I64 = 23
COLL_MXI8 = 24
COLL_MXF8E4M3 = 25
COLL_MXF8E5M2 = 26

# coll_op
COLL_SUM = 0
COLL_PROD = 1
COLL_MIN = 2
COLL_MAX = 3
COLL_AVG = 4
COLL_BAND = 5
COLL_BOR = 6
COLL_BXOR = 7
COLL_LAND = 8
COLL_LOR = 9
COLL_LXOR = 10
COLL_MINLOC = 11
COLL_MAXLOC = 12
COLL_USER = 13

# coll_kind
COLL_BARRIER = 1
COLL_BROADCAST = 2
COLL_REDUCE = 3
COLL_ALLREDUCE = 4
COLL_REDUCE_SCATTER = 5
COLL_REDUCE_SCATTERV = 6
COLL_SCAN = 7
COLL_EXSCAN = 8
COLL_GATHER = 9
COLL_GATHERV = 10
COLL_SCATTER = 11
COLL_SCATTERV = 12
COLL_ALLGATHER = 13
COLL_ALLGATHERV = 14
COLL_ALLTOALL = 15
COLL_ALLTOALLV = 16
COLL_ALLTOALLW = 17
COLL_NEIGHBOR_ALLGATHER = 18
COLL_NEIGHBOR_ALLGATHERV = 19
COLL_NEIGHBOR_ALLTOALL = 20
COLL_NEIGHBOR_ALLTOALLV = 21
COLL_NEIGHBOR_ALLTOALLW = 22
COLL_ALLREDUCE_LIST = 23
COLL_SEND = 24
COLL_RECV = 25
COLL_SENDRECV = 26

COLL_RANK_NONE = -1
COLL_COLOR_NONE = -1
COLL_ANY_SOURCE = -2
COLL_ANY_TAG = -2

# coll_sim_fault_kind
COLL_SIM_KILL = 1
COLL_SIM_STOP = 2
COLL_SIM_CUT = 3
COLL_SIM_LOSE = 4
COLL_SIM_LATE = 5
COLL_SIM_SLOW = 6

COLL_DEFAULT = 0
COLL_ON = 1
COLL_OFF = -1

# coll_log_level
COLL_LOG_NONE = -1
COLL_LOG_ERROR = 1
COLL_LOG_WARN = 2
COLL_LOG_INFO = 3

COLL_DETERMINISTIC = 1
COLL_SATURATE = 2
COLL_REPRODUCIBLE = 4
COLL_STOCHASTIC = 8
COLL_DETECT_OVERFLOW = 16
COLL_ROUND_TWICE = 32

STATUS_TEXTS: Dict[int, str] = {
    COLL_OK: 'done',
    COLL_PENDING: 'not finished yet',
    COLL_ERR_ARGUMENT: 'wrong argument; nothing was sent',
    COLL_ERR_MEMORY: 'out of memory',
    COLL_ERR_SYSTEM: 'a system call failed',
    COLL_ERR_TIMEOUT: 'a rank is alive but late',
    COLL_ERR_PEER: 'a rank is gone or unreachable',
    COLL_ERR_MISMATCH: 'ranks made different calls',
    COLL_ERR_PROTOCOL: 'received bytes that are not ours, or of a different version',
    COLL_ERR_DENIED: 'wrong or missing key',
    COLL_ERR_UNSUPPORTED: 'not available here; nothing was sent',
    COLL_ERR_ABORTED: 'the operation was given up',
    COLL_ERR_FORKED: 'a communicator cannot be used in a forked child',
}

TYPES: Dict[str, int] = {'i8': COLL_I8, 'i16': COLL_I16, 'i32': COLL_I32, 'i64': COLL_I64, 'u8': COLL_U8, 'u16': COLL_U16,
    'u32': COLL_U32, 'u64': COLL_U64, 'bool': COLL_BOOL, 'f16': COLL_F16, 'bf16': COLL_BF16, 'f8e4m3': COLL_F8E4M3, 'f8e5m2':
    COLL_F8E5M2, 'f32': COLL_F32, 'f64': COLL_F64, 'c64': COLL_C64, 'c128': COLL_C128, 'f32_i32': COLL_F32_I32, 'f64_i32':
    COLL_F64_I32, 'f64_i64': COLL_F64_I64, 'i32_i32': COLL_I32_I32, 'i64_i32': COLL_I64_I32, 'i64_i64': COLL_I64_I64, 'mxi8':
    COLL_MXI8, 'mxf8e4m3': COLL_MXF8E4M3, 'mxf8e5m2': COLL_MXF8E5M2}
OPS: Dict[str, int] = {'sum': COLL_SUM, 'prod': COLL_PROD, 'min': COLL_MIN, 'max': COLL_MAX, 'avg': COLL_AVG, 'band':
    COLL_BAND, 'bor': COLL_BOR, 'bxor': COLL_BXOR, 'land': COLL_LAND, 'lor': COLL_LOR, 'lxor': COLL_LXOR, 'minloc':
    COLL_MINLOC, 'maxloc': COLL_MAXLOC}
FLAGS: Dict[str, int] = {'deterministic': COLL_DETERMINISTIC, 'saturate': COLL_SATURATE, 'reproducible': COLL_REPRODUCIBLE,
    'stochastic': COLL_STOCHASTIC, 'detect_overflow': COLL_DETECT_OVERFLOW, 'round_twice': COLL_ROUND_TWICE}

coll_reduce_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_int32, c_void_p)


class coll_sim_fault(Structure):
    _fields_ = [
        ('kind', c_int32),
        ('rank', c_int),
        ('peer', c_int),
        ('number', c_uint64),
        ('time', c_double),
        ('amount', c_double),
    ]


class coll_sim(Structure):
    """The simulated machine."""
    _fields_ = [
        ('latency', c_double),
        ('overhead', c_double),
        ('seconds_per_byte', c_double),
        ('seconds_per_byte_reduced', c_double),
        ('local_latency', c_double),
        ('local_seconds_per_byte', c_double),
        ('ranks_per_host', c_int),
        ('capacity', c_int),
        ('jitter', c_double),
        ('detection', c_double),
        ('seed', c_uint64),
        ('stack', c_size_t),
        ('faults', POINTER(coll_sim_fault)),
        ('fault_count', c_int),
        ('hosts_per_site', c_int),
        ('far_latency', c_double),
        ('far_seconds_per_byte', c_double),
        ('reserved', c_uint64 * 4),
    ]


class coll_tcp(Structure):
    """Options of transport tcp; see Bootstrap and Security in the manual."""
    _fields_ = [
        ('io', c_char_p),
        ('hosts', c_char_p),
        ('network', c_char_p),
        ('ports', c_char_p),
        ('listening', CFUNCTYPE(None, c_void_p, c_char_p)),
        ('listening_context', c_void_p),
        ('key', c_char_p),
        ('security', c_char_p),
        ('lanes', c_int),
        ('share_memory', c_int),
        ('shm_collectives', c_int),
        ('reserved', c_uint64 * 4),
    ]


class coll_allocator(Structure):
    """Allocates all memory of a communicator and of everything made from it: derived and shrunk communicators, requests, and
        temporary memory of coll_init."""
    _fields_ = [
        ('allocate', CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)),
        ('free', CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
        ('context', c_void_p),
    ]


class coll_config(Structure):
    """All optional: zero means the default given for each field."""
    _fields_ = [
        ('transport', c_char_p),
        ('rank', c_int),
        ('size', c_int),
        ('address', c_char_p),
        ('world', c_char_p),
        ('start_timeout_ms', c_int),
        ('liveness_timeout_ms', c_int),
        ('stall_timeout_ms', c_int),
        ('spin_us', c_int),
        ('log_level', c_int32),
        ('log', CFUNCTYPE(None, c_void_p, c_int32, c_char_p)),
        ('log_context', c_void_p),
        ('sim', POINTER(coll_sim)),
        ('tuning_file', c_char_p),
        ('background', c_int),
        ('elastic', c_int),
        ('dump', c_char_p),
        ('tcp', coll_tcp),
        ('allocator', POINTER(coll_allocator)),
        ('site', c_char_p),
        ('mpi', c_char_p),
        ('reserved', c_uint64 * 8),
    ]


class coll_list_item(Structure):
    """One item of a coll_allreduce_list."""
    _fields_ = [
        ('send', c_void_p),
        ('recv', c_void_p),
        ('count', c_size_t),
        ('type', c_int32),
    ]


class coll_call(Structure):
    """what it points to must stay valid until the request is finished (prepared: freed)."""
    _fields_ = [
        ('kind', c_int32),
        ('send', c_void_p),
        ('recv', c_void_p),
        ('count', c_size_t),
        ('send_counts', POINTER(c_size_t)),
        ('send_offsets', POINTER(c_size_t)),
        ('recv_counts', POINTER(c_size_t)),
        ('recv_offsets', POINTER(c_size_t)),
        ('send_types', POINTER(c_int32)),
        ('recv_types', POINTER(c_int32)),
        ('recv_count', c_size_t),
        ('row', c_size_t),
        ('send_stride', c_size_t),
        ('recv_stride', c_size_t),
        ('type', c_int32),
        ('wire', c_int32),
        ('accumulate', c_int32),
        ('op', c_int32),
        ('fn', coll_reduce_fn),
        ('fn_context', c_void_p),
        ('not_commutative', c_bool),
        ('scale', c_double),
        ('flags', c_uint),
        ('seed', c_uint64),
        ('residual', POINTER(c_float)),
        ('list', POINTER(coll_list_item)),
        ('list_count', c_int),
        ('root', c_int),
        ('peer', c_int),
        ('source', c_int),
        ('tag', c_int),
        ('timeout_ms', c_int),
        ('algorithm', c_char_p),
        ('name', c_char_p),
        ('first_leaf', c_int64),
        ('leaves', c_int64),
        ('reserved', c_uint64 * 2),
    ]


PROTOTYPES: Dict[str, Tuple[Any, list]] = {
    'coll_version': (c_int, []),
    'coll_status_text': (c_char_p, [c_int32]),
    'coll_type_size': (c_size_t, [c_int32]),
    'coll_type_name': (c_char_p, [c_int32]),
    'coll_op_name': (c_char_p, [c_int32]),
    'coll_kind_name': (c_char_p, [c_int32]),
    'coll_init': (c_int32, [POINTER(c_void_p), POINTER(coll_config)]),
    'coll_init_threads': (c_int32, [c_int, POINTER(c_void_p), POINTER(coll_config)]),
    'coll_free': (c_int32, [c_void_p]),
    'coll_split': (c_int32, [c_void_p, c_int, c_int, POINTER(c_void_p)]),
    'coll_split_host': (c_int32, [c_void_p, POINTER(c_void_p)]),
    'coll_dup': (c_int32, [c_void_p, POINTER(c_void_p)]),
    'coll_create': (c_int32, [c_void_p, POINTER(c_int), c_int, c_int, POINTER(c_void_p)]),
    'coll_world_rank': (c_int, [c_void_p, c_int]),
    'coll_abort': (c_int32, [c_void_p, c_char_p]),
    'coll_shrink': (c_int32, [c_void_p, POINTER(c_void_p)]),
    'coll_grow': (c_int32, [c_void_p, POINTER(c_void_p)]),
    'coll_replace': (c_int32, [c_void_p, POINTER(c_void_p)]),
    'coll_join': (c_int32, [POINTER(c_void_p), POINTER(coll_config)]),
    'coll_waiting': (c_int, [c_void_p]),
    'coll_former_rank': (c_int, [c_void_p, c_int]),
    'coll_agree': (c_int32, [c_void_p, POINTER(c_uint64)]),
    'coll_failed_ranks': (c_int, [c_void_p, POINTER(c_int), c_int]),
    'coll_neighbors': (c_int32, [c_void_p, POINTER(c_int), c_int, POINTER(c_int), c_int]),
    'coll_rank': (c_int, [c_void_p]),
    'coll_size': (c_int, [c_void_p]),
    'coll_local_rank': (c_int, [c_void_p]),
    'coll_local_size': (c_int, [c_void_p]),
    'coll_error': (c_char_p, [c_void_p]),
    'coll_barrier': (c_int32, [c_void_p]),
    'coll_broadcast': (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int]),
    'coll_reduce': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_int]),
    'coll_allreduce': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32]),
    'coll_allreduce_mixed': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_int32]),
    'coll_allreduce_list': (c_int32, [c_void_p, POINTER(coll_list_item), c_int, c_int32]),
    'coll_reduce_scatter': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32]),
    'coll_reduce_scatterv': (c_int32, [c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int32, c_int32]),
    'coll_scan': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32]),
    'coll_exscan': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32]),
    'coll_gather': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int]),
    'coll_gatherv': (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_int32, c_int]),
    'coll_scatter': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int]),
    'coll_scatterv': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p, c_size_t, c_int32,
        c_int]),
    'coll_allgather': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32]),
    'coll_allgatherv': (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_int32]),
    'coll_alltoall': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32]),
    'coll_alltoallv': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p, POINTER(c_size_t),
        POINTER(c_size_t), c_int32]),
    'coll_alltoallw': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), POINTER(c_int32), c_void_p,
        POINTER(c_size_t), POINTER(c_size_t), POINTER(c_int32)]),
    'coll_neighbor_allgather': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32]),
    'coll_neighbor_allgatherv': (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_size_t), POINTER(c_size_t),
        c_int32]),
    'coll_neighbor_alltoall': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32]),
    'coll_neighbor_alltoallv': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p,
        POINTER(c_size_t), POINTER(c_size_t), c_int32]),
    'coll_neighbor_alltoallw': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), POINTER(c_int32),
        c_void_p, POINTER(c_size_t), POINTER(c_size_t), POINTER(c_int32)]),
    'coll_send': (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int, c_int]),
    'coll_recv': (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int, c_int]),
    'coll_sendrecv': (c_int32, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_size_t, c_int, c_int32, c_int]),
    'coll_ibarrier': (c_int32, [c_void_p, POINTER(c_void_p)]),
    'coll_ibroadcast': (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int, POINTER(c_void_p)]),
    'coll_ireduce': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_int, POINTER(c_void_p)]),
    'coll_iallreduce': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32, POINTER(c_void_p)]),
    'coll_iallreduce_mixed': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_int32,
        POINTER(c_void_p)]),
    'coll_iallreduce_list': (c_int32, [c_void_p, POINTER(coll_list_item), c_int, c_int32, POINTER(c_void_p)]),
    'coll_ireduce_scatter': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32, POINTER(c_void_p)]),
    'coll_ireduce_scatterv': (c_int32, [c_void_p, c_void_p, c_void_p, POINTER(c_size_t), c_int32, c_int32,
        POINTER(c_void_p)]),
    'coll_iscan': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32, POINTER(c_void_p)]),
    'coll_iexscan': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int32, POINTER(c_void_p)]),
    'coll_igather': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int, POINTER(c_void_p)]),
    'coll_igatherv': (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_int32, c_int,
        POINTER(c_void_p)]),
    'coll_iscatter': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, c_int, POINTER(c_void_p)]),
    'coll_iscatterv': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p, c_size_t, c_int32, c_int,
        POINTER(c_void_p)]),
    'coll_iallgather': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, POINTER(c_void_p)]),
    'coll_iallgatherv': (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_int32,
        POINTER(c_void_p)]),
    'coll_ialltoall': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, POINTER(c_void_p)]),
    'coll_ialltoallv': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p, POINTER(c_size_t),
        POINTER(c_size_t), c_int32, POINTER(c_void_p)]),
    'coll_ialltoallw': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), POINTER(c_int32), c_void_p,
        POINTER(c_size_t), POINTER(c_size_t), POINTER(c_int32), POINTER(c_void_p)]),
    'coll_ineighbor_allgather': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, POINTER(c_void_p)]),
    'coll_ineighbor_allgatherv': (c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_size_t), POINTER(c_size_t),
        c_int32, POINTER(c_void_p)]),
    'coll_ineighbor_alltoall': (c_int32, [c_void_p, c_void_p, c_void_p, c_size_t, c_int32, POINTER(c_void_p)]),
    'coll_ineighbor_alltoallv': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), c_void_p,
        POINTER(c_size_t), POINTER(c_size_t), c_int32, POINTER(c_void_p)]),
    'coll_ineighbor_alltoallw': (c_int32, [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_size_t), POINTER(c_int32),
        c_void_p, POINTER(c_size_t), POINTER(c_size_t), POINTER(c_int32), POINTER(c_void_p)]),
    'coll_isend': (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int, c_int, POINTER(c_void_p)]),
    'coll_irecv': (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int, c_int, POINTER(c_void_p)]),
    'coll_isendrecv': (c_int32, [c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_size_t, c_int, c_int32, c_int,
        POINTER(c_void_p)]),
    'coll_test': (c_int32, [c_void_p]),
    'coll_wait': (c_int32, [c_void_p]),
    'coll_wait_all': (c_int32, [c_int, POINTER(c_void_p)]),
    'coll_wait_any': (c_int32, [c_int, POINTER(c_void_p), POINTER(c_int)]),
    'coll_wait_some': (c_int32, [c_int, POINTER(c_void_p), POINTER(c_int), POINTER(c_int)]),
    'coll_test_any': (c_int32, [c_int, POINTER(c_void_p), POINTER(c_int)]),
    'coll_test_all': (c_int32, [c_int, POINTER(c_void_p)]),
    'coll_received': (c_int32, [c_void_p, POINTER(c_int), POINTER(c_int), POINTER(c_size_t)]),
    'coll_request_free': (None, [c_void_p]),
    'coll_progress': (c_int32, [c_void_p]),
    'coll_fd': (c_int, [c_void_p]),
    'coll_run': (c_int32, [c_void_p, POINTER(coll_call)]),
    'coll_start': (c_int32, [c_void_p, POINTER(coll_call), POINTER(c_void_p)]),
    'coll_prepare': (c_int32, [c_void_p, POINTER(coll_call), POINTER(c_void_p)]),
    'coll_restart': (c_int32, [c_void_p]),
    'coll_f32_to_f16': (c_uint16, [c_float]),
    'coll_f32_to_bf16': (c_uint16, [c_float]),
    'coll_f16_to_f32': (c_float, [c_uint16]),
    'coll_bf16_to_f32': (c_float, [c_uint16]),
    'coll_f32_to_f8e4m3': (c_uint8, [c_float]),
    'coll_f32_to_f8e5m2': (c_uint8, [c_float]),
    'coll_f8e4m3_to_f32': (c_float, [c_uint8]),
    'coll_f8e5m2_to_f32': (c_float, [c_uint8]),
    'coll_convert': (c_int32, [c_void_p, c_int32, c_void_p, c_int32, c_size_t]),
    'coll_convert_stochastic': (c_int32, [c_void_p, c_int32, c_void_p, c_int32, c_size_t, c_uint64, c_uint64]),
    'coll_reduce_local': (c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_int32]),
    'coll_explain': (c_int, [c_void_p, POINTER(coll_call), c_char_p, c_size_t]),
    'coll_dump': (None, [c_void_p, CFUNCTYPE(None, c_void_p, c_char_p), c_void_p]),
    'coll_link_text': (c_int, [c_void_p, c_char_p, c_size_t]),
    'coll_overflows': (c_uint64, [c_void_p]),
    'coll_traffic': (None, [c_void_p, POINTER(c_uint64), POINTER(c_uint64)]),
    'coll_sim_time': (c_double, [c_void_p]),
    'coll_arena_begin': (POINTER(coll_allocator), [c_void_p, c_size_t]),
    'coll_arena_end': (c_int32, [POINTER(coll_allocator)]),
    'coll_arena_used': (c_size_t, [POINTER(coll_allocator)]),
    'coll_arena_most': (c_size_t, [POINTER(coll_allocator)]),
    'coll_alloc': (c_void_p, [c_void_p, c_size_t]),
    'coll_dealloc': (None, [c_void_p, c_void_p]),
    'coll_sum_begin': (c_int32, [POINTER(c_void_p), c_int64, c_size_t, c_int32, POINTER(coll_allocator)]),
    'coll_sum_restart': (c_int32, [c_void_p, c_int64]),
    'coll_sum_place': (c_void_p, [c_void_p]),
    'coll_sum_add': (c_int32, [c_void_p, c_void_p]),
    'coll_sum_end': (c_int32, [c_void_p, POINTER(coll_call)]),
    'coll_sum_free': (None, [c_void_p]),
}

KINDS: Dict[str, Kind] = {
    'barrier': Kind(1, Side('none', 'one', 'count'), Side('none', 'one', 'count'), 'never', ()),
    'broadcast': Kind(2, Side('none', 'one', 'count'), Side('all', 'one', 'count'), 'same', ('rooted',)),
    'reduce': Kind(3, Side('all', 'one', 'count'), Side('root', 'one', 'count'), 'same', ('reduces', 'rooted')),
    'allreduce': Kind(4, Side('all', 'one', 'count'), Side('all', 'one', 'count'), 'same', ('reduces',)),
    'reduce_scatter': Kind(5, Side('all', 'ranks', 'count'), Side('all', 'one', 'count'), 'start', ('reduces',)),
    'reduce_scatterv': Kind(6, Side('all', 'ranks', 'recv_list'), Side('all', 'one', 'own_recv'), 'start', ('reduces',
        'summed')),
    'scan': Kind(7, Side('all', 'one', 'count'), Side('all', 'one', 'count'), 'same', ('reduces',)),
    'exscan': Kind(8, Side('all', 'one', 'count'), Side('later', 'one', 'count'), 'same', ('reduces',)),
    'gather': Kind(9, Side('all', 'one', 'count'), Side('root', 'ranks', 'count'), 'block', ('rooted',)),
    'gatherv': Kind(10, Side('all', 'one', 'count'), Side('root', 'ranks', 'list'), 'block', ('rooted', 'pairwise')),
    'scatter': Kind(11, Side('root', 'ranks', 'count'), Side('all', 'one', 'count'), 'block', ('rooted',)),
    'scatterv': Kind(12, Side('root', 'ranks', 'list'), Side('all', 'one', 'recv_count'), 'block', ('rooted', 'pairwise')),
    'allgather': Kind(13, Side('all', 'one', 'count'), Side('all', 'ranks', 'count'), 'block', ()),
    'allgatherv': Kind(14, Side('all', 'one', 'count'), Side('all', 'ranks', 'list'), 'block', ('summed',)),
    'alltoall': Kind(15, Side('all', 'ranks', 'count'), Side('all', 'ranks', 'count'), 'aside', ()),
    'alltoallv': Kind(16, Side('all', 'ranks', 'list'), Side('all', 'ranks', 'list'), 'aside', ('pairwise',)),
    'alltoallw': Kind(17, Side('all', 'ranks', 'typed'), Side('all', 'ranks', 'typed'), 'aside', ('pairwise',)),
    'neighbor_allgather': Kind(18, Side('all', 'one', 'count'), Side('all', 'sources', 'count'), 'never', ('neighbors',)),
    'neighbor_allgatherv': Kind(19, Side('all', 'one', 'count'), Side('all', 'sources', 'list'), 'never', ('neighbors',
        'pairwise')),
    'neighbor_alltoall': Kind(20, Side('all', 'destinations', 'count'), Side('all', 'sources', 'count'), 'never',
        ('neighbors',)),
    'neighbor_alltoallv': Kind(21, Side('all', 'destinations', 'list'), Side('all', 'sources', 'list'), 'never', ('neighbors',
        'pairwise')),
    'neighbor_alltoallw': Kind(22, Side('all', 'destinations', 'typed'), Side('all', 'sources', 'typed'), 'never',
        ('neighbors', 'pairwise')),
    'allreduce_list': Kind(23, Side('none', 'one', 'count'), Side('none', 'one', 'count'), 'never', ('reduces',)),
    'send': Kind(24, Side('all', 'one', 'count'), Side('none', 'one', 'count'), 'never', ('message',)),
    'recv': Kind(25, Side('none', 'one', 'count'), Side('all', 'one', 'count'), 'never', ('message',)),
    'sendrecv': Kind(26, Side('all', 'one', 'count'), Side('all', 'one', 'recv_count'), 'never', ('message',)),
}

def bind(library: Any) -> None:
    """Give every function its types.  AttributeError: the library lacks one."""
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
