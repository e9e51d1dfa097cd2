! SPDX-License-Identifier: MIT OR Apache-2.0
! Point-to-point messages, chapter 3: every blocking mode, statuses, probes, sections of arrays.
#include "method.h"
#include "check.inc"

program basic
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierror, left, right

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  left = mod(rank + size_of_world - 1, size_of_world)
  right = mod(rank + 1, size_of_world)
  call ring()
  call modes()
  call nobody()
  call halo()
  call probes()
  call matched_probes()
  call all_kinds()
  call version_and_time()
  call MPI_Finalize(ierror)
  call tell()

contains

  subroutine ring()
    integer :: token, wanted
    STATUS(s)
    call begin('ring')
    token = 100
    if (size_of_world == 1) return
    if (rank == 0) then
      call MPI_Send(token, 1, MPI_INTEGER, right, 3, MPI_COMM_WORLD, ierror)
      call equal(ierror, MPI_SUCCESS, 'ierror')
    end if
    call MPI_Recv(token, 1, MPI_INTEGER, left, MPI_ANY_TAG, MPI_COMM_WORLD, s, ierror)
    wanted = 100 + rank - 1
    if (rank == 0) wanted = 100 + size_of_world - 1
    call equal(token, wanted, 'token')
    call equal(SOURCE_OF(s), left, 'source')
    call equal(TAG_OF(s), 3, 'tag')
    if (rank /= 0) call MPI_Send(token + 1, 1, MPI_INTEGER, right, 3, MPI_COMM_WORLD, ierror)
  end subroutine

  subroutine modes()
    real(kind(0d0)) :: out(1000), in(1000)
    integer :: bytes, count, i
    character, allocatable :: buffer(:), taken(:)
    T_REQUEST :: request
    STATUS(s)
    call begin('modes')
    out = [(i * 0.5d0 + rank, i=1, 1000)]
    call MPI_Irecv(in, 1000, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, request, ierror)
    call MPI_Ssend(out, 500, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, ierror)
    call MPI_Wait(request, s, ierror)
    call check(request == MPI_REQUEST_NULL, 'the request is null after MPI_Wait')
    call MPI_Get_count(s, MPI_DOUBLE_PRECISION, count, ierror)
    call equal(count, 500, 'count')
    call check(all(in(:500) == [(i * 0.5d0 + left, i=1, 500)]), 'what MPI_Ssend sent')
    call MPI_Irecv(in, 1000, MPI_DOUBLE_PRECISION, left, 2, MPI_COMM_WORLD, request, ierror)
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    call MPI_Rsend(out, 1000, MPI_DOUBLE_PRECISION, right, 2, MPI_COMM_WORLD, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call check(in(1000) == 500d0 + left, 'what MPI_Rsend sent')
    call MPI_Pack_size(1000, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD, bytes, ierror)
    allocate (buffer(bytes + MPI_BSEND_OVERHEAD), taken(1))
    call MPI_Buffer_attach(buffer, bytes + MPI_BSEND_OVERHEAD, ierror)
    call MPI_Bsend(out, 1000, MPI_DOUBLE_PRECISION, right, 4, MPI_COMM_WORLD, ierror)
    call MPI_Recv(in, 1000, MPI_DOUBLE_PRECISION, left, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(in(1) == 0.5d0 + left, 'what MPI_Bsend sent')
    call detach(bytes)
    call MPI_Sendrecv_replace(out, 1000, MPI_DOUBLE_PRECISION, right, 5, left, 5, MPI_COMM_WORLD, s, ierror)
    call check(out(2) == 1d0 + left, 'what MPI_Sendrecv_replace exchanged')
  end subroutine

  subroutine detach(bytes)
#if defined(BY_F08)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_associated
#endif
    integer, intent(in) :: bytes
    integer :: size
#if defined(BY_F08)
    type(c_ptr) :: address
    call MPI_Buffer_detach(address, size, ierror)
    call check(c_associated(address), 'the address of the buffer that was attached')
#else
    character :: ignored(1)
    ! Section 3.6: with these bindings, the returned address has no meaning.
    call MPI_Buffer_detach(ignored, size, ierror)
#endif
    call equal(size, bytes + MPI_BSEND_OVERHEAD, 'size of the buffer')
  end subroutine

  subroutine nobody()
    integer :: value, count
    STATUS(s)
    call begin('nobody')
    value = 5
    call MPI_Send(value, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, ierror)
    call MPI_Recv(value, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, s, ierror)
    call equal(value, 5, 'value')
    call equal(SOURCE_OF(s), MPI_PROC_NULL, 'source')
    call equal(TAG_OF(s), MPI_ANY_TAG, 'tag')
    call MPI_Get_count(s, MPI_INTEGER, count, ierror)
    call equal(count, 0, 'count')
  end subroutine

  ! A field with a column of halo at each side, and rows that are sent as a vector.
  subroutine halo()
    integer, parameter :: n = 12
    real :: field(n, 0:n + 1)
    T_DATATYPE :: row
    call begin('halo')
    field = -1
    field(:, 1:n) = rank
    call MPI_Sendrecv(field(1, n), n, MPI_REAL, right, 0, field(1, 0), n, MPI_REAL, left, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(field(1, 1), n, MPI_REAL, left, 0, field(1, n + 1), n, MPI_REAL, right, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(all(field(:, 0) == left), 'the left halo')
    call check(all(field(:, n + 1) == right), 'the right halo')
    call MPI_Type_vector(n, 1, n, MPI_REAL, row, ierror)
    call MPI_Type_commit(row, ierror)
    call MPI_Sendrecv(field(1, 1), 1, row, right, 0, field(n, 1), 1, row, left, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(all(field(n, 1:n) == left), 'the last row')
    call check(all(field(1:n - 1, 1:n) == rank), 'the rows before it')
    call MPI_Type_free(row, ierror)
    call check(row == MPI_DATATYPE_NULL, 'a freed datatype is null')
  end subroutine

  subroutine probes()
    integer :: data(7), count, i
    logical :: there
    T_REQUEST :: request
    STATUS(s)
    call begin('probes')
    call MPI_Iprobe(left, 98, MPI_COMM_WORLD, there, s, ierror)
    call check(.not. there, 'nothing is there')
    call MPI_Isend([(i + rank, i=1, 7)], 0, MPI_INTEGER, right, 99, MPI_COMM_WORLD, request, ierror)
    call MPI_Probe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, s, ierror)
    call equal(SOURCE_OF(s), left, 'source')
    there = .false.
    do while (.not. there)
      call MPI_Iprobe(left, 99, MPI_COMM_WORLD, there, MPI_STATUS_IGNORE, ierror)
    end do
    call MPI_Get_count(s, MPI_INTEGER, count, ierror)
    call equal(count, 0, 'count')
    call MPI_Recv(data, 7, MPI_INTEGER, left, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
  end subroutine

  subroutine matched_probes()
    integer :: data(3), out(3)
    logical :: there
    T_MESSAGE :: message
    T_REQUEST :: sent, received
    STATUS(s)
    call begin('matched probes')
    out = [1, 2, 3] * (rank + 1)
    call MPI_Isend(out, 3, MPI_INTEGER, right, 11, MPI_COMM_WORLD, sent, ierror)
    call MPI_Mprobe(left, 11, MPI_COMM_WORLD, message, s, ierror)
    call MPI_Mrecv(data, 3, MPI_INTEGER, message, s, ierror)
    call check(message == MPI_MESSAGE_NULL, 'a received message is null')
    call check(all(data == [1, 2, 3] * (left + 1)), 'data of MPI_Mrecv')
    call MPI_Wait(sent, s, ierror)
    call MPI_Isend(out, 3, MPI_INTEGER, right, 12, MPI_COMM_WORLD, sent, ierror)
    there = .false.
    do while (.not. there)
      call MPI_Improbe(left, 12, MPI_COMM_WORLD, there, message, s, ierror)
    end do
    data = 0
    call MPI_Imrecv(data, 3, MPI_INTEGER, message, received, ierror)
    call MPI_Wait(received, s, ierror)
    call check(all(data == [1, 2, 3] * (left + 1)), 'data of MPI_Imrecv')
    call MPI_Wait(sent, s, ierror)
    call MPI_Mprobe(MPI_PROC_NULL, 0, MPI_COMM_WORLD, message, s, ierror)
    call check(message == MPI_MESSAGE_NO_PROC, 'the message of nobody')
  end subroutine

  ! The rank sends a value of each intrinsic type to itself.
  subroutine all_kinds()
    integer, parameter :: wide = selected_int_kind(18), tiny = selected_int_kind(2)
    complex :: c(2)
    complex(kind(0d0)) :: z(2)
    integer(wide) :: i8(2)
    integer(tiny) :: i1(2)
    logical :: l(2)
    character(5) :: text(2)
    call begin('all kinds')
    c = [(1.0, 2.0), (0.0, 0.0)]
    call MPI_Sendrecv(c(1), 1, MPI_COMPLEX, rank, 0, c(2), 1, MPI_COMPLEX, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(c(1) == c(2), 'MPI_COMPLEX')
    z = [(1d0, 2d0), (0d0, 0d0)]
    call MPI_Sendrecv(z(1), 1, MPI_DOUBLE_COMPLEX, rank, 0, z(2), 1, MPI_DOUBLE_COMPLEX, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(z(1) == z(2), 'MPI_DOUBLE_COMPLEX')
    i8 = [1234567890123456_wide, 0_wide]
    call MPI_Sendrecv(i8(1), 1, MPI_INTEGER8, rank, 0, i8(2), 1, MPI_INTEGER8, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(i8(1) == i8(2), 'MPI_INTEGER8')
    i1 = [77_tiny, 0_tiny]
    call MPI_Sendrecv(i1(1), 1, MPI_INTEGER1, rank, 0, i1(2), 1, MPI_INTEGER1, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(i1(1) == i1(2), 'MPI_INTEGER1')
    l = [.true., .false.]
    call MPI_Sendrecv(l(1), 1, MPI_LOGICAL, rank, 0, l(2), 1, MPI_LOGICAL, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(l(2), 'MPI_LOGICAL')
    text = ['hello', '     ']
    call MPI_Sendrecv(text(1), 5, MPI_CHARACTER, rank, 0, text(2), 5, MPI_CHARACTER, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call equal(text(2), 'hello', 'MPI_CHARACTER')
  end subroutine

  subroutine version_and_time()
    integer :: version, subversion
    double precision :: before
    call begin('version and time')
    call MPI_Get_version(version, subversion, ierror)
    call equal(version, MPI_VERSION, 'version')
    call equal(subversion, MPI_SUBVERSION, 'subversion')
    before = MPI_Wtime()
    call check(MPI_Wtime() >= before, 'time goes on')
    call check(MPI_Wtick() > 0 .and. MPI_Wtick() < 1, 'a tick')
  end subroutine

end program
