! SPDX-License-Identifier: MIT OR Apache-2.0
! Collectives, chapter 6: all of them with Fortran's types, in place, nonblocking, and with operations written in Fortran.
#include "method.h"
#include "check.inc"

module operations
  implicit none
contains
  ! Sums, and adds one for each element, which shows whether the function is called with the right arguments.
#if defined(BY_F08)
  subroutine add_one(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding, only: c_f_pointer, c_ptr
    use mpi_f08
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: in(:), inout(:)
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 77)
    call c_f_pointer(invec, in, [len])
    call c_f_pointer(inoutvec, inout, [len])
    inout = inout + in + 1
  end subroutine
#else
  subroutine add_one(invec, inoutvec, len, datatype)
    USE_MPI
    INCLUDE_MPI
    integer :: len, datatype
    integer :: invec(len), inoutvec(len)
    integer :: ierror
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 77, ierror)
    inoutvec = inoutvec + invec + 1
  end subroutine
#endif
end module

program collectives
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierror, n

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  n = size_of_world
  call from_one()
  call to_one()
  call to_all()
  call with_counts()
  call in_place()
  call reductions()
  call places()
  call logicals()
  call scans()
  call own_operation()
  call nonblocking()
  call different_types()
  call MPI_Finalize(ierror)
  call tell()

