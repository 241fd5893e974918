use crate::sys;
use std::ffi::CStr;
use std::fmt;

/// What sort of error: those of coll.h, by their names there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// A wrong argument; nothing was sent, and the communicator is as before.
    Argument,
    /// There is no memory.
    Memory,
    /// A system call failed.
    System,
    /// A rank is alive but late.
    Timeout,
    /// A rank has left, died or is unreachable.
    Peer,
    /// Ranks made different calls.
    Mismatch,
    /// Bytes were received that are not the library's, or of a different version.
    Protocol,
    /// A key is wrong or missing.
    Denied,
    /// Not available here; nothing was sent, and the communicator is as before.
    Unsupported,
    /// The operation was aborted.
    Aborted,
    /// A communicator cannot be used in a forked child.
    Forked,
    /// A status that this version of the crate does not know.
    Other(i32),
}

impl Status {
    fn of(status: sys::coll_status) -> Status {
        match status {
            sys::COLL_ERR_ARGUMENT => Status::Argument,
            sys::COLL_ERR_MEMORY => Status::Memory,
            sys::COLL_ERR_SYSTEM => Status::System,
            sys::COLL_ERR_TIMEOUT => Status::Timeout,
            sys::COLL_ERR_PEER => Status::Peer,
            sys::COLL_ERR_MISMATCH => Status::Mismatch,
            sys::COLL_ERR_PROTOCOL => Status::Protocol,
            sys::COLL_ERR_DENIED => Status::Denied,
            sys::COLL_ERR_UNSUPPORTED => Status::Unsupported,
            sys::COLL_ERR_ABORTED => Status::Aborted,
            sys::COLL_ERR_FORKED => Status::Forked,
            other => Status::Other(other),
        }
    }
}

/// Why a call failed.
#[derive(Clone, Debug)]
pub struct Error {
    /// What sort of error it is.
    pub status: Status,
    /// The rank that reports it; `None` if there is no communicator yet.
    pub rank: Option<usize>,
    /// Which rank, which call, which address and why.
    pub sentence: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Of a communicator; null: of the last one that could not be made by this thread.
    ///
    /// # Safety
    /// `comm` is null or a communicator that this thread may use.
    pub(crate) unsafe fn of(comm: *mut sys::coll_comm, status: sys::coll_status) -> Error {
        let text = |at: *const std::os::raw::c_char| CStr::from_ptr(at).to_string_lossy().into_owned();
        let told = text(sys::coll_error(comm));
        Error {
            status: Status::of(status),
            rank: if comm.is_null() { None } else { usize::try_from(sys::coll_rank(comm)).ok() },
            sentence: if told.is_empty() { text(sys::coll_status_text(status)) } else { told },
        }
    }
}
