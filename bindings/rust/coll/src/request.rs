use crate::comm::{int, zeros, Comm, Received};
use crate::sys::{self, coll_call, coll_request};
use crate::{Element, Result};
use std::mem::ManuallyDrop;
use std::os::raw::c_void;
use std::ptr;

/// A vector in its parts: nothing of it is borrowed while the library may write to it, and moving this moves no element.
struct Owned<T> {
    at: *mut T,
    len: usize,
    capacity: usize,
}

impl<T: Element> Owned<T> {
    fn new(vector: Vec<T>) -> Owned<T> {
        let mut vector = ManuallyDrop::new(vector);
        Owned { at: vector.as_mut_ptr(), len: vector.len(), capacity: vector.capacity() }
    }

    /// # Safety
    /// Once, and when the library is done with it.
    unsafe fn take(&mut self) -> Vec<T> {
        Vec::from_raw_parts(self.at, self.len, self.capacity)
    }
}

/// Wait until nothing of it is under way any more.  The status is that of the operation.
///
/// # Safety
/// The request is there, and this thread may use its communicator.
unsafe fn end(request: *mut coll_request) -> sys::coll_status {
    loop {
        let status = sys::coll_wait(request);
        if status <= 0 && sys::coll_test(request) != sys::COLL_PENDING {
            return status;
        }
    }
}

/// Run a call and return what it has received.
///
/// # Safety
/// As for coll_run.
pub(crate) unsafe fn run_received(comm: &Comm, call: &coll_call) -> Result<Received> {
    let mut request = ptr::null_mut();
    comm.checked(sys::coll_start(comm.raw(), call, &mut request))?;
    let result = comm.checked(end(request)).map(|()| received(request));
    sys::coll_request_free(request);
    result
}

unsafe fn received(request: *mut coll_request) -> Received {
    let (mut source, mut tag, mut count) = (0, 0, 0);
    sys::coll_received(request, &mut source, &mut tag, &mut count);
    Received { source: usize::try_from(source).unwrap_or(0), tag, count }
}

/// An operation under way, with its buffers.  It ends by [`Request::wait`], or waits when it is dropped.
///
/// It borrows the communicator, so that this cannot be freed sooner, or be given to another thread meanwhile:
///
/// ```compile_fail,E0505
/// # fn f(comm: coll::Comm) -> coll::Result<()> {
/// let request = comm.iallreduce(vec![1.0f32], coll::Op::Sum)?;
/// drop(comm);                                             // error: it is borrowed
/// request.wait()?;
/// # Ok(()) }
/// ```
///
/// And its buffer cannot be used until it is over:
///
/// ```compile_fail,E0382
/// # fn f(comm: coll::Comm) -> coll::Result<()> {
/// let x = vec![1.0f32];
/// let request = comm.iallreduce(x, coll::Op::Sum)?;
/// println!("{}", x[0]);                                   // error: it was moved
/// request.wait()?;
/// # Ok(()) }
/// ```
#[must_use = "a request that is dropped waits"]
pub struct Request<'c, T: Element> {
    comm: &'c Comm,
    raw: *mut coll_request,
    input: Owned<T>,
    output: Option<Owned<T>>,
}

impl<'c, T: Element> Request<'c, T> {
    /// Start `call`, whose pointers are set here: to `output` and `input`, or only to `input`.
    ///
    /// # Safety
    /// The lengths are those that the call needs.
    pub(crate) unsafe fn start(
        comm: &'c Comm, mut call: coll_call, input: Vec<T>, output: Option<Vec<T>>,
    ) -> Result<Request<'c, T>> {
        let mut request =
            Request { comm, raw: ptr::null_mut(), input: Owned::new(input), output: output.map(Owned::new) };
        call.send = request.input.at as *const c_void;
        call.recv = request.output.as_ref().map_or(request.input.at, |output| output.at) as *mut c_void;
        let status = sys::coll_start(comm.raw(), &call, &mut request.raw);
        if status < 0 {
            request.raw = ptr::null_mut();              // dropping it waits for nothing
        }
        comm.checked(status)?;
        Ok(request)
    }

    /// Has it ended?  Moves all operations of the communicator on.
    pub fn test(&mut self) -> Result<bool> {
        let status = unsafe { sys::coll_test(self.raw) };
        self.comm.checked(status)?;
        Ok(status != sys::COLL_PENDING)
    }

    /// Wait, and return the buffer: the result, or the input if there is no result.
    pub fn wait(self) -> Result<Vec<T>> {
        self.wait_received().map(|(buffer, _)| buffer)
    }

    /// Of a receive: also its source.  The buffer is as long as the message.
    pub fn wait_received(self) -> Result<(Vec<T>, Received)> {
        let mut this = ManuallyDrop::new(self);
        unsafe {
            let status = end(this.raw);
            let told = this.comm.checked(status);
            let received = received(this.raw);
            sys::coll_request_free(this.raw);
            let input = this.input.take();
            let buffer = match this.output.as_mut() {
                Some(output) => output.take(),
                None => input,
            };
            told.map(|()| (buffer, received))
        }
    }
}

