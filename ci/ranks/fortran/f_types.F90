! SPDX-License-Identifier: MIT OR Apache-2.0
! Datatypes, chapter 5: of addresses and MPI_BOTTOM, of arrays, of Fortran's parameterized types; packing.
#include "method.h"
#include "check.inc"

program types
  USE_MPI
  use checks
  implicit none
  INCLUDE_MPI
  integer :: ierror

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  call at_addresses()
  call records()
  call parts_of_arrays()
  call distributed()
  call by_displacements()
  call inside()
  call with_kinds()
  call by_sizes()
  call packed()
  call copies()
  call MPI_Finalize(ierror)
  call tell()

contains

  ! Data of several variables at once, by addresses relative to MPI_BOTTOM.
  subroutine at_addresses()
    integer, target, asynchronous :: a, c(3), a_in, c_in(3)
    real(kind(0d0)), target, asynchronous :: b, b_in
    integer(kind=MPI_ADDRESS_KIND) :: places(3)
    T_DATATYPE :: out, in
    call begin('MPI_BOTTOM')
    a = 1 + rank
    b = 2.5d0
    c = [7, 8, 9]
    a_in = 0
    b_in = 0
    c_in = 0
    call MPI_Get_address(a, places(1), ierror)
    call MPI_Get_address(b, places(2), ierror)
    call MPI_Get_address(c, places(3), ierror)
    call MPI_Type_create_struct(3, [1, 1, 3], places, [MPI_INTEGER, MPI_DOUBLE_PRECISION, MPI_INTEGER], out, ierror)
    call MPI_Type_commit(out, ierror)
    call MPI_Get_address(a_in, places(1), ierror)
    call MPI_Get_address(b_in, places(2), ierror)
    call MPI_Get_address(c_in, places(3), ierror)
    call MPI_Type_create_struct(3, [1, 1, 3], places, [MPI_INTEGER, MPI_DOUBLE_PRECISION, MPI_INTEGER], in, ierror)
    call MPI_Type_commit(in, ierror)
    call MPI_Sendrecv(MPI_BOTTOM, 1, out, rank, 0, MPI_BOTTOM, 1, in, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call equal(ierror, MPI_SUCCESS, 'ierror')
    call equal(a_in, 1 + rank, 'an integer')
    call check(b_in == 2.5d0, 'a double')
    call check(all(c_in == [7, 8, 9]), 'an array')
    a_in = 0
    if (rank == 0) then
      call MPI_Bcast(MPI_BOTTOM, 1, out, 0, MPI_COMM_WORLD, ierror)
    else
      call MPI_Bcast(MPI_BOTTOM, 1, in, 0, MPI_COMM_WORLD, ierror)
      call equal(a_in, 1, 'an integer of MPI_Bcast')
    end if
    call MPI_Type_free(out, ierror)
    call MPI_Type_free(in, ierror)
  end subroutine

  ! An array of a derived type, whose members have gaps between them.
  subroutine records()
    type :: particle
      sequence
      real(kind(0d0)) :: place(3)
      integer :: kind_of
      character(4) :: name
      logical :: alive
      integer :: padding
    end type
    type(particle) :: out(20), in(20)
    integer(kind=MPI_ADDRESS_KIND) :: places(4), base, next, lower, extent
    integer :: i, size
    T_DATATYPE :: whole, element
    call begin('records')
    do i = 1, 20
      out(i) = particle([1d0, 2d0, 3d0] * i, i, 'ab', mod(i, 2) == 0, 0)
      in(i) = particle([0d0, 0d0, 0d0], 0, '', .false., -5)
    end do
    call MPI_Get_address(out(1)%place, base, ierror)
    call MPI_Get_address(out(2)%place, next, ierror)
    call MPI_Get_address(out(1)%place, places(1), ierror)
    call MPI_Get_address(out(1)%kind_of, places(2), ierror)
    call MPI_Get_address(out(1)%name, places(3), ierror)
    call MPI_Get_address(out(1)%alive, places(4), ierror)
    call MPI_Type_create_struct(4, [3, 1, 4, 1], places - base, &
                                [MPI_DOUBLE_PRECISION, MPI_INTEGER, MPI_CHARACTER, MPI_LOGICAL], element, ierror)
    call MPI_Type_create_resized(element, 0_MPI_ADDRESS_KIND, next - base, whole, ierror)
    call MPI_Type_commit(whole, ierror)
    call MPI_Type_size(whole, size, ierror)
    call equal(size, 36, 'size')
    call MPI_Type_get_extent(whole, lower, extent, ierror)
    call check(lower == 0 .and. extent == 40, 'extent')
    call MPI_Type_get_true_extent(whole, lower, extent, ierror)
    call check(lower == 0 .and. extent == 36, 'true extent')
    call MPI_Sendrecv(out(1)%place, 20, whole, rank, 0, in(1)%place, 20, whole, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    do i = 1, 20
      call check(all(in(i)%place == [1d0, 2d0, 3d0] * i) .and. in(i)%kind_of == i, 'numbers of a record')
      call check(in(i)%name == 'ab' .and. (in(i)%alive .eqv. mod(i, 2) == 0), 'name and flag of a record')
      call equal(in(i)%padding, -5, 'the gap')
    end do
    call MPI_Type_free(element, ierror)
    call MPI_Type_free(whole, ierror)
  end subroutine

  subroutine parts_of_arrays()
    integer :: field(6, 5, 4), part(2, 3, 2), i, j, k
    T_DATATYPE :: box
    call begin('subarray in the order of Fortran')
    do concurrent(i=1:6, j=1:5, k=1:4)
      field(i, j, k) = 100 * i + 10 * j + k
    end do
    call MPI_Type_create_subarray(3, [6, 5, 4], [2, 3, 2], [3, 1, 2], MPI_ORDER_FORTRAN, MPI_INTEGER, box, ierror)
    call MPI_Type_commit(box, ierror)
    call MPI_Sendrecv(field, 1, box, rank, 0, part, 12, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(all(part == field(4:5, 2:4, 3:4)), 'data')
    call MPI_Type_free(box, ierror)
  end subroutine

  subroutine distributed()
    integer :: sizes(2), got, bytes
    T_DATATYPE :: mine
    call begin('darray')
    sizes = [8, 6]
    call MPI_Type_create_darray(4, 1, 2, sizes, [MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC], &
                                [MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG], [2, 2], &
                                MPI_ORDER_FORTRAN, MPI_REAL, mine, ierror)
    call MPI_Type_size(mine, got, ierror)
    call MPI_Type_size(MPI_REAL, bytes, ierror)
    call equal(got, 12 * bytes, 'size')
    call MPI_Type_free(mine, ierror)
  end subroutine

  subroutine by_displacements()
    integer :: out(20), in(20), i
    integer(kind=MPI_ADDRESS_KIND) :: bytes(3)
    T_DATATYPE :: these
    call begin('indexed')
    out = [(i, i=1, 20)]
    in = 0
    call MPI_Type_indexed(3, [1, 2, 3], [0, 4, 9], MPI_INTEGER, these, ierror)
    call MPI_Type_commit(these, ierror)
    call MPI_Sendrecv(out, 1, these, rank, 0, in, 6, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(all(in(:6) == [1, 5, 6, 10, 11, 12]), 'MPI_Type_indexed')
    call MPI_Type_free(these, ierror)
    bytes = [0, 16, 36]
    call MPI_Type_create_hindexed(3, [1, 2, 3], bytes, MPI_INTEGER, these, ierror)
    call MPI_Type_commit(these, ierror)
    in = 0
    call MPI_Sendrecv(out, 1, these, rank, 0, in, 6, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(all(in(:6) == [1, 5, 6, 10, 11, 12]), 'MPI_Type_create_hindexed')
    call MPI_Type_free(these, ierror)
    call MPI_Type_create_indexed_block(3, 2, [0, 5, 9], MPI_INTEGER, these, ierror)
    call MPI_Type_commit(these, ierror)
    call MPI_Sendrecv(out, 1, these, rank, 0, in, 6, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(all(in(:6) == [1, 2, 6, 7, 10, 11]), 'MPI_Type_create_indexed_block')
    call MPI_Type_free(these, ierror)
    call MPI_Type_create_hvector(3, 1, 12_MPI_ADDRESS_KIND, MPI_INTEGER, these, ierror)
    call MPI_Type_commit(these, ierror)
    call MPI_Sendrecv(out, 1, these, rank, 0, in, 3, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(all(in(:3) == [1, 4, 7]), 'MPI_Type_create_hvector')
    call MPI_Type_free(these, ierror)
  end subroutine

  subroutine inside()
    integer :: integers, addresses, types, combiner, i(4)
    integer(kind=MPI_ADDRESS_KIND) :: a(1)
    T_DATATYPE :: made, t(1)
    call begin('envelope and contents')
    call MPI_Type_vector(3, 2, 5, MPI_REAL, made, ierror)
    call MPI_Type_get_envelope(made, integers, addresses, types, combiner, ierror)
    call equal(combiner, MPI_COMBINER_VECTOR, 'combiner')
    call check(integers == 3 .and. addresses == 0 .and. types == 1, 'how many of each')
    i = -1
    call MPI_Type_get_contents(made, 3, 1, 1, i, a, t, ierror)
    call check(all(i == [3, 2, 5, -1]), 'integers')
    call check(t(1) == MPI_REAL, 'the datatype')
    call MPI_Type_free(made, ierror)
  end subroutine

  subroutine with_kinds()
    integer, parameter :: rk = selected_real_kind(12, 100), ik = selected_int_kind(12)
    real(rk) :: r(2)
    complex(rk) :: c(2)
    integer(ik) :: i(2)
    integer :: bytes
    T_DATATYPE :: real_type, complex_type, integer_type
    call begin('types of a precision and range')
    call MPI_Type_create_f90_real(12, 100, real_type, ierror)
    call MPI_Type_create_f90_complex(12, 100, complex_type, ierror)
    call MPI_Type_create_f90_integer(12, integer_type, ierror)
    r = [1.25_rk, 0._rk]
    c = [(1._rk, 2._rk), (0._rk, 0._rk)]
    i = [123456789012_ik, 0_ik]
    call MPI_Sendrecv(r(1), 1, real_type, rank, 0, r(2), 1, real_type, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(c(1), 1, complex_type, rank, 0, c(2), 1, complex_type, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(i(1), 1, integer_type, rank, 0, i(2), 1, integer_type, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
    call check(r(1) == r(2) .and. c(1) == c(2) .and. i(1) == i(2), 'values')
    call MPI_Type_size(integer_type, bytes, ierror)
    call equal(bytes, 8, 'bytes of 12 digits')
  end subroutine

  subroutine by_sizes()
    T_DATATYPE :: found
    call begin('MPI_Type_match_size and MPI_Sizeof')
    call MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, found, ierror)
    call check(found == MPI_REAL8 .or. found == MPI_DOUBLE_PRECISION, 'a real of 8 bytes')
    call MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 4, found, ierror)
    call check(found == MPI_INTEGER4 .or. found == MPI_INTEGER, 'an integer of 4 bytes')
#if defined(BY_MPI) || defined(BY_F08)
    call sizes_of()
#endif
  end subroutine

#if defined(BY_MPI) || defined(BY_F08)
  subroutine sizes_of()
    integer :: bytes, array(3, 3)
    real(kind(0d0)) :: r
    complex :: c
    character :: letter
    logical :: flag
    array = 0
    r = 0
    c = 0
    letter = ' '
    flag = .false.
    call MPI_Sizeof(array, bytes, ierror)
    call equal(bytes, 4, 'an integer')
    call MPI_Sizeof(r, bytes, ierror)
    call equal(bytes, 8, 'a double')
    call MPI_Sizeof(c, bytes, ierror)
    call equal(bytes, 8, 'a complex')
    call MPI_Sizeof(letter, bytes, ierror)
    call equal(bytes, 1, 'a character')
    call MPI_Sizeof(flag, bytes, ierror)
    call equal(bytes, 4, 'a logical')
  end subroutine
#endif

  subroutine packed()
    character :: buffer(200)
    integer :: place, n, data(3), bytes
    real :: r
    integer(kind=MPI_ADDRESS_KIND) :: far, need
    call begin('packing')
    place = 0
    call MPI_Pack(3, 1, MPI_INTEGER, buffer, 200, place, MPI_COMM_WORLD, ierror)
    call MPI_Pack([4, 5, 6], 3, MPI_INTEGER, buffer, 200, place, MPI_COMM_WORLD, ierror)
    call MPI_Pack(1.5, 1, MPI_REAL, buffer, 200, place, MPI_COMM_WORLD, ierror)
    bytes = place
    place = 0
    call MPI_Unpack(buffer, bytes, place, n, 1, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call MPI_Unpack(buffer, bytes, place, data, n, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call MPI_Unpack(buffer, bytes, place, r, 1, MPI_REAL, MPI_COMM_WORLD, ierror)
    call check(n == 3 .and. all(data == [4, 5, 6]) .and. r == 1.5, 'what was packed')
    call equal(place, bytes, 'position')
    call MPI_Pack_external_size('external32', 3, MPI_INTEGER, need, ierror)
    call check(need == 12, 'external size')
    far = 0
    call MPI_Pack_external('external32', data, 3, MPI_INTEGER, buffer, 200_MPI_ADDRESS_KIND, far, ierror)
    call check(far == 12 .and. ichar(buffer(4)) == 4, 'external32 is big-endian')
    data = 0
    far = 0
    call MPI_Unpack_external('external32', buffer, 200_MPI_ADDRESS_KIND, far, data, 3, MPI_INTEGER, ierror)
    call check(all(data == [4, 5, 6]), 'what came back of external32')
  end subroutine

  subroutine copies()
    T_DATATYPE :: first, second
    character(MPI_MAX_OBJECT_NAME) :: name
    integer :: length
    integer(kind=MPI_ADDRESS_KIND) :: sum
    call begin('copies, names, addresses')
    call MPI_Type_contiguous(4, MPI_REAL, first, ierror)
    call MPI_Type_dup(first, second, ierror)
    call check(first /= second, 'a copy is another datatype')
    call MPI_Type_set_name(second, 'four', ierror)
    call MPI_Type_get_name(second, name, length, ierror)
    call equal(length, 4, 'length of the name')
    call equal(name, 'four', 'name')
    call MPI_Type_get_name(MPI_INTEGER, name, length, ierror)
    call equal(name, 'MPI_INTEGER', 'name of a predefined datatype')
    call MPI_Type_free(first, ierror)
    call MPI_Type_free(second, ierror)
    sum = MPI_Aint_add(1000_MPI_ADDRESS_KIND, 24_MPI_ADDRESS_KIND)
    call check(sum == 1024, 'MPI_Aint_add')
    call check(MPI_Aint_diff(sum, 1000_MPI_ADDRESS_KIND) == 24, 'MPI_Aint_diff')
  end subroutine

end program
