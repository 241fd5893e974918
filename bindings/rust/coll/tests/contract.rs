//! Every collective, type and operation, in place and not, with odd counts, against an oracle in Rust; bits are compared.
//! Threads: 1 to 5 ranks.  Under coll-run: the ranks of the job.  Ends with "N passed, N failed" of each process.
use coll::{Bf16, Bool, Comm, Complex, Element, Error, Located, Op, Options, Status, Wire, F16};
use coll::{F8e4m3, F8e5m2};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static PASSED: AtomicUsize = AtomicUsize::new(0);
static FAILED: AtomicUsize = AtomicUsize::new(0);

fn check(is_right: bool, what: impl Fn() -> String) {
    if is_right {
        PASSED.fetch_add(1, Relaxed);
    } else {
        FAILED.fetch_add(1, Relaxed);
        println!("FAILED - {}", what());
    }
}

const OPS: [Op; 13] = [
    Op::Sum, Op::Prod, Op::Min, Op::Max, Op::Avg, Op::Band, Op::Bor, Op::Bxor, Op::Land, Op::Lor, Op::Lxor, Op::MinLoc,
    Op::MaxLoc,
];

/// Other numbers for each rank and place, from -3 to 3 and without 0 where a product would lose its sign.
fn small(rank: usize, i: usize) -> i32 {
    [1, -2, 3, 2, -1, 1, -3][(rank * 5 + i * 3) % 7]
}

/// The oracle's data for a type.
trait Model: Element + std::fmt::Debug {
    fn value(rank: usize, i: usize) -> Self;
    /// Of all ranks, in their order; `None`: not defined.
    fn fold(op: Op, all: &[Self]) -> Option<Self>;
    fn bits(self) -> u128;
}

fn truth(op: Op, all: impl Iterator<Item = bool>) -> Option<bool> {
    all.reduce(|a, b| match op {
        Op::Land => a && b,
        Op::Lor => a || b,
        _ => a != b,
    }).filter(|_| matches!(op, Op::Land | Op::Lor | Op::Lxor))
}