impl<T: Element> Drop for Request<'_, T> {
    fn drop(&mut self) {
        unsafe {
            if !self.raw.is_null() {
                end(self.raw);
                sys::coll_request_free(self.raw);
            }
            drop(self.input.take());
            drop(self.output.as_mut().map(|output| output.take()));
        }
    }
}

/// A call that is checked and planned once, to be made many times; see [`Comm::prepare_allreduce`].
pub struct Prepared<'c, T: Element> {
    comm: &'c Comm,
    raw: *mut coll_request,
    buffer: Owned<T>,
}

impl<'c, T: Element> Prepared<'c, T> {
    pub(crate) unsafe fn new(comm: &'c Comm, mut call: coll_call, buffer: Vec<T>) -> Result<Prepared<'c, T>> {
        let mut this = Prepared { comm, raw: ptr::null_mut(), buffer: Owned::new(buffer) };
        call.send = this.buffer.at as *const c_void;
        call.recv = this.buffer.at as *mut c_void;
        let status = sys::coll_prepare(comm.raw(), &call, &mut this.raw);
        if status < 0 {
            this.raw = ptr::null_mut();
        }
        comm.checked(status)?;
        Ok(this)
    }

    /// Make the call; it replaces the contents of the buffer.
    pub fn run(&mut self) -> Result<()> {
        unsafe {
            self.comm.checked(sys::coll_restart(self.raw))?;
            self.comm.checked(end(self.raw))
        }
    }

    /// The contents of the buffer; between calls nothing else uses it.
    pub fn buffer(&mut self) -> &mut [T] {
        unsafe { std::slice::from_raw_parts_mut(self.buffer.at, self.buffer.len) }
    }
}

impl<T: Element> Drop for Prepared<'_, T> {
    fn drop(&mut self) {
        unsafe {
            if !self.raw.is_null() {
                sys::coll_request_free(self.raw);
            }
            drop(self.buffer.take());
        }
    }
}

