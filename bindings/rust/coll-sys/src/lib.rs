//! coll.h for Rust: its declarations, and nothing else.  Written by bindings/generate.py; `make bindings`
//! writes it anew.
//!
//! What a thread may do: one at a time uses a communicator and its requests, and it need not always be the same
//! one; coll_abort may come from any.  So a wrapper is Send and not Sync.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint, c_void};

pub const COLL_VERSION_MAJOR: c_int = 0;
pub const COLL_VERSION_MINOR: c_int = 4;
pub const COLL_VERSION_PATCH: c_int = 0;
/// Numbered from 1: 0 in a descriptor means "default"
pub type coll_type = i32;

/// 0 is done, above is not yet, below is an error
pub type coll_status = i32;
/// done
pub const COLL_OK: coll_status = 0;
/// not finished yet
pub const COLL_PENDING: coll_status = 1;
/// wrong argument; nothing was sent
pub const COLL_ERR_ARGUMENT: coll_status = -1;
/// out of memory
pub const COLL_ERR_MEMORY: coll_status = -2;
/// a system call failed
pub const COLL_ERR_SYSTEM: coll_status = -3;
/// a rank is alive but late
pub const COLL_ERR_TIMEOUT: coll_status = -4;
/// a rank is gone or unreachable
pub const COLL_ERR_PEER: coll_status = -5;
/// ranks made different calls
pub const COLL_ERR_MISMATCH: coll_status = -6;
/// received bytes that are not ours, or of a different version
pub const COLL_ERR_PROTOCOL: coll_status = -7;
/// wrong or missing key
pub const COLL_ERR_DENIED: coll_status = -8;
/// not available here; nothing was sent
pub const COLL_ERR_UNSUPPORTED: coll_status = -9;
/// the operation was given up
pub const COLL_ERR_ABORTED: coll_status = -10;
/// a communicator cannot be used in a forked child
pub const COLL_ERR_FORKED: coll_status = -11;

pub const COLL_I8: c_int = 1;
pub const COLL_I16: c_int = 2;
pub const COLL_I32: c_int = 3;
pub const COLL_I64: c_int = 4;
pub const COLL_U8: c_int = 5;
pub const COLL_U16: c_int = 6;
pub const COLL_U32: c_int = 7;
pub const COLL_U64: c_int = 8;
/// one byte; every value but 0 is true
pub const COLL_BOOL: c_int = 9;
/// IEEE 754 binary16
pub const COLL_F16: c_int = 10;
/// the upper half of a binary32
pub const COLL_BF16: c_int = 11;
pub const COLL_F8E4M3: c_int = 12;
/// OCP 8-bit floats; e4m3 has no infinity
pub const COLL_F8E5M2: c_int = 13;
pub const COLL_F32: c_int = 14;
pub const COLL_F64: c_int = 15;
pub const COLL_C64: c_int = 16;
/// complex: two f32, two f64
pub const COLL_C128: c_int = 17;
pub const COLL_F32_I32: c_int = 18;
pub const COLL_F64_I32: c_int = 19;
/// (value, index), laid out as the C struct of the two
pub const COLL_F64_I64: c_int = 20;
pub const COLL_I32_I32: c_int = 21;
pub const COLL_I64_I32: c_int = 22;
pub const COLL_I64_I64: c_int = 23;
pub const COLL_MXI8: c_int = 24;
pub const COLL_MXF8E4M3: c_int = 25;
/// for `wire` only: OCP microscaling, blocks of 32 elements of 8 bits with a power of two for all of them, 33 bytes; coll_type_size is 0
pub const COLL_MXF8E5M2: c_int = 26;

pub type coll_op = i32;
pub const COLL_SUM: coll_op = 0;
pub const COLL_PROD: coll_op = 1;
pub const COLL_MIN: coll_op = 2;
pub const COLL_MAX: coll_op = 3;
pub const COLL_AVG: coll_op = 4;
pub const COLL_BAND: coll_op = 5;
pub const COLL_BOR: coll_op = 6;
pub const COLL_BXOR: coll_op = 7;
pub const COLL_LAND: coll_op = 8;
pub const COLL_LOR: coll_op = 9;
pub const COLL_LXOR: coll_op = 10;
pub const COLL_MINLOC: coll_op = 11;
pub const COLL_MAXLOC: coll_op = 12;
pub const COLL_USER: coll_op = 13;

pub type coll_kind = i32;
pub const COLL_BARRIER: coll_kind = 1;
pub const COLL_BROADCAST: coll_kind = 2;
pub const COLL_REDUCE: coll_kind = 3;
pub const COLL_ALLREDUCE: coll_kind = 4;
pub const COLL_REDUCE_SCATTER: coll_kind = 5;
pub const COLL_REDUCE_SCATTERV: coll_kind = 6;
pub const COLL_SCAN: coll_kind = 7;
pub const COLL_EXSCAN: coll_kind = 8;
pub const COLL_GATHER: coll_kind = 9;
pub const COLL_GATHERV: coll_kind = 10;
pub const COLL_SCATTER: coll_kind = 11;
pub const COLL_SCATTERV: coll_kind = 12;
pub const COLL_ALLGATHER: coll_kind = 13;
pub const COLL_ALLGATHERV: coll_kind = 14;
pub const COLL_ALLTOALL: coll_kind = 15;
pub const COLL_ALLTOALLV: coll_kind = 16;
pub const COLL_ALLTOALLW: coll_kind = 17;
pub const COLL_NEIGHBOR_ALLGATHER: coll_kind = 18;
pub const COLL_NEIGHBOR_ALLGATHERV: coll_kind = 19;
pub const COLL_NEIGHBOR_ALLTOALL: coll_kind = 20;
pub const COLL_NEIGHBOR_ALLTOALLV: coll_kind = 21;
pub const COLL_NEIGHBOR_ALLTOALLW: coll_kind = 22;
pub const COLL_ALLREDUCE_LIST: coll_kind = 23;
pub const COLL_SEND: coll_kind = 24;
pub const COLL_RECV: coll_kind = 25;
pub const COLL_SENDRECV: coll_kind = 26;

