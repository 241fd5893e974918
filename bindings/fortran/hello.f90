! A sum over the ranks of the job, by the raw declarations.
!     gfortran coll_raw.f90 hello.f90 -lcoll -o hello && coll-run -n 4 ./hello
program hello
    use coll_raw
    implicit none
    type(c_ptr) :: comm
    real(c_float), target :: x(2)

    if (coll_init(comm, c_null_ptr) < 0) error stop 'coll_init'
    x = [real(coll_rank(comm)), 1.0]
    if (coll_allreduce(comm, c_loc(x), c_loc(x), 2_c_size_t, COLL_F32, COLL_SUM) < 0) error stop 'coll_allreduce'
    print '(a,i0,a,i0,a,2(1x,f0.1))', 'rank ', coll_rank(comm), ' of ', coll_size(comm), ':', x
    if (coll_free(comm) < 0) error stop 'coll_free'
end program