macro_rules! integers {
    ($($t:ty),*) => { $(impl Model for $t {
        fn value(rank: usize, i: usize) -> $t {
            (small(rank, i) as $t).wrapping_mul((<$t>::MAX / 3).wrapping_sub(i as $t)) | ((i % 3 == 0) as $t)
        }
        fn fold(op: Op, all: &[$t]) -> Option<$t> {
            let by = |f: fn($t, $t) -> $t| all.iter().copied().reduce(f);
            match op {
                Op::Sum => by(<$t>::wrapping_add),
                Op::Prod => by(<$t>::wrapping_mul),
                Op::Min => by(<$t>::min),
                Op::Max => by(<$t>::max),
                Op::Avg => Some((all.iter().map(|&x| x as i128).sum::<i128>() / all.len() as i128) as $t),
                Op::Band => by(|a, b| a & b),
                Op::Bor => by(|a, b| a | b),
                Op::Bxor => by(|a, b| a ^ b),
                _ => truth(op, all.iter().map(|&x| x != 0)).map(|x| x as $t),
            }
        }
        fn bits(self) -> u128 { self as u64 as u128 }
    })* };
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Model for Bool {
    fn value(rank: usize, i: usize) -> Bool {
        Bool(((small(rank, i) + i as i32 + 3) % 2) as u8)
    }
    fn fold(op: Op, all: &[Bool]) -> Option<Bool> {
        let op = match op {
            Op::Min | Op::Band => Op::Land,
            Op::Max | Op::Bor => Op::Lor,
            Op::Bxor => Op::Lxor,
            op => op,
        };
        truth(op, all.iter().map(|x| x.0 != 0)).map(Bool::from)
    }
    fn bits(self) -> u128 {
        self.0.into()
    }
}

/// Sums and products of these are exact, whatever the grouping.
fn fold_f64(op: Op, all: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let (count, by) = (all.clone().count(), |f: fn(f64, f64) -> f64| all.clone().reduce(f));
    match op {
        Op::Sum => by(|a, b| a + b),
        Op::Prod => by(|a, b| a * b),
        Op::Min => by(f64::min),
        Op::Max => by(f64::max),
        Op::Avg => by(|a, b| a + b).map(|sum| sum / count as f64),
        _ => truth(op, all.map(|x| x != 0.0)).map(|x| x as u8 as f64),
    }
}

macro_rules! floats {
    ($($t:ty),*) => { $(impl Model for $t {
        fn value(rank: usize, i: usize) -> $t { small(rank, i) as $t * if i % 2 == 0 { 0.5 } else { 1.0 } }
        fn fold(op: Op, all: &[$t]) -> Option<$t> { fold_f64(op, all.iter().map(|&x| x as f64)).map(|x| x as $t) }
        fn bits(self) -> u128 { self.to_bits().into() }
    })* };
}
floats!(f32, f64);

/// To the nearest number of a float of so many bits of exponent and mantissa, to even; for numbers that are normal there.
fn rounded(value: f32, mantissa: u32) -> f32 {
    let (bits, drop) = (value.to_bits(), 23 - mantissa);
    let even = (bits >> drop) & 1;
    f32::from_bits(((bits + (1 << (drop - 1)) - 1 + even) >> drop) << drop)
}

/// The bits of such a number: those of an f32 with another bias.
fn encoded(value: f32, exponent: u32, mantissa: u32) -> u32 {
    let bits = rounded(value, mantissa).to_bits();
    let sign = bits >> 31 << (exponent + mantissa);
    if value == 0.0 {
        return sign;
    }
    let biased = (bits >> 23 & 0xff) + (1 << (exponent - 1)) - 128;
    sign | biased << mantissa | (bits & 0x7f_ffff) >> (23 - mantissa)
}

macro_rules! small_floats {
    ($($t:ident($bits:ty): $exponent:expr, $mantissa:expr;)*) => { $(impl Model for $t {
        fn value(rank: usize, i: usize) -> $t {
            $t(encoded(small(rank, i) as f32 * if i % 2 == 0 { 0.5 } else { 1.0 }, $exponent, $mantissa) as $bits)
        }
        fn fold(op: Op, all: &[$t]) -> Option<$t> {
            fold_f64(op, all.iter().map(|x| x.to_f32() as f64)).map(|x| $t(encoded(x as f32, $exponent, $mantissa) as $bits))
        }
        fn bits(self) -> u128 { self.0.into() }
    })* };
}
small_floats! { F16(u16): 5, 10; Bf16(u16): 8, 7; F8e4m3(u8): 4, 3; F8e5m2(u8): 5, 2; }

macro_rules! complexes {
    ($($t:ty),*) => { $(impl Model for Complex<$t> {
        fn value(rank: usize, i: usize) -> Self {
            Complex { re: small(rank, i) as $t, im: small(rank + 1, i + 2) as $t }
        }
        fn fold(op: Op, all: &[Self]) -> Option<Self> {
            let sum = |f: fn(&Self) -> $t| all.iter().map(f).fold(0.0, |a, b| a + b);
            let (re, im, n) = (sum(|x| x.re), sum(|x| x.im), all.len() as $t);
            match op {
                Op::Sum => Some(Complex { re, im }),
                Op::Avg => Some(Complex { re: re / n, im: im / n }),
                Op::Prod => all.iter().copied().reduce(|a, b| Complex {
                    re: a.re * b.re - a.im * b.im,
                    im: a.re * b.im + a.im * b.re,
                }),
                _ => None,
            }
        }
        fn bits(self) -> u128 { (self.re.to_bits() as u128) << 64 | self.im.to_bits() as u128 }
    })* };
}
complexes!(f32, f64);

macro_rules! located {
    ($($v:ty, $i:ty);*) => { $(impl Model for Located<$v, $i> {
        fn value(rank: usize, i: usize) -> Self {
            Located { value: small(rank, i) as $v, index: ((rank * 7 + i) % 5) as $i }
        }
        fn fold(op: Op, all: &[Self]) -> Option<Self> {
            let is_better = match op {
                Op::MinLoc => |a: $v, b: $v| a < b,
                Op::MaxLoc => |a: $v, b: $v| a > b,
                _ => return None,
            };
            all.iter().copied().reduce(|a, b| {
                if is_better(b.value, a.value) || (a.value == b.value && b.index < a.index) { b } else { a }
            })
        }
        fn bits(self) -> u128 { (self.value.bits() << 64) | self.index.bits() }
    })* };
}
located!(f32, i32; f64, i32; f64, i64; i32, i32; i64, i32; i64, i64);

impl Model for [u8; 5] {
    fn value(rank: usize, i: usize) -> Self {
        [rank as u8, i as u8, (i >> 8) as u8, 0xa5, (rank * 31 + i) as u8]
    }
    fn fold(_: Op, _: &[Self]) -> Option<Self> {
        None
    }
    fn bits(self) -> u128 {
        self.iter().fold(0, |bits, &byte| bits << 8 | byte as u128)
    }
}

fn of<T: Model>(rank: usize, from: usize, count: usize) -> Vec<T> {
    (from..from + count).map(|i| T::value(rank, i)).collect()
}

/// The result of the ranks of `over`, for each element.
fn folded<T: Model>(op: Op, over: std::ops::Range<usize>, count: usize) -> Option<Vec<T>> {
    (0..count).map(|i| T::fold(op, &over.clone().map(|r| T::value(r, i)).collect::<Vec<T>>())).collect()
}

struct Trial<'c> {
    comm: &'c Comm,
    what: String,
}

