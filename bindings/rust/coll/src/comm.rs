use crate::sys::{self, coll_call, coll_comm};
use crate::{Element, Error, Op, Result, Status, Wire};
use std::cell::Cell;
use std::os::raw::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::time::Duration;

/// COLL_IN_PLACE.
const IN_PLACE: *mut c_void = -1isize as *mut c_void;

/// A communicator: `size` ranks, of which this is one.  It is left when it is dropped; where a panic drops it, all ranks get
/// [`Status::Aborted`], and the rank that panicked.
///
/// One thread at a time uses it.  It may be given to another one:
///
/// ```
/// # fn f(comm: coll::Comm) {
/// std::thread::spawn(move || comm.barrier());
/// # }
/// ```
///
/// but not be used by two:
///
/// ```compile_fail,E0277
/// # fn f(comm: coll::Comm) {
/// std::thread::scope(|scope| {
///     scope.spawn(|| comm.barrier());                     // error: it is not Sync
///     scope.spawn(|| comm.barrier());
/// });
/// # }
/// ```
#[derive(Debug)]
pub struct Comm {
    raw: NonNull<coll_comm>,
    sources: Cell<usize>,                               // of the neighbor calls
    destinations: Cell<usize>,
}

// One thread at a time, and not always the same: the rule of coll.h.  `raw` keeps it from being Sync.
unsafe impl Send for Comm {}

/// Of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The rank that sent it.
    pub source: usize,
    /// With which tag.
    pub tag: i32,
    /// How many elements it has.
    pub count: usize,
}

/// What else may be said of a reduction; the default is nothing.  All ranks say the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What the messages carry; the type of the buffer.
    pub wire: Option<Wire>,
    /// The same bits for every size, algorithm and transport.
    pub deterministic: bool,
    /// And for every order of the ranks.
    pub reproducible: bool,
    /// Results of f16 and the 8-bit floats are finite, or NaN.
    pub saturate: bool,
    /// Multiplies the sum before it is rounded.
    pub scale: Option<f64>,
    /// A rank that is later than this is an error.
    pub timeout: Option<Duration>,
}

