! SPDX-License-Identifier: MIT OR Apache-2.0
! Procedures about communicators, groups, sessions, infos and errors that the other programs do not call; collective operations over a
! graph of neighbours with weights; MPI's own queries about its Fortran (MPI 5.0 section 20.5).
#include "method.h"
#include "check.inc"

module handlers
  implicit none
  integer :: calls = 0
contains
  subroutine handle(session, code)
    USE_MPI
    INCLUDE_MPI
    T_SESSION :: session
    integer :: code
    if (session /= MPI_SESSION_NULL .and. code == MPI_ERR_OTHER) calls = calls + 1
  end subroutine
end module

program objects
  USE_MPI
  use checks
  use handlers
  implicit none
  INCLUDE_MPI
  integer :: ierror, n

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  n = size_of_world
  call MPI_Pcontrol(0)
  call infos_of_communicators()
  call groups()
  call between_groups()
  call neighbors_with_weights()
  call mapping()
  call errors_of_sessions()
  call infos_of_sessions()
  call removed_errors()
  call attributes_of_datatypes()
  call booleans()
  call MPI_Finalize(ierror)
  call tell()

contains

  ! Section 7.4.4: a hint that is not understood may be dropped; one that the standard names is kept or not, but has its value.
  subroutine infos_of_communicators()
    T_INFO :: info, used
    T_COMM :: first, second
    T_REQUEST :: request
    character(16) :: value
    integer :: length
    logical :: there
    call begin('infos of communicators')
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, 'mpi_assert_no_any_tag', 'true', ierror)
    call MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, first, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Comm_dup_with_info')
    call MPI_Comm_idup_with_info(MPI_COMM_WORLD, info, second, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Comm_idup_with_info')
    call MPI_Comm_compare(first, second, length, ierror)
    call equal(length, MPI_CONGRUENT, 'both are alike')
    call MPI_Comm_set_info(first, info, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Comm_set_info')
    call MPI_Comm_get_info(first, used, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Comm_get_info')
    length = 16
    call MPI_Info_get_string(used, 'mpi_assert_no_any_tag', length, value, there, ierror)
    if (there) call equal(value, 'true', 'the hint')
    call MPI_Info_free(used, ierror)
    call MPI_Info_free(info, ierror)
    call MPI_Comm_free(first, ierror)
    call MPI_Comm_free(second, ierror)
  end subroutine

  subroutine groups()
    T_GROUP :: world, first, last, made
    integer :: size, result
    call begin('groups')
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierror)
    call MPI_Group_incl(world, 1, [0], first, ierror)
    call MPI_Group_incl(world, 1, [n - 1], last, ierror)
    call MPI_Group_difference(world, first, made, ierror)
    call MPI_Group_size(made, size, ierror)
    call equal(size, n - 1, 'MPI_Group_difference')
    if (n > 1) call MPI_Group_free(made, ierror)
    call MPI_Group_intersection(world, last, made, ierror)
    call MPI_Group_compare(made, last, result, ierror)
    call equal(result, MPI_IDENT, 'MPI_Group_intersection')
    call MPI_Group_free(made, ierror)
    call MPI_Group_free(first, ierror)
    call MPI_Group_free(last, ierror)
    call MPI_Group_free(world, ierror)
  end subroutine

  ! Rank 0 on one side, all others on the other.
  subroutine between_groups()
    T_GROUP :: world, here, there, seen
    T_COMM :: inter
    integer :: size, value
    if (n < 2) return
    call begin('between two groups')
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierror)
    call MPI_Group_incl(world, 1, [0], here, ierror)
    call MPI_Group_excl(world, 1, [0], there, ierror)
    if (rank == 0) then
      call MPI_Intercomm_create_from_groups(here, 0, there, 0, 'f_objects', MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, inter, ierror)
    else
      call MPI_Intercomm_create_from_groups(there, 0, here, 0, 'f_objects', MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, inter, ierror)
    end if
    call equal(ierror, MPI_SUCCESS, 'MPI_Intercomm_create_from_groups')
    call MPI_Comm_remote_group(inter, seen, ierror)
    call MPI_Group_size(seen, size, ierror)
    call equal(size, merge(n - 1, 1, rank == 0), 'the size of the remote group')
    ! Each gets the sum over the other side.
    call MPI_Allreduce(rank, value, 1, MPI_INTEGER, MPI_SUM, inter, ierror)
    call equal(value, merge(n * (n - 1) / 2, 0, rank == 0), 'the sum over the other group')
    call MPI_Group_free(seen, ierror)
    call MPI_Group_free(here, ierror)
    call MPI_Group_free(there, ierror)
    call MPI_Group_free(world, ierror)
    call MPI_Comm_free(inter, ierror)
  end subroutine

  ! Each rank has an edge to each rank above it, with the distance as its weight.
  subroutine neighbors_with_weights()
    T_COMM :: graph
    integer :: above, below, i, degree, sources, destinations
    integer :: from(n), from_weights(n), to(n), to_weights(n)
    integer, asynchronous :: out(2 * n), in(2 * n)
    logical :: weighted
    call begin('neighbours with weights')
    above = n - 1 - rank
    below = rank
    to = [(modulo(rank + i, n), i=1, n)]
    to_weights = [(i, i=1, n)]
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [rank], [above], to, to_weights, MPI_INFO_NULL, .false., graph, ierror)
    call MPI_Dist_graph_neighbors_count(graph, sources, destinations, weighted, ierror)
    call equal(sources, below, 'sources')
    call equal(destinations, above, 'destinations')
    call equal(weighted, .true., 'there are weights')
    from = -1
    to = -1
    call MPI_Dist_graph_neighbors(graph, sources, from, from_weights, destinations, to, to_weights, ierror)
    do i = 1, sources
      call equal(from_weights(i), rank - from(i), 'the weight of a source')
    end do
    do i = 1, destinations
      call equal(to_weights(i), to(i) - rank, 'the weight of a destination')
      out(2 * i - 1:2 * i) = [rank, to(i)]
    end do
    in = -1
    call MPI_Neighbor_alltoall(out, 2, MPI_INTEGER, in, 2, MPI_INTEGER, graph, ierror)
    degree = 0
    do i = 1, sources
      if (in(2 * i - 1) == from(i) .and. in(2 * i) == rank) degree = degree + 1
    end do
    call equal(degree, sources, 'blocks that came from their sources')
    call check(all(in(2 * sources + 1:) == -1), 'nothing else was written')
    call MPI_Comm_free(graph, ierror)
  end subroutine

  subroutine mapping()
    integer :: place
    call begin('MPI_Graph_map')
    call MPI_Graph_map(MPI_COMM_WORLD, 1, [0], [integer ::], place, ierror)
    call equal(place, merge(0, MPI_UNDEFINED, rank == 0), 'the place in a graph of one node')
  end subroutine

  subroutine errors_of_sessions()
    T_SESSION :: session
    T_ERRHANDLER :: handler, found
    call begin('errors of sessions')
    calls = 0
    call MPI_Session_create_errhandler(handle, handler, ierror)
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session, ierror)
    call MPI_Session_get_errhandler(session, found, ierror)
    call check(found == MPI_ERRORS_RETURN, 'the handler that it began with')
    call MPI_Session_set_errhandler(session, handler, ierror)
    call MPI_Session_call_errhandler(session, MPI_ERR_OTHER, ierror)
    call equal(calls, 1, 'calls of the handler')
    call MPI_Session_get_errhandler(session, found, ierror)
    call check(found == handler, 'the handler that was set')
    call MPI_Errhandler_free(found, ierror)
    call MPI_Errhandler_free(handler, ierror)
    call MPI_Session_finalize(session, ierror)
  end subroutine

  subroutine infos_of_sessions()
    T_SESSION :: session
    T_INFO :: info
    character(16) :: value
    integer :: length, keys
    logical :: there
    call begin('infos of sessions')
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, session, ierror)
    call MPI_Session_get_info(session, info, ierror)
    length = 16
    call MPI_Info_get_string(info, 'thread_level', length, value, there, ierror)
    if (there) call check(index(value, 'MPI_THREAD_') == 1, 'the level of threads')
    call MPI_Info_free(info, ierror)
    call MPI_Session_get_pset_info(session, 'mpi://WORLD', info, ierror)
    length = 16
    call MPI_Info_get_string(info, 'mpi_size', length, value, there, ierror)
    call equal(there, .true., 'the process set has a size')
    read (value, *) keys
    call equal(keys, n, 'the size of the process set')
    call MPI_Info_free(info, ierror)
    call MPI_Session_finalize(session, ierror)
    call MPI_Get_hw_resource_info(info, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Get_hw_resource_info')
    call MPI_Info_get_nkeys(info, keys, ierror)
    call check(keys > 0, 'some hardware is named')
    call MPI_Info_free(info, ierror)
  end subroutine

  ! Section 9.5: what was added is removed, the last first.
  subroutine removed_errors()
    integer :: class, code
    call begin('removed errors')
    call MPI_Add_error_class(class, ierror)
    call MPI_Add_error_code(class, code, ierror)
    call MPI_Add_error_string(code, 'an error of this test', ierror)
    call MPI_Remove_error_string(code, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Remove_error_string')
    call MPI_Remove_error_code(code, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Remove_error_code')
    call MPI_Remove_error_class(class, ierror)
    call equal(ierror, MPI_SUCCESS, 'MPI_Remove_error_class')
  end subroutine

  subroutine attributes_of_datatypes()
    T_DATATYPE :: datatype
    integer :: key
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    logical :: there
    call begin('attributes of datatypes')
    extra = 0
    call MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, key, extra, ierror)
    call MPI_Type_contiguous(3, MPI_INTEGER, datatype, ierror)
    value = 17
    call MPI_Type_set_attr(datatype, key, value, ierror)
    call MPI_Type_get_attr(datatype, key, value, there, ierror)
    call check(there .and. value == 17, 'the attribute')
    call MPI_Type_delete_attr(datatype, key, ierror)
    call MPI_Type_get_attr(datatype, key, value, there, ierror)
    call equal(there, .false., 'the deleted attribute')
    call MPI_Type_free(datatype, ierror)
    call MPI_Type_free_keyval(key, ierror)
  end subroutine

  ! Section 20.5: the version of the ABI, and what a program says of its Fortran, which is kept for tools in C.
  subroutine booleans()
    integer :: major, minor, keys, length
    logical :: yes, no, is_set
    T_INFO :: info, kept
    character(16) :: value
    call begin('the ABI')
    call MPI_Abi_get_version(major, minor, ierror)
    call check(major >= 1 .and. minor >= 0, 'the version of the ABI')
    call MPI_Abi_get_info(info, ierror)
    call MPI_Info_get_nkeys(info, keys, ierror)
    call check(keys > 0, 'something about the ABI')
    call MPI_Info_free(info, ierror)
    call MPI_Abi_get_fortran_booleans(4, yes, no, is_set, ierror)
    if (.not. is_set) then
      call MPI_Abi_set_fortran_booleans(4, .true., .false., ierror)
      call equal(ierror, MPI_SUCCESS, 'MPI_Abi_set_fortran_booleans')
      call MPI_Abi_get_fortran_booleans(4, yes, no, is_set, ierror)
    end if
    call check(is_set .and. yes .and. .not. no, '.true. and .false.')
    call MPI_Abi_get_fortran_info(kept, ierror)
    if (kept == MPI_INFO_NULL) then
      call MPI_Info_create(info, ierror)
      call MPI_Info_set(info, 'mpi_integer_size', '4', ierror)
      call MPI_Abi_set_fortran_info(info, ierror)
      call equal(ierror, MPI_SUCCESS, 'MPI_Abi_set_fortran_info')
      call MPI_Info_free(info, ierror)
      call MPI_Abi_get_fortran_info(kept, ierror)
    end if
    length = 16
    call MPI_Info_get_string(kept, 'mpi_integer_size', length, value, is_set, ierror)
    call equal(is_set, .true., 'the size of an INTEGER was kept')
    call equal(value, '4', 'the size of an INTEGER')
    call MPI_Info_free(kept, ierror)
  end subroutine

end program
