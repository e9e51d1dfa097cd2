! SPDX-License-Identifier: MIT OR Apache-2.0
! Strings, section 19.1.12 and chapter 10: trailing blanks of inputs do not count, and outputs are filled with blanks.
#include "method.h"
#include "check.inc"

program names
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierror

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  call communicators()
  call infos()
  call values_that_are_long()
  call how_it_was_started()
  call what_mpi_says()
  call MPI_Finalize(ierror)
  call tell()

contains

  subroutine communicators()
    character(MPI_MAX_OBJECT_NAME) :: name
    character(20) :: padded
    integer :: length
    T_COMM :: comm
    call begin('names of communicators')
    name = repeat('x', len(name))
    call MPI_Comm_get_name(MPI_COMM_WORLD, name, length, ierror)
    call equal(length, 14, 'length')
    call equal(name, 'MPI_COMM_WORLD', 'name of the world')
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierror)
    padded = 'two words'
    call MPI_Comm_set_name(comm, padded, ierror)
    name = repeat('x', len(name))
    call MPI_Comm_get_name(comm, name, length, ierror)
    call equal(length, 9, 'length of a name that was padded')
    call equal(name, 'two words', 'name')
    call MPI_Comm_set_name(comm, '', ierror)
    call MPI_Comm_get_name(comm, name, length, ierror)
    call equal(length, 0, 'length of no name')
    call equal(name, '', 'no name')
    call MPI_Comm_free(comm, ierror)
  end subroutine

  subroutine infos()
    T_INFO :: info, copy
    character(MPI_MAX_INFO_KEY) :: key
    character(20) :: value
    character(3) :: short
    integer :: keys, length
    logical :: there
    call begin('infos')
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, 'one   ', '  first value   ', ierror)
    call MPI_Info_set(info, '  two', 'second', ierror)
    call MPI_Info_get_nkeys(info, keys, ierror)
    call equal(keys, 2, 'number of keys')
    key = repeat('x', len(key))
    call MPI_Info_get_nthkey(info, 0, key, ierror)
    call equal(key, 'one', 'the first key')
    call MPI_Info_get_nthkey(info, 1, key, ierror)
    call equal(key, 'two', 'the second key, its blanks stripped at both ends')
    value = repeat('x', len(value))
    length = len(value)
    call MPI_Info_get_string(info, 'one', length, value, there, ierror)
    call check(there, 'MPI_Info_get_string finds a key')
    call equal(value, 'first value', 'value')
    call equal(length, 11, 'length of the value')
    length = 0
    call MPI_Info_get_string(info, 'two', length, value, there, ierror)
    call equal(length, 6, 'length that is asked for alone')
    call check(value == 'first value', 'a length of 0 leaves the text')
    length = len(short)
    call MPI_Info_get_string(info, 'two', length, short, there, ierror)
    call equal(short, 'sec', 'a value in less room')
    call equal(length, 6, 'the room that it needs')
    length = len(value)
    call MPI_Info_get_string(info, 'three', length, value, there, ierror)
    call check(.not. there, 'a key that is not there')
    call MPI_Info_dup(info, copy, ierror)
    call MPI_Info_delete(info, 'one  ', ierror)
    call MPI_Info_get_nkeys(info, keys, ierror)
    call equal(keys, 1, 'number of keys after one was deleted')
    call MPI_Info_get_nkeys(copy, keys, ierror)
    call equal(keys, 2, 'number of keys of the copy')
    call MPI_Info_free(info, ierror)
    call MPI_Info_free(copy, ierror)
    call check(info == MPI_INFO_NULL, 'a freed info is null')
  end subroutine

  subroutine values_that_are_long()
    T_INFO :: info
    character(300) :: long, back
    integer :: length
    logical :: there
    call begin('a long value, and the old functions')
    long = repeat('0123456789', 30)
    call MPI_Info_create(info, ierror)
    call MPI_Info_set(info, 'key', long, ierror)
    back = ''
    call MPI_Info_get(info, 'key', 300, back, there, ierror)
    call check(there, 'MPI_Info_get finds a key')
    call equal(back, long, 'value')
    call MPI_Info_get_valuelen(info, 'key', length, there, ierror)
    call check(there .and. length == 300, 'MPI_Info_get_valuelen')
    call MPI_Info_get_valuelen(info, 'other', length, there, ierror)
    call check(.not. there, 'a key that is not there')
    call MPI_Info_free(info, ierror)
  end subroutine

  subroutine how_it_was_started()
    T_INFO :: info
    character(40) :: processes
    integer :: length
    logical :: there
    call begin('MPI_Info_create_env, MPI_INFO_ENV')
    call MPI_Info_create_env(info, ierror)
    call check(info /= MPI_INFO_NULL, 'an info')
    call MPI_Info_free(info, ierror)
    length = len(processes)
    call MPI_Info_get_string(MPI_INFO_ENV, 'maxprocs', length, processes, there, ierror)
    if (there) call check(processes /= '', 'maxprocs')
  end subroutine

  subroutine what_mpi_says()
    character(MPI_MAX_PROCESSOR_NAME) :: host
    character(MPI_MAX_LIBRARY_VERSION_STRING) :: version
    integer :: length
    call begin('host and version')
    call MPI_Get_processor_name(host, length, ierror)
    call check(length > 0 .and. host(length + 1:) == ' ' .and. host(length:length) /= ' ', 'name of the host')
    call MPI_Get_library_version(version, length, ierror)
    call check(length > 0 .and. version(length + 1:) == ' ', 'version')
    call check(index(version, char(0)) == 0, 'no terminator of C')
  end subroutine

end program
