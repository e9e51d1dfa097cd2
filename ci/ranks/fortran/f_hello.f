! SPDX-License-Identifier: MIT OR Apache-2.0
! Fixed form, implicit typing and mpif.h: a program as written in 1995.
      program hello
      include 'mpif.h'
      integer ierr, rank, nprocs, length, left, right, token, total
      integer status(MPI_STATUS_SIZE)
      character*(MPI_MAX_PROCESSOR_NAME) name
      call MPI_INIT(ierr)
      if (ierr .ne. MPI_SUCCESS) stop 2
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, nprocs, ierr)
      call MPI_GET_PROCESSOR_NAME(name, length, ierr)
      if (length .le. 0 .or. name(length+1:) .ne. ' ') stop 3
      left = mod(rank + nprocs - 1, nprocs)
      right = mod(rank + 1, nprocs)
      call MPI_SENDRECV(rank, 1, MPI_INTEGER, right, 7,
     &                  token, 1, MPI_INTEGER, left, 7,
     &                  MPI_COMM_WORLD, status, ierr)
      if (token .ne. left) stop 4
      if (status(MPI_SOURCE) .ne. left) stop 5
      if (status(MPI_TAG) .ne. 7) stop 6
      call MPI_ALLREDUCE(rank, total, 1, MPI_INTEGER, MPI_SUM,
     &                   MPI_COMM_WORLD, ierr)
      if (total .ne. nprocs * (nprocs - 1) / 2) stop 7
      call MPI_FINALIZE(ierr)
      write (*, '(a)') 'ok'
      end
