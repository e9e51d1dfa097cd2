! SPDX-License-Identifier: MIT OR Apache-2.0
! Each collective in its forms gives the same result: blocking, nonblocking and persistent (MPI 5.0 sections 6.12 and 6.13), with mpi_f08
! also with large counts (section 2.5.8). Persistent requests start twice.
#include "method.h"
#include "check.inc"

program coll_forms
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer, parameter :: most_ranks = 8, slots = most_ranks * (most_ranks + 4), guard = -7
  ! Elements of a block of fixed length, and of one whose length is this rank's number and 1.
  integer, parameter :: b = 3
  integer(kind=MPI_COUNT_KIND), parameter :: bc = b
  integer :: m
  integer(kind=MPI_COUNT_KIND) :: mc
  integer :: ierror, n, root
  integer, asynchronous :: out(slots), in(slots)
  ! What `in` holds before a call, and what it must hold afterwards.
  integer :: before(slots), want(slots)
  ! Counts and displacements of what is sent (s) and received (r), in elements and in bytes; with large counts those ending in c.
  integer, asynchronous :: scount(most_ranks), rcount(most_ranks), splace(most_ranks), rplace(most_ranks)
  integer, asynchronous :: sbyte(most_ranks), rbyte(most_ranks)
  integer(kind=MPI_COUNT_KIND), asynchronous :: scountc(most_ranks), rcountc(most_ranks)
  integer(kind=MPI_ADDRESS_KIND), asynchronous :: splacec(most_ranks), rplacec(most_ranks)
  integer(kind=MPI_ADDRESS_KIND), asynchronous :: sbytec(most_ranks), rbytec(most_ranks)
  T_DATATYPE, asynchronous :: types(most_ranks)
  T_COMM :: comm
  T_REQUEST :: request

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  n = size_of_world
  if (n > most_ranks) call MPI_Abort(MPI_COMM_WORLD, 98, ierror)
  comm = MPI_COMM_WORLD
  root = n - 1
  m = rank + 1
  mc = m
  types = MPI_INTEGER
  call of_bcast()
  call of_gather()
  call of_scatter()
  call of_allgather_and_alltoall()
  call of_gatherv_and_allgatherv()
  call of_scatterv()
  call of_alltoallv_and_alltoallw()
  call of_reductions()
  call of_reduce_scatter()
  call of_neighborhoods()
  call MPI_Finalize(ierror)
  call tell()

contains

  subroutine of_bcast()
    integer :: i
    call fresh()
    do i = 1, b
      want(i) = word(root, 0, i)
      if (rank == root) before(i) = want(i)
    end do
    call begin('MPI_Bcast')
#define BLOCKING MPI_Bcast
#define NONBLOCKING MPI_Ibcast
#define PERSISTENT MPI_Bcast_init
#define ARGS in, b, MPI_INTEGER, root
#define ARGS_C in, bc, MPI_INTEGER, root
#include "coll_forms.inc"
  end subroutine

  subroutine of_gather()
    integer :: i, r
    call fresh()
    do i = 1, b
      out(i) = word(rank, 0, i)
      do r = 0, n - 1
        if (rank == root) want(b * r + i) = word(r, 0, i)
      end do
    end do
    call begin('MPI_Gather')
#define BLOCKING MPI_Gather
#define NONBLOCKING MPI_Igather
#define PERSISTENT MPI_Gather_init
#define ARGS out, b, MPI_INTEGER, in, b, MPI_INTEGER, root
#define ARGS_C out, bc, MPI_INTEGER, in, bc, MPI_INTEGER, root
#include "coll_forms.inc"
  end subroutine

  subroutine of_scatter()
    integer :: i, r
    call fresh()
    do i = 1, b
      want(i) = word(root, rank, i)
      do r = 0, n - 1
        out(b * r + i) = word(rank, r, i)
      end do
    end do
    call begin('MPI_Scatter')
#define BLOCKING MPI_Scatter
#define NONBLOCKING MPI_Iscatter
#define PERSISTENT MPI_Scatter_init
#define ARGS out, b, MPI_INTEGER, in, b, MPI_INTEGER, root
#define ARGS_C out, bc, MPI_INTEGER, in, bc, MPI_INTEGER, root
#include "coll_forms.inc"
  end subroutine

  subroutine of_allgather_and_alltoall()
    integer :: i, r
    call fresh()
    do i = 1, b
      out(i) = word(rank, 0, i)
      do r = 0, n - 1
        want(b * r + i) = word(r, 0, i)
      end do
    end do
    call begin('MPI_Allgather')
