//! A sum over the ranks of the job, by the raw declarations.
use coll_sys::*;

fn main() {
    unsafe {
        let mut comm = std::ptr::null_mut();
        assert_eq!(coll_init(&mut comm, std::ptr::null()), COLL_OK);
        let mut x = [coll_rank(comm) as f32, 1.0];
        let at = x.as_mut_ptr().cast();
        assert_eq!(coll_allreduce(comm, at, at, 2, COLL_F32, COLL_SUM), COLL_OK);
        println!("rank {} of {}: {:.1} {:.1}", coll_rank(comm), coll_size(comm), x[0], x[1]);
        coll_free(comm);
    }
}
