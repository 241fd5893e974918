//! A sum over four threads, or over the processes of a job: `coll-run -n 4 hello`.
use coll::{Comm, Op};

fn worker(comm: &Comm) -> coll::Result<()> {
    let mut x = [comm.rank() as f32, 1.0];
    comm.allreduce(&mut x, Op::Sum)?;
    println!("rank {} of {}: {:.1} {:.1}", comm.rank(), comm.size(), x[0], x[1]);
    Ok(())
}

fn main() -> coll::Result<()> {
    if std::env::var_os("COLL_SIZE").is_some() {
        return worker(&Comm::init()?);
    }
    coll::spawn(4, |comm| worker(&comm))?.into_iter().collect()
}