#define BLOCKING MPI_Allgather
#define NONBLOCKING MPI_Iallgather
#define PERSISTENT MPI_Allgather_init
#define ARGS out, b, MPI_INTEGER, in, b, MPI_INTEGER
#define ARGS_C out, bc, MPI_INTEGER, in, bc, MPI_INTEGER
#include "coll_forms.inc"
    do r = 0, n - 1
      do i = 1, b
        out(b * r + i) = word(rank, r, i)
        want(b * r + i) = word(r, rank, i)
      end do
    end do
    call begin('MPI_Alltoall')
#define BLOCKING MPI_Alltoall
#define NONBLOCKING MPI_Ialltoall
#define PERSISTENT MPI_Alltoall_init
#define ARGS out, b, MPI_INTEGER, in, b, MPI_INTEGER
#define ARGS_C out, bc, MPI_INTEGER, in, bc, MPI_INTEGER
#include "coll_forms.inc"
  end subroutine

  ! Rank r has r + 1 elements, and a gap stands behind each block.
  subroutine of_gatherv_and_allgatherv()
    integer :: i, r
    call fresh()
    do i = 1, rank + 1
      out(i) = word(rank, 0, i)
    end do
    do r = 0, n - 1
      call to_receive(r + 1, r + 1, gapped(r))
      do i = 1, r + 1
        want(gapped(r) + i) = word(r, 0, i)
      end do
    end do
    call begin('MPI_Allgatherv')
#define BLOCKING MPI_Allgatherv
#define NONBLOCKING MPI_Iallgatherv
#define PERSISTENT MPI_Allgatherv_init
#define ARGS out, m, MPI_INTEGER, in, rcount, rplace, MPI_INTEGER
#define ARGS_C out, mc, MPI_INTEGER, in, rcountc, rplacec, MPI_INTEGER
#include "coll_forms.inc"
    if (rank /= root) want = guard
    call begin('MPI_Gatherv')
#define BLOCKING MPI_Gatherv
#define NONBLOCKING MPI_Igatherv
#define PERSISTENT MPI_Gatherv_init
#define ARGS out, m, MPI_INTEGER, in, rcount, rplace, MPI_INTEGER, root
#define ARGS_C out, mc, MPI_INTEGER, in, rcountc, rplacec, MPI_INTEGER, root
#include "coll_forms.inc"
  end subroutine

  subroutine of_scatterv()
    integer :: i, r
    call fresh()
    do i = 1, rank + 1
      want(i) = word(root, rank, i)
    end do
    do r = 0, n - 1
      call to_send(r + 1, r + 1, gapped(r))
      do i = 1, r + 1
        out(gapped(r) + i) = word(rank, r, i)
      end do
    end do
    call begin('MPI_Scatterv')
#define BLOCKING MPI_Scatterv
#define NONBLOCKING MPI_Iscatterv
#define PERSISTENT MPI_Scatterv_init
#define ARGS out, scount, splace, MPI_INTEGER, in, m, MPI_INTEGER, root
#define ARGS_C out, scountc, splacec, MPI_INTEGER, in, mc, MPI_INTEGER, root
#include "coll_forms.inc"
  end subroutine

  ! From a to b go 1 + (a + 2 b) modulo 4 elements; blocks begin 5 elements apart, those received in reverse order.
  subroutine of_alltoallv_and_alltoallw()
    integer :: i, r, sent, came
    call fresh()
    do r = 0, n - 1
      sent = 1 + modulo(rank + 2 * r, 4)
      came = 1 + modulo(r + 2 * rank, 4)
      call to_send(r + 1, sent, 5 * r)
      call to_receive(r + 1, came, 5 * (n - 1 - r))
      do i = 1, sent
        out(5 * r + i) = word(rank, r, i)
      end do
      do i = 1, came
        want(5 * (n - 1 - r) + i) = word(r, rank, i)
      end do
    end do
    call begin('MPI_Alltoallv')
#define BLOCKING MPI_Alltoallv
#define NONBLOCKING MPI_Ialltoallv
#define PERSISTENT MPI_Alltoallv_init
#define ARGS out, scount, splace, MPI_INTEGER, in, rcount, rplace, MPI_INTEGER
#define ARGS_C out, scountc, splacec, MPI_INTEGER, in, rcountc, rplacec, MPI_INTEGER
#include "coll_forms.inc"
    call begin('MPI_Alltoallw')
#define BLOCKING MPI_Alltoallw
#define NONBLOCKING MPI_Ialltoallw
#define PERSISTENT MPI_Alltoallw_init
#define ARGS out, scount, sbyte, types, in, rcount, rbyte, types
#define ARGS_C out, scountc, sbytec, types, in, rcountc, rbytec, types
#include "coll_forms.inc"
  end subroutine

  subroutine of_reductions()
    integer :: i
    call fresh()
    do i = 1, b
      out(i) = word(rank, 0, i)
      want(i) = total(n - 1, 0, i)
    end do
    call begin('MPI_Allreduce')