/// A rank, count or tag as C has it.  What does not fit is out of range there, too.
pub(crate) fn int(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// Every pattern of bits is an element, and so are zeros.
pub(crate) fn zeros<T: Element>(count: usize) -> Vec<T> {
    vec![unsafe { std::mem::zeroed() }; count]
}

fn read<T>(slice: &[T]) -> *const c_void {
    slice.as_ptr() as *const c_void
}

fn write<T>(slice: &mut [T]) -> *mut c_void {
    slice.as_mut_ptr() as *mut c_void
}

/// Making, and what is known of it.
impl Comm {
    /// # Safety
    /// No other object uses `raw`.
    pub(crate) unsafe fn of(raw: *mut coll_comm) -> Comm {
        let raw = NonNull::new(raw).expect("the library gives a communicator");
        Comm { raw, sources: Cell::new(0), destinations: Cell::new(0) }
    }

    /// For calls of [`sys`](crate::sys): the communicator remains this one's.
    pub fn raw(&self) -> *mut coll_comm {
        self.raw.as_ptr()
    }

    pub(crate) fn checked(&self, status: sys::coll_status) -> Result<()> {
        if status >= 0 {
            return Ok(());
        }
        Err(unsafe { Error::of(self.raw(), status) })
    }

    fn derived(&self, make: impl FnOnce(*mut *mut coll_comm) -> sys::coll_status) -> Result<Option<Comm>> {
        let mut raw = ptr::null_mut();
        self.checked(make(&mut raw))?;
        Ok(if raw.is_null() { None } else { Some(unsafe { Comm::of(raw) }) })
    }

    fn always(made: Result<Option<Comm>>) -> Result<Comm> {
        made.map(|comm| comm.expect("every rank is in it"))
    }

    /// Which rank this is.
    pub fn rank(&self) -> usize {
        unsafe { sys::coll_rank(self.raw()) as usize }
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        unsafe { sys::coll_size(self.raw()) as usize }
    }

    /// The ranks that give the same color, ordered by key; `None`: this rank is in none.
    pub fn split(&self, color: Option<i32>, key: i32) -> Result<Option<Comm>> {
        if color.map_or(false, |color| color < 0) {
            return Err(self.mistake("split: a color is 0 or more".into()));
        }
        self.derived(|out| unsafe { sys::coll_split(self.raw(), color.unwrap_or(sys::COLL_COLOR_NONE), key, out) })
    }

    /// The ranks that share the host with this one.
    pub fn split_host(&self) -> Result<Comm> {
        Comm::always(self.derived(|out| unsafe { sys::coll_split_host(self.raw(), out) }))
    }

    /// The same ranks again.
    pub fn dup(&self) -> Result<Comm> {
        Comm::always(self.derived(|out| unsafe { sys::coll_dup(self.raw(), out) }))
    }

    /// After a failure: a communicator of the surviving ranks.
    pub fn shrink(&self) -> Result<Comm> {
        Comm::always(self.derived(|out| unsafe { sys::coll_shrink(self.raw(), out) }))
    }

    /// The bitwise AND of the flags of all ranks that have not failed, also after a failure.
    pub fn agree(&self, mut flags: u64) -> Result<u64> {
        self.checked(unsafe { sys::coll_agree(self.raw(), &mut flags) })?;
        Ok(flags)
    }

    /// The ranks known to have failed.
    pub fn failed_ranks(&self) -> Vec<usize> {
        let mut ranks: Vec<c_int> = vec![0; self.size()];
        let count = unsafe { sys::coll_failed_ranks(self.raw(), ranks.as_mut_ptr(), int(ranks.len())) };
        ranks.truncate(usize::try_from(count).unwrap_or(0));
        ranks.into_iter().map(|rank| rank as usize).collect()
    }

    /// End it, and all communicators of the same start, on every rank, with this sentence.
    pub fn abort(&self, why: &str) -> Result<()> {
        let why = std::ffi::CString::new(why.replace('\0', " ")).expect("no byte is 0");
        self.checked(unsafe { sys::coll_abort(self.raw(), why.as_ptr()) })
    }

    /// The ranks that neighbor calls receive from and send to.  Called by all ranks.
    pub fn neighbors(&self, sources: &[usize], destinations: &[usize]) -> Result<()> {
        let ranks = |list: &[usize]| list.iter().map(|&rank| int(rank)).collect::<Vec<c_int>>();
        let (from, to) = (ranks(sources), ranks(destinations));
        let status = unsafe { sys::coll_neighbors(self.raw(), from.as_ptr(), int(from.len()), to.as_ptr(), int(to.len())) };
        self.checked(status)?;
        self.sources.set(from.len());
        self.destinations.set(to.len());
        Ok(())
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.abort(&format!("rank {} of {} has panicked", self.rank(), self.size()));
        }
        unsafe { sys::coll_free(self.raw()) };
    }
}

/// Describing calls, and checking lengths.
impl Comm {
    fn mistake(&self, what: String) -> Error {
        let sentence = format!("rank {} of {}: {}", self.rank(), self.size(), what);
        Error { status: Status::Argument, rank: Some(self.rank()), sentence }
    }

    /// Two buffers that must be of one length.
    fn same(&self, call: &str, send: usize, recv: usize) -> Result<()> {
        if send == recv {
            return Ok(());
        }
        Err(self.mistake(format!("{}: send has {} elements, and recv {}", call, send, recv)))
    }

    /// `has` elements are a block of `count` for each rank.
    pub(crate) fn fits(&self, call: &str, name: &str, has: usize, count: usize) -> Result<()> {
        self.blocks(call, name, has, count, self.size(), "ranks")
    }

    fn blocks(&self, call: &str, name: &str, has: usize, count: usize, blocks: usize, of: &str) -> Result<()> {
        if count.checked_mul(blocks) == Some(has) {
            return Ok(());
        }
        Err(self.mistake(format!("{}: {} has {} elements, and not {} for each of {} {}", call, name, has, count, blocks, of)))
    }

    /// The length of the block of each rank.
    pub(crate) fn block_of(&self, call: &str, has: usize) -> Result<usize> {
        if has % self.size() == 0 {
            return Ok(has / self.size());
        }
        Err(self.mistake(format!("{}: {} elements are no blocks of one length for {} ranks", call, has, self.size())))
    }

