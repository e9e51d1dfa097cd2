! SPDX-License-Identifier: MIT OR Apache-2.0
! With mpi_f08: constructors of datatypes, packing and queries with large counts (MPI 5.0 section 2.5.8) give what their forms with
! INTEGER give.
include 'check.inc'

program type_forms
  use mpi_f08
  use checks
  implicit none
  integer, parameter :: ck = MPI_COUNT_KIND, ak = MPI_ADDRESS_KIND
  integer :: ierror
  type(MPI_Datatype) :: small, large

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, size_of_world, ierror)
  call constructors()
  call contents()
  call queries()
  call packing()
  call external_packing()
  call operations()
  call MPI_Finalize(ierror)
  call tell()

contains

  ! Both types are the same to a message: equal sizes, extents and packed data.
  subroutine same(what)
    character(*), intent(in) :: what
    integer :: i, packed(400), again(400), memory(1000), first, second
    integer(ck) :: lower(2), extent(2)
    call equal(ierror, MPI_SUCCESS, what)
    memory = [(i, i=1, 1000)]
    packed = -1
    again = -1
    first = 0
    second = 0
    call MPI_Type_commit(small, ierror)
    call MPI_Type_commit(large, ierror)
    call MPI_Pack(memory, 1, small, packed, 1600, first, MPI_COMM_WORLD, ierror)
    call MPI_Pack(memory, 1, large, again, 1600, second, MPI_COMM_WORLD, ierror)
    call check(first > 0, what // ': some bytes')
    call equal(second, first, what // ': bytes')
    call check(all(packed == again), what // ': data')
    call MPI_Type_get_extent(small, lower(1), extent(1), ierror)
    call MPI_Type_get_extent(large, lower(2), extent(2), ierror)
    call equal(lower(2), lower(1), what // ': lower bound')
    call equal(extent(2), extent(1), what // ': extent')
    call MPI_Type_free(small, ierror)
    call MPI_Type_free(large, ierror)
  end subroutine

  subroutine constructors()
    call begin('constructors')
    call MPI_Type_contiguous(7, MPI_INTEGER, small, ierror)
    call MPI_Type_contiguous(7_ck, MPI_INTEGER, large, ierror)
    call same('MPI_Type_contiguous_c')
    call MPI_Type_vector(3, 2, 5, MPI_INTEGER, small, ierror)
    call MPI_Type_vector(3_ck, 2_ck, 5_ck, MPI_INTEGER, large, ierror)
    call same('MPI_Type_vector_c')
    call MPI_Type_create_hvector(3, 2, 28_ak, MPI_INTEGER, small, ierror)
    call MPI_Type_create_hvector(3_ck, 2_ck, 28_ck, MPI_INTEGER, large, ierror)
    call same('MPI_Type_create_hvector_c')
    call MPI_Type_indexed(3, [1, 3, 2], [9, 0, 5], MPI_INTEGER, small, ierror)
    call MPI_Type_indexed(3_ck, [1_ck, 3_ck, 2_ck], [9_ck, 0_ck, 5_ck], MPI_INTEGER, large, ierror)
    call same('MPI_Type_indexed_c')
    call MPI_Type_create_hindexed(2, [1, 3], [40_ak, 4_ak], MPI_INTEGER, small, ierror)
    call MPI_Type_create_hindexed(2_ck, [1_ck, 3_ck], [40_ck, 4_ck], MPI_INTEGER, large, ierror)
    call same('MPI_Type_create_hindexed_c')
    call MPI_Type_create_indexed_block(3, 2, [8, 0, 3], MPI_INTEGER, small, ierror)
    call MPI_Type_create_indexed_block(3_ck, 2_ck, [8_ck, 0_ck, 3_ck], MPI_INTEGER, large, ierror)
    call same('MPI_Type_create_indexed_block_c')
    call MPI_Type_create_hindexed_block(3, 2, [32_ak, 0_ak, 12_ak], MPI_INTEGER, small, ierror)
    call MPI_Type_create_hindexed_block(3_ck, 2_ck, [32_ck, 0_ck, 12_ck], MPI_INTEGER, large, ierror)
    call same('MPI_Type_create_hindexed_block_c')
    call MPI_Type_create_struct(2, [2, 1], [8_ak, 32_ak], [MPI_INTEGER, MPI_DOUBLE_PRECISION], small, ierror)
    call MPI_Type_create_struct(2_ck, [2_ck, 1_ck], [8_ck, 32_ck], [MPI_INTEGER, MPI_DOUBLE_PRECISION], large, ierror)
    call same('MPI_Type_create_struct_c')
    call MPI_Type_create_resized(MPI_INTEGER, -4_ak, 20_ak, small, ierror)
    call MPI_Type_create_resized(MPI_INTEGER, -4_ck, 20_ck, large, ierror)
    call same('MPI_Type_create_resized_c')
    call MPI_Type_create_subarray(2, [6, 5], [3, 2], [1, 2], MPI_ORDER_FORTRAN, MPI_INTEGER, small, ierror)
    call MPI_Type_create_subarray(2, [6_ck, 5_ck], [3_ck, 2_ck], [1_ck, 2_ck], MPI_ORDER_FORTRAN, MPI_INTEGER, large, ierror)
    call same('MPI_Type_create_subarray_c')
    call MPI_Type_create_darray(4, 1, 2, [8, 9], [MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC], &
                                [MPI_DISTRIBUTE_DFLT_DARG, 2], [2, 2], MPI_ORDER_FORTRAN, MPI_INTEGER, small, ierror)
    call MPI_Type_create_darray(4, 1, 2, [8_ck, 9_ck], [MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC], &
                                [MPI_DISTRIBUTE_DFLT_DARG, 2], [2, 2], MPI_ORDER_FORTRAN, MPI_INTEGER, large, ierror)
    call same('MPI_Type_create_darray_c')
  end subroutine

  ! Section 5.1.13: a type that was made with large counts gives them back as such.
  subroutine contents()
    integer(ck) :: integers, addresses, larges, types
    integer :: combiner, words(10)
    integer(ak) :: places(10)
    integer(ck) :: numbers(10)
    type(MPI_Datatype) :: made(10)
    call begin('contents')
    call MPI_Type_vector(3_ck, 2_ck, 5_ck, MPI_INTEGER, large, ierror)
    call MPI_Type_get_envelope(large, integers, addresses, larges, types, combiner, ierror)
    call equal(combiner, MPI_COMBINER_VECTOR, 'combiner')
    call equal(integers, 0, 'integers')
    call equal(addresses, 0, 'addresses')
    call equal(larges, 3, 'large counts')
    call equal(types, 1, 'datatypes')
    call MPI_Type_get_contents(large, integers, addresses, larges, types, words, places, numbers, made, ierror)
    call check(all(numbers(:3) == [3, 2, 5]), 'the counts')
    call check(made(1) == MPI_INTEGER, 'the datatype')
    call MPI_Type_free(large, ierror)
  end subroutine

  subroutine queries()
    type(MPI_Status) :: s
    integer(ck) :: count, lower, extent
    integer :: few
    integer :: pair(2)
    type(MPI_Datatype) :: found
    call begin('queries')
    call MPI_Type_create_resized(MPI_INTEGER, -8_ak, 40_ak, large, ierror)
    call MPI_Type_size(large, count, ierror)
    call equal(count, 4, 'MPI_Type_size_c')
    call MPI_Type_size_x(large, count, ierror)
    call equal(count, 4, 'MPI_Type_size_x')
    call MPI_Type_get_extent_x(large, lower, extent, ierror)
    call equal(lower, -8, 'lower bound of MPI_Type_get_extent_x')
    call equal(extent, 40, 'extent of MPI_Type_get_extent_x')
    call MPI_Type_get_true_extent(large, lower, extent, ierror)
    call equal(lower, 0, 'lower bound of MPI_Type_get_true_extent_c')
    call equal(extent, 4, 'extent of MPI_Type_get_true_extent_c')
    call MPI_Type_get_true_extent_x(large, lower, extent, ierror)
    call equal(lower, 0, 'lower bound of MPI_Type_get_true_extent_x')
    call equal(extent, 4, 'extent of MPI_Type_get_true_extent_x')
    call MPI_Type_free(large, ierror)
    call MPI_Status_set_elements_x(s, MPI_2INTEGER, 5_ck, ierror)
    call MPI_Get_elements_x(s, MPI_2INTEGER, count, ierror)
    call equal(count, 5, 'MPI_Get_elements_x')
    call MPI_Status_set_elements(s, MPI_2INTEGER, 7_ck, ierror)
    call MPI_Get_elements(s, MPI_2INTEGER, count, ierror)
    call equal(count, 7, 'MPI_Get_elements_c')
    call MPI_Get_count(s, MPI_2INTEGER, few, ierror)
    call equal(few, MPI_UNDEFINED, 'half a pair')
    ! Section 6.9.4: the type of a value with its place, as MPI_MAXLOC wants it.
    call MPI_Type_get_value_index(MPI_INTEGER, MPI_INTEGER, found, ierror)
    pair = [rank, 100 - rank]
    call MPI_Allreduce(MPI_IN_PLACE, pair, 1, found, MPI_MAXLOC, MPI_COMM_WORLD, ierror)
    call equal(pair(1), size_of_world - 1, 'the largest')
    call equal(pair(2), 101 - size_of_world, 'its place')
    call MPI_Type_get_value_index(MPI_INTEGER, MPI_CHARACTER, found, ierror)
    call check(found == MPI_DATATYPE_NULL, 'no such pair')
  end subroutine

  subroutine packing()
    integer :: out(20), in(20), room(40), i
    integer(ck) :: bytes, position
    call begin('packing')
    out = [(i * 3, i=1, 20)]
    call MPI_Pack_size(20_ck, MPI_INTEGER, MPI_COMM_WORLD, bytes, ierror)
    call check(bytes >= 80, 'MPI_Pack_size_c')
    position = 0
    call MPI_Pack(out, 20_ck, MPI_INTEGER, room, 160_ck, position, MPI_COMM_WORLD, ierror)
    call equal(position, 80, 'the position after MPI_Pack_c')
    position = 0
    in = 0
    call MPI_Unpack(room, 160_ck, position, in, 20_ck, MPI_INTEGER, MPI_COMM_WORLD, ierror)
    call equal(position, 80, 'the position after MPI_Unpack_c')
    call check(all(in == out), 'data')
  end subroutine

  subroutine external_packing()
    integer :: out(20), in(20), room(40), i
    integer(ck) :: bytes, position
    integer(ak) :: bytes_as_address, position_as_address
    call begin('external32')
    out = [(i - 9, i=1, 20)]
    call MPI_Pack_external_size('external32', 20_ck, MPI_INTEGER, bytes, ierror)
    call equal(bytes, 80, 'MPI_Pack_external_size_c')
    call MPI_Pack_external_size('external32', 20, MPI_INTEGER, bytes_as_address, ierror)
    call equal(bytes_as_address, 80, 'MPI_Pack_external_size')
    position = 0
    call MPI_Pack_external('external32', out, 20_ck, MPI_INTEGER, room, 160_ck, position, ierror)
    call equal(position, 80, 'the position after MPI_Pack_external_c')
    position_as_address = 0
    in = 0
    call MPI_Unpack_external('external32', room, 160_ak, position_as_address, in, 20, MPI_INTEGER, ierror)
    call check(all(in == out), 'data of MPI_Unpack_external')
    position = 0
    in = 0
    call MPI_Unpack_external('external32', room, 160_ck, position, in, 20_ck, MPI_INTEGER, ierror)
    call check(all(in == out), 'data of MPI_Unpack_external_c')
  end subroutine

  ! A user's operation that is called with large counts.
  subroutine operations()
    type(MPI_Op) :: op
    integer :: value(3), sum(3)
    call begin('operations with large counts')
    call MPI_Op_create_c(multiply, .true., op, ierror)
    value = [2, 3, 5]
    call MPI_Allreduce(value, sum, 3_ck, MPI_INTEGER, op, MPI_COMM_WORLD, ierror)
    call check(all(sum == value**size_of_world), 'MPI_Allreduce_c')
    sum = 10
    call MPI_Reduce_local(value, sum, 3_ck, MPI_INTEGER, op, ierror)
    call check(all(sum == [20, 30, 50]), 'MPI_Reduce_local_c')
    call MPI_Op_free(op, ierror)
  end subroutine

  subroutine multiply(invec, inoutvec, len, datatype)
    use, intrinsic :: iso_c_binding, only: c_f_pointer, c_ptr
    type(c_ptr), value :: invec, inoutvec
    integer(ck) :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: in(:), inout(:)
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 77)
    call c_f_pointer(invec, in, [len])
    call c_f_pointer(inoutvec, inout, [len])
    inout = inout * in
  end subroutine

end program