contains

  subroutine from_one()
    real(kind(0d0)) :: data(100), part(3)
    real(kind(0d0)), allocatable :: all_parts(:, :)
    character(12) :: text
    integer :: i, root
    call begin('from one')
    do root = 0, n - 1
      data = merge(1d0 * root + [(i, i=1, 100)], [(0d0, i=1, 100)], rank == root)
      call MPI_Bcast(data, 100, MPI_DOUBLE_PRECISION, root, MPI_COMM_WORLD, ierror)
      call check(all(data == 1d0 * root + [(i, i=1, 100)]), 'data of MPI_Bcast')
      allocate (all_parts(3, 0:n - 1))
      if (rank == root) all_parts = reshape([(1d0 * i, i=1, 3 * n)], [3, n])
      call MPI_Scatter(all_parts, 3, MPI_DOUBLE_PRECISION, part, 3, MPI_DOUBLE_PRECISION, root, MPI_COMM_WORLD, ierror)
      call check(all(part == [(3d0 * rank + i, i=1, 3)]), 'data of MPI_Scatter')
      deallocate (all_parts)
    end do
    text = merge('hello world ', '            ', rank == 0)
    call MPI_Bcast(text, len(text), MPI_CHARACTER, 0, MPI_COMM_WORLD, ierror)
    call equal(text, 'hello world', 'text of MPI_Bcast')
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
  end subroutine

  subroutine to_one()
    integer :: mine(2), gathered(2, n), i
    call begin('to one')
    mine = [rank, -rank]
    gathered = 99
    call MPI_Gather(mine, 2, MPI_INTEGER, gathered, 2, MPI_INTEGER, n - 1, MPI_COMM_WORLD, ierror)
    if (rank == n - 1) then
      call check(all(gathered(1, :) == [(i, i=0, n - 1)]), 'the first row of MPI_Gather')
      call check(all(gathered(2, :) == [(-i, i=0, n - 1)]), 'the second row of MPI_Gather')
    else
      call check(all(gathered == 99), 'others get nothing')
    end if
  end subroutine

  subroutine to_all()
    integer :: gathered(n), out(n), in(n), i
    call begin('to all')
    call MPI_Allgather(rank * rank, 1, MPI_INTEGER, gathered, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call check(all(gathered == [(i * i, i=0, n - 1)]), 'data of MPI_Allgather')
    out = [(100 * rank + i, i=0, n - 1)]
    call MPI_Alltoall(out, 1, MPI_INTEGER, in, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call check(all(in == [(100 * i + rank, i=0, n - 1)]), 'data of MPI_Alltoall')
  end subroutine

  ! Rank i has i + 1 elements.
  subroutine with_counts()
    integer :: counts(n), places(n), ones(n), i, length
    integer, allocatable :: mine(:), gathered(:), wanted(:), scattered(:)
    call begin('with counts')
    counts = [(i, i=1, n)]
    places = [(i * (i - 1) / 2, i=1, n)]
    length = n * (n + 1) / 2
    allocate (mine(rank + 1), gathered(length), wanted(length), scattered(rank + 1))
    mine = rank
    do i = 1, n
      wanted(places(i) + 1:places(i) + i) = i - 1
    end do
    gathered = -1
    call MPI_Gatherv(mine, rank + 1, MPI_INTEGER, gathered, counts, places, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
    if (rank == 0) call check(all(gathered == wanted), 'data of MPI_Gatherv')
    gathered = -1
    call MPI_Allgatherv(mine, rank + 1, MPI_INTEGER, gathered, counts, places, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call check(all(gathered == wanted), 'data of MPI_Allgatherv')
    call MPI_Scatterv(wanted, counts, places, MPI_INTEGER, scattered, rank + 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
    call check(all(scattered == rank), 'data of MPI_Scatterv')
    ones = 1
    call MPI_Alltoallv([(10 * rank + i, i=0, n - 1)], ones, [(i, i=0, n - 1)], MPI_INTEGER, &
                       gathered, ones, [(n - i, i=1, n)], MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call check(all(gathered(:n) == [(10 * i + rank, i=n - 1, 0, -1)]), 'data of MPI_Alltoallv')
  end subroutine

  subroutine in_place()
    integer :: all_of(n), sum, i, mine
    call begin('MPI_IN_PLACE')
    all_of = -1
    all_of(rank + 1) = 7 * rank
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all_of, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call check(all(all_of == [(7 * i, i=0, n - 1)]), 'MPI_Allgather in place')
    sum = rank
    call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    call equal(sum, n * (n - 1) / 2, 'MPI_Allreduce in place')
    sum = rank + 1
    if (rank == 0) then
      call MPI_Reduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
      call equal(sum, n * (n + 1) / 2, 'MPI_Reduce in place')
    else
      call MPI_Reduce(sum, i, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
      call equal(sum, rank + 1, 'the send buffer of MPI_Reduce')
    end if
    all_of = [(100 * rank + i, i=0, n - 1)]
    call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all_of, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call check(all(all_of == [(100 * i + rank, i=0, n - 1)]), 'MPI_Alltoall in place')
    all_of = [(i, i=1, n)]
    mine = -1
    if (rank == 0) then
      mine = 1
      call MPI_Scatter(all_of, 1, MPI_INTEGER, MPI_IN_PLACE, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
    else
      call MPI_Scatter(all_of, 1, MPI_INTEGER, mine, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
    end if
    call equal(mine, rank + 1, 'MPI_Scatter with its root in place')
  end subroutine

  subroutine reductions()
    real(kind(0d0)) :: r(4), rr(4)
    complex(kind(0d0)) :: z, zz
    integer :: bits, all_bits, counts(n), part(2), i
    call begin('reductions')
    r = [1d0, 2d0, 3d0, 4d0] * (rank + 1)
    call MPI_Allreduce(r, rr, 4, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierror)
    call check(all(rr == [1d0, 2d0, 3d0, 4d0] * n), 'MPI_MAX')
    call MPI_Allreduce(r, rr, 4, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call check(all(rr == [1d0, 2d0, 3d0, 4d0] * (n * (n + 1) / 2)), 'MPI_SUM')
    z = (0d0, 1d0)
    call MPI_Allreduce(z, zz, 1, MPI_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD, ierror)
    call check(abs(zz - z**n) < 1d-12, 'MPI_PROD of complex numbers')
    bits = ishft(1, mod(rank, 30))
    call MPI_Allreduce(bits, all_bits, 1, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, ierror)
    call equal(all_bits, ishft(1, min(n, 30)) - 1, 'MPI_BOR')
    counts = 2
    call MPI_Reduce_scatter([(i + rank, i=1, 2 * n)], part, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    call equal(part(2), n * (2 * rank + 2) + n * (n - 1) / 2, 'MPI_Reduce_scatter')
    call MPI_Reduce_scatter_block([(i + rank, i=1, 2 * n)], part, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    call equal(part(1), n * (2 * rank + 1) + n * (n - 1) / 2, 'MPI_Reduce_scatter_block')
    part = [3, 4]
    call MPI_Reduce_local([1, 2], part, 2, MPI_INTEGER, MPI_SUM, ierror)
    call check(all(part == [4, 6]), 'MPI_Reduce_local')
  end subroutine

  ! The pairs of Fortran, section 6.9.4.
  subroutine places()
    integer :: i2(2), oi(2)
    real :: r2(2), or(2)
    real(kind(0d0)) :: d2(2), od(2)
    call begin('MPI_MAXLOC and MPI_MINLOC')
    i2 = [mod(rank + 1, n), rank]
    call MPI_Allreduce(i2, oi, 1, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD, ierror)
    call check(all(oi == [n - 1, max(n - 2, 0)]), 'MPI_2INTEGER')
    r2 = [0.5 - rank, 1.0 * rank]
    call MPI_Allreduce(r2, or, 1, MPI_2REAL, MPI_MINLOC, MPI_COMM_WORLD, ierror)
    call check(all(or == [1.5 - n, n - 1.0]), 'MPI_2REAL')
    d2 = [0.5d0 + rank, 1d0 * rank]
    call MPI_Allreduce(d2, od, 1, MPI_2DOUBLE_PRECISION, MPI_MAXLOC, MPI_COMM_WORLD, ierror)
    call check(all(od == [n - 0.5d0, n - 1d0]), 'MPI_2DOUBLE_PRECISION')
  end subroutine

  subroutine logicals()
    logical :: mine(2), ours(2)
    call begin('logicals')
    mine = [rank == 0, .true.]
    call MPI_Allreduce(mine, ours, 2, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierror)
    call check((ours(1) .eqv. n == 1) .and. ours(2), 'MPI_LAND')
    call MPI_Allreduce(mine, ours, 2, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, ierror)
    call check(all(ours), 'MPI_LOR')
    mine = .true.
    call MPI_Allreduce(mine, ours, 2, MPI_LOGICAL, MPI_LXOR, MPI_COMM_WORLD, ierror)
    call check(all(ours .eqv. mod(n, 2) == 1), 'MPI_LXOR')
  end subroutine

  subroutine scans()
    integer :: sum
    call begin('scans')
    call MPI_Scan(rank + 1, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    call equal(sum, (rank + 1) * (rank + 2) / 2, 'MPI_Scan')
    sum = -1
    call MPI_Exscan(rank + 1, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
    if (rank > 0) call equal(sum, rank * (rank + 1) / 2, 'MPI_Exscan')
  end subroutine

  subroutine own_operation()
    use operations
    integer :: mine(40), ours(40), i
    logical :: commutes
    T_OP :: op
    call begin('an operation of Fortran')
    call MPI_Op_create(add_one, .true., op, ierror)
    call equal(ierror, MPI_SUCCESS, 'ierror of MPI_Op_create')
    call MPI_Op_commutative(op, commutes, ierror)
    call check(commutes, 'it commutes')
    mine = [(i + rank, i=1, 40)]
    call MPI_Allreduce(mine, ours, 40, MPI_INTEGER, op, MPI_COMM_WORLD, ierror)
    call check(all(ours == [(n * i + n * (n - 1) / 2 + n - 1, i=1, 40)]), 'the sum, and one for each addition')
    call MPI_Op_free(op, ierror)
    call check(op == MPI_OP_NULL, 'a freed operation is null')
    call MPI_Op_create(add_one, .false., op, ierror)
    call MPI_Op_commutative(op, commutes, ierror)
    call check(.not. commutes, 'it does not commute')
    call MPI_Reduce(mine, ours, 40, MPI_INTEGER, op, 0, MPI_COMM_WORLD, ierror)
    if (rank == 0) call equal(ours(40), n * 40 + n * (n - 1) / 2 + n - 1, 'MPI_Reduce in the order of ranks')
    call MPI_Op_free(op, ierror)
    call MPI_Op_commutative(MPI_SUM, commutes, ierror)
    call check(commutes, 'MPI_SUM commutes')
  end subroutine

  subroutine nonblocking()
    integer, asynchronous :: sum, gathered(n), value, mine
    integer :: i
    T_REQUEST :: requests(4)
    call begin('nonblocking')
    value = merge(5, 0, rank == 0)
    mine = rank
    call MPI_Ibarrier(MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Ibcast(value, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Iallreduce(mine, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(3), ierror)
    call MPI_Iallgather(mine, 1, MPI_INTEGER, gathered, 1, MPI_INTEGER, MPI_COMM_WORLD, requests(4), ierror)
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE, ierror)
    call equal(value, 5, 'MPI_Ibcast')
    call equal(sum, n * (n - 1) / 2, 'MPI_Iallreduce')
    call check(all(gathered == [(i, i=0, n - 1)]), 'MPI_Iallgather')
  end subroutine

  ! The datatypes of a call are Fortran arrays, which may be reused after a blocking call.
  subroutine different_types()
    T_DATATYPE :: types(n)
    integer :: counts(n), places(n), out(n), in(n), i
    integer, asynchronous :: out_later(n), in_later(n)
    T_REQUEST :: request
    call begin('MPI_Alltoallw')
    types = MPI_INTEGER
    counts = 1
    places = [(4 * i, i=0, n - 1)]
    out = [(1000 * rank + i, i=0, n - 1)]
    call MPI_Alltoallw(out, counts, places, types, in, counts, places, types, MPI_COMM_WORLD, ierror)
    call check(all(in == [(1000 * i + rank, i=0, n - 1)]), 'data')
    out_later = out
    in_later = -1
    call MPI_Ialltoallw(out_later, counts, places, types, in_later, counts, places, types, MPI_COMM_WORLD, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call check(all(in_later == in), 'data of MPI_Ialltoallw')
  end subroutine

end program