/// Starting: each takes its buffers, and the request returns the results.
impl Comm {
    /// [`Comm::barrier`], not waited for.
    pub fn ibarrier(&self) -> Result<Request<'_, u8>> {
        unsafe { Request::start(self, self.call::<u8>(sys::COLL_BARRIER, 0), Vec::new(), None) }
    }

    /// [`Comm::broadcast`], not waited for.
    pub fn ibroadcast<T: Element>(&self, buffer: Vec<T>, root: usize) -> Result<Request<'_, T>> {
        let call = self.rooted::<T>(sys::COLL_BROADCAST, buffer.len(), root);
        unsafe { Request::start(self, call, buffer, None) }
    }

    /// [`Comm::reduce_in_place`], not waited for.
    pub fn ireduce<T: Element>(&self, buffer: Vec<T>, op: crate::Op, root: usize) -> Result<Request<'_, T>> {
        let call = coll_call { op: op as sys::coll_op, ..self.rooted::<T>(sys::COLL_REDUCE, buffer.len(), root) };
        unsafe { Request::start(self, call, buffer, None) }
    }

    /// [`Comm::allreduce`], not waited for.
    pub fn iallreduce<T: Element>(&self, buffer: Vec<T>, op: crate::Op) -> Result<Request<'_, T>> {
        unsafe { Request::start(self, self.reducing::<T>(sys::COLL_ALLREDUCE, buffer.len(), op), buffer, None) }
    }

    /// [`Comm::reduce_scatter`], not waited for; gives this rank's block.
    pub fn ireduce_scatter<T: Element>(&self, send: Vec<T>, op: crate::Op) -> Result<Request<'_, T>> {
        let count = self.block_of("reduce_scatter", send.len())?;
        let call = self.reducing::<T>(sys::COLL_REDUCE_SCATTER, count, op);
        unsafe { Request::start(self, call, send, Some(zeros(count))) }
    }

    /// [`Comm::scan_in_place`], not waited for.
    pub fn iscan<T: Element>(&self, buffer: Vec<T>, op: crate::Op) -> Result<Request<'_, T>> {
        unsafe { Request::start(self, self.reducing::<T>(sys::COLL_SCAN, buffer.len(), op), buffer, None) }
    }

    /// [`Comm::exscan_in_place`], not waited for.
    pub fn iexscan<T: Element>(&self, buffer: Vec<T>, op: crate::Op) -> Result<Request<'_, T>> {
        unsafe { Request::start(self, self.reducing::<T>(sys::COLL_EXSCAN, buffer.len(), op), buffer, None) }
    }

    /// [`Comm::gather`], not waited for; gives all blocks at the root, and nothing elsewhere.
    pub fn igather<T: Element>(&self, send: Vec<T>, root: usize) -> Result<Request<'_, T>> {
        let call = self.rooted::<T>(sys::COLL_GATHER, send.len(), root);
        let all = if self.rank() == root { self.size() * send.len() } else { 0 };
        unsafe { Request::start(self, call, send, Some(zeros(all))) }
    }

    /// [`Comm::scatter`], non-blocking; returns this rank's block of `count` elements.  Only the root has `send`.
    pub fn iscatter<T: Element>(&self, send: Vec<T>, count: usize, root: usize) -> Result<Request<'_, T>> {
        if self.rank() == root {
            self.fits("scatter", "send", send.len(), count)?;
        }
        let call = self.rooted::<T>(sys::COLL_SCATTER, count, root);
        unsafe { Request::start(self, call, send, Some(zeros(count))) }
    }

    /// [`Comm::allgather`], not waited for; gives all blocks.
    pub fn iallgather<T: Element>(&self, send: Vec<T>) -> Result<Request<'_, T>> {
        let all = self.size() * send.len();
        unsafe { Request::start(self, self.call::<T>(sys::COLL_ALLGATHER, send.len()), send, Some(zeros(all))) }
    }

    /// [`Comm::alltoall_in_place`], not waited for.
    pub fn ialltoall<T: Element>(&self, buffer: Vec<T>) -> Result<Request<'_, T>> {
        let count = self.block_of("alltoall", buffer.len())?;
        unsafe { Request::start(self, self.call::<T>(sys::COLL_ALLTOALL, count), buffer, None) }
    }

    /// [`Comm::send`], not waited for; gives the buffer back when it may be used again.
    pub fn isend<T: Element>(&self, buffer: Vec<T>, to: usize, tag: i32) -> Result<Request<'_, T>> {
        let call = coll_call { peer: int(to), tag, ..self.call::<T>(sys::COLL_SEND, buffer.len()) };
        unsafe { Request::start(self, call, buffer, None) }
    }

    /// [`Comm::recv`], not waited for; `room` is the most elements that may come.  Gives those that have come.
    pub fn irecv<T: Element>(&self, room: usize, from: Option<usize>, tag: Option<i32>) -> Result<Receive<'_, T>> {
        let call = self.receiving::<T>(room, from, tag);
        Ok(Receive(unsafe { Request::start(self, call, zeros(room), None)? }))
    }

    /// A sum, or what `op` says, of `buffer` over all ranks, to be made many times.  All ranks prepare in the same order.
    pub fn prepare_allreduce<T: Element>(&self, buffer: Vec<T>, op: crate::Op) -> Result<Prepared<'_, T>> {
        unsafe { Prepared::new(self, self.reducing::<T>(sys::COLL_ALLREDUCE, buffer.len(), op), buffer) }
    }
}

/// A message that is being received.
#[must_use = "a receive that is dropped waits"]
pub struct Receive<'c, T: Element>(Request<'c, T>);

impl<T: Element> Receive<'_, T> {
    /// Has it come?
    pub fn test(&mut self) -> Result<bool> {
        self.0.test()
    }

    /// Wait, and return the message.
    pub fn wait(self) -> Result<(Vec<T>, Received)> {
        let (mut buffer, received) = self.0.wait_received()?;
        buffer.truncate(received.count);
        Ok((buffer, received))
    }
}