impl Trial<'_> {
    fn is<T: Model>(&self, call: &str, result: coll::Result<()>, has: &[T], wanted: &[T]) {
        let same = has.len() == wanted.len() && has.iter().zip(wanted).all(|(a, b)| a.bits() == b.bits());
        check(result.is_ok() && same, || {
            format!("rank {} of {}: {} of {}: {:?} {:?}, wanted {:?}", self.comm.rank(), self.comm.size(), call, self.what,
                result.as_ref().err(), has, wanted)
        });
    }

    /// As `is`, of a call that gives its result.
    fn gives<T: Model>(&self, call: &str, done: coll::Result<Vec<T>>, wanted: &[T]) {
        let (result, has) = match done {
            Ok(has) => (Ok(()), has),
            Err(error) => (Err(error), Vec::new()),
        };
        self.is(call, result, &has, wanted);
    }

    /// As `is`, of a call that is not defined: it says so.
    fn may<T: Model>(&self, call: &str, result: coll::Result<()>, has: &[T], wanted: Option<Vec<T>>) {
        match wanted {
            Some(wanted) => self.is(call, result, has, &wanted),
            None => self.refused(call, Status::Unsupported, result),
        }
    }

    fn refused<R>(&self, call: &str, status: Status, result: coll::Result<R>) {
        let error = result.err();
        let is_right = error.as_ref().map_or(false, |Error { status: s, rank, sentence }| {
            *s == status && *rank == Some(self.comm.rank()) && sentence.len() > 20
        });
        check(is_right, || format!("{} of {}: {:?} and not {:?}", call, self.what, error, status));
    }
}

fn reductions<T: Model>(t: &Trial, op: Op, n: usize) {
    let (comm, rank, size) = (t.comm, t.comm.rank(), t.comm.size());
    let (x, root, zeros) = (of::<T>(rank, 0, n), n % size, of::<T>(7, 99, n));
    let all = if n == 0 && T::fold(op, &[T::value(0, 0)]).is_none() { None } else { folded::<T>(op, 0..size, n) };
    let mut y = x.clone();
    let done = comm.allreduce(&mut y, op);
    t.may("allreduce", done, &y, all.clone());
    let mut y = zeros.clone();
    let done = comm.allreduce_to(&x, &mut y, op);
    t.may("allreduce_to", done, &y, all.clone());
    if let Some(all) = &all {
        let done = comm.iallreduce(x.clone(), op).and_then(|request| request.wait());
        t.gives("iallreduce", done, all);
        let kept = if rank == root { all.clone() } else { x.clone() };
        let mut y = x.clone();
        let done = comm.reduce_in_place(&mut y, op, root);
        t.is("reduce_in_place", done, &y, &kept);
        let done = comm.ireduce(x.clone(), op, root).and_then(|request| request.wait());
        t.gives("ireduce", done, &kept);
        let (mut y, mut w) = (x.clone(), of::<T>(rank, 0, n / 2));
        let done = comm.allreduce_list(&mut [&mut y, &mut w], op);
        t.is("allreduce_list", done, &y, all);
        t.is("allreduce_list", Ok(()), &w, &all[..n / 2]);
    }
    let mut y = if rank == root { zeros.clone() } else { Vec::new() };
    let done = comm.reduce(&x, &mut y, op, root);
    t.may("reduce", done, &y, all.as_ref().map(|all| if rank == root { all.clone() } else { Vec::new() }));
    scans(t, op, &x, if op == Op::Avg { None } else { all });
}

