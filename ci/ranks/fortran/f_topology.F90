! SPDX-License-Identifier: MIT OR Apache-2.0
! Topologies, chapter 8: periods are LOGICAL, neighbours and weights are arrays; halos by neighbourhood collectives.
#include "method.h"
#include "check.inc"

program topology
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierror

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  call grid()
  call parts_of_a_grid()
  call graph()
  call distributed_graph()
  call MPI_Finalize(ierror)
  call tell()

contains

  subroutine grid()
    T_COMM :: cart
    integer :: dims(2), got(2), coords(2), mine(2), low, high, me, from(4), wanted(4), kind_of, n
    logical :: periods(2), circles(2)
    call begin('a grid')
    dims = 0
    call MPI_Dims_create(size_of_world, 2, dims, ierror)
    call equal(dims(1) * dims(2), size_of_world, 'product of the dimensions')
    periods = [.true., .false.]
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, .false., cart, ierror)
    call MPI_Topo_test(cart, kind_of, ierror)
    call equal(kind_of, MPI_CART, 'kind')
    call MPI_Cartdim_get(cart, n, ierror)
    call equal(n, 2, 'dimensions')
    call MPI_Cart_get(cart, 2, got, circles, coords, ierror)
    call check(all(got == dims), 'dimensions of MPI_Cart_get')
    call check(circles(1) .and. .not. circles(2), 'periods of MPI_Cart_get')
    call MPI_Cart_coords(cart, rank, 2, mine, ierror)
    call check(all(mine == coords), 'coordinates')
    call MPI_Cart_rank(cart, mine, me, ierror)
    call equal(me, rank, 'rank of the coordinates')
    call MPI_Cart_shift(cart, 0, 1, low, high, ierror)
    call check(low >= 0 .and. high >= 0, 'a circle has no end')
    wanted(1:2) = [low, high]
    call MPI_Cart_shift(cart, 1, 1, low, high, ierror)
    if (mine(2) == 0) call equal(low, MPI_PROC_NULL, 'nobody below the first')
    if (mine(2) == dims(2) - 1) call equal(high, MPI_PROC_NULL, 'nobody above the last')
    wanted(3:4) = [low, high]
    from = MPI_PROC_NULL
    call MPI_Neighbor_allgather(rank, 1, MPI_INTEGER, from, 1, MPI_INTEGER, cart, ierror)
    call check(all(from == wanted), 'ranks of the neighbours')
    call MPI_Comm_free(cart, ierror)
  end subroutine

  subroutine parts_of_a_grid()
    T_COMM :: cart, rows
    integer :: n, me
    call begin('MPI_Cart_sub')
    call MPI_Cart_create(MPI_COMM_WORLD, 2, [1, size_of_world], [.false., .true.], .true., cart, ierror)
    call MPI_Cart_sub(cart, [.false., .true.], rows, ierror)
    call MPI_Comm_size(rows, n, ierror)
    call equal(n, size_of_world, 'a row is the whole')
    call MPI_Comm_free(rows, ierror)
    call MPI_Cart_sub(cart, [.true., .false.], rows, ierror)
    call MPI_Comm_size(rows, n, ierror)
    call equal(n, 1, 'a column is one')
    call MPI_Comm_free(rows, ierror)
    call MPI_Cart_map(MPI_COMM_WORLD, 1, [size_of_world], [.true.], me, ierror)
    call check(me >= 0 .and. me < size_of_world, 'MPI_Cart_map')
    call MPI_Comm_free(cart, ierror)
  end subroutine

  ! A ring: each rank specifies both neighbours.
  subroutine graph()
    T_COMM :: comm
    integer :: index(size_of_world), edges(2 * size_of_world), i, nodes, all_edges, n, near(2)
    integer :: index_back(size_of_world), edges_back(2 * size_of_world)
    call begin('a graph')
    do i = 1, size_of_world
      index(i) = 2 * i
      edges(2 * i - 1) = mod(i - 2 + size_of_world, size_of_world)
      edges(2 * i) = mod(i, size_of_world)
    end do
    call MPI_Graph_create(MPI_COMM_WORLD, size_of_world, index, edges, .false., comm, ierror)
    call MPI_Graphdims_get(comm, nodes, all_edges, ierror)
    call check(nodes == size_of_world .and. all_edges == 2 * size_of_world, 'nodes and edges')
    call MPI_Graph_get(comm, size_of_world, 2 * size_of_world, index_back, edges_back, ierror)
    call check(all(index_back == index) .and. all(edges_back == edges), 'the graph as it was given')
    call MPI_Graph_neighbors_count(comm, rank, n, ierror)
    call equal(n, 2, 'number of neighbours')
    call MPI_Graph_neighbors(comm, rank, 2, near, ierror)
    call check(all(near == edges(2 * rank + 1:2 * rank + 2)), 'neighbours')
    call MPI_Comm_free(comm, ierror)
  end subroutine

  subroutine distributed_graph()
    T_COMM :: comm
    integer :: left, right, ins, outs, sources(1), weights_in(1), targets(1), weights_out(1), got
    logical :: weighted
    call begin('a distributed graph')
    left = mod(rank + size_of_world - 1, size_of_world)
    right = mod(rank + 1, size_of_world)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [left], MPI_UNWEIGHTED, 1, [right], MPI_UNWEIGHTED, &
                                        MPI_INFO_NULL, .false., comm, ierror)
    call MPI_Dist_graph_neighbors_count(comm, ins, outs, weighted, ierror)
    call check(ins == 1 .and. outs == 1 .and. .not. weighted, 'a graph without weights')
    call MPI_Neighbor_alltoall(rank, 1, MPI_INTEGER, got, 1, MPI_INTEGER, comm, ierror)
    call equal(got, left, 'what comes from the left')
    call MPI_Comm_free(comm, ierror)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [left], [3], 1, [right], [4], MPI_INFO_NULL, .false., comm, ierror)
    call MPI_Dist_graph_neighbors_count(comm, ins, outs, weighted, ierror)
    call check(weighted, 'a graph with weights')
    call MPI_Dist_graph_neighbors(comm, 1, sources, weights_in, 1, targets, weights_out, ierror)
    call check(sources(1) == left .and. weights_in(1) == 3, 'who sends')
    call check(targets(1) == right .and. weights_out(1) == 4, 'who receives')
    call MPI_Comm_free(comm, ierror)
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [rank], [1], [right], MPI_UNWEIGHTED, MPI_INFO_NULL, .false., comm, ierror)
    call MPI_Neighbor_allgather(rank, 1, MPI_INTEGER, got, 1, MPI_INTEGER, comm, ierror)
    call equal(got, left, 'what comes from the left in MPI_Dist_graph_create')
    call MPI_Comm_free(comm, ierror)
  end subroutine

end program