    /// There is a count for each rank, and their sum is the length of the buffer.
    fn counted(&self, call: &str, name: &str, has: usize, counts: &[usize]) -> Result<()> {
        if counts.len() != self.size() {
            return Err(self.mistake(format!("{}: {} counts, and not one for each rank", call, counts.len())));
        }
        if counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count)) == Some(has) {
            return Ok(());
        }
        Err(self.mistake(format!("{}: {} has {} elements, which is not the sum of the counts", call, name, has)))
    }

    pub(crate) fn call<T: Element>(&self, kind: sys::coll_kind, count: usize) -> coll_call {
        coll_call { kind, count, r#type: T::TYPE, ..unsafe { std::mem::zeroed() } }
    }

    pub(crate) fn rooted<T: Element>(&self, kind: sys::coll_kind, count: usize, root: usize) -> coll_call {
        coll_call { root: int(root), ..self.call::<T>(kind, count) }
    }

    pub(crate) fn reducing<T: Element>(&self, kind: sys::coll_kind, count: usize, op: Op) -> coll_call {
        coll_call { op: op as sys::coll_op, ..self.call::<T>(kind, count) }
    }

    pub(crate) fn receiving<T: Element>(&self, room: usize, from: Option<usize>, tag: Option<i32>) -> coll_call {
        let (peer, tag) = (from.map_or(sys::COLL_ANY_SOURCE, int), tag.unwrap_or(sys::COLL_ANY_TAG));
        coll_call { peer, tag, ..self.call::<T>(sys::COLL_RECV, room) }
    }

    /// # Safety
    /// The buffers are as long as the call needs, and nothing else uses them until this returns.
    unsafe fn run(&self, call: coll_call, send: *const c_void, recv: *mut c_void) -> Result<()> {
        self.checked(sys::coll_run(self.raw(), &coll_call { send, recv, ..call }))
    }
}

/// Collectives: they return when this rank's part is done.
impl Comm {
    /// Return when every rank has called it.
    pub fn barrier(&self) -> Result<()> {
        self.checked(unsafe { sys::coll_barrier(self.raw()) })
    }

    /// The root's buffer goes to all.
    pub fn broadcast<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<()> {
        let call = self.rooted::<T>(sys::COLL_BROADCAST, buffer.len(), root);
        unsafe { self.run(call, ptr::null(), write(buffer)) }
    }

    /// Reduce into `recv` of the root; on other ranks it may be empty, and is unchanged.
    pub fn reduce<T: Element>(&self, send: &[T], recv: &mut [T], op: Op, root: usize) -> Result<()> {
        if self.rank() == root {
            self.same("reduce", send.len(), recv.len())?;
        }
        let call = coll_call { root: int(root), ..self.reducing::<T>(sys::COLL_REDUCE, send.len(), op) };
        unsafe { self.run(call, read(send), write(recv)) }
    }

    /// Reduce; the root's buffer is replaced, those of others stay.
    pub fn reduce_in_place<T: Element>(&self, buffer: &mut [T], op: Op, root: usize) -> Result<()> {
        let call = coll_call { root: int(root), ..self.reducing::<T>(sys::COLL_REDUCE, buffer.len(), op) };
        let at = write(buffer);
        unsafe { self.run(call, at, at) }
    }

    /// Reduce the buffers of all ranks, on every rank: the same bits.
    pub fn allreduce<T: Element>(&self, buffer: &mut [T], op: Op) -> Result<()> {
        self.allreduce_with(buffer, op, &Options::default())
    }

    /// The same, with more to say.
    pub fn allreduce_with<T: Element>(&self, buffer: &mut [T], op: Op, options: &Options) -> Result<()> {
        let flag = |is_set: bool, flag: c_int| if is_set { flag as u32 } else { 0 };
        let call = coll_call {
            wire: options.wire.map_or(0, |wire| wire as sys::coll_type),
            flags: flag(options.deterministic, sys::COLL_DETERMINISTIC)
                | flag(options.reproducible, sys::COLL_REPRODUCIBLE)
                | flag(options.saturate, sys::COLL_SATURATE),
            scale: options.scale.unwrap_or(0.0),
            timeout_ms: options.timeout.map_or(0, |time| int(time.as_millis() as usize).max(1)),
            ..self.reducing::<T>(sys::COLL_ALLREDUCE, buffer.len(), op)
        };
        unsafe { self.run(call, IN_PLACE, write(buffer)) }
    }

