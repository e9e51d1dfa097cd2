// SPDX-License-Identifier: MIT OR Apache-2.0
// The profiling interface: MPI 5.0 section 15.2. The program defines wrappers of MPI functions.
#include "check.h"

static int sends, receives;
static long long sent_bytes;

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    int bytes;
    PMPI_Type_size(type, &bytes);
    sends++;
    sent_bytes += (long long)count * bytes;
    return PMPI_Send(buffer, count, type, to, tag, comm);
}

int MPI_Recv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    receives++;
    return PMPI_Recv(buffer, count, type, from, tag, comm, status);
}

static void s15_2_wrappers_are_called_and_the_library_is_reached(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    double out[10] = {0}, in[10];
    MPI_Request request;
    MPI_Status status;
    out[3] = rank;
    if (rank % 2 == 0 || size == 1)
        PMPI_Isend(out, 10, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &request);
    else
        MPI_Send(out, 10, MPI_DOUBLE, right, 1, MPI_COMM_WORLD);
    MPI_Recv(in, 10, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, &status);
    if (rank % 2 == 0 || size == 1)
        PMPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(in[3], left);
    EQUAL(receives, 1);
    EQUAL(sends, rank % 2 && size > 1);
    EQUAL(sent_bytes, sends * 80);
}

// The library does not call the wrappers.
static void s15_2_the_library_does_not_call_itself_by_these_names(void)
{
    int sum, before = sends + receives;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    EQUAL(sends + receives, before);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s15_2_wrappers_are_called_and_the_library_is_reached);
    RUN(s15_2_the_library_does_not_call_itself_by_these_names);
    return finish();
}