pub const COLL_RANK_NONE: c_int = -1;
pub const COLL_COLOR_NONE: c_int = -1;
pub const COLL_ANY_SOURCE: c_int = -2;
pub const COLL_ANY_TAG: c_int = -2;

/// A fault of a simulated machine
pub type coll_sim_fault_kind = i32;
/// `rank` ends, at its call `number` of the transport, or at `time`
pub const COLL_SIM_KILL: coll_sim_fault_kind = 1;
/// `rank` stops and sends nothing more
pub const COLL_SIM_STOP: coll_sim_fault_kind = 2;
/// from `time` on, ranks rank..peer are disconnected from the others
pub const COLL_SIM_CUT: coll_sim_fault_kind = 3;
/// message `number` (0: each) from rank to peer (-1: to all) is lost; later ones are delayed
pub const COLL_SIM_LOSE: coll_sim_fault_kind = 4;
/// it arrives `amount` seconds late
pub const COLL_SIM_LATE: coll_sim_fault_kind = 5;
/// from `time` on, the network of the rank's host has `amount` of its rate; 0.5: half
pub const COLL_SIM_SLOW: coll_sim_fault_kind = 6;

pub const COLL_DEFAULT: c_int = 0;
pub const COLL_ON: c_int = 1;
pub const COLL_OFF: c_int = -1;

/// What is logged: nothing; failures to make a communicator; also late and refused ranks; also choices and results
pub type coll_log_level = i32;
pub const COLL_LOG_NONE: coll_log_level = -1;
pub const COLL_LOG_ERROR: coll_log_level = 1;
pub const COLL_LOG_WARN: coll_log_level = 2;
pub const COLL_LOG_INFO: coll_log_level = 3;

/// the same bits for every message size, algorithm and transport
pub const COLL_DETERMINISTIC: c_int = 1;
/// results of f16 and the 8-bit floats are finite, or NaN
pub const COLL_SATURATE: c_int = 2;
/// also for every order of the ranks: inputs are rounded once, by 2^-42 of the largest at most; then sums of floats are exact (see Numbers)
pub const COLL_REPRODUCIBLE: c_int = 4;
/// rounding to 16 bits and fewer goes up or down at random; see seed
pub const COLL_STOCHASTIC: c_int = 8;
/// count calls whose result has an infinity or a NaN: coll_overflows
pub const COLL_DETECT_OVERFLOW: c_int = 16;
/// if hosts have several ranks, their sums may be rounded before they are sent between hosts
pub const COLL_ROUND_TWICE: c_int = 32;

#[repr(C)]
pub struct coll_comm {
    private: [u8; 0],
}

#[repr(C)]
pub struct coll_request {
    private: [u8; 0],
}

#[repr(C)]
pub struct coll_sum {
    private: [u8; 0],
}

/// A user-defined operation: inout[i] = in[i] op inout[i]
pub type coll_reduce_fn = Option<unsafe extern "C" fn(r#in: *const c_void, inout: *mut c_void, count: usize, r#type: coll_type, context: *mut c_void)>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct coll_sim_fault {
    pub kind: coll_sim_fault_kind,
    pub rank: c_int,
    pub peer: c_int,
    /// counted from 1
    pub number: u64,
    /// s
    pub time: f64,
    /// s
    pub amount: f64,
}

/// The simulated machine
#[repr(C)]
#[derive(Clone, Copy)]
pub struct coll_sim {
    /// s from sending to arrival; 12 us
    pub latency: f64,
    /// s between two messages that a rank sends, or receives; 4 us
    pub overhead: f64,
    /// on the wire; 0.5 ns
    pub seconds_per_byte: f64,
    /// in the arithmetic; 0.1 ns
    pub seconds_per_byte_reduced: f64,
    /// between ranks of one host; 0.5 us, 0.1 ns
    pub local_latency: f64,
    /// between ranks of one host; 0.5 us, 0.1 ns
    pub local_seconds_per_byte: f64,
    /// ranks that share a NIC; 1
    pub ranks_per_host: c_int,
    /// messages between two ranks that may wait for their receive; 0: any number; -1: none: a program that needs buffering by coll_send deadlocks
    pub capacity: c_int,
    /// s that a message may take longer, at random; none
    pub jitter: f64,
    /// s until a killed rank is detected; 1 ms
    pub detection: f64,
    /// for jitter and the order of simultaneous events; 1
    pub seed: u64,
    /// bytes of a rank's stack under coll_spawn; 256 KiB, 64 KiB if there are more than 1024 ranks
    pub stack: usize,
    /// none
    pub faults: *const coll_sim_fault,
    pub fault_count: c_int,
    /// hosts that share one link to other sites; 0: one site
    pub hosts_per_site: c_int,
    /// between sites; as between hosts
    pub far_latency: f64,
    /// between sites; as between hosts
    pub far_seconds_per_byte: f64,
    /// must be 0
    pub reserved: [u64; 4],
}