fn scans<T: Model>(t: &Trial, op: Op, x: &[T], all: Option<Vec<T>>) {
    let (comm, rank, n) = (t.comm, t.comm.rank(), x.len());
    let upto = all.as_ref().and_then(|_| folded::<T>(op, 0..rank + 1, n));
    let mut y = x.to_vec();
    let done = comm.scan(x, &mut y, op);
    t.may("scan", done, &y, upto.clone());
    let mut y = x.to_vec();
    let done = comm.scan_in_place(&mut y, op);
    t.may("scan_in_place", done, &y, upto.clone());
    let before = all.and_then(|_| if rank == 0 { Some(x.to_vec()) } else { folded::<T>(op, 0..rank, n) });
    let mut y = x.to_vec();
    let done = comm.exscan(x, &mut y, op);
    t.may("exscan", done, &y, before.clone());
    let mut y = x.to_vec();
    let done = comm.exscan_in_place(&mut y, op);
    t.may("exscan_in_place", done, &y, before.clone());
    if let (Some(upto), Some(before)) = (upto, before) {
        let (scan, exscan) = (comm.iscan(x.to_vec(), op), comm.iexscan(x.to_vec(), op));
        t.gives("iexscan", exscan.and_then(|request| request.wait()), &before);
        t.gives("iscan", scan.and_then(|request| request.wait()), &upto);
    }
}

fn reduce_scatters<T: Model>(t: &Trial, op: Op, n: usize) {
    let (comm, rank, size) = (t.comm, t.comm.rank(), t.comm.size());
    let x = of::<T>(rank, 0, n * size);
    let all = if T::fold(op, &[T::value(0, 0)]).is_none() { None } else { folded::<T>(op, 0..size, n * size) };
    let mine = all.as_ref().map(|all| all[rank * n..(rank + 1) * n].to_vec());
    let mut y = of::<T>(9, 9, n);
    let done = comm.reduce_scatter(&x, &mut y, op);
    t.may("reduce_scatter", done, &y, mine.clone());
    let mut y = x.clone();
    let done = comm.reduce_scatter_in_place(&mut y, op).map(|block| block.to_vec());
    let kept = done.clone().unwrap_or_default();
    t.may("reduce_scatter_in_place", done.map(|_| ()), &kept, mine.clone());
    if let (Some(all), Some(mine)) = (all, mine) {
        let done = comm.ireduce_scatter(x.clone(), op).and_then(|request| request.wait());
        t.gives("ireduce_scatter", done, &mine);
        let counts: Vec<usize> = (0..size).map(|r| (n + r) % 3).collect();
        let (begin, total) = (counts[..rank].iter().sum::<usize>(), counts.iter().sum::<usize>());
        if total <= all.len() {
            let mut y = of::<T>(9, 9, counts[rank]);
            let done = comm.reduce_scatterv(&x[..total], &counts, &mut y, op);
            t.is("reduce_scatterv", done, &y, &all[begin..begin + counts[rank]]);
        }
    }
}

