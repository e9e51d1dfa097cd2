! SPDX-License-Identifier: MIT OR Apache-2.0
! What differs between Fortran's three ways to MPI, so that one program is compiled for each: BY_MPIF (include 'mpif.h'), BY_MPI
! (use mpi) or BY_F08 (use mpi_f08). A program says USE_MPI before `implicit none` and INCLUDE_MPI behind it.
#if defined(BY_F08)
#define USE_MPI use mpi_f08
#define INCLUDE_MPI
#elif defined(BY_MPI)
#define USE_MPI use mpi
#define INCLUDE_MPI
#else
#define USE_MPI
#define INCLUDE_MPI include 'mpif.h'
#endif

#if defined(BY_F08)
#define T_COMM type(MPI_Comm)
#define T_DATATYPE type(MPI_Datatype)
#define T_ERRHANDLER type(MPI_Errhandler)
#define T_GROUP type(MPI_Group)
#define T_INFO type(MPI_Info)
#define T_MESSAGE type(MPI_Message)
#define T_OP type(MPI_Op)
#define T_REQUEST type(MPI_Request)
#define T_SESSION type(MPI_Session)
#define STATUS(s) type(MPI_Status) :: s
#define STATUSES(s, n) type(MPI_Status) :: s(n)
#define SOURCE_OF(s) s%MPI_SOURCE
#define TAG_OF(s) s%MPI_TAG
#define ERROR_OF(s) s%MPI_ERROR
#define SOURCE_AT(s, i) s(i)%MPI_SOURCE
#define TAG_AT(s, i) s(i)%MPI_TAG
#define ERROR_AT(s, i) s(i)%MPI_ERROR
#else
#define T_COMM integer
#define T_DATATYPE integer
#define T_ERRHANDLER integer
#define T_GROUP integer
#define T_INFO integer
#define T_MESSAGE integer
#define T_OP integer
#define T_REQUEST integer
#define T_SESSION integer
#define STATUS(s) integer :: s(MPI_STATUS_SIZE)
#define STATUSES(s, n) integer :: s(MPI_STATUS_SIZE, n)
#define SOURCE_OF(s) s(MPI_SOURCE)
#define TAG_OF(s) s(MPI_TAG)
#define ERROR_OF(s) s(MPI_ERROR)
#define SOURCE_AT(s, i) s(MPI_SOURCE, i)
#define TAG_AT(s, i) s(MPI_TAG, i)
#define ERROR_AT(s, i) s(MPI_ERROR, i)
#endif