/// Options of transport tcp; see Bootstrap and Security in the manual
#[repr(C)]
#[derive(Clone, Copy)]
pub struct coll_tcp {
    /// "auto", "uring" or "poll"; default: COLL_IO, or auto
    pub io: *const c_char,
    /// "hostA:4000,hostB:4000,...", where each rank listens, in order; replaces `address`; default: COLL_HOSTS, or none
    pub hosts: *const c_char,
    /// which of this host's addresses to use: an interface ("eth1", "ib*", "^docker0,lo"), an address or a subnet ("10.1.0.0/16"); default: COLL_NETWORK, or the route to rank 0
    pub network: *const c_char,
    /// ports to listen at, "5000-5099"; default: COLL_PORTS, or any free port
    pub ports: *const c_char,
    /// on rank 0, if `address` has port 0: gets the address, which the program must pass to the other ranks
    pub listening: Option<unsafe extern "C" fn(context: *mut c_void, address: *const c_char)>,
    pub listening_context: *mut c_void,
    /// a secret of 16 bytes or more, the same on all ranks; default: COLL_KEY, or the first line of the file COLL_KEY_FILE, or none
    pub key: *const c_char,
    /// "key": authentication; "tls": also encryption (requires COLL_WITH_OPENSSL); "open": no key, public addresses allowed; "key+check", "open+check", "check": also checksums; default: COLL_SECURITY, or tls if there is a key and OpenSSL, else key
    pub security: *const c_char,
    /// connections to each peer, 1 to 16; default: COLL_LANES, or 1
    pub lanes: c_int,
    /// COLL_OFF: processes of one host use TCP, not shared memory; default: COLL_SHARE, or COLL_ON
    pub share_memory: c_int,
    /// COLL_OFF: they use shared memory for messages only, not for whole collectives; default: COLL_SHM_COLLECTIVES, or COLL_ON
    pub shm_collectives: c_int,
    /// must be 0
    pub reserved: [u64; 4],
}

/// Allocates all memory of a communicator and of everything made from it: derived and shrunk communicators, requests, and temporary memory of coll_init
#[repr(C)]
#[derive(Clone, Copy)]
pub struct coll_allocator {
    /// alignment: a power of two; NULL: no memory
    pub allocate: Option<unsafe extern "C" fn(context: *mut c_void, length: usize, alignment: usize) -> *mut c_void>,
    /// length: as allocated; `at` is never NULL
    pub free: Option<unsafe extern "C" fn(context: *mut c_void, at: *mut c_void, length: usize)>,
    pub context: *mut c_void,
}

/// All optional: zero means the default given for each field
#[repr(C)]
#[derive(Clone, Copy)]
pub struct coll_config {
    /// "tcp", "threads", "sim" or "mpi"; default: COLL_TRANSPORT, or tcp for coll_init
    pub transport: *const c_char,
    /// size > 0: this rank of so many; default: COLL_RANK and COLL_SIZE, or the launcher's, or 0 of 1. A size of 1 needs no network and never fails
    pub rank: c_int,
    /// size > 0: this rank of so many; default: COLL_RANK and COLL_SIZE, or the launcher's, or 0 of 1. A size of 1 needs no network and never fails
    pub size: c_int,
    /// where rank 0 listens, "host:port" or "file:PATH" (see Bootstrap); default: COLL_ADDR, or what the launcher says
    pub address: *const c_char,
    /// separates jobs that use one address; default: COLL_WORLD, or ""
    pub world: *const c_char,
    /// until all ranks have joined; -1: wait for ever; default: COLL_START_TIMEOUT_MS, or 60 s
    pub start_timeout_ms: c_int,
    /// a process that sends no heartbeat for this time is dead; -1: never; default: COLL_LIVENESS_TIMEOUT_MS, or 5 s
    pub liveness_timeout_ms: c_int,
    /// an operation that waits longer fails; -1: never; default: COLL_STALL_TIMEOUT_MS, or never
    pub stall_timeout_ms: c_int,
    /// busy waiting before sleeping; -1: none; default: COLL_SPIN_US, or 50 us, 10 us if the host has more ranks than processors, and none while other programs use the processor of a rank
    pub spin_us: c_int,
    /// default: COLL_DEBUG, or COLL_LOG_WARN
    pub log_level: coll_log_level,
    /// default: to stderr
    pub log: Option<unsafe extern "C" fn(context: *mut c_void, level: coll_log_level, line: *const c_char)>,
    /// passed to log
    pub log_context: *mut c_void,
    /// the machine of transport "sim"; default: COLL_SIM, or that of coll_sim
    pub sim: *const coll_sim,
    /// the numbers of the cost model, read by rank 0 (see Tuning); default: COLL_TUNING, or none
    pub tuning_file: *const c_char,
    /// COLL_ON: a thread of the library progresses operations while the program computes (see Waiting); default: COLL_BACKGROUND, or COLL_ON unless liveness_timeout_ms is -1
    pub background: c_int,
    /// how many processes may wait to join (coll_grow), at most 256; default: COLL_ELASTIC, or none
    pub elastic: c_int,
    /// a directory to which this rank writes its last operations if the communicator fails (coll-RANK.json); default: COLL_DUMP, or none
    pub dump: *const c_char,
    /// options of transport tcp
    pub tcp: coll_tcp,
    /// for all memory (see Memory); default: malloc
    pub allocator: *const coll_allocator,
    /// the site of this rank's host: a rack, a switch, a data center (see Hosts); default: COLL_SITE, or ""
    pub site: *const c_char,
    /// transport mpi: "auto", "native", "messages" or "blocking" (see MPI in the manual), the same on all ranks; default: COLL_MPI, or auto
    pub mpi: *const c_char,
    /// must be 0
    pub reserved: [u64; 8],
}