    /// Reduce `send` into `recv`.
    pub fn allreduce_to<T: Element>(&self, send: &[T], recv: &mut [T], op: Op) -> Result<()> {
        self.same("allreduce", send.len(), recv.len())?;
        unsafe { self.run(self.reducing::<T>(sys::COLL_ALLREDUCE, send.len(), op), read(send), write(recv)) }
    }

    /// Each of these buffers, in place; small ones travel together.
    pub fn allreduce_list<T: Element>(&self, buffers: &mut [&mut [T]], op: Op) -> Result<()> {
        let list: Vec<sys::coll_list_item> = buffers.iter_mut()
            .map(|buffer| sys::coll_list_item { send: IN_PLACE, recv: write(buffer), count: buffer.len(), r#type: T::TYPE })
            .collect();
        self.checked(unsafe { sys::coll_allreduce_list(self.raw(), list.as_ptr(), int(list.len()), op as sys::coll_op) })
    }

    /// Reduce `send`, which has a block for every rank; `recv` gets that of this one.
    pub fn reduce_scatter<T: Element>(&self, send: &[T], recv: &mut [T], op: Op) -> Result<()> {
        self.fits("reduce_scatter", "send", send.len(), recv.len())?;
        unsafe { self.run(self.reducing::<T>(sys::COLL_REDUCE_SCATTER, recv.len(), op), read(send), write(recv)) }
    }

    /// The same in place: gives this rank's block of the buffer, which is the result.  The rest keeps the input.
    pub fn reduce_scatter_in_place<'b, T: Element>(&self, buffer: &'b mut [T], op: Op) -> Result<&'b mut [T]> {
        let count = self.block_of("reduce_scatter", buffer.len())?;
        let (begin, at) = (self.rank() * count, buffer.as_mut_ptr());
        let call = self.reducing::<T>(sys::COLL_REDUCE_SCATTER, count, op);
        unsafe { self.run(call, at as *const c_void, at.add(begin) as *mut c_void)? };
        Ok(&mut buffer[begin..begin + count])
    }

    /// reduce_scatter whose blocks have lengths of their own, the same on all ranks.
    pub fn reduce_scatterv<T: Element>(&self, send: &[T], counts: &[usize], recv: &mut [T], op: Op) -> Result<()> {
        self.counted("reduce_scatterv", "send", send.len(), counts)?;
        self.same("reduce_scatterv: of this rank's block", counts[self.rank()], recv.len())?;
        let call = coll_call { recv_counts: counts.as_ptr(), ..self.reducing::<T>(sys::COLL_REDUCE_SCATTERV, 0, op) };
        unsafe { self.run(call, read(send), write(recv)) }
    }

    /// Reduce what ranks 0 to this one have.
    pub fn scan<T: Element>(&self, send: &[T], recv: &mut [T], op: Op) -> Result<()> {
        self.same("scan", send.len(), recv.len())?;
        unsafe { self.run(self.reducing::<T>(sys::COLL_SCAN, send.len(), op), read(send), write(recv)) }
    }

    /// The same, replacing the buffer.
    pub fn scan_in_place<T: Element>(&self, buffer: &mut [T], op: Op) -> Result<()> {
        unsafe { self.run(self.reducing::<T>(sys::COLL_SCAN, buffer.len(), op), IN_PLACE, write(buffer)) }
    }

    /// Reduce the inputs of the ranks before this one; `recv` of rank 0 is unchanged.
    pub fn exscan<T: Element>(&self, send: &[T], recv: &mut [T], op: Op) -> Result<()> {
        self.same("exscan", send.len(), recv.len())?;
        unsafe { self.run(self.reducing::<T>(sys::COLL_EXSCAN, send.len(), op), read(send), write(recv)) }
    }

