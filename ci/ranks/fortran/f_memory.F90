! SPDX-License-Identifier: MIT OR Apache-2.0
! MPI_Alloc_mem, section 9.2: its memory becomes a Fortran pointer, by a c_ptr and by an address.
#include "method.h"
#include "check.inc"

program memory
  use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierror

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  call with_c_ptr()
  call with_address()
  call MPI_Finalize(ierror)
  call tell()

contains

  subroutine with_c_ptr()
#if defined(BY_MPI) || defined(BY_F08)
    integer, parameter :: n = 100000
    type(c_ptr) :: place
    real(kind(0d0)), pointer, asynchronous :: field(:, :)
    integer :: left, right
    call begin('c_ptr')
    left = mod(rank + size_of_world - 1, size_of_world)
    right = mod(rank + 1, size_of_world)
    call MPI_Alloc_mem(16_MPI_ADDRESS_KIND * n, MPI_INFO_NULL, place, ierror)
    call equal(ierror, MPI_SUCCESS, 'ierror')
    call c_f_pointer(place, field, [n, 2])
    field(:, 1) = rank
    field(:, 2) = -1
    call MPI_Sendrecv(field(:, 1), n, MPI_DOUBLE_PRECISION, right, 0, field(:, 2), n, MPI_DOUBLE_PRECISION, left, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(all(field(:, 2) == left), 'data')
    call MPI_Free_mem(field, ierror)
    call equal(ierror, MPI_SUCCESS, 'ierror of MPI_Free_mem')
#endif
  end subroutine

  ! Without c_ptr the address is an integer, which is converted to a C pointer here.
  subroutine with_address()
#if !defined(BY_F08)
    integer(kind=MPI_ADDRESS_KIND) :: address
    type(c_ptr) :: place
    integer, pointer :: data(:)
    call begin('an address')
    call MPI_Alloc_mem(4000_MPI_ADDRESS_KIND, MPI_INFO_NULL, address, ierror)
    call equal(ierror, MPI_SUCCESS, 'ierror')
    call check(address /= 0, 'an address')
    place = transfer(address, place)
    call c_f_pointer(place, data, [1000])
    data = rank
    call MPI_Bcast(data, 1000, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
    call check(all(data == 0), 'data')
    call MPI_Free_mem(data, ierror)
    call equal(ierror, MPI_SUCCESS, 'ierror of MPI_Free_mem')
#endif
  end subroutine

end program