/// One item of a coll_allreduce_list
#[repr(C)]
#[derive(Clone, Copy)]
pub struct coll_list_item {
    pub send: *const c_void,
    pub recv: *mut c_void,
    pub count: usize,
    pub r#type: coll_type,
}

/// what it points to must stay valid until the request is finished (prepared: freed)
#[repr(C)]
#[derive(Clone, Copy)]
pub struct coll_call {
    /// COLL_ALLREDUCE, ...
    pub kind: coll_kind,
    pub send: *const c_void,
    /// broadcast: the buffer
    pub recv: *mut c_void,
    /// elements; of one block if there are several
    pub count: usize,
    /// v and w; reduce_scatterv: recv_counts
    pub send_counts: *const usize,
    /// v and w; reduce_scatterv: recv_counts
    pub send_offsets: *const usize,
    /// v and w; reduce_scatterv: recv_counts
    pub recv_counts: *const usize,
    /// v and w; reduce_scatterv: recv_counts
    pub recv_offsets: *const usize,
    /// w, whose offsets are in bytes
    pub send_types: *const coll_type,
    /// w, whose offsets are in bytes
    pub recv_types: *const coll_type,
    /// sendrecv: the room; scatterv: what this rank expects
    pub recv_count: usize,
    /// elements in a row of a block (see Matrices); 0: the block is contiguous
    pub row: usize,
    /// elements from one row to the next in that buffer; 0: rows are adjacent
    pub send_stride: usize,
    /// elements from one row to the next in that buffer; 0: rows are adjacent
    pub recv_stride: usize,
    /// of the buffers
    pub r#type: coll_type,
    /// of the messages of a reducing call; 0 = type
    pub wire: coll_type,
    /// of sums; 0 = f32 for floats of 8 and 16 bits, else type
    pub accumulate: coll_type,
    pub op: coll_op,
    /// COLL_USER
    pub r#fn: coll_reduce_fn,
    pub fn_context: *mut c_void,
    /// COLL_USER: ranks must be combined in their order
    pub not_commutative: bool,
    /// floats: multiplies the sum before it is rounded; 0 = 1
    pub scale: f64,
    /// COLL_DETERMINISTIC, ...
    pub flags: c_uint,
    /// COLL_STOCHASTIC: the same seed gives the same random numbers; equal on all ranks
    pub seed: u64,
    /// error feedback if the wire has fewer bits: as long as send, added to the input, and replaced by the part that the wire cannot represent; NULL = none
    pub residual: *mut f32,
    /// allreduce_list
    pub list: *const coll_list_item,
    pub list_count: c_int,
    /// of broadcast, reduce, gather and scatter
    pub root: c_int,
    /// send, sendrecv: the destination; recv: the source
    pub peer: c_int,
    /// sendrecv: the rank to receive from
    pub source: c_int,
    /// of messages
    pub tag: c_int,
    /// 0 = the communicator's stall_timeout_ms; -1: never
    pub timeout_ms: c_int,
    /// an algorithm by name, with its radix or number of blocks: "circulant:4" (see coll_explain); NULL = COLL_ALGORITHM, or the library's choice. Equal on all ranks
    pub algorithm: *const c_char,
    /// appears in errors, e.g. "gradient of layer 3"
    pub name: *const c_char,
    /// number of this rank's first leaf, counted over all ranks (see Leaves)
    pub first_leaf: i64,
    /// how many this rank has: send has the nodes of this run; -1: none; 0: a call without leaves
    pub leaves: i64,
    /// must be 0
    pub reserved: [u64; 2],
}

