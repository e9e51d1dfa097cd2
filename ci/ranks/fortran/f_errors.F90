! SPDX-License-Identifier: MIT OR Apache-2.0
! Errors, chapter 9: codes, classes and strings, handlers in Fortran, classes of the program.
#include "method.h"
#include "check.inc"

module handlers
  implicit none
  integer :: calls = 0, last_code = 0
  logical :: right_comm = .false.
contains
  subroutine note(comm, code)
    USE_MPI
    INCLUDE_MPI
    T_COMM :: comm
    integer :: code
    calls = calls + 1
    last_code = code
    right_comm = comm == MPI_COMM_WORLD
  end subroutine
end module

program failing
  USE_MPI
  use checks
  use handlers
  implicit none
  INCLUDE_MPI
  integer :: ierror

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  call codes()
  call words()
  call a_handler()
  call called_by_hand()
  call added()
  call MPI_Finalize(ierror)
  call tell()

contains

  subroutine codes()
    integer :: value, class, code
    T_ERRHANDLER :: before, now
    call begin('codes')
    value = 0
    call MPI_Comm_get_errhandler(MPI_COMM_WORLD, before, ierror)
    call check(before == MPI_ERRORS_ARE_FATAL, 'the handler at the start')
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierror)
    call MPI_Comm_get_errhandler(MPI_COMM_WORLD, now, ierror)
    call check(now == MPI_ERRORS_RETURN, 'the handler that was set')
    call MPI_Send(value, 1, MPI_INTEGER, size_of_world, 0, MPI_COMM_WORLD, code)
    call MPI_Error_class(code, class, ierror)
    call equal(class, MPI_ERR_RANK, 'a rank that is not there')
    call MPI_Send(value, -1, MPI_INTEGER, 0, 0, MPI_COMM_WORLD, code)
    call MPI_Error_class(code, class, ierror)
    call equal(class, MPI_ERR_COUNT, 'a negative count')
    call MPI_Send(value, 1, MPI_INTEGER, 0, -7, MPI_COMM_WORLD, code)
    call MPI_Error_class(code, class, ierror)
    call equal(class, MPI_ERR_TAG, 'a negative tag')
    call MPI_Send(value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD, code)
    call MPI_Error_class(code, class, ierror)
    call equal(class, MPI_ERR_TYPE, 'no datatype')
  end subroutine

  subroutine words()
    character(MPI_MAX_ERROR_STRING) :: text
    integer :: length
    call begin('words')
    text = repeat('x', len(text))
    call MPI_Error_string(MPI_ERR_RANK, text, length, ierror)
    call check(length > 0 .and. length < len(text), 'a length')
    call check(text(length:length) /= ' ', 'the length tells where the words end')
    call check(text(length + 1:) == ' ', 'blanks up to the end')
    call check(index(text, char(0)) == 0, 'no terminator of C')
    call check(index(text, 'rank') > 0 .or. index(text, 'RANK') > 0, 'it is about ranks')
  end subroutine

  subroutine a_handler()
    T_ERRHANDLER :: handler
    integer :: value, class, code
    call begin('a handler in Fortran')
    value = 0
    call MPI_Comm_create_errhandler(note, handler, ierror)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler, ierror)
    calls = 0
    call MPI_Send(value, 1, MPI_INTEGER, -300, 0, MPI_COMM_WORLD, code)
    call equal(calls, 1, 'calls')
    call check(right_comm, 'the communicator it is told')
    call equal(code, last_code, 'the code it is told')
    call MPI_Error_class(last_code, class, ierror)
    call equal(class, MPI_ERR_RANK, 'class')
    call MPI_Errhandler_free(handler, ierror)
    call check(handler == MPI_ERRHANDLER_NULL, 'a freed handler is null')
    call MPI_Send(value, 1, MPI_INTEGER, -300, 0, MPI_COMM_WORLD, code)
    call equal(calls, 2, 'a freed handler serves where it is set')
  end subroutine

  subroutine called_by_hand()
    call begin('MPI_Comm_call_errhandler')
    calls = 0
    call MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_TOPOLOGY, ierror)
    call equal(calls, 1, 'calls')
    call equal(last_code, MPI_ERR_TOPOLOGY, 'code')
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, ierror)
  end subroutine

  subroutine added()
    integer :: class, code, got, length
    integer(kind=MPI_ADDRESS_KIND) :: last
    logical :: there
    character(MPI_MAX_ERROR_STRING) :: text
    call begin('classes of our own')
    call MPI_Add_error_class(class, ierror)
    call check(class > MPI_ERR_LASTCODE, 'a new class')
    call MPI_Add_error_code(class, code, ierror)
    call MPI_Add_error_string(code, 'the lattice is broken   ', ierror)
    call MPI_Error_class(code, got, ierror)
    call equal(got, class, 'class of the new code')
    call MPI_Error_string(code, text, length, ierror)
    call equal(text, 'the lattice is broken', 'words')
    call equal(length, 21, 'blanks behind the words do not count')
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, last, there, ierror)
    call check(there .and. last >= code, 'MPI_LASTUSEDCODE')
  end subroutine

end program