#define BLOCKING MPI_Allreduce
#define NONBLOCKING MPI_Iallreduce
#define PERSISTENT MPI_Allreduce_init
#define ARGS out, in, b, MPI_INTEGER, MPI_SUM
#define ARGS_C out, in, bc, MPI_INTEGER, MPI_SUM
#include "coll_forms.inc"
    if (rank /= root) want = guard
    call begin('MPI_Reduce')
#define BLOCKING MPI_Reduce
#define NONBLOCKING MPI_Ireduce
#define PERSISTENT MPI_Reduce_init
#define ARGS out, in, b, MPI_INTEGER, MPI_SUM, root
#define ARGS_C out, in, bc, MPI_INTEGER, MPI_SUM, root
#include "coll_forms.inc"
    want(:b) = [(total(rank, 0, i), i=1, b)]
    call begin('MPI_Scan')
#define BLOCKING MPI_Scan
#define NONBLOCKING MPI_Iscan
#define PERSISTENT MPI_Scan_init
#define ARGS out, in, b, MPI_INTEGER, MPI_SUM
#define ARGS_C out, in, bc, MPI_INTEGER, MPI_SUM
#include "coll_forms.inc"
    ! The result of rank 0 is undefined, and ours leaves its buffer alone.
    want(:b) = [(total(rank - 1, 0, i), i=1, b)]
    if (rank == 0) want = guard
    call begin('MPI_Exscan')
#define BLOCKING MPI_Exscan
#define NONBLOCKING MPI_Iexscan
#define PERSISTENT MPI_Exscan_init
#define ARGS out, in, b, MPI_INTEGER, MPI_SUM
#define ARGS_C out, in, bc, MPI_INTEGER, MPI_SUM
#include "coll_forms.inc"
  end subroutine

  subroutine of_reduce_scatter()
    integer :: i, r, at
    call fresh()
    do i = 1, b
      want(i) = total(n - 1, rank, i)
      do r = 0, n - 1
        out(b * r + i) = word(rank, r, i)
      end do
    end do
    call begin('MPI_Reduce_scatter_block')
#define BLOCKING MPI_Reduce_scatter_block
#define NONBLOCKING MPI_Ireduce_scatter_block
#define PERSISTENT MPI_Reduce_scatter_block_init
#define ARGS out, in, b, MPI_INTEGER, MPI_SUM
#define ARGS_C out, in, bc, MPI_INTEGER, MPI_SUM
#include "coll_forms.inc"
    call fresh()
    at = 0
    do r = 0, n - 1
      call to_receive(r + 1, r + 1, 0)
      do i = 1, r + 1
        out(at + i) = word(rank, r, i)
      end do
      at = at + r + 1
    end do
    want(:m) = [(total(n - 1, rank, i), i=1, m)]
    call begin('MPI_Reduce_scatter')
#define BLOCKING MPI_Reduce_scatter
#define NONBLOCKING MPI_Ireduce_scatter
#define PERSISTENT MPI_Reduce_scatter_init
#define ARGS out, in, rcount, MPI_INTEGER, MPI_SUM
#define ARGS_C out, in, rcountc, MPI_INTEGER, MPI_SUM
#include "coll_forms.inc"
  end subroutine

  ! A ring in one direction, with an edge from each rank to itself: block 0 goes to the right, block 1 stays.
  subroutine of_neighborhoods()
    integer :: i, left, right
    left = modulo(rank - 1, n)
    right = modulo(rank + 1, n)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, [left, rank], MPI_UNWEIGHTED, 2, [right, rank], MPI_UNWEIGHTED, &
                                        MPI_INFO_NULL, .false., comm, ierror)
    call fresh()
    do i = 1, b
      out(i) = word(rank, 0, i)
      want(i) = word(left, 0, i)
      want(b + i) = word(rank, 0, i)
    end do
    call begin('MPI_Neighbor_allgather')
#define BLOCKING MPI_Neighbor_allgather
#define NONBLOCKING MPI_Ineighbor_allgather
#define PERSISTENT MPI_Neighbor_allgather_init
#define ARGS out, b, MPI_INTEGER, in, b, MPI_INTEGER
#define ARGS_C out, bc, MPI_INTEGER, in, bc, MPI_INTEGER
#include "coll_forms.inc"
    do i = 1, b
      out(b + i) = word(rank, 1, i)
      want(b + i) = word(rank, 1, i)
    end do
    call begin('MPI_Neighbor_alltoall')
