//! Collective operations between threads of a process, and between processes over TCP: coll.h for Rust, by calls that are safe.
//!
//! ```
//! use coll::Op;
//!
//! let sums = coll::spawn(4, |comm| {
//!     let mut x = [comm.rank() as f32, 1.0];
//!     comm.allreduce(&mut x, Op::Sum)?;
//!     Ok::<_, coll::Error>(x)
//! });
//! for x in sums? {
//!     assert_eq!(x?, [6.0, 4.0]);
//! }
//! # Ok::<(), coll::Error>(())
//! ```
//!
//! The manual in coll.h describes each call.  This page has the differences.
//!
//! - Counts are those of the slices.  Lengths that do not fit are [`Status::Argument`], with a sentence, before a byte moves.
//! - Ranks are `usize`.  A call that a rank makes and others do not is waited for, as in C.
//! - A [`Comm`] is `Send` and not `Sync`: one thread at a time uses it, and it may be another one later.  A second thread takes
//!   a [`Comm::dup`].
//! - A call that is not waited for at once ([`Comm::iallreduce`] and others) owns its buffers, and [`Request::wait`] gives them
//!   back.  A request that is dropped waits.  One that is forgotten, by `mem::forget`, keeps its buffers forever: no code
//!   can touch memory that the library may still write to.
//! - Elements are types for which every pattern of bits is a value ([`Element`]), as other ranks may send any: so there is no
//!   `bool`, but [`Bool`].
//!
//! Neighbor calls with counts, alltoallw, operations of the program, rows and strides are not here; [`sys`] has all of coll.h.
#![warn(missing_docs)]

mod comm;
mod element;
mod error;
mod request;
mod world;

pub use coll_sys as sys;
pub use comm::{Comm, Options, Received};
pub use element::{Bf16, Bool, Complex, Element, F16, F8e4m3, F8e5m2, Located, Op, Wire};
pub use error::{Error, Status};
pub use request::{Prepared, Receive, Request};
pub use world::{spawn, spawn_with, Config};

/// What calls give.
pub type Result<T> = std::result::Result<T, Error>;
