! SPDX-License-Identifier: MIT OR Apache-2.0
! Features of `use mpi_f08` only: optional ierror, operators of handles, large counts, a type for statuses, keyword arguments.
program modern
  use, intrinsic :: iso_fortran_env, only: error_unit
  use mpi_f08
  implicit none
  integer :: rank, n, errors = 0

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(comm=MPI_COMM_WORLD, size=n)
  call handles()
  call statuses()
  call large_counts()
  call sections()
  call profiled()
  call errors_without_ierror()
  call kept_in_memory(rank)
  call declared_asynchronous()
  call counts_of_a_call_that_fails()
  call MPI_Finalize()
  if (errors > 0) stop 1
  print '(a)', 'ok'

contains

  subroutine check(good, what)
    logical, intent(in) :: good
    character(*), intent(in) :: what
    if (good) return
    errors = errors + 1
    write (error_unit, '(a, i0, 2a)') 'rank ', rank, ': not true: ', what
  end subroutine

  subroutine handles()
    type(MPI_Comm) :: a, b
    type(MPI_Request) :: request
    type(MPI_Info) :: info
    call check(MPI_COMM_WORLD == MPI_COMM_WORLD, 'a handle is equal to itself')
    call check(.not. MPI_COMM_WORLD /= MPI_COMM_WORLD, 'a handle does not differ from itself')
    call check(MPI_COMM_WORLD /= MPI_COMM_SELF, 'two handles differ')
    call check(MPI_COMM_WORLD%MPI_VAL /= MPI_COMM_SELF%MPI_VAL, 'their values differ')
    call check(MPI_INTEGER /= MPI_REAL .and. MPI_SUM /= MPI_MAX .and. MPI_INFO_ENV /= MPI_INFO_NULL, 'handles of all kinds')
    a = MPI_COMM_WORLD
    call MPI_Comm_dup(a, b)
    call check(a /= b, 'a copy is another one')
    a%MPI_VAL = b%MPI_VAL
    call check(a == b, 'a handle made of its value')
    call MPI_Comm_free(b)
    call check(b == MPI_COMM_NULL, 'a freed handle')
    request = MPI_REQUEST_NULL
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call MPI_Info_create(info)
    call check(info /= MPI_INFO_NULL, 'a new info')
    call MPI_Info_free(info)
  end subroutine

  subroutine statuses()
    type(MPI_Status) :: s, back
    integer :: old(MPI_STATUS_SIZE), got, source, tag, error
    integer(kind=MPI_COUNT_KIND) :: many
    logical :: flag
    call MPI_Sendrecv(sendbuf=rank, sendcount=1, sendtype=MPI_INTEGER, dest=rank, sendtag=4, recvbuf=got, recvcount=1, &
                      recvtype=MPI_INTEGER, source=MPI_ANY_SOURCE, recvtag=MPI_ANY_TAG, comm=MPI_COMM_WORLD, status=s)
    call check(s%MPI_SOURCE == rank .and. s%MPI_TAG == 4, 'fields')
    call MPI_Status_f082f(s, old)
    call check(old(MPI_SOURCE) == rank .and. old(MPI_TAG) == 4, 'the status of the other bindings')
    call MPI_Status_f2f08(old, back)
    call check(back%MPI_SOURCE == rank .and. back%MPI_TAG == 4, 'there and back')
    call MPI_Get_count(back, MPI_INTEGER, got)
    call check(got == 1, 'count of what came back')
    call MPI_Get_elements(s, MPI_INTEGER, many)
    call check(many == 1, 'elements in a large integer')
    call MPI_Status_get_source(s, source)
    call MPI_Status_get_tag(s, tag)
    call MPI_Status_set_error(s, MPI_ERR_OTHER)
    call MPI_Status_get_error(s, error)
    call check(source == rank .and. tag == 4 .and. error == MPI_ERR_OTHER, 'fields by functions')
    call MPI_Status_set_elements(s, MPI_INTEGER, 5000000000_MPI_COUNT_KIND)
    call MPI_Get_count(s, MPI_INTEGER, got)
    call check(got == MPI_UNDEFINED, 'a count that an INTEGER cannot hold')
    call MPI_Get_count(s, MPI_INTEGER, many)
    call check(many == 5000000000_MPI_COUNT_KIND, 'the same in a large integer')
    call MPI_Status_set_cancelled(s, .true.)
    call MPI_Test_cancelled(s, flag)
    call check(flag, 'a cancelled status')
  end subroutine

  ! The same names take counts of MPI_COUNT_KIND.
  subroutine large_counts()
    integer :: i
    integer(kind=MPI_COUNT_KIND) :: count, size, lower, extent, counts(0:n - 1)
    integer(kind=MPI_ADDRESS_KIND) :: places(0:n - 1)
    integer :: in(10), out(10), gathered(0:n - 1)
    type(MPI_Datatype) :: huge_type
    out = [(i, i=1, 10)]
    count = 10
    call MPI_Sendrecv(out, count, MPI_INTEGER, rank, 0, in, count, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call check(all(in == out), 'MPI_Sendrecv with a large count')
    call MPI_Type_contiguous(3000000000_MPI_COUNT_KIND, MPI_DOUBLE_PRECISION, huge_type)
    call MPI_Type_size(huge_type, size)
    call check(size == 24000000000_MPI_COUNT_KIND, 'size of a large datatype')
    call MPI_Type_get_extent(huge_type, lower, extent)
    call check(lower == 0 .and. extent == 24000000000_MPI_COUNT_KIND, 'extent of a large datatype')
    call MPI_Type_size(huge_type, i)
    call check(i == MPI_UNDEFINED, 'a size that an INTEGER cannot hold')
    call MPI_Type_free(huge_type)
    counts = 1
    places = [(i, i=0, n - 1)]
    call MPI_Allgatherv(rank, 1_MPI_COUNT_KIND, MPI_INTEGER, gathered, counts, places, MPI_INTEGER, MPI_COMM_WORLD)
    call check(all(gathered == [(i, i=0, n - 1)]), 'MPI_Allgatherv with large counts')
    call MPI_Allreduce(rank, i, 1_MPI_COUNT_KIND, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call check(i == n * (n - 1) / 2, 'MPI_Allreduce with a large count')
  end subroutine

  ! A contiguous part of an array is passed without a copy; parts with gaps need MPI_SUBARRAYS_SUPPORTED or a blocking call.
  subroutine sections()
    integer :: field(4, 6), column(4), part(2)
    field = reshape([(rank, rank=1, 24)], [4, 6])
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Sendrecv(field(:, 3), 4, MPI_INTEGER, rank, 0, column, 4, MPI_INTEGER, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call check(all(column == field(:, 3)), 'a column')
    call MPI_Sendrecv(field(2:3, 5), 2, MPI_INTEGER, rank, 0, part, 2, MPI_INTEGER, rank, 0, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call check(all(part == field(2:3, 5)), 'a part of a column')
    if (MPI_SUBARRAYS_SUPPORTED) then
      column(:) = 0
      call MPI_Sendrecv(field(2, 1:4), 4, MPI_INTEGER, rank, 0, column, 4, MPI_INTEGER, rank, 0, &
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE)
      call check(all(column == field(2, 1:4)), 'a row')
    end if
    call MPI_F_sync_reg(field)
  end subroutine

  subroutine profiled()
    integer :: me, major, minor
    double precision :: now
    call PMPI_Comm_rank(MPI_COMM_WORLD, me)
    call check(me == rank, 'PMPI_Comm_rank')
    call PMPI_Get_version(major, minor)
    call check(major == MPI_VERSION .and. minor == MPI_SUBVERSION, 'PMPI_Get_version')
    now = PMPI_Wtime()
    call check(now <= MPI_Wtime(), 'PMPI_Wtime')
  end subroutine

  subroutine errors_without_ierror()
    integer :: ierror, class
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
    call MPI_Send(rank, 1, MPI_INTEGER, n, 0, MPI_COMM_WORLD)
    call MPI_Send(rank, 1, MPI_INTEGER, n, 0, MPI_COMM_WORLD, ierror)
    call MPI_Error_class(ierror, class)
    call check(class == MPI_ERR_RANK, 'the class of an error')
    call MPI_Send(rank, 1, MPI_INTEGER, n, 0, MPI_COMM_WORLD, ierror=ierror)
    call check(ierror /= MPI_SUCCESS, 'ierror as a keyword')
  end subroutine

  ! The compiler sees no call that writes `x`: it must not keep it in a register.
  subroutine kept_in_memory(first)
    integer, intent(in) :: first
    integer :: x, y, i, total
    type(MPI_Request) :: request
    x = 0
    total = 0
    call MPI_Recv_init(x, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF, request)
    do i = 1, 3
      y = first + i
      call MPI_Start(request)
      call MPI_Send(y, 1, MPI_INTEGER, 0, 0, MPI_COMM_SELF)
      call MPI_Wait(request, MPI_STATUS_IGNORE)
      total = total + x
    end do
    call MPI_Request_free(request)
    call check(total == 3 * first + 6, 'what a persistent receive brings is seen')
  end subroutine

  ! Buffers with the attribute ASYNCHRONOUS, as the standard recommends, must be accepted: arrays of any shape, and pointers.
  subroutine declared_asynchronous()
    real, allocatable, asynchronous :: x(:, :)
    real, pointer, asynchronous :: z(:)
    type(MPI_Request) :: requests(2)
    allocate (x(3, 4), z(12))
    z = 5
    x = 0
    call shaped(x, requests(1))
    call MPI_Isend(z, 12, MPI_REAL, 0, 1, MPI_COMM_SELF, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call check(all(x == 5), 'arrays that are declared asynchronous')
    deallocate (z)
  end subroutine

  subroutine shaped(x, request)
    real, asynchronous :: x(:, :)
    type(MPI_Request), intent(out) :: request
    call MPI_Irecv(x, size(x), MPI_REAL, 0, 1, MPI_COMM_SELF, request)
  end subroutine

  ! Outputs that a failed call did not write are unchanged: indices are not converted with a count that was not written.
  subroutine counts_of_a_call_that_fails()
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: s(2)
    type(MPI_Errhandler) :: before(2)
    integer :: indices(2), count, index, ierror
    call MPI_Comm_get_errhandler(MPI_COMM_WORLD, before(1))
    call MPI_Comm_get_errhandler(MPI_COMM_SELF, before(2))
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN)
    requests(1)%MPI_VAL = 123456789
    requests(2)%MPI_VAL = -1
    count = 1000000000
    indices = 5
    call MPI_Waitsome(2, requests, count, indices, s, ierror)
    call check(ierror /= MPI_SUCCESS .and. all(indices == 5), 'a failed MPI_Waitsome')
    call MPI_Waitany(2, requests, index, s(1), ierror)
    call check(ierror /= MPI_SUCCESS, 'a failed MPI_Waitany')
    call check(requests(1)%MPI_VAL == 123456789 .and. requests(2)%MPI_VAL == -1, 'handles of failed calls')
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, before(1))
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, before(2))
  end subroutine

end program