#define BLOCKING MPI_Neighbor_alltoall
#define NONBLOCKING MPI_Ineighbor_alltoall
#define PERSISTENT MPI_Neighbor_alltoall_init
#define ARGS out, b, MPI_INTEGER, in, b, MPI_INTEGER
#define ARGS_C out, bc, MPI_INTEGER, in, bc, MPI_INTEGER
#include "coll_forms.inc"
    call fresh()
    call to_receive(1, left + 1, 1)
    call to_receive(2, rank + 1, most_ranks + 2)
    do i = 1, m
      out(i) = word(rank, 0, i)
      want(most_ranks + 2 + i) = word(rank, 0, i)
    end do
    do i = 1, left + 1
      want(1 + i) = word(left, 0, i)
    end do
    call begin('MPI_Neighbor_allgatherv')
#define BLOCKING MPI_Neighbor_allgatherv
#define NONBLOCKING MPI_Ineighbor_allgatherv
#define PERSISTENT MPI_Neighbor_allgatherv_init
#define ARGS out, m, MPI_INTEGER, in, rcount, rplace, MPI_INTEGER
#define ARGS_C out, mc, MPI_INTEGER, in, rcountc, rplacec, MPI_INTEGER
#include "coll_forms.inc"
    ! Block k of rank r has r + 1 + k elements.
    call fresh()
    call to_send(1, rank + 1, most_ranks + 4)
    call to_send(2, rank + 2, 1)
    call to_receive(1, left + 1, 2)
    call to_receive(2, rank + 2, most_ranks + 3)
    do i = 1, rank + 1
      out(most_ranks + 4 + i) = word(rank, 0, i)
    end do
    do i = 1, left + 1
      want(2 + i) = word(left, 0, i)
    end do
    do i = 1, rank + 2
      out(1 + i) = word(rank, 1, i)
      want(most_ranks + 3 + i) = word(rank, 1, i)
    end do
    call begin('MPI_Neighbor_alltoallv')
#define BLOCKING MPI_Neighbor_alltoallv
#define NONBLOCKING MPI_Ineighbor_alltoallv
#define PERSISTENT MPI_Neighbor_alltoallv_init
#define ARGS out, scount, splace, MPI_INTEGER, in, rcount, rplace, MPI_INTEGER
#define ARGS_C out, scountc, splacec, MPI_INTEGER, in, rcountc, rplacec, MPI_INTEGER
#include "coll_forms.inc"
    ! Displacements are of the kind MPI_ADDRESS_KIND in both forms.
    call begin('MPI_Neighbor_alltoallw')
#define BLOCKING MPI_Neighbor_alltoallw
#define NONBLOCKING MPI_Ineighbor_alltoallw
#define PERSISTENT MPI_Neighbor_alltoallw_init
#define ARGS out, scount, sbytec, types, in, rcount, rbytec, types
#define ARGS_C out, scountc, sbytec, types, in, rcountc, rbytec, types
#include "coll_forms.inc"
    call MPI_Comm_free(comm, ierror)
  end subroutine

  ! Element i of the block that rank `from` sends to `to`.
  elemental integer function word(from, to, i)
    integer, intent(in) :: from, to, i
    word = 10000 * from + 100 * to + i
  end function

  ! The sum of that element over the ranks 0 to `last`.
  pure integer function total(last, to, i)
    integer, intent(in) :: last, to, i
    integer :: r
    total = sum([(word(r, to, i), r=0, last)])
  end function

  pure integer function gapped(r)
    integer, intent(in) :: r
    gapped = r * (r + 1) / 2 + r
  end function

  subroutine fresh()
    before = guard
    out = guard
    want = guard
    scount = 0
    rcount = 0
  end subroutine

  subroutine to_send(at, count, place)
    integer, intent(in) :: at, count, place
    scount(at) = count
    scountc(at) = count
    splace(at) = place
    splacec(at) = place
    sbyte(at) = 4 * place
    sbytec(at) = 4 * place
  end subroutine

  subroutine to_receive(at, count, place)
    integer, intent(in) :: at, count, place
    rcount(at) = count
    rcountc(at) = count
    rplace(at) = place
    rplacec(at) = place
    rbyte(at) = 4 * place
    rbytec(at) = 4 * place
  end subroutine

  subroutine verify(form)
    character(*), intent(in) :: form
    call equal(ierror, MPI_SUCCESS, form)
    call check(all(in == want), form)
  end subroutine

  subroutine completes(form)
    character(*), intent(in) :: form
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call check(request == MPI_REQUEST_NULL, 'the request is null')
    call verify(form)
  end subroutine

  subroutine starts_twice(form)
    character(*), intent(in) :: form
    integer :: i
    do i = 1, 2
      in = before
      call MPI_Start(request, ierror)
      call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
      call verify(form)
    end do
    call MPI_Request_free(request, ierror)
  end subroutine

end program