    /// The same in place; the buffer of rank 0 is unchanged.
    pub fn exscan_in_place<T: Element>(&self, buffer: &mut [T], op: Op) -> Result<()> {
        unsafe { self.run(self.reducing::<T>(sys::COLL_EXSCAN, buffer.len(), op), IN_PLACE, write(buffer)) }
    }

    /// The blocks of all ranks, on the root; on other ranks `recv` may be empty, and is unchanged.
    pub fn gather<T: Element>(&self, send: &[T], recv: &mut [T], root: usize) -> Result<()> {
        if self.rank() == root {
            self.fits("gather", "recv", recv.len(), send.len())?;
        }
        unsafe { self.run(self.rooted::<T>(sys::COLL_GATHER, send.len(), root), read(send), write(recv)) }
    }

    /// The same in place: the root's buffer has all blocks, its own among them; that of others is their block.
    pub fn gather_in_place<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<()> {
        let is_root = self.rank() == root;
        let count = if is_root { self.block_of("gather", buffer.len())? } else { buffer.len() };
        let send = if is_root { IN_PLACE as *const c_void } else { read(buffer) };
        unsafe { self.run(self.rooted::<T>(sys::COLL_GATHER, count, root), send, write(buffer)) }
    }

    /// gather of blocks with lengths of their own; `counts` and `recv` are the root's.
    pub fn gatherv<T: Element>(&self, send: &[T], recv: &mut [T], counts: &[usize], root: usize) -> Result<()> {
        let mut recv_counts = ptr::null();
        if self.rank() == root {
            self.counted("gatherv", "recv", recv.len(), counts)?;
            self.same("gatherv: of this rank's block", send.len(), counts[root])?;
            recv_counts = counts.as_ptr();
        }
        let call = coll_call { recv_counts, ..self.rooted::<T>(sys::COLL_GATHERV, send.len(), root) };
        unsafe { self.run(call, read(send), write(recv)) }
    }

    /// The root's blocks, one for each rank; elsewhere `send` may be empty.
    pub fn scatter<T: Element>(&self, send: &[T], recv: &mut [T], root: usize) -> Result<()> {
        if self.rank() == root {
            self.fits("scatter", "send", send.len(), recv.len())?;
        }
        unsafe { self.run(self.rooted::<T>(sys::COLL_SCATTER, recv.len(), root), read(send), write(recv)) }
    }

    /// The same in place: the root's buffer has all blocks, its own among them; that of others is where theirs comes.
    pub fn scatter_in_place<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<()> {
        let is_root = self.rank() == root;
        let count = if is_root { self.block_of("scatter", buffer.len())? } else { buffer.len() };
        let recv = if is_root { IN_PLACE } else { write(buffer) };
        unsafe { self.run(self.rooted::<T>(sys::COLL_SCATTER, count, root), read(buffer), recv) }
    }

    /// scatter of blocks with lengths of their own; `counts` and `send` are the root's.
    pub fn scatterv<T: Element>(&self, send: &[T], counts: &[usize], recv: &mut [T], root: usize) -> Result<()> {
        let mut send_counts = ptr::null();
        if self.rank() == root {
            self.counted("scatterv", "send", send.len(), counts)?;
            self.same("scatterv: of this rank's block", counts[root], recv.len())?;
            send_counts = counts.as_ptr();
        }
        let call = coll_call { send_counts, recv_count: recv.len(), ..self.rooted::<T>(sys::COLL_SCATTERV, 0, root) };
        unsafe { self.run(call, read(send), write(recv)) }
    }

