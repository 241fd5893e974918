use crate::comm::int;
use crate::sys;
use crate::{Comm, Error, Result, Status};
use std::ffi::CString;
use std::os::raw::{c_char, c_int};
use std::panic::resume_unwind;
use std::ptr;
use std::time::Duration;

/// Settings of a communicator; the defaults come from the environment, as in the manual.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// This rank, of so many.
    pub rank_of: Option<(usize, usize)>,
    /// Where rank 0 listens: `host:port` or `file:PATH`.
    pub address: Option<String>,
    /// "tcp" or "threads".
    pub transport: Option<String>,
    /// Keeps jobs apart that meet at one address.
    pub world: Option<String>,
    /// A secret of 16 bytes or more that all ranks share.
    pub key: Option<String>,
    /// To meet all ranks.
    pub start_timeout: Option<Duration>,
    /// An operation that is late by this fails.
    pub stall_timeout: Option<Duration>,
}

/// A simulated world is one thread, which Rust's threads are not.
fn refuse_simulation(transport: Option<&str>) -> Result<()> {
    let named = transport.map(str::to_owned).or_else(|| std::env::var("COLL_TRANSPORT").ok());
    if named.as_deref() != Some("sim") {
        return Ok(());
    }
    let sentence = "the ranks of a simulated world are one thread: not from Rust (transport sim)".to_owned();
    Err(Error { status: Status::Unsupported, rank: None, sentence })
}

/// The configuration as C has it, while `then` looks at it.
fn with_config<R>(config: &Config, then: impl FnOnce(*const sys::coll_config) -> R) -> Result<R> {
    refuse_simulation(config.transport.as_deref())?;
    let text = |value: &Option<String>| match value.as_deref().map(CString::new) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => {
            let sentence = "a text of the configuration has a byte of 0".to_owned();
            Err(Error { status: Status::Argument, rank: None, sentence })
        }
    };
    let at = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr() as *const c_char);
    let ms = |time: Option<Duration>| -> c_int { time.map_or(0, |time| int(time.as_millis() as usize).max(1)) };
    let (address, transport) = (text(&config.address)?, text(&config.transport)?);
    let (world, key) = (text(&config.world)?, text(&config.key)?);
    let mut raw: sys::coll_config = unsafe { std::mem::zeroed() };
    if let Some((rank, size)) = config.rank_of {
        raw.rank = int(rank);
        raw.size = int(size);
    }
    raw.address = at(&address);
    raw.transport = at(&transport);
    raw.world = at(&world);
    raw.tcp.key = at(&key);
    raw.start_timeout_ms = ms(config.start_timeout);
    raw.stall_timeout_ms = ms(config.stall_timeout);
    Ok(then(&raw))
}

impl Comm {
    /// Join the ranks of this job, one for each process.  All is said by the environment: of coll-run, torchrun, Slurm, mpiexec.
    pub fn init() -> Result<Comm> {
        Comm::init_with(&Config::default())
    }

    /// The same with a configuration.
    pub fn init_with(config: &Config) -> Result<Comm> {
        let mut raw = ptr::null_mut();
        let status = with_config(config, |config| unsafe { sys::coll_init(&mut raw, config) })?;
        if status < 0 {
            return Err(unsafe { Error::of(ptr::null_mut(), status) });
        }
        Ok(unsafe { Comm::of(raw) })
    }
}

/// Run `rank` on `count` threads, each a rank, and give what each returns.
///
/// If one panics, the others get [`Status::Aborted`]; `spawn` continues that panic when all have returned.
pub fn spawn<R: Send>(count: usize, rank: impl Fn(Comm) -> R + Sync) -> Result<Vec<R>> {
    spawn_with(count, &Config::default(), rank)
}

/// The same with a configuration.
pub fn spawn_with<R: Send>(count: usize, config: &Config, rank: impl Fn(Comm) -> R + Sync) -> Result<Vec<R>> {
    let mut raw = vec![ptr::null_mut(); count];
    let status = with_config(config, |config| unsafe { sys::coll_init_threads(int(count), raw.as_mut_ptr(), config) })?;
    if status < 0 {
        return Err(unsafe { Error::of(ptr::null_mut(), status) });
    }
    let comms: Vec<Comm> = raw.into_iter().map(|raw| unsafe { Comm::of(raw) }).collect();
    let rank = &rank;
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || rank(comm))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    Ok(results.into_iter().map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect())
}
