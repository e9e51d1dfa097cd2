! SPDX-License-Identifier: MIT OR Apache-2.0
! Communicators and groups, chapter 7; sessions, chapter 11; the levels of threads.
#include "method.h"
#include "check.inc"

program communicators
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierror, n, provided
  logical :: flag

  call MPI_Initialized(flag, ierror)
  call begin('before MPI_Init')
  call check(.not. flag, 'MPI_Initialized')
  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  n = size_of_world
  call threads()
  call splits()
  call groups()
  call ranges()
  call between_two()
  call later()
  call sessions()
  call MPI_Finalize(ierror)
  call begin('after MPI_Finalize')
  call MPI_Finalized(flag, ierror)
  call check(flag, 'MPI_Finalized')
  call tell()

contains

  subroutine threads()
    integer :: level
    call begin('threads')
    call check(provided >= MPI_THREAD_FUNNELED, 'what was asked for')
    call MPI_Query_thread(level, ierror)
    call equal(level, provided, 'MPI_Query_thread')
    call MPI_Is_thread_main(flag, ierror)
    call check(flag, 'this is the main thread')
    call MPI_Initialized(flag, ierror)
    call check(flag, 'MPI_Initialized')
    call MPI_Finalized(flag, ierror)
    call check(.not. flag, 'MPI_Finalized')
  end subroutine

  subroutine splits()
    T_COMM :: comm, none, same
    integer :: me, many, how
    call begin('splits')
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, comm, ierror)
    call MPI_Comm_size(comm, many, ierror)
    call equal(many, (n + 1 - mod(rank, 2)) / 2, 'size')
    call MPI_Comm_rank(comm, me, ierror)
    call equal(me, many - 1 - rank / 2, 'rank in the order of the keys')
    call MPI_Comm_dup(comm, same, ierror)
    call MPI_Comm_compare(comm, same, how, ierror)
    call equal(how, MPI_CONGRUENT, 'a copy')
    call MPI_Comm_compare(comm, comm, how, ierror)
    call equal(how, MPI_IDENT, 'itself')
    call MPI_Comm_free(same, ierror)
    call MPI_Comm_free(comm, ierror)
    call check(comm == MPI_COMM_NULL, 'a freed communicator is null')
    call MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, none, ierror)
    call check(none == MPI_COMM_NULL, 'a colour of nobody')
    call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, comm, ierror)
    call MPI_Comm_size(comm, many, ierror)
    call check(many >= 1 .and. many <= n, 'ranks with shared memory')
    call MPI_Comm_free(comm, ierror)
  end subroutine

  subroutine groups()
    T_GROUP :: world, even, odd, all_of
    T_COMM :: comm
    integer :: i, many, me, how, translated(n)
    call begin('groups')
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierror)
    call MPI_Group_incl(world, (n + 1) / 2, [(2 * i, i=0, (n - 1) / 2)], even, ierror)
    call MPI_Group_excl(world, (n + 1) / 2, [(2 * i, i=0, (n - 1) / 2)], odd, ierror)
    call MPI_Group_size(odd, many, ierror)
    call equal(many, n / 2, 'size of the odd ranks')
    call MPI_Group_rank(odd, me, ierror)
    call equal(me, merge(rank / 2, MPI_UNDEFINED, mod(rank, 2) == 1), 'rank among the odd ones')
    call MPI_Group_union(even, odd, all_of, ierror)
    call MPI_Group_compare(world, all_of, how, ierror)
    call check(how == MPI_SIMILAR .or. (n < 3 .and. how == MPI_IDENT), 'the union has the same ranks')
    call MPI_Group_translate_ranks(all_of, n, [(i, i=0, n - 1)], world, translated, ierror)
    call equal(sum(translated), n * (n - 1) / 2, 'sum of all translated ranks')
    call MPI_Comm_create(MPI_COMM_WORLD, even, comm, ierror)
    call check((comm == MPI_COMM_NULL) .eqv. mod(rank, 2) == 1, 'a communicator of the even ranks')
    if (comm /= MPI_COMM_NULL) call MPI_Comm_free(comm, ierror)
    if (mod(rank, 2) == 0) then
      call MPI_Comm_create_group(MPI_COMM_WORLD, even, 5, comm, ierror)
      call MPI_Comm_size(comm, many, ierror)
      call equal(many, (n + 1) / 2, 'MPI_Comm_create_group')
      call MPI_Comm_free(comm, ierror)
    end if
    call MPI_Group_free(world, ierror)
    call MPI_Group_free(even, ierror)
    call MPI_Group_free(odd, ierror)
    call MPI_Group_free(all_of, ierror)
    call check(world == MPI_GROUP_NULL, 'a freed group is null')
  end subroutine

  ! Ranges are columns of three.
  subroutine ranges()
    T_GROUP :: world, some
    integer :: all_ranges(3, 2), many, first(1)
    call begin('ranges')
    if (n < 4) return
    call MPI_Comm_group(MPI_COMM_WORLD, world, ierror)
    all_ranges(:, 1) = [3, 2, -1]
    all_ranges(:, 2) = [0, 1, 1]
    call MPI_Group_range_incl(world, 2, all_ranges, some, ierror)
    call MPI_Group_size(some, many, ierror)
    call equal(many, 4, 'size')
    call MPI_Group_translate_ranks(some, 1, [0], world, first, ierror)
    call equal(first(1), 3, 'the first rank')
    call MPI_Group_free(some, ierror)
    call MPI_Group_range_excl(world, 1, all_ranges, some, ierror)
    call MPI_Group_size(some, many, ierror)
    call equal(many, n - 2, 'size without a range')
    call MPI_Group_free(some, ierror)
    call MPI_Group_free(world, ierror)
  end subroutine

  subroutine between_two()
    T_COMM :: half, inter, merged
    integer :: mine, many, total
    call begin('an intercommunicator')
    if (n < 2) return
    mine = merge(0, 1, rank < n / 2)
    call MPI_Comm_split(MPI_COMM_WORLD, mine, rank, half, ierror)
    call MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, merge(n / 2, 0, mine == 0), 4, inter, ierror)
    call MPI_Comm_test_inter(inter, flag, ierror)
    call check(flag, 'MPI_Comm_test_inter')
    call MPI_Comm_remote_size(inter, many, ierror)
    call equal(many, merge(n - n / 2, n / 2, mine == 0), 'size of the others')
    call MPI_Intercomm_merge(inter, mine == 1, merged, ierror)
    call MPI_Allreduce(1, total, 1, MPI_INTEGER, MPI_SUM, merged, ierror)
    call equal(total, n, 'all of both')
    call MPI_Comm_test_inter(merged, flag, ierror)
    call check(.not. flag, 'a merged one is none')
    call MPI_Comm_free(merged, ierror)
    call MPI_Comm_free(inter, ierror)
    call MPI_Comm_free(half, ierror)
  end subroutine

  subroutine later()
    T_COMM, asynchronous :: comm
    T_REQUEST :: request
    integer :: how
    call begin('MPI_Comm_idup')
    call MPI_Comm_idup(MPI_COMM_WORLD, comm, request, ierror)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
    call MPI_Comm_compare(MPI_COMM_WORLD, comm, how, ierror)
    call equal(how, MPI_CONGRUENT, 'a copy')
    call MPI_Comm_free(comm, ierror)
  end subroutine

  subroutine sessions()
    T_SESSION :: session
    T_GROUP :: group
    T_COMM :: comm
    character(MPI_MAX_PSET_NAME_LEN) :: name
    integer :: sets, length, total, i
    logical :: has_world
    call begin('sessions')
    call MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session, ierror)
    call MPI_Session_get_num_psets(session, MPI_INFO_NULL, sets, ierror)
    has_world = .false.
    do i = 0, sets - 1
      name = repeat('x', len(name))
      length = len(name)
      call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, length, name, ierror)
      has_world = has_world .or. name == 'mpi://WORLD'
    end do
    call check(has_world, 'a set of all')
    call MPI_Group_from_session_pset(session, 'mpi://WORLD   ', group, ierror)
    call MPI_Comm_create_from_group(group, 'f_comm', MPI_INFO_NULL, MPI_ERRORS_RETURN, comm, ierror)
    call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, comm, ierror)
    call equal(total, n * (n - 1) / 2, 'sum of all ranks')
    call MPI_Comm_free(comm, ierror)
    call MPI_Group_free(group, ierror)
    call MPI_Session_finalize(session, ierror)
    call check(session == MPI_SESSION_NULL, 'a finalized session is null')
  end subroutine

end program
