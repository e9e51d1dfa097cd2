! SPDX-License-Identifier: MIT OR Apache-2.0
! Attributes, section 7.7: keys with callbacks in Fortran, predefined callbacks, and values that are as wide as addresses.
#include "method.h"
#include "check.inc"

module callbacks
  implicit none
  integer :: copied = 0, deleted = 0, refused = 0
  logical :: fails = .false.
contains
  subroutine copy(oldcomm, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    USE_MPI
    INCLUDE_MPI
    T_COMM :: oldcomm
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    if (oldcomm == MPI_COMM_NULL) refused = refused + 1000
    copied = copied + 1
    attribute_val_out = attribute_val_in + extra_state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine copy_nothing(oldcomm, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    USE_MPI
    INCLUDE_MPI
    T_COMM :: oldcomm
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    refused = refused + 1
    flag = .false.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine delete(comm, keyval, attribute_val, extra_state, ierror)
    USE_MPI
    INCLUDE_MPI
    T_COMM :: comm
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: attribute_val, extra_state
    deleted = deleted + int(extra_state)
    ierror = MPI_SUCCESS
    if (fails) ierror = MPI_ERR_OTHER
  end subroutine

  subroutine copy_type(oldtype, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    USE_MPI
    INCLUDE_MPI
    T_DATATYPE :: oldtype
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: extra_state, attribute_val_in, attribute_val_out
    logical :: flag
    copied = copied + 1
    attribute_val_out = 2 * attribute_val_in
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine delete_type(datatype, keyval, attribute_val, extra_state, ierror)
    USE_MPI
    INCLUDE_MPI
    T_DATATYPE :: datatype
    integer :: keyval, ierror
    integer(kind=MPI_ADDRESS_KIND) :: attribute_val, extra_state
    deleted = deleted + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine

#if !defined(BY_F08)
  ! As in MPI-1: attributes are default integers.
  subroutine old_copy(oldcomm, keyval, extra_state, attribute_val_in, attribute_val_out, flag, ierror)
    USE_MPI
    INCLUDE_MPI
    integer :: oldcomm, keyval, extra_state, attribute_val_in, attribute_val_out, ierror
    logical :: flag
    copied = copied + 1
    attribute_val_out = attribute_val_in + extra_state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine

  subroutine old_delete(comm, keyval, attribute_val, extra_state, ierror)
    USE_MPI
    INCLUDE_MPI
    integer :: comm, keyval, attribute_val, extra_state, ierror
    deleted = deleted + extra_state
    ierror = MPI_SUCCESS
  end subroutine
#endif
end module

program attributes
  USE_MPI
  use checks
  use callbacks
  implicit none
  INCLUDE_MPI
  integer :: ierror

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  call of_mpi()
  call own_callbacks()
  call predefined_callbacks()
  call of_datatypes()
  call a_delete_that_fails()
#if !defined(BY_F08)
  call as_in_mpi_1()
#endif
  call MPI_Finalize(ierror)
  call tell()

contains

  subroutine of_mpi()
    integer(kind=MPI_ADDRESS_KIND) :: value
    logical :: there
    call begin('attributes of MPI')
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, there, ierror)
    call check(there .and. value >= 32767, 'MPI_TAG_UB')
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, value, there, ierror)
    if (there) call check(value == 0 .or. value == 1, 'MPI_WTIME_IS_GLOBAL')
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, value, there, ierror)
    if (there) call check(value == 0, 'MPI_APPNUM')
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, value, there, ierror)
    if (there) call check(value >= size_of_world, 'MPI_UNIVERSE_SIZE')
  end subroutine

  subroutine own_callbacks()
    T_COMM :: first, second
    integer :: key
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    logical :: there
    call begin('callbacks of Fortran')
    copied = 0
    deleted = 0
    extra = 3
    call MPI_Comm_create_keyval(copy, delete, key, extra, ierror)
    call check(key /= MPI_KEYVAL_INVALID, 'a key')
    call MPI_Comm_dup(MPI_COMM_SELF, first, ierror)
    call MPI_Comm_get_attr(first, key, value, there, ierror)
    call check(.not. there, 'nothing is set yet')
    value = -5000000000_MPI_ADDRESS_KIND
    call MPI_Comm_set_attr(first, key, value, ierror)
    value = 0
    call MPI_Comm_get_attr(first, key, value, there, ierror)
    call check(there .and. value == -5000000000_MPI_ADDRESS_KIND, 'a value wider than an INTEGER')
    call MPI_Comm_dup(first, second, ierror)
    call equal(copied, 1, 'calls of the copy function')
    call MPI_Comm_get_attr(second, key, value, there, ierror)
    call check(there .and. value == -4999999997_MPI_ADDRESS_KIND, 'what the copy function made of it')
    call MPI_Comm_delete_attr(second, key, ierror)
    call equal(deleted, 3, 'the delete function has run')
    call MPI_Comm_get_attr(second, key, value, there, ierror)
    call check(.not. there, 'a deleted attribute')
    call MPI_Comm_free(second, ierror)
    call equal(deleted, 3, 'nothing to delete')
    call MPI_Comm_free(first, ierror)
    call equal(deleted, 6, 'freeing deletes')
    call MPI_Comm_free_keyval(key, ierror)
    call equal(key, MPI_KEYVAL_INVALID, 'a freed key')
    refused = 0
    call MPI_Comm_create_keyval(copy_nothing, delete, key, extra, ierror)
    call MPI_Comm_dup(MPI_COMM_SELF, first, ierror)
    call MPI_Comm_set_attr(first, key, value, ierror)
    call MPI_Comm_dup(first, second, ierror)
    call equal(refused, 1, 'a copy function that refuses')
    call MPI_Comm_get_attr(second, key, value, there, ierror)
    call check(.not. there, 'what it refused is not there')
    call MPI_Comm_free(second, ierror)
    call MPI_Comm_free(first, ierror)
    call MPI_Comm_free_keyval(key, ierror)
  end subroutine

  subroutine predefined_callbacks()
    T_COMM :: first, second
    integer :: carried, left_out
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    logical :: there
    call begin('callbacks of MPI')
    extra = 0
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, carried, extra, ierror)
    call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, left_out, extra, ierror)
    call MPI_Comm_dup(MPI_COMM_WORLD, first, ierror)
    value = 11
    call MPI_Comm_set_attr(first, carried, value, ierror)
    call MPI_Comm_set_attr(first, left_out, value, ierror)
    call MPI_Comm_dup(first, second, ierror)
    value = 0
    call MPI_Comm_get_attr(second, carried, value, there, ierror)
    call check(there .and. value == 11, 'MPI_COMM_DUP_FN')
    call MPI_Comm_get_attr(second, left_out, value, there, ierror)
    call check(.not. there, 'MPI_COMM_NULL_COPY_FN')
    call MPI_Comm_free(second, ierror)
    call MPI_Comm_free(first, ierror)
    call MPI_Comm_free_keyval(carried, ierror)
    call MPI_Comm_free_keyval(left_out, ierror)
  end subroutine

  subroutine of_datatypes()
    T_DATATYPE :: first, second
    integer :: key
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    logical :: there
    call begin('attributes of datatypes')
    copied = 0
    deleted = 0
    extra = 10
    call MPI_Type_create_keyval(copy_type, delete_type, key, extra, ierror)
    call MPI_Type_contiguous(2, MPI_INTEGER, first, ierror)
    value = 21
    call MPI_Type_set_attr(first, key, value, ierror)
    call MPI_Type_dup(first, second, ierror)
    call equal(copied, 1, 'calls of the copy function')
    call MPI_Type_get_attr(second, key, value, there, ierror)
    call check(there .and. value == 42, 'what the copy function made of it')
    call MPI_Type_free(first, ierror)
    call MPI_Type_free(second, ierror)
    call equal(deleted, 20, 'the delete function has run twice')
    call MPI_Type_free_keyval(key, ierror)
  end subroutine

  subroutine a_delete_that_fails()
    T_COMM :: comm
    integer :: key, code
    integer(kind=MPI_ADDRESS_KIND) :: value, extra
    call begin('a delete function that fails')
    extra = 0
    call MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, key, extra, ierror)
    call MPI_Comm_dup(MPI_COMM_SELF, comm, ierror)
    call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, ierror)
    value = 1
    call MPI_Comm_set_attr(comm, key, value, ierror)
    fails = .true.
    call MPI_Comm_delete_attr(comm, key, code)
    call check(code /= MPI_SUCCESS, 'its error comes back')
    fails = .false.
    call MPI_Comm_free(comm, code)
    call MPI_Comm_free_keyval(key, ierror)
  end subroutine

#if !defined(BY_F08)
  subroutine as_in_mpi_1()
    integer :: first, second, key, value
    logical :: there
    call begin('deprecated names')
    copied = 0
    deleted = 0
    call MPI_Keyval_create(old_copy, old_delete, key, 4, ierror)
    call MPI_Comm_dup(MPI_COMM_SELF, first, ierror)
    call MPI_Attr_put(first, key, 30, ierror)
    call MPI_Comm_dup(first, second, ierror)
    call equal(copied, 1, 'calls of the copy function')
    call MPI_Attr_get(second, key, value, there, ierror)
    call check(there .and. value == 34, 'what the copy function made of it')
    call MPI_Attr_delete(second, key, ierror)
    call equal(deleted, 4, 'the delete function has run')
    call MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, value, there, ierror)
    call check(there .and. value >= 32767, 'MPI_TAG_UB')
    call MPI_Comm_free(second, ierror)
    call MPI_Comm_free(first, ierror)
    call MPI_Keyval_free(key, ierror)
    call equal(key, MPI_KEYVAL_INVALID, 'a freed key')
  end subroutine
#endif

end program