    /// The blocks of all ranks, on every rank.
    pub fn allgather<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.fits("allgather", "recv", recv.len(), send.len())?;
        unsafe { self.run(self.call::<T>(sys::COLL_ALLGATHER, send.len()), read(send), write(recv)) }
    }

    /// The same in place: this rank's block is where it belongs.
    pub fn allgather_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let count = self.block_of("allgather", buffer.len())?;
        unsafe { self.run(self.call::<T>(sys::COLL_ALLGATHER, count), IN_PLACE, write(buffer)) }
    }

    /// allgather of blocks with lengths of their own, the same on all ranks.
    pub fn allgatherv<T: Element>(&self, send: &[T], recv: &mut [T], counts: &[usize]) -> Result<()> {
        self.counted("allgatherv", "recv", recv.len(), counts)?;
        self.same("allgatherv: of this rank's block", send.len(), counts[self.rank()])?;
        let call = coll_call { recv_counts: counts.as_ptr(), ..self.call::<T>(sys::COLL_ALLGATHERV, send.len()) };
        unsafe { self.run(call, read(send), write(recv)) }
    }

    /// Block r of `send` goes to rank r, block r of `recv` comes from it.
    pub fn alltoall<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        let count = self.block_of("alltoall", send.len())?;
        self.same("alltoall", send.len(), recv.len())?;
        unsafe { self.run(self.call::<T>(sys::COLL_ALLTOALL, count), read(send), write(recv)) }
    }

    /// The same: every block is replaced by the one that comes.
    pub fn alltoall_in_place<T: Element>(&self, buffer: &mut [T]) -> Result<()> {
        let count = self.block_of("alltoall", buffer.len())?;
        unsafe { self.run(self.call::<T>(sys::COLL_ALLTOALL, count), IN_PLACE, write(buffer)) }
    }

    /// alltoall of blocks with lengths of their own, on which the two ends of each agree.
    pub fn alltoallv<T: Element>(
        &self, send: &[T], send_counts: &[usize], recv: &mut [T], recv_counts: &[usize],
    ) -> Result<()> {
        self.counted("alltoallv", "send", send.len(), send_counts)?;
        self.counted("alltoallv", "recv", recv.len(), recv_counts)?;
        let call = coll_call {
            send_counts: send_counts.as_ptr(),
            recv_counts: recv_counts.as_ptr(),
            ..self.call::<T>(sys::COLL_ALLTOALLV, 0)
        };
        unsafe { self.run(call, read(send), write(recv)) }
    }

    /// `send` goes to every destination of [`Comm::neighbors`]; block i of `recv` comes from source i.
    pub fn neighbor_allgather<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        self.blocks("neighbor_allgather", "recv", recv.len(), send.len(), self.sources.get(), "sources")?;
        unsafe { self.run(self.call::<T>(sys::COLL_NEIGHBOR_ALLGATHER, send.len()), read(send), write(recv)) }
    }

    /// Blocks of `count` elements: block i of `send` goes to destination i, block i of `recv` comes from source i.
    pub fn neighbor_alltoall<T: Element>(&self, send: &[T], recv: &mut [T], count: usize) -> Result<()> {
        self.blocks("neighbor_alltoall", "send", send.len(), count, self.destinations.get(), "destinations")?;
        self.blocks("neighbor_alltoall", "recv", recv.len(), count, self.sources.get(), "sources")?;
        unsafe { self.run(self.call::<T>(sys::COLL_NEIGHBOR_ALLTOALL, count), read(send), write(recv)) }
    }
}

/// Messages, matched by source and tag in the order sent.
impl Comm {
    /// Returns when the buffer may be used again; long messages wait for the receiver.
    pub fn send<T: Element>(&self, buffer: &[T], to: usize, tag: i32) -> Result<()> {
        let call = coll_call { peer: int(to), tag, ..self.call::<T>(sys::COLL_SEND, buffer.len()) };
        unsafe { self.run(call, read(buffer), ptr::null_mut()) }
    }

    /// The buffer is the room: a shorter message is fine.  `None`: from any rank, with any tag.
    pub fn recv<T: Element>(&self, buffer: &mut [T], from: Option<usize>, tag: Option<i32>) -> Result<Received> {
        let call = coll_call { recv: write(buffer), ..self.receiving::<T>(buffer.len(), from, tag) };
        unsafe { crate::request::run_received(self, &call) }
    }

    /// Both at once, without deadlock in any pattern.
    pub fn sendrecv<T: Element>(
        &self, send: &[T], to: usize, recv: &mut [T], from: Option<usize>, tag: i32,
    ) -> Result<Received> {
        let call = coll_call {
            peer: int(to),
            tag,
            source: from.map_or(sys::COLL_ANY_SOURCE, int),
            send: read(send),
            recv_count: recv.len(),
            recv: write(recv),
            ..self.call::<T>(sys::COLL_SENDRECV, send.len())
        };
        unsafe { crate::request::run_received(self, &call) }
    }
}
