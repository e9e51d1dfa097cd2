! SPDX-License-Identifier: MIT OR Apache-2.0
! A rank ends too early: the arguments are the kind of end, the rank and the code.
program early_end
  use mpi
  implicit none
  character(20) :: how, word
  integer :: ierror, rank, victim, code
  call get_command_argument(1, how)
  call get_command_argument(2, word)
  read (word, *) victim
  call get_command_argument(3, word)
  read (word, *) code
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  if (rank == victim) then
    select case (how)
    case ('stop')
      if (code == 0) stop
      stop 5
    case ('error-stop')
      error stop 6
    case ('end')
      go to 9
    case ('abort')
      call MPI_Abort(MPI_COMM_WORLD, code, ierror)
    case ('bad-rank')
      call MPI_Send(rank, 1, MPI_INTEGER, 77, 0, MPI_COMM_WORLD, ierror)
    end select
  end if
  call MPI_Barrier(MPI_COMM_WORLD, ierror)
  call MPI_Finalize(ierror)
9 continue
end program