fn moves<T: Model>(t: &Trial, n: usize) {
    let (comm, rank, size) = (t.comm, t.comm.rank(), t.comm.size());
    let (root, x) = (n % size, of::<T>(rank, 0, n));
    let all: Vec<T> = (0..size).flat_map(|r| of::<T>(r, 0, n)).collect();
    let blank = of::<T>(8, 3, n * size);
    let at_root = |all: &[T]| if rank == root { all.to_vec() } else { Vec::new() };

    let mut y = x.clone();
    let done = comm.broadcast(&mut y, root);
    t.is("broadcast", done, &y, &of::<T>(root, 0, n));
    let done = comm.ibroadcast(x.clone(), root).and_then(|request| request.wait());
    t.gives("ibroadcast", done, &of::<T>(root, 0, n));

    let mut y = at_root(&blank);
    let done = comm.gather(&x, &mut y, root);
    t.is("gather", done, &y, &at_root(&all));
    let mut y = if rank == root { blank.clone() } else { x.clone() };
    if rank == root {
        y[rank * n..(rank + 1) * n].copy_from_slice(&x);
    }
    let done = comm.gather_in_place(&mut y, root);
    t.is("gather_in_place", done, &y, if rank == root { &all } else { &x });
    let done = comm.igather(x.clone(), root).and_then(|request| request.wait());
    t.gives("igather", done, &at_root(&all));

    let mut y = blank[..n].to_vec();
    let done = comm.scatter(&at_root(&all), &mut y, root);
    t.is("scatter", done, &y, &x);
    let mut y = if rank == root { all.clone() } else { blank[..n].to_vec() };
    let done = comm.scatter_in_place(&mut y, root);
    t.is("scatter_in_place", done, &y, if rank == root { &all } else { &x });
    let done = comm.iscatter(at_root(&all), n, root).and_then(|request| request.wait());
    t.gives("iscatter", done, &x);

    let mut y = blank.clone();
    let done = comm.allgather(&x, &mut y);
    t.is("allgather", done, &y, &all);
    let mut y = blank.clone();
    y[rank * n..(rank + 1) * n].copy_from_slice(&x);
    let done = comm.allgather_in_place(&mut y);
    t.is("allgather_in_place", done, &y, &all);
    let done = comm.iallgather(x).and_then(|request| request.wait());
    t.gives("iallgather", done, &all);

    let (out, blocks) = (of::<T>(rank, 0, n * size), (0..size).flat_map(|r| of::<T>(r, rank * n, n)).collect::<Vec<T>>());
    let mut y = blank;
    let done = comm.alltoall(&out, &mut y);
    t.is("alltoall", done, &y, &blocks);
    let mut y = out.clone();
    let done = comm.alltoall_in_place(&mut y);
    t.is("alltoall_in_place", done, &y, &blocks);
    let done = comm.ialltoall(out).and_then(|request| request.wait());
    t.gives("ialltoall", done, &blocks);
}

/// Blocks with lengths of their own: rank r has r + n % 3 of them, and rank s sends (s + r + n) % 3 to rank r.
fn blocks<T: Model>(t: &Trial, n: usize) {
    let (comm, rank, size) = (t.comm, t.comm.rank(), t.comm.size());
    let root = (n + 1) % size;
    let counts: Vec<usize> = (0..size).map(|r| r + n % 3).collect();
    let all: Vec<T> = (0..size).flat_map(|r| of::<T>(r, 0, counts[r])).collect();
    let x = of::<T>(rank, 0, counts[rank]);
    let (rooted, none) = (if rank == root { all.clone() } else { Vec::new() }, Vec::new());

    let mut y = of::<T>(5, 5, all.len());
    let done = comm.allgatherv(&x, &mut y, &counts);
    t.is("allgatherv", done, &y, &all);
    let mut y = of::<T>(5, 5, rooted.len());
    let done = comm.gatherv(&x, &mut y, if rank == root { &counts } else { &none }, root);
    t.is("gatherv", done, &y, &rooted);
    let mut y = of::<T>(5, 5, counts[rank]);
    let done = comm.scatterv(&rooted, if rank == root { &counts } else { &none }, &mut y, root);
    t.is("scatterv", done, &y, &x);

    let pair = |from: usize, to: usize| (from + to + n) % 3;
    let (sends, recvs): (Vec<_>, Vec<_>) = (0..size).map(|r| (pair(rank, r), pair(r, rank))).unzip();
    let out: Vec<T> = (0..size).flat_map(|r| of::<T>(rank, r * 10, pair(rank, r))).collect();
    let wanted: Vec<T> = (0..size).flat_map(|r| of::<T>(r, rank * 10, pair(r, rank))).collect();
    let mut y = of::<T>(5, 5, wanted.len());
    let done = comm.alltoallv(&out, &sends, &mut y, &recvs);
    t.is("alltoallv", done, &y, &wanted);
}

