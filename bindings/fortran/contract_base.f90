! What the modules of contract_type.inc share: counting, numbers, and C's strings.
module contract_base
    use coll_raw
    implicit none
    public

    type :: trial
        type(c_ptr) :: comm
        integer :: rank, size
        character(len=80) :: what = ''
        integer(c_long) :: passed = 0, failed = 0
    end type

    interface
        ! Left out of coll_raw, as other languages have threads of their own.
        function coll_spawn(count, fn, arg, config) bind(c) result(result_)
            import
            integer(c_int), value :: count
            type(c_funptr), value :: fn
            type(c_ptr), value :: arg, config
            integer(c_int) :: result_
        end function
    end interface

contains

    ! COLL_IN_PLACE, which is a macro in C.
    function in_place() result(send)
        type(c_ptr) :: send

        send = transfer(-1_c_intptr_t, send)
    end function

    ! A fixed length: gfortran keeps that of a function's character(len=:) in static memory, which threads would share.
    function sentence(comm) result(text)
        type(c_ptr), intent(in) :: comm
        character(len=400) :: text
        character(kind=c_char), pointer :: letters(:)
        integer :: i

        call c_f_pointer(coll_error(comm), letters, [len(text)])
        text = ''
        do i = 1, len(text)
            if (letters(i) == c_null_char) exit
            text(i:i) = letters(i)
        end do
    end function

    subroutine conclusion(t, is_right, call_)
        type(trial), intent(inout) :: t
        logical, intent(in) :: is_right
        character(len=*), intent(in) :: call_

        if (is_right) then
            t%passed = t%passed + 1
        else
            t%failed = t%failed + 1
            print '(a,i0,a,i0,a)', 'FAILED - rank ', t%rank, ' of ', t%size, ': ' // call_ // ' of ' // trim(t%what) // ': ' &
                // trim(sentence(t%comm))
        end if
    end subroutine

    ! A mistake: this status, with a sentence, and the ranks go on.
    subroutine refused(t, call_, status, wanted)
        type(trial), intent(inout) :: t
        character(len=*), intent(in) :: call_
        integer(c_int), intent(in) :: status, wanted
        character(len=400) :: why

        why = sentence(t%comm)
        call conclusion(t, status == wanted .and. len_trim(why) > 20, call_ // ' is to be refused')
    end subroutine

    ! From -3 to 3 without 0: other ones for each rank and place.
    pure function small(rank, i) result(x)
        integer, intent(in) :: rank, i
        integer :: x
        integer, parameter :: numbers(0:6) = [1, -2, 3, 2, -1, 1, -3]

        x = numbers(mod(rank * 5 + i * 3, 7))
    end function

    ! What has come of a request.
    function ended(status, request) result(after)
        integer(c_int), intent(in) :: status
        type(c_ptr), intent(inout) :: request
        integer(c_int) :: after

        after = status
        if (status < 0) return
        after = coll_wait(request)
        call coll_request_free(request)
    end function

    ! Counts of blocks, and where each begins in elements.
    function offsets_of(counts) result(offsets)
        integer(c_size_t), intent(in) :: counts(:)
        integer(c_size_t) :: offsets(size(counts))
        integer :: r

        offsets(1) = 0
        do r = 2, size(counts)
            offsets(r) = offsets(r - 1) + counts(r - 1)
        end do
    end function

end module
