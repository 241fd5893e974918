//! A data parallel step: every rank has its own samples, and all fit one polynomial to them by gradient descent.
//!
//!     cargo run --example fit                  four threads
//!     coll-run -n 4 target/debug/examples/fit  four processes
//!
//! All ranks must have the same bits in the end, and the polynomial is known; the program fails where that is not so.
use coll::{Bool, Comm, Op};

const TRUTH: [f64; 3] = [1.0, -2.0, 0.5];

fn at(p: &[f64; 3], x: f64) -> f64 {
    p[0] + x * (p[1] + x * p[2])
}

fn fit(comm: &Comm) -> coll::Result<bool> {
    let mut p = [0.0; 3];
    let mut average = comm.prepare_allreduce(vec![0.0; 3], Op::Avg)?;
    for _ in 0..400 {
        let gradient = average.buffer();
        gradient.fill(0.0);
        for i in (comm.rank()..64).step_by(comm.size()) {           // this rank's samples
            let x = i as f64 / 32.0 - 1.0;
            let wrong = at(&p, x) - at(&TRUTH, x);
            for (k, slope) in gradient.iter_mut().enumerate() {
                *slope += wrong * x.powi(k as i32) * comm.size() as f64 / 64.0;
            }
        }
        average.run()?;
        for (coefficient, slope) in p.iter_mut().zip(average.buffer()) {
            *coefficient -= *slope;
        }
    }
    let mut highest = p;
    comm.allreduce(&mut highest, Op::Max)?;
    if comm.rank() == 0 {
        println!("{} ranks: {:.3} {:+.3} x {:+.3} x^2", comm.size(), p[0], p[1], p[2]);
    }
    let mut right = [Bool::from(highest == p && (p[1] - TRUTH[1]).abs() < 1e-6)];
    comm.allreduce(&mut right, Op::Land)?;
    Ok(right[0].into())
}

fn main() -> coll::Result<()> {
    let right = if std::env::var_os("COLL_SIZE").is_some() {
        fit(&Comm::init()?)?
    } else {
        coll::spawn(4, |comm| fit(&comm))?.into_iter().all(|right| right.unwrap_or(false))
    };
    std::process::exit(!right as i32);
}