fn messages<T: Model>(t: &Trial, n: usize) {
    let (comm, rank, size) = (t.comm, t.comm.rank(), t.comm.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let (x, theirs) = (of::<T>(rank, 0, n), of::<T>(before, 0, n));

    let mut y = of::<T>(5, 5, n + 2);
    let got = comm.sendrecv(&x, next, &mut y, Some(before), 4);
    check(got.as_ref().map_or(false, |r| (r.source, r.tag, r.count) == (before, 4, n)), || format!("sendrecv: {:?}", got));
    t.is("sendrecv", got.map(|_| ()), &y[..n], &theirs);
    let (receive, send) = (comm.irecv::<T>(n + 1, None, Some(5)), comm.isend(x.clone(), next, 5));
    let got = receive.and_then(|request| request.wait());
    check(got.as_ref().map_or(false, |(_, r)| (r.source, r.tag, r.count) == (before, 5, n)), || format!("irecv: {:?}", got));
    t.gives("irecv", got.map(|(y, _)| y), &theirs);
    t.gives("isend", send.and_then(|request| request.wait()), &x);
    if rank == 0 && size > 1 {
        let done = comm.send(&x, 1, 6);
        t.is::<T>("send", done, &[], &[]);
    } else if rank == 1 {
        let mut y = of::<T>(5, 5, n);
        let got = comm.recv(&mut y, Some(0), None);
        t.is("recv", got.map(|_| ()), &y, &of::<T>(0, 0, n));
    }
    let done = comm.neighbors(&[before, next], &[next, before]);
    t.is::<T>("neighbors", done, &[], &[]);
    let mut y = of::<T>(5, 5, 2 * n);
    let done = comm.neighbor_allgather(&x, &mut y);
    t.is("neighbor_allgather", done, &y, &[of::<T>(before, 0, n), of::<T>(next, 0, n)].concat());
    let mut y = of::<T>(5, 5, 2 * n);
    let done = comm.neighbor_alltoall(&of::<T>(rank, 0, 2 * n), &mut y, n);
    t.is("neighbor_alltoall", done, &y, &[of::<T>(before, 0, n), of::<T>(next, n, n)].concat());
}

fn all_of<T: Model>(comm: &Comm, name: &str) {
    for n in [0, 1, 3, 5, 17, 301] {
        for op in OPS {
            let t = Trial { comm, what: format!("{} x {}, {:?}", n, name, op) };
            reductions::<T>(&t, op, n);
            reduce_scatters::<T>(&t, op, n);
        }
        let t = Trial { comm, what: format!("{} x {}", n, name) };
        moves::<T>(&t, n);
        blocks::<T>(&t, n);
        messages::<T>(&t, n);
    }
}

/// Mistakes are refused before a byte is sent: the ranks continue with the next call.
fn mistakes(comm: &Comm) {
    let (size, t) = (comm.size(), Trial { comm, what: "a mistake".into() });
    let (x, mut y) = (vec![1i32; 3 * size + 1], vec![0i32; 3 * size + 2]);
    t.refused("allreduce_to", Status::Argument, comm.allreduce_to(&x, &mut y, Op::Sum));
    t.refused("allgather", Status::Argument, comm.allgather(&x[..3], &mut y[..3 * size + 1]));
    t.refused("scan", Status::Argument, comm.scan(&x, &mut y, Op::Sum));
    t.refused("exscan", Status::Argument, comm.exscan(&x, &mut y, Op::Sum));
    t.refused("reduce_scatter", Status::Argument, comm.reduce_scatter(&x, &mut y[..3], Op::Sum));
    t.refused("alltoall", Status::Argument, comm.alltoall(&x[..size], &mut y[..size + 1]));
    t.refused("reduce_scatterv", Status::Argument, comm.reduce_scatterv(&x, &vec![3; size], &mut y[..3], Op::Sum));
    t.refused("allgatherv", Status::Argument, comm.allgatherv(&x[..3], &mut y[..3 * size], &vec![3; size + 1]));
    t.refused("alltoallv", Status::Argument, comm.alltoallv(&x, &vec![3; size], &mut y[..3 * size], &vec![3; size]));
    t.refused("counts that overflow", Status::Argument,
        comm.alltoallv(&x[..1], &[vec![usize::MAX; size], vec![2; 0]].concat(), &mut y[..1], &vec![1; size]));
    t.refused("a root that is none", Status::Argument, comm.broadcast(&mut y, size));
    t.refused("a root that is no int", Status::Argument, comm.broadcast(&mut y, usize::MAX));
    t.refused("a tag below 0", Status::Argument, comm.send(&x, 0, -7));
    t.refused("neighbor_allgather", Status::Argument, comm.neighbor_allgather(&x[..1], &mut y[..3]));
    t.refused("neighbor_alltoall", Status::Argument, comm.neighbor_alltoall(&x[..3], &mut y[..2], 1));
    t.refused("a color below 0", Status::Argument, comm.split(Some(-3), 0));
    if size > 1 {
        t.refused("alltoall_in_place", Status::Argument, comm.alltoall_in_place(&mut y[..size + 1]));
        t.refused("allgather_in_place", Status::Argument, comm.allgather_in_place(&mut y[..size + 1]));
        t.refused("ialltoall", Status::Argument, comm.ialltoall(vec![1i32; size + 1]));
    }
    if comm.rank() == 0 {
        t.refused("reduce", Status::Argument, comm.reduce(&x, &mut y, Op::Sum, 0));
        t.refused("gather", Status::Argument, comm.gather(&x[..1], &mut y[..size + 1], 0));
        t.refused("scatter", Status::Argument, comm.scatter(&x[..size], &mut y[..2], 0));
        t.refused("gatherv", Status::Argument, comm.gatherv(&x[..1], &mut y[..size], &vec![2; size], 0));
        t.refused("scatterv", Status::Argument, comm.scatterv(&x[..size], &vec![1; size], &mut y[..2], 0));
    }
    t.refused("a wider wire", Status::Unsupported, comm.allreduce_with(&mut [F16(0)], Op::Sum,
        &Options { wire: Some(Wire::F32), ..Options::default() }));
    t.is("and it goes on", comm.barrier(), &[0u8; 0], &[]);
}

/// Options, prepared calls, requests that are dropped and forgotten, and communicators made from others.
fn others(comm: &Comm) {
    let (rank, size, t) = (comm.rank(), comm.size(), Trial { comm, what: "others".into() });
    let mut y = of::<f32>(rank, 0, 99);
    let done = comm.allreduce_with(&mut y, Op::Sum, &Options { wire: Some(Wire::Bf16), scale: Some(0.5), deterministic: true,
        timeout: Some(std::time::Duration::from_secs(60)), ..Options::default() });
    let half = |x: f32| rounded(x * 0.5, 7);
    let wanted: Vec<f32> = folded::<f32>(Op::Sum, 0..size, 99).unwrap().into_iter().map(half).collect();
    t.is("over bf16", done, &y, &wanted);

    let mut prepared = comm.prepare_allreduce(of::<i32>(rank, 0, 7), Op::Sum).expect("prepared");
    for _ in 0..3 {
        prepared.buffer().copy_from_slice(&of::<i32>(rank, 0, 7));
        let done = prepared.run();
        t.is("prepared", done, prepared.buffer(), &folded::<i32>(Op::Sum, 0..size, 7).unwrap());
    }
    drop(prepared);
    let mut request = comm.ibarrier().expect("ibarrier");
    while !request.test().expect("test") {}
    t.is("ibarrier", request.wait().map(|_| ()), &[0u8; 0], &[]);
    drop(comm.iallreduce(vec![1.0f64; 50_000], Op::Sum));
    std::mem::forget(comm.iallreduce(vec![1.0f64; 50_000], Op::Sum));
    t.is("after one that was forgotten", comm.barrier(), &[0u8; 0], &[]);

    let half = comm.split(Some((rank % 2) as i32), -(rank as i32)).expect("split").expect("each has a color");
    check(half.size() == (size + 1 - rank % 2) / 2 && half.rank() == half.size() - 1 - rank / 2, || "split".into());
    check(comm.split(None, 0).expect("split").is_none(), || "no color".into());
    let dup = comm.dup().expect("dup");
    std::thread::scope(|scope| {
        let there = scope.spawn(move || {
            let mut x = [1u64];
            dup.allreduce(&mut x, Op::Sum).map(|()| x[0])
        });
        let mut x = [2u64];
        let here = comm.allreduce(&mut x, Op::Sum).map(|()| x[0]);
        check(here.map_or(false, |x| x == 2 * size as u64), || "one thread".into());
        check(there.join().unwrap().map_or(false, |x| x == size as u64), || "another thread".into());
    });
    check(comm.split_host().map_or(false, |host| host.size() >= 1), || "split_host".into());
    check(comm.failed_ranks().is_empty(), || "no rank has failed".into());
}

fn worker(comm: &Comm) {
    macro_rules! types { ($($t:ty),* $(,)?) => { $(all_of::<$t>(comm, stringify!($t));)* } }
    types!(i8, i16, i32, i64, u8, u16, u32, u64, Bool, F16, Bf16, F8e4m3, F8e5m2, f32, f64, Complex<f32>, Complex<f64>);
    types!(Located<f32, i32>, Located<f64, i32>, Located<f64, i64>, Located<i32, i32>, Located<i64, i32>, Located<i64, i64>);
    types!([u8; 5]);
    mistakes(comm);
    others(comm);
}

/// Ranks whose lengths differ get an error, and nothing is written behind a buffer.
fn mismatches() {
    let results = coll::spawn(3, |comm| {
        let mut x = vec![1u8; 100 + comm.rank()];
        comm.allreduce(&mut x, Op::Max).expect_err("lengths differ").status
    });
    check(results.map_or(false, |all| all == [Status::Mismatch; 3]), || "allreduce of other lengths".into());
    let results = coll::spawn(2, |comm| {
        let mut y = vec![0u8; if comm.rank() == 0 { 8 } else { 0 }];
        let status = comm.gatherv(&vec![7u8; 4 + comm.rank()], &mut y, &[4, 4], 0).err().map(|error| error.status);
        (status, comm.rank() > 0 || y[4..] == [0; 4])
    });
    check(results.map_or(false, |all| all[0] == (Some(Status::Mismatch), true)), || "a block that is too long".into());
}

/// If one rank panics, the others get an error, and `spawn` panics.
fn panics() {
    let told = AtomicUsize::new(0);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        coll::spawn(3, |comm| {
            if comm.rank() == 1 {
                panic!("on purpose");
            }
            let error = comm.barrier().expect_err("rank 1 never comes");
            let is_right = error.status == Status::Aborted && error.sentence.contains("rank 1 of 3 has panicked");
            check(is_right, || format!("told of a panic: {:?}", error));
            told.fetch_add(1, Relaxed);
        })
    }));
    let why = result.expect_err("it goes on").downcast::<&str>().map(|why| *why == "on purpose");
    check(why.unwrap_or(false) && told.load(Relaxed) == 2, || "a panic".into());
    let none = coll::spawn(0, |_| ());
    check(none.map_or_else(|error| error.status == Status::Argument, |_| false), || "no ranks".into());
    let simulated = coll::Config { transport: Some("sim".into()), ..coll::Config::default() };
    let error = coll::spawn_with(2, &simulated, |_| ()).map(|_| ()).expect_err("not from Rust");
    check(error.status == Status::Unsupported && error.rank.is_none(), || format!("{}", error));
    let nowhere = coll::Config { rank_of: Some((1, 2)), address: Some("no\0where".into()), ..coll::Config::default() };
    check(Comm::init_with(&nowhere).map_err(|error| error.status).err() == Some(Status::Argument), || "a byte of 0".into());
    let nowhere = coll::Config {
        rank_of: Some((1, 2)),
        address: Some("127.0.0.1:1".into()),
        start_timeout: Some(std::time::Duration::from_millis(300)),
        ..coll::Config::default()
    };
    let error = Comm::init_with(&nowhere).map(|_| ()).expect_err("no rank is there");
    check(error.rank.is_none() && error.sentence.contains("127.0.0.1"), || format!("{:?}", error));
}

fn main() {
    if std::env::var_os("COLL_SIZE").is_some() {
        worker(&Comm::init().expect("a communicator"));
    } else {
        for ranks in 1..=5 {
            coll::spawn(ranks, |comm| worker(&comm)).expect("ranks");
        }
        std::env::set_var("COLL_DEBUG", "none");
        panics();
        mismatches();
    }
    println!("{} passed, {} failed", PASSED.load(Relaxed), FAILED.load(Relaxed));
    std::process::exit((FAILED.load(Relaxed) > 0) as i32);
}
