! SPDX-License-Identifier: MIT OR Apache-2.0
! Each kind of send (MPI 5.0 section 3.4) in its forms: blocking, nonblocking and persistent; the combined calls; buffers of a process,
! of a communicator and of a session (section 3.6). With mpi_f08 also with large counts.
#include "method.h"
#include "check.inc"

program send_forms
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer, parameter :: n = 50
  integer(kind=MPI_COUNT_KIND), parameter :: nc = n
  integer :: ierror, left, right, round = 0
  integer, asynchronous :: out(n), in(n)
  T_REQUEST :: request, receive

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  left = modulo(rank - 1, size_of_world)
  right = modulo(rank + 1, size_of_world)
  call blocking()
  call nonblocking()
  call persistent()
  call combined()
  call matched()
  call request_status()
  call set_statuses()
  call buffer_of_process()
  call buffer_of_communicator()
  call buffer_of_session()
  call MPI_Finalize(ierror)
  call tell()

contains

  ! New data, and a receive for that of the left neighbour. All ranks have posted theirs when this returns, as ready sends need it.
  subroutine expect()
    integer :: i
    round = round + 1
    out = [(word(rank, i), i=1, n)]
    in = -1
    call MPI_Irecv(in, n, MPI_INTEGER, left, round, MPI_COMM_WORLD, receive, ierror)
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
  end subroutine

  pure integer function word(from, i)
    integer, intent(in) :: from, i
    word = 1000 * from + 100000 * round + i
  end function

  ! The received data are those of this round.
  subroutine verify(call_name)
    character(*), intent(in) :: call_name
    integer :: i
    call equal(ierror, MPI_SUCCESS, call_name // ': ierror')
    call check(all(in == [(word(left, i), i=1, n)]), call_name // ': the data')
  end subroutine

  subroutine arrived(call_name)
    character(*), intent(in) :: call_name
    STATUS(s)
    integer :: count
    call equal(ierror, MPI_SUCCESS, call_name // ': ierror')
    call MPI_Wait(receive, s, ierror)
    call verify(call_name)
    call MPI_Get_count(s, MPI_INTEGER, count, ierror)
    call equal(count, n, call_name // ': count')
    call equal(SOURCE_OF(s), left, call_name // ': source')
    call equal(TAG_OF(s), round, call_name // ': tag')
  end subroutine

  subroutine sent_and_arrived(call_name)
    character(*), intent(in) :: call_name
    call equal(ierror, MPI_SUCCESS, call_name // ': ierror')
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call arrived(call_name)
  end subroutine

  subroutine blocking()
    call begin('blocking')
    call expect()
    call MPI_Send(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, ierror)
    call arrived('MPI_Send')
    call expect()
    call MPI_Rsend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, ierror)
    call arrived('MPI_Rsend')
    call expect()
    call MPI_Ssend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, ierror)
    call arrived('MPI_Ssend')
#if defined(BY_F08)
    call expect()
    call MPI_Send(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, ierror)
    call arrived('MPI_Send_c')
    call expect()
    call MPI_Rsend(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, ierror)
    call arrived('MPI_Rsend_c')
    call expect()
    call MPI_Ssend(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, ierror)
    call arrived('MPI_Ssend_c')
    ! The request of `expect` waits for a message of its own.
    call expect()
    call MPI_Isend(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call sent_and_arrived('MPI_Isend_c')
    in = -1
    call MPI_Isend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call MPI_Recv(in, nc, MPI_INTEGER, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call verify('MPI_Recv_c')
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    in = -1
    call MPI_Irecv(in, nc, MPI_INTEGER, left, round, MPI_COMM_WORLD, receive, ierror)
    call MPI_Send(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, ierror)
    call arrived('MPI_Irecv_c')
#endif
  end subroutine

  subroutine nonblocking()
    call begin('nonblocking')
    call expect()
    call MPI_Isend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call sent_and_arrived('MPI_Isend')
    call expect()
    call MPI_Irsend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call sent_and_arrived('MPI_Irsend')
    call expect()
    call MPI_Issend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call sent_and_arrived('MPI_Issend')
#if defined(BY_F08)
    call expect()
    call MPI_Irsend(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call sent_and_arrived('MPI_Irsend_c')
    call expect()
    call MPI_Issend(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call sent_and_arrived('MPI_Issend_c')
#endif
  end subroutine

  ! Starts the persistent send twice; the receive of the second is of its own.
  subroutine starts_twice(call_name)
    character(*), intent(in) :: call_name
    integer :: i
    call equal(ierror, MPI_SUCCESS, call_name // ': ierror')
    do i = 1, 2
      if (i == 2) then
        round = round - 1
        call expect()
      end if
      call MPI_Start(request, ierror)
      call sent_and_arrived(call_name)
    end do
    call MPI_Request_free(request, ierror)
  end subroutine

  subroutine persistent()
#if defined(BY_F08)
    integer :: i
#endif
    call begin('persistent')
    call expect()
    call MPI_Send_init(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call starts_twice('MPI_Send_init')
    call expect()
    call MPI_Rsend_init(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call starts_twice('MPI_Rsend_init')
    call expect()
    call MPI_Ssend_init(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call starts_twice('MPI_Ssend_init')
#if defined(BY_F08)
    call expect()
    call MPI_Send_init(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call starts_twice('MPI_Send_init_c')
    call expect()
    call MPI_Rsend_init(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call starts_twice('MPI_Rsend_init_c')
    call expect()
    call MPI_Ssend_init(out, nc, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call starts_twice('MPI_Ssend_init_c')
    call MPI_Recv_init(in, nc, MPI_INTEGER, left, round, MPI_COMM_WORLD, receive, ierror)
    do i = 1, 2
      in = -1
      call MPI_Start(receive, ierror)
      call MPI_Send(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, ierror)
      call MPI_Wait(receive, MPI_STATUS_IGNORE, ierror)
      call verify('MPI_Recv_init_c')
    end do
    call MPI_Request_free(receive, ierror)
#endif
  end subroutine

  ! New data, in `out` and with `replace` in `in`, without a receive.
  subroutine fresh(replace)
    logical, intent(in) :: replace
    integer :: i
    round = round + 1
    out = [(word(rank, i), i=1, n)]
    in = -1
    if (replace) in = out
  end subroutine

  subroutine combined()
    call begin('combined')
    call fresh(.false.)
    call MPI_Isendrecv(out, n, MPI_INTEGER, right, round, in, n, MPI_INTEGER, left, round, MPI_COMM_WORLD, receive, ierror)
    call arrived('MPI_Isendrecv')
    call fresh(.true.)
    call MPI_Sendrecv_replace(in, n, MPI_INTEGER, right, round, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call verify('MPI_Sendrecv_replace')
    call fresh(.true.)
    call MPI_Isendrecv_replace(in, n, MPI_INTEGER, right, round, left, round, MPI_COMM_WORLD, receive, ierror)
    call arrived('MPI_Isendrecv_replace')
#if defined(BY_F08)
    call fresh(.false.)
    call MPI_Isendrecv(out, nc, MPI_INTEGER, right, round, in, nc, MPI_INTEGER, left, round, MPI_COMM_WORLD, receive, ierror)
    call arrived('MPI_Isendrecv_c')
    call fresh(.true.)
    call MPI_Sendrecv_replace(in, nc, MPI_INTEGER, right, round, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call verify('MPI_Sendrecv_replace_c')
    call fresh(.true.)
    call MPI_Isendrecv_replace(in, nc, MPI_INTEGER, right, round, left, round, MPI_COMM_WORLD, receive, ierror)
    call arrived('MPI_Isendrecv_replace_c')
#endif
  end subroutine

  subroutine matched()
    T_MESSAGE :: message
    call begin('matched receives')
    call fresh(.false.)
    call MPI_Isend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call MPI_Mprobe(left, round, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE, ierror)
    call MPI_Imrecv(in, n, MPI_INTEGER, message, receive, ierror)
    call sent_and_arrived('MPI_Imrecv')
    call check(message == MPI_MESSAGE_NULL, 'the message is null')
#if defined(BY_F08)
    call fresh(.false.)
    call MPI_Isend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call MPI_Mprobe(left, round, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE, ierror)
    call MPI_Imrecv(in, nc, MPI_INTEGER, message, receive, ierror)
    call sent_and_arrived('MPI_Imrecv_c')
    call fresh(.false.)
    call MPI_Isend(out, n, MPI_INTEGER, right, round, MPI_COMM_WORLD, request, ierror)
    call MPI_Mprobe(left, round, MPI_COMM_WORLD, message, MPI_STATUS_IGNORE, ierror)
    call MPI_Mrecv(in, nc, MPI_INTEGER, message, MPI_STATUS_IGNORE, ierror)
    call verify('MPI_Mrecv_c')
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
#endif
  end subroutine

  ! Section 3.7.6: tells what is complete, and leaves the requests as they are.
  subroutine request_status()
    T_REQUEST :: requests(3)
    STATUSES(s, 3)
    STATUS(one)
    integer :: i, index, count, indices(3)
    logical :: flag
    call begin('MPI_Request_get_status')
    call fresh(.false.)
    do i = 1, 3
      call MPI_Irecv(in(i), 1, MPI_INTEGER, left, 100 * i, MPI_COMM_WORLD, requests(i), ierror)
    end do
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    call MPI_Request_get_status_any(3, requests, index, flag, one, ierror)
    call equal(flag, .false., 'nothing was sent: any')
    call MPI_Request_get_status_all(3, requests, flag, s, ierror)
    call equal(flag, .false., 'nothing was sent: all')
    call MPI_Request_get_status_some(3, requests, count, indices, s, ierror)
    call equal(count, 0, 'nothing was sent: some')
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    call MPI_Send(out(2), 1, MPI_INTEGER, right, 200, MPI_COMM_WORLD, ierror)
    flag = .false.
    do while (.not. flag)
      call MPI_Request_get_status_any(3, requests, index, flag, one, ierror)
    end do
    call equal(index, 2, 'the index of the one that is complete')
    call equal(TAG_OF(one), 200, 'its tag')
    call MPI_Request_get_status_some(3, requests, count, indices, s, ierror)
    call equal(count, 1, 'how many are complete')
    call equal(indices(1), 2, 'which')
    call equal(TAG_AT(s, 1), 200, 'the tag of its status')
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    do i = 1, 3, 2
      call MPI_Send(out(i), 1, MPI_INTEGER, right, 100 * i, MPI_COMM_WORLD, ierror)
    end do
    flag = .false.
    do while (.not. flag)
      call MPI_Request_get_status_all(3, requests, flag, s, ierror)
    end do
    do i = 1, 3
      call equal(TAG_AT(s, i), 100 * i, 'a tag of all')
      call check(requests(i) /= MPI_REQUEST_NULL, 'the request is still there')
    end do
    call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, ierror)
    call check(all(in(:3) == [(word(left, i), i=1, 3)]), 'data')
  end subroutine

  ! Section 13.3.
  subroutine set_statuses()
    STATUS(s)
    integer :: count, code
    call begin('fields of a status')
    call MPI_Status_set_source(s, 5, ierror)
    call MPI_Status_set_tag(s, 6, ierror)
    call MPI_Status_set_error(s, MPI_ERR_OTHER, ierror)
    call MPI_Status_set_elements(s, MPI_INTEGER, 7, ierror)
    call equal(SOURCE_OF(s), 5, 'the source')
    call equal(TAG_OF(s), 6, 'the tag')
    call equal(ERROR_OF(s), MPI_ERR_OTHER, 'the error')
    call MPI_Status_get_source(s, code, ierror)
    call equal(code, 5, 'MPI_Status_get_source')
    call MPI_Status_get_tag(s, code, ierror)
    call equal(code, 6, 'MPI_Status_get_tag')
    call MPI_Status_get_error(s, code, ierror)
    call equal(code, MPI_ERR_OTHER, 'MPI_Status_get_error')
    call MPI_Get_elements(s, MPI_INTEGER, count, ierror)
    call equal(count, 7, 'elements')
  end subroutine

  ! Bsend, Ibsend and Bsend_init with the buffer that is attached to `comm`, its session or the process.
  subroutine buffered_sends(comm)
    T_COMM, intent(in) :: comm
    integer :: i
    round = round + 1
    out = [(word(rank, i), i=1, n)]
    call MPI_Bsend(out, n, MPI_INTEGER, right, round, comm, ierror)
    call takes(comm, 'MPI_Bsend')
    call MPI_Ibsend(out, n, MPI_INTEGER, right, round, comm, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call takes(comm, 'MPI_Ibsend')
    call MPI_Bsend_init(out, n, MPI_INTEGER, right, round, comm, request, ierror)
    call MPI_Start(request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call takes(comm, 'MPI_Bsend_init')
    call MPI_Request_free(request, ierror)
#if defined(BY_F08)
    call MPI_Bsend(out, nc, MPI_INTEGER, right, round, comm, ierror)
    call takes(comm, 'MPI_Bsend_c')
    call MPI_Ibsend(out, nc, MPI_INTEGER, right, round, comm, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call takes(comm, 'MPI_Ibsend_c')
    call MPI_Bsend_init(out, nc, MPI_INTEGER, right, round, comm, request, ierror)
    call MPI_Start(request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call takes(comm, 'MPI_Bsend_init_c')
    call MPI_Request_free(request, ierror)
#endif
  end subroutine

  ! Receives what the left neighbour sent from its buffer.
  subroutine takes(comm, call_name)
    T_COMM, intent(in) :: comm
    character(*), intent(in) :: call_name
    call equal(ierror, MPI_SUCCESS, call_name // ': ierror')
    in = -1
    call MPI_Recv(in, n, MPI_INTEGER, left, round, comm, MPI_STATUS_IGNORE, ierror)
    call verify(call_name)
  end subroutine

  subroutine buffer_of_process()
    integer, asynchronous :: room(4000)
    call begin('the buffer of the process')
    call MPI_Buffer_attach(room, 16000, ierror)
    call buffered_sends(MPI_COMM_WORLD)
    call MPI_Buffer_flush(ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Buffer_flush')
    call MPI_Buffer_iflush(request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Buffer_iflush')
    call detach(MPI_COMM_NULL, 16000)
#if defined(BY_F08)
    call MPI_Buffer_attach(room, 16000_MPI_COUNT_KIND, ierror)
    call buffered_sends(MPI_COMM_WORLD)
    call detach(MPI_COMM_NULL, 16000)
#endif
  end subroutine

  ! Detaches the buffer of a communicator, or with MPI_COMM_NULL that of the process.
  subroutine detach(comm, bytes)
#if defined(BY_F08)
    use, intrinsic :: iso_c_binding, only: c_ptr
    type(c_ptr) :: place
    integer(kind=MPI_COUNT_KIND) :: size
#else
    integer(kind=MPI_ADDRESS_KIND) :: place
    integer :: size
#endif
    T_COMM, intent(in) :: comm
    integer, intent(in) :: bytes
    if (comm == MPI_COMM_NULL) then
      call MPI_Buffer_detach(place, size, ierror)
    else
      call MPI_Comm_detach_buffer(comm, place, size, ierror)
    end if
    call equal(ierror, MPI_SUCCESS, 'detaching')
    call equal(int(size), bytes, 'the size of the buffer')
  end subroutine

  subroutine buffer_of_communicator()
    integer, asynchronous :: room(4000)
    T_COMM :: comm
    call begin('the buffer of a communicator')
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierror)
    call MPI_Comm_attach_buffer(comm, room, 16000, ierror)
    call buffered_sends(comm)
    call MPI_Comm_flush_buffer(comm, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Comm_flush_buffer')
    call MPI_Comm_iflush_buffer(comm, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Comm_iflush_buffer')
    call detach(comm, 16000)
#if defined(BY_F08)
    call MPI_Comm_attach_buffer(comm, room, 16000_MPI_COUNT_KIND, ierror)
    call buffered_sends(comm)
    call detach(comm, 16000)
#endif
    call MPI_Comm_free(comm, ierror)
  end subroutine

  subroutine buffer_of_session()
#if defined(BY_F08)
    use, intrinsic :: iso_c_binding, only: c_ptr
    type(c_ptr) :: place
    integer(kind=MPI_COUNT_KIND) :: size
#else
    integer(kind=MPI_ADDRESS_KIND) :: place
    integer :: size
#endif
    integer, asynchronous :: room(4000)
    T_SESSION :: session
    T_GROUP :: group
    T_COMM :: comm
    call begin('the buffer of a session')
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session, ierror)
    call MPI_Group_from_session_pset(session, 'mpi://WORLD', group, ierror)
    call MPI_Comm_create_from_group(group, 'send_forms', MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, comm, ierror)
    call MPI_Group_free(group, ierror)
    call MPI_Session_attach_buffer(session, room, 16000, ierror)
    call buffered_sends(comm)
    call MPI_Session_flush_buffer(session, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Session_flush_buffer')
    call MPI_Session_iflush_buffer(session, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Session_iflush_buffer')
    call MPI_Session_detach_buffer(session, place, size, ierror)
    call equal(int(size), 16000, 'the size of the buffer')
#if defined(BY_F08)
    call MPI_Session_attach_buffer(session, room, 16000_MPI_COUNT_KIND, ierror)
    call buffered_sends(comm)
    call MPI_Session_detach_buffer(session, place, size, ierror)
    call equal(int(size), 16000, 'the size of the buffer that was attached with a large size')
#endif
    call MPI_Comm_free(comm, ierror)
    call MPI_Session_finalize(session, ierror)
  end subroutine

end program