extern "C" {
    /// Return the COLL_VERSION of the library
    pub fn coll_version() -> c_int;
    /// Return the fixed text of a status: "a rank is gone or unreachable"
    pub fn coll_status_text(status: coll_status) -> *const c_char;
    /// bytes of an element; 0 for an unknown type
    pub fn coll_type_size(r#type: coll_type) -> usize;
    /// "f32"; "?" for an unknown one
    pub fn coll_type_name(r#type: coll_type) -> *const c_char;
    /// "sum"
    pub fn coll_op_name(op: coll_op) -> *const c_char;
    /// "allreduce"
    pub fn coll_kind_name(kind: coll_kind) -> *const c_char;
    /// Make this process a rank of a job, and return its communicator
    pub fn coll_init(out: *mut *mut coll_comm, config: *const coll_config) -> coll_status;
    /// Make `count` ranks for threads of this process
    pub fn coll_init_threads(count: c_int, out: *mut *mut coll_comm, config: *const coll_config) -> coll_status;
    /// Free a communicator of this rank
    pub fn coll_free(comm: *mut coll_comm) -> coll_status;
    /// Divide the ranks of `comm` into communicators, one for each color
    pub fn coll_split(comm: *mut coll_comm, color: c_int, key: c_int, out: *mut *mut coll_comm) -> coll_status;
    /// Make a communicator of the ranks that share memory, or at least the host, with this one
    pub fn coll_split_host(comm: *mut coll_comm, out: *mut *mut coll_comm) -> coll_status;
    /// Make a communicator of the same ranks
    pub fn coll_dup(comm: *mut coll_comm, out: *mut *mut coll_comm) -> coll_status;
    /// Make a communicator of the given `count` ranks of `comm`, in that order
    pub fn coll_create(
        comm: *mut coll_comm, ranks: *const c_int, count: c_int, tag: c_int, out: *mut *mut coll_comm,
    ) -> coll_status;
    /// Return the rank that a rank of `comm` has in the communicator of coll_init
    pub fn coll_world_rank(comm: *const coll_comm, rank: c_int) -> c_int;
    /// End a communicator on every rank, with COLL_ERR_ABORTED and this sentence
    pub fn coll_abort(comm: *mut coll_comm, why: *const c_char) -> coll_status;
    /// Make a communicator of the ranks that are left after a failure, in the order of `comm`
    pub fn coll_shrink(comm: *mut coll_comm, out: *mut *mut coll_comm) -> coll_status;
    /// Take the processes that wait into a new communicator, behind the ranks of `comm`, which keep their order
    pub fn coll_grow(comm: *mut coll_comm, out: *mut *mut coll_comm) -> coll_status;
    /// coll_shrink, and processes that wait take the places of the failed ranks, of rank 0 too
    pub fn coll_replace(comm: *mut coll_comm, out: *mut *mut coll_comm) -> coll_status;
    /// Join a job, and wait until it takes this process, at most for start_timeout_ms
    pub fn coll_join(out: *mut *mut coll_comm, config: *const coll_config) -> coll_status;
    /// Return how many processes wait, at rank 0; 0 at other ranks
    pub fn coll_waiting(comm: *const coll_comm) -> c_int;
    /// Return the rank that a rank of `comm`, a communicator of coll_shrink, coll_grow or coll_replace, had in the one before
    pub fn coll_former_rank(comm: *const coll_comm, rank: c_int) -> c_int;
    /// Agree on the bitwise AND of the flags of all ranks that have not failed, and on which ones have failed: *flags and, until the next call, coll_failed_ranks are the same on all ranks that get COLL_OK
    pub fn coll_agree(comm: *mut coll_comm, flags: *mut u64) -> coll_status;
    /// Return how many ranks of `comm` are known to have failed, and write the first `capacity` of them
    pub fn coll_failed_ranks(comm: *const coll_comm, ranks: *mut c_int, capacity: c_int) -> c_int;
    /// Set the graph of the neighbor calls of `comm`: the ranks that this rank receives from and sends to
    pub fn coll_neighbors(
        comm: *mut coll_comm, sources: *const c_int, source_count: c_int, destinations: *const c_int,
        destination_count: c_int,
    ) -> coll_status;
    /// Return the rank of this process or thread, or the number of ranks
    pub fn coll_rank(comm: *const coll_comm) -> c_int;
    /// Return the rank of this process or thread, or the number of ranks
    pub fn coll_size(comm: *const coll_comm) -> c_int;
    /// the rank among those of coll_init on this host
    pub fn coll_local_rank(comm: *const coll_comm) -> c_int;
    /// the number of ranks of coll_init on this host
    pub fn coll_local_size(comm: *const coll_comm) -> c_int;
    /// Return the last error of a communicator as a sentence, "" if there was none
    pub fn coll_error(comm: *const coll_comm) -> *const c_char;
    /// Wait until every rank has called it
    pub fn coll_barrier(comm: *mut coll_comm) -> coll_status;
    /// Copy `count` elements of the root to every rank
    pub fn coll_broadcast(
        comm: *mut coll_comm, buffer: *mut c_void, count: usize, r#type: coll_type, root: c_int,
    ) -> coll_status;
    /// Combine the elements of all ranks on the root
    pub fn coll_reduce(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, op: coll_op,
        root: c_int,
    ) -> coll_status;
    /// Combine the elements of all ranks on every rank, with identical bits
    pub fn coll_allreduce(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, op: coll_op,
    ) -> coll_status;
    /// Combine the elements of all ranks on every rank, with messages of another type
    pub fn coll_allreduce_mixed(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, wire: coll_type,
        op: coll_op,
    ) -> coll_status;
    /// Combine each of `count` buffers of all ranks on every rank
    pub fn coll_allreduce_list(comm: *mut coll_comm, list: *const coll_list_item, count: c_int, op: coll_op) -> coll_status;
    /// Combine the elements of all ranks, and leave block r of the result on rank r
    pub fn coll_reduce_scatter(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, recv_count: usize, r#type: coll_type, op: coll_op,
    ) -> coll_status;
    /// Combine the elements of all ranks, and leave block r of the result on rank r
    pub fn coll_reduce_scatterv(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, counts: *const usize, r#type: coll_type,
        op: coll_op,
    ) -> coll_status;
    /// Combine the elements of the ranks up to this one
    pub fn coll_scan(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, op: coll_op,
    ) -> coll_status;
    /// Combine the elements of the ranks below this one
    pub fn coll_exscan(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, op: coll_op,
    ) -> coll_status;
    /// Collect the elements of all ranks on the root, in the order of the ranks
    pub fn coll_gather(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, root: c_int,
    ) -> coll_status;
    /// Collect the elements of all ranks on the root, in the order of the ranks
    pub fn coll_gatherv(
        comm: *mut coll_comm, send: *const c_void, send_count: usize, recv: *mut c_void, counts: *const usize,
        offsets: *const usize, r#type: coll_type, root: c_int,
    ) -> coll_status;
    /// Distribute blocks of the root's send: block r goes to recv of rank r
    pub fn coll_scatter(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, root: c_int,
    ) -> coll_status;
    /// Distribute blocks of the root's send: block r goes to recv of rank r
    pub fn coll_scatterv(
        comm: *mut coll_comm, send: *const c_void, counts: *const usize, offsets: *const usize, recv: *mut c_void,
        recv_count: usize, r#type: coll_type, root: c_int,
    ) -> coll_status;
    /// Collect the elements of all ranks on every rank, in the order of the ranks
    pub fn coll_allgather(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type,
    ) -> coll_status;
    /// Collect the elements of all ranks on every rank, in the order of the ranks
    pub fn coll_allgatherv(
        comm: *mut coll_comm, send: *const c_void, send_count: usize, recv: *mut c_void, counts: *const usize,
        offsets: *const usize, r#type: coll_type,
    ) -> coll_status;
    /// Exchange blocks: block r of send goes to rank r, and block r of recv comes from rank r
    pub fn coll_alltoall(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type,
    ) -> coll_status;
    /// Exchange blocks: block r of send goes to rank r, and block r of recv comes from rank r
    pub fn coll_alltoallv(
        comm: *mut coll_comm, send: *const c_void, send_counts: *const usize, send_offsets: *const usize,
        recv: *mut c_void, recv_counts: *const usize, recv_offsets: *const usize, r#type: coll_type,
    ) -> coll_status;
    /// Exchange blocks: block r of send goes to rank r, and block r of recv comes from rank r
    pub fn coll_alltoallw(
        comm: *mut coll_comm, send: *const c_void, send_counts: *const usize, send_bytes: *const usize,
        send_types: *const coll_type, recv: *mut c_void, recv_counts: *const usize, recv_bytes: *const usize,
        recv_types: *const coll_type,
    ) -> coll_status;
    /// Exchange blocks with the neighbors that coll_neighbors has set
    pub fn coll_neighbor_allgather(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type,
    ) -> coll_status;
    /// Exchange blocks with the neighbors that coll_neighbors has set
    pub fn coll_neighbor_allgatherv(
        comm: *mut coll_comm, send: *const c_void, send_count: usize, recv: *mut c_void, counts: *const usize,
        offsets: *const usize, r#type: coll_type,
    ) -> coll_status;
    /// Exchange blocks with the neighbors that coll_neighbors has set
    pub fn coll_neighbor_alltoall(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type,
    ) -> coll_status;
    /// Exchange blocks with the neighbors that coll_neighbors has set
    pub fn coll_neighbor_alltoallv(
        comm: *mut coll_comm, send: *const c_void, send_counts: *const usize, send_offsets: *const usize,
        recv: *mut c_void, recv_counts: *const usize, recv_offsets: *const usize, r#type: coll_type,
    ) -> coll_status;
    /// Exchange blocks with the neighbors that coll_neighbors has set
    pub fn coll_neighbor_alltoallw(
        comm: *mut coll_comm, send: *const c_void, send_counts: *const usize, send_bytes: *const usize,
        send_types: *const coll_type, recv: *mut c_void, recv_counts: *const usize, recv_bytes: *const usize,
        recv_types: *const coll_type,
    ) -> coll_status;
    /// Send a message to one rank
    pub fn coll_send(
        comm: *mut coll_comm, buffer: *const c_void, count: usize, r#type: coll_type, peer: c_int, tag: c_int,
    ) -> coll_status;
    /// Receive a message
    pub fn coll_recv(
        comm: *mut coll_comm, buffer: *mut c_void, count: usize, r#type: coll_type, peer: c_int, tag: c_int,
    ) -> coll_status;
    /// Send to dest and receive from source at the same time, without deadlock in any pattern
    pub fn coll_sendrecv(
        comm: *mut coll_comm, send: *const c_void, send_count: usize, dest: c_int, recv: *mut c_void, recv_count: usize,
        source: c_int, r#type: coll_type, tag: c_int,
    ) -> coll_status;
    /// coll_barrier that does not wait
    pub fn coll_ibarrier(comm: *mut coll_comm, out: *mut *mut coll_request) -> coll_status;
    /// coll_broadcast that does not wait
    pub fn coll_ibroadcast(
        comm: *mut coll_comm, buffer: *mut c_void, count: usize, r#type: coll_type, root: c_int,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_reduce that does not wait
    pub fn coll_ireduce(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, op: coll_op,
        root: c_int, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_allreduce that does not wait
    pub fn coll_iallreduce(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, op: coll_op,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_allreduce_mixed that does not wait
    pub fn coll_iallreduce_mixed(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, wire: coll_type,
        op: coll_op, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_allreduce_list that does not wait
    pub fn coll_iallreduce_list(
        comm: *mut coll_comm, list: *const coll_list_item, count: c_int, op: coll_op, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_reduce_scatter that does not wait
    pub fn coll_ireduce_scatter(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, recv_count: usize, r#type: coll_type, op: coll_op,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_reduce_scatterv that does not wait
    pub fn coll_ireduce_scatterv(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, counts: *const usize, r#type: coll_type,
        op: coll_op, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_scan that does not wait
    pub fn coll_iscan(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, op: coll_op,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_exscan that does not wait
    pub fn coll_iexscan(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, op: coll_op,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_gather that does not wait
    pub fn coll_igather(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, root: c_int,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_gatherv that does not wait
    pub fn coll_igatherv(
        comm: *mut coll_comm, send: *const c_void, send_count: usize, recv: *mut c_void, counts: *const usize,
        offsets: *const usize, r#type: coll_type, root: c_int, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_scatter that does not wait
    pub fn coll_iscatter(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type, root: c_int,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_scatterv that does not wait
    pub fn coll_iscatterv(
        comm: *mut coll_comm, send: *const c_void, counts: *const usize, offsets: *const usize, recv: *mut c_void,
        recv_count: usize, r#type: coll_type, root: c_int, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_allgather that does not wait
    pub fn coll_iallgather(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_allgatherv that does not wait
    pub fn coll_iallgatherv(
        comm: *mut coll_comm, send: *const c_void, send_count: usize, recv: *mut c_void, counts: *const usize,
        offsets: *const usize, r#type: coll_type, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_alltoall that does not wait
    pub fn coll_ialltoall(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_alltoallv that does not wait
    pub fn coll_ialltoallv(
        comm: *mut coll_comm, send: *const c_void, send_counts: *const usize, send_offsets: *const usize,
        recv: *mut c_void, recv_counts: *const usize, recv_offsets: *const usize, r#type: coll_type,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_alltoallw that does not wait
    pub fn coll_ialltoallw(
        comm: *mut coll_comm, send: *const c_void, send_counts: *const usize, send_bytes: *const usize,
        send_types: *const coll_type, recv: *mut c_void, recv_counts: *const usize, recv_bytes: *const usize,
        recv_types: *const coll_type, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_neighbor_allgather that does not wait
    pub fn coll_ineighbor_allgather(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_neighbor_allgatherv that does not wait
    pub fn coll_ineighbor_allgatherv(
        comm: *mut coll_comm, send: *const c_void, send_count: usize, recv: *mut c_void, counts: *const usize,
        offsets: *const usize, r#type: coll_type, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_neighbor_alltoall that does not wait
    pub fn coll_ineighbor_alltoall(
        comm: *mut coll_comm, send: *const c_void, recv: *mut c_void, count: usize, r#type: coll_type,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_neighbor_alltoallv that does not wait
    pub fn coll_ineighbor_alltoallv(
        comm: *mut coll_comm, send: *const c_void, send_counts: *const usize, send_offsets: *const usize,
        recv: *mut c_void, recv_counts: *const usize, recv_offsets: *const usize, r#type: coll_type,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_neighbor_alltoallw that does not wait
    pub fn coll_ineighbor_alltoallw(
        comm: *mut coll_comm, send: *const c_void, send_counts: *const usize, send_bytes: *const usize,
        send_types: *const coll_type, recv: *mut c_void, recv_counts: *const usize, recv_bytes: *const usize,
        recv_types: *const coll_type, out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_send that does not wait
    pub fn coll_isend(
        comm: *mut coll_comm, buffer: *const c_void, count: usize, r#type: coll_type, peer: c_int, tag: c_int,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_recv that does not wait
    pub fn coll_irecv(
        comm: *mut coll_comm, buffer: *mut c_void, count: usize, r#type: coll_type, peer: c_int, tag: c_int,
        out: *mut *mut coll_request,
    ) -> coll_status;
    /// coll_sendrecv that does not wait
    pub fn coll_isendrecv(
        comm: *mut coll_comm, send: *const c_void, send_count: usize, dest: c_int, recv: *mut c_void, recv_count: usize,
        source: c_int, r#type: coll_type, tag: c_int, out: *mut *mut coll_request,
    ) -> coll_status;
    /// Progress all operations of the communicator, and return the status of a request
    pub fn coll_test(request: *mut coll_request) -> coll_status;
    /// Wait until a request is finished
    pub fn coll_wait(request: *mut coll_request) -> coll_status;
    /// Wait for all requests
    pub fn coll_wait_all(count: c_int, requests: *mut *mut coll_request) -> coll_status;
    /// Wait for one of several requests
    pub fn coll_wait_any(count: c_int, requests: *mut *mut coll_request, index: *mut c_int) -> coll_status;
    /// Wait for at least one of several requests, and report all that are finished
    pub fn coll_wait_some(
        count: c_int, requests: *mut *mut coll_request, indices: *mut c_int, done: *mut c_int,
    ) -> coll_status;
    /// coll_wait_any without waiting. COLL_PENDING with *index = -1: none is finished yet, and some are running.
    pub fn coll_test_any(count: c_int, requests: *mut *mut coll_request, index: *mut c_int) -> coll_status;
    /// coll_wait_all without waiting. COLL_PENDING: some are running, and none is reported
    pub fn coll_test_all(count: c_int, requests: *mut *mut coll_request) -> coll_status;
    /// Return the source, the tag and the count of a finished receive
    pub fn coll_received(request: *const coll_request, source: *mut c_int, tag: *mut c_int, count: *mut usize) -> coll_status;
    /// Free a request
    pub fn coll_request_free(request: *mut coll_request);
    /// Progress all operations of the communicator without waiting.
    pub fn coll_progress(comm: *mut coll_comm) -> coll_status;
    /// Return a file descriptor for event loops
    pub fn coll_fd(comm: *mut coll_comm) -> c_int;
    /// blocking
    pub fn coll_run(comm: *mut coll_comm, call: *const coll_call) -> coll_status;
    /// non-blocking
    pub fn coll_start(comm: *mut coll_comm, call: *const coll_call, out: *mut *mut coll_request) -> coll_status;
    /// Check and plan a call once, to start it many times
    pub fn coll_prepare(comm: *mut coll_comm, call: *const coll_call, out: *mut *mut coll_request) -> coll_status;
    /// Check and plan a call once, to start it many times
    pub fn coll_restart(request: *mut coll_request) -> coll_status;
    /// all round to nearest even
    pub fn coll_f32_to_f16(value: f32) -> u16;
    /// all round to nearest even
    pub fn coll_f32_to_bf16(value: f32) -> u16;
    /// all round to nearest even
    pub fn coll_f16_to_f32(bits: u16) -> f32;
    /// all round to nearest even
    pub fn coll_bf16_to_f32(bits: u16) -> f32;
    /// all round to nearest even
    pub fn coll_f32_to_f8e4m3(value: f32) -> u8;
    /// all round to nearest even
    pub fn coll_f32_to_f8e5m2(value: f32) -> u8;
    /// all round to nearest even
    pub fn coll_f8e4m3_to_f32(bits: u8) -> f32;
    /// all round to nearest even
    pub fn coll_f8e5m2_to_f32(bits: u8) -> f32;
    /// Convert floats from one type to another: dst[i] = src[i], rounded once
    pub fn coll_convert(
        dst: *mut c_void, dst_type: coll_type, src: *const c_void, src_type: coll_type, count: usize,
    ) -> coll_status;
    /// Convert floats with random rounding, to types of 16 bits and fewer
    pub fn coll_convert_stochastic(
        dst: *mut c_void, dst_type: coll_type, src: *const c_void, src_type: coll_type, count: usize, seed: u64,
        first: u64,
    ) -> coll_status;
    /// Combine two buffers of this rank: inout[i] = in[i] op inout[i], `in` being the lower rank's part
    pub fn coll_reduce_local(
        inout: *mut c_void, r#in: *const c_void, count: usize, r#type: coll_type, op: coll_op,
    ) -> coll_status;
    /// Write how a call would be carried out, and which alternatives come next
    pub fn coll_explain(comm: *mut coll_comm, call: *const coll_call, text: *mut c_char, length: usize) -> c_int;
    /// Report the last operations of this rank on `comm`, up to 256, oldest first: which, when, how long, and the result
    pub fn coll_dump(
        comm: *mut coll_comm, line: Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char)>,
        context: *mut c_void,
    );
    /// Write the numbers of the cost model in the form of a tuning file: "latency=12us overhead=4us gbit=16 reduce=10GB/s"
    pub fn coll_link_text(comm: *const coll_comm, text: *mut c_char, length: usize) -> c_int;
    /// Return how many calls with COLL_DETECT_OVERFLOW have produced an infinity or a NaN on this rank
    pub fn coll_overflows(comm: *const coll_comm) -> u64;
    /// Return the bytes that this rank has sent and received, headers included, for all communicators of its coll_init
    pub fn coll_traffic(comm: *const coll_comm, sent: *mut u64, received: *mut u64);
    /// Return the virtual seconds that have passed for this rank of a simulated job; 0 in other jobs
    pub fn coll_sim_time(comm: *const coll_comm) -> f64;
    /// Make an arena of the `length` bytes at `memory`
    pub fn coll_arena_begin(memory: *mut c_void, length: usize) -> *const coll_allocator;
    /// Return the memory of an arena to the program
    pub fn coll_arena_end(arena: *const coll_allocator) -> coll_status;
    /// Return how many bytes of an arena are allocated now; 0 if it is no arena
    pub fn coll_arena_used(arena: *const coll_allocator) -> usize;
    /// Return the length in bytes that would have been enough so far, with holes and the arena's own records
    pub fn coll_arena_most(arena: *const coll_allocator) -> usize;
    /// Allocate memory that the ranks of this host can read in place
    pub fn coll_alloc(comm: *mut coll_comm, length: usize) -> *mut c_void;
    /// Free memory of coll_alloc
    pub fn coll_dealloc(comm: *mut coll_comm, at: *mut c_void);
    /// Begin to add up the leaves of this rank, from number first_leaf on
    pub fn coll_sum_begin(
        out: *mut *mut coll_sum, first_leaf: i64, count: usize, r#type: coll_type, memory: *const coll_allocator,
    ) -> coll_status;
    /// Begin again, in the same memory: for the next step
    pub fn coll_sum_restart(sum: *mut coll_sum, first_leaf: i64) -> coll_status;
    /// Return where the program may write the next leaf: coll_sum_add(sum, place) does not copy it
    pub fn coll_sum_place(sum: *mut coll_sum) -> *mut c_void;
    /// Add the next leaf
    pub fn coll_sum_add(sum: *mut coll_sum, leaf: *const c_void) -> coll_status;
    /// Set send, count, type, first_leaf and leaves of a call
    pub fn coll_sum_end(sum: *mut coll_sum, call: *mut coll_call) -> coll_status;
    /// Free a sum
    pub fn coll_sum_free(sum: *mut coll_sum);
}
