! SPDX-License-Identifier: MIT OR Apache-2.0
! Many requests: indices count from 1, statuses may be left out, flags are LOGICAL; persistent and generalized requests.
#include "method.h"
#include "check.inc"

! What MPI calls for a generalized request, sections 13.2 and 19.1.
module callbacks
  implicit none
  integer :: freed = 0, cancelled = 0
contains
  subroutine query(extra_state, s, ierror)
    USE_MPI
    INCLUDE_MPI
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    STATUS(s)
    integer :: ierror
    call MPI_Status_set_elements(s, MPI_INTEGER, int(extra_state), ierror)
    call MPI_Status_set_cancelled(s, .false., ierror)
    SOURCE_OF(s) = 41
    TAG_OF(s) = 42
    ierror = MPI_SUCCESS
  end subroutine

  subroutine release(extra_state, ierror)
    USE_MPI
    INCLUDE_MPI
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    freed = freed + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

  subroutine cancel(extra_state, complete, ierror)
    USE_MPI
    INCLUDE_MPI
    integer(kind=MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    if (.not. complete) cancelled = cancelled + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine
end module

program waits
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierror, left, right
  integer, parameter :: n = 5

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  left = mod(rank + size_of_world - 1, size_of_world)
  right = mod(rank + 1, size_of_world)
  call all_of_them()
  call any_of_them()
  call some_of_them()
  call tests()
  call no_requests()
  call persistent()
  call cancelled_receive()
  call looked_at()
  call generalized()
  call an_error_in_one()
  call MPI_Finalize(ierror)
  call tell()

contains

  ! Receives with tags 1..n of messages that are sent in the reverse order.
  subroutine exchange(requests, in, out)
    T_REQUEST, intent(out) :: requests(2 * n)
    integer, asynchronous :: in(n), out(n)
    integer :: i
    in = -1
    out = [(rank * 10 + i, i=1, n)]
    do i = 1, n
      call MPI_Irecv(in(i), 1, MPI_INTEGER, left, i, MPI_COMM_WORLD, requests(i), ierror)
    end do
    do i = n, 1, -1
      call MPI_Isend(out(i), 1, MPI_INTEGER, right, i, MPI_COMM_WORLD, requests(n + i), ierror)
    end do
  end subroutine

  subroutine all_null(requests)
    T_REQUEST, intent(in) :: requests(:)
    integer :: i
    do i = 1, size(requests)
      call check(requests(i) == MPI_REQUEST_NULL, 'each request is null')
    end do
  end subroutine

  subroutine all_of_them()
    integer, asynchronous :: in(n), out(n)
    integer :: i
    T_REQUEST :: requests(2 * n)
    STATUSES(s, 2 * n)
    call begin('MPI_Waitall')
    call exchange(requests, in, out)
    call MPI_Waitall(2 * n, requests, s, ierror)
    call equal(ierror, MPI_SUCCESS, 'ierror')
    call check(all(in == [(left * 10 + i, i=1, n)]), 'data')
    do i = 1, n
      call equal(SOURCE_AT(s, i), left, 'source')
      call equal(TAG_AT(s, i), i, 'tag')
    end do
    call all_null(requests)
    call exchange(requests, in, out)
    call MPI_Waitall(2 * n, requests, MPI_STATUSES_IGNORE, ierror)
    call check(all(in == [(left * 10 + i, i=1, n)]), 'data without statuses')
    call all_null(requests)
  end subroutine

  subroutine any_of_them()
    integer, asynchronous :: in(n), out(n)
    integer :: index, times, seen(2 * n)
    T_REQUEST :: requests(2 * n)
    STATUS(s)
    call begin('MPI_Waitany')
    call exchange(requests, in, out)
    seen = 0
    do times = 1, 2 * n
      call MPI_Waitany(2 * n, requests, index, s, ierror)
      call check(index >= 1 .and. index <= 2 * n, 'an index from 1 to the number of requests')
      if (index < 1 .or. index > 2 * n) return
      seen(index) = seen(index) + 1
      call check(requests(index) == MPI_REQUEST_NULL, 'the request of the index is null')
      if (index <= n) then
        call equal(TAG_OF(s), index, 'tag')
        call equal(in(index), left * 10 + index, 'data of the index')
      end if
    end do
    call check(all(seen == 1), 'each index once')
    call MPI_Waitany(2 * n, requests, index, s, ierror)
    call equal(index, MPI_UNDEFINED, 'index where all requests are null')
    call equal(SOURCE_OF(s), MPI_ANY_SOURCE, 'source of an empty status')
  end subroutine

  subroutine some_of_them()
    integer, asynchronous :: in(n), out(n)
    integer :: count, i, indices(2 * n), done, seen(2 * n)
    T_REQUEST :: requests(2 * n)
    STATUSES(s, 2 * n)
    call begin('MPI_Waitsome')
    call exchange(requests, in, out)
    seen = 0
    done = 0
    do while (done < 2 * n)
      call MPI_Waitsome(2 * n, requests, count, indices, s, ierror)
      call check(count >= 1 .and. count <= 2 * n - done, 'at least one')
      if (count < 1) return
      do i = 1, count
        seen(indices(i)) = seen(indices(i)) + 1
        if (indices(i) > n) cycle
        call equal(TAG_AT(s, i), indices(i), 'tag')
        call equal(in(indices(i)), left * 10 + indices(i), 'data of the index')
      end do
      done = done + count
    end do
    call check(all(seen == 1), 'each index once')
    call MPI_Waitsome(2 * n, requests, count, indices, MPI_STATUSES_IGNORE, ierror)
    call equal(count, MPI_UNDEFINED, 'count where all requests are null')
  end subroutine

  subroutine tests()
    integer, asynchronous :: in(n), out(n)
    integer :: index, count, indices(2 * n), done
    logical :: flag
    T_REQUEST :: requests(2 * n), one
    STATUS(s)
    STATUSES(ss, 2 * n)
    call begin('MPI_Test, Testall, Testany, Testsome')
    call MPI_Irecv(in, 1, MPI_INTEGER, left, 77, MPI_COMM_WORLD, one, ierror)
    flag = .true.
    call MPI_Test(one, flag, s, ierror)
    call check(.not. flag, 'nothing was sent')
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    call MPI_Send(rank, 1, MPI_INTEGER, right, 77, MPI_COMM_WORLD, ierror)
    flag = .false.
    do while (.not. flag)
      call MPI_Test(one, flag, s, ierror)
    end do
    call equal(in(1), left, 'data of MPI_Test')
    call exchange(requests, in, out)
    flag = .false.
    do while (.not. flag)
      call MPI_Testall(2 * n, requests, flag, ss, ierror)
    end do
    call equal(TAG_AT(ss, n), n, 'tag of MPI_Testall')
    call exchange(requests, in, out)
    done = 0
    do while (done < 2 * n)
      call MPI_Testany(2 * n, requests, index, flag, s, ierror)
      if (.not. flag) then
        call equal(index, MPI_UNDEFINED, 'index of MPI_Testany without a complete request')
        cycle
      end if
      call check(index >= 1 .and. index <= 2 * n, 'index of MPI_Testany')
      done = done + 1
    end do
    call MPI_Testany(2 * n, requests, index, flag, s, ierror)
    call check(flag, 'flag of MPI_Testany where all requests are null')
    call equal(index, MPI_UNDEFINED, 'index of MPI_Testany where all requests are null')
    call exchange(requests, in, out)
    done = 0
    do while (done < 2 * n)
      call MPI_Testsome(2 * n, requests, count, indices, ss, ierror)
      call check(all(indices(:count) >= 1 .and. indices(:count) <= 2 * n), 'indices of MPI_Testsome')
      done = done + count
    end do
    call all_null(requests)
  end subroutine

  subroutine no_requests()
    T_REQUEST :: none(1)
    integer :: index, count, indices(1)
    logical :: flag
    call begin('no requests')
    none = MPI_REQUEST_NULL
    call MPI_Waitall(0, none, MPI_STATUSES_IGNORE, ierror)
    call equal(ierror, MPI_SUCCESS, 'ierror')
    call MPI_Waitany(0, none, index, MPI_STATUS_IGNORE, ierror)
    call equal(index, MPI_UNDEFINED, 'index')
    call MPI_Testall(1, none, flag, MPI_STATUSES_IGNORE, ierror)
    call check(flag, 'null requests are complete')
    call MPI_Testsome(1, none, count, indices, MPI_STATUSES_IGNORE, ierror)
    call equal(count, MPI_UNDEFINED, 'count')
  end subroutine

  subroutine persistent()
    integer, asynchronous :: in, out
    integer :: round
    T_REQUEST :: requests(2)
    call begin('persistent requests')
    call MPI_Recv_init(in, 1, MPI_INTEGER, left, 8, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Send_init(out, 1, MPI_INTEGER, right, 8, MPI_COMM_WORLD, requests(2), ierror)
    do round = 1, 20
      out = 100 * round + rank
      call MPI_Startall(2, requests, ierror)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
      call equal(in, 100 * round + left, 'data')
      call check(requests(1) /= MPI_REQUEST_NULL, 'a persistent request stays')
    end do
    call MPI_Start(requests(1), ierror)
    call MPI_Start(requests(2), ierror)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
    call MPI_Wait(requests(2), MPI_STATUS_IGNORE, ierror)
    call MPI_Request_free(requests(1), ierror)
    call MPI_Request_free(requests(2), ierror)
    call all_null(requests)
  end subroutine

  subroutine cancelled_receive()
    integer, asynchronous :: in
    logical :: flag
    T_REQUEST :: request
    STATUS(s)
    call begin('MPI_Cancel')
    call MPI_Irecv(in, 1, MPI_INTEGER, left, 500, MPI_COMM_WORLD, request, ierror)
    call MPI_Cancel(request, ierror)
    call MPI_Wait(request, s, ierror)
    flag = .false.
    call MPI_Test_cancelled(s, flag, ierror)
    call check(flag, 'a receive without a message is cancelled')
    call MPI_Status_set_cancelled(s, .false., ierror)
    call MPI_Test_cancelled(s, flag, ierror)
    call check(.not. flag, 'what MPI_Status_set_cancelled sets')
  end subroutine

  subroutine looked_at()
    integer, asynchronous :: in, out
    logical :: flag
    T_REQUEST :: requests(2)
    STATUS(s)
    call begin('MPI_Request_get_status')
    call MPI_Irecv(in, 1, MPI_INTEGER, left, 9, MPI_COMM_WORLD, requests(1), ierror)
    out = rank
    call MPI_Isend(out, 1, MPI_INTEGER, right, 9, MPI_COMM_WORLD, requests(2), ierror)
    flag = .false.
    do while (.not. flag)
      call MPI_Request_get_status(requests(1), flag, s, ierror)
    end do
    call equal(SOURCE_OF(s), left, 'source')
    call check(requests(1) /= MPI_REQUEST_NULL, 'looking takes nothing')
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
  end subroutine

  subroutine generalized()
    use callbacks
    T_REQUEST :: request
    integer(kind=MPI_ADDRESS_KIND) :: extra
    integer :: count
    logical :: flag
    STATUS(s)
    call begin('generalized requests')
    extra = 7
    call MPI_Grequest_start(query, release, cancel, extra, request, ierror)
    call MPI_Test(request, flag, s, ierror)
    call check(.not. flag, 'not complete yet')
    call MPI_Cancel(request, ierror)
    call equal(cancelled, 7, 'the cancel function has run')
    call MPI_Grequest_complete(request, ierror)
    call MPI_Wait(request, s, ierror)
    call equal(SOURCE_OF(s), 41, 'source')
    call equal(TAG_OF(s), 42, 'tag')
    call MPI_Get_elements(s, MPI_INTEGER, count, ierror)
    call equal(count, 7, 'elements')
    call equal(freed, 7, 'the free function has run')
    call check(request == MPI_REQUEST_NULL, 'the request is null')
  end subroutine

  subroutine an_error_in_one()
    integer, asynchronous :: in(2), out(2)
    integer :: class, code
    T_REQUEST :: requests(2)
    STATUSES(s, 2)
    call begin('an error in one request')
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierror)
    call MPI_Irecv(in, 1, MPI_INTEGER, left, 13, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Irecv(in(2), 1, MPI_INTEGER, left, 14, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    out = rank
    call MPI_Send(out, 2, MPI_INTEGER, right, 13, MPI_COMM_WORLD, ierror)
    call MPI_Send(out, 1, MPI_INTEGER, right, 14, MPI_COMM_WORLD, ierror)
    call MPI_Waitall(2, requests, s, code)
    call MPI_Error_class(code, class, ierror)
    call equal(class, MPI_ERR_IN_STATUS, 'class of MPI_Waitall')
    call MPI_Error_class(ERROR_AT(s, 1), class, ierror)
    call equal(class, MPI_ERR_TRUNCATE, 'error of the first')
    code = ERROR_AT(s, 2)
    call check(code == MPI_SUCCESS .or. code == MPI_ERR_PENDING, 'the second has no error')
    if (code == MPI_ERR_PENDING) call MPI_Wait(requests(2), MPI_STATUS_IGNORE, ierror)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, ierror)
  end subroutine

end program
