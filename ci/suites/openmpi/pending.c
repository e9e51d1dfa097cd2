// SPDX-License-Identifier: MIT OR Apache-2.0
// Two ranks that wait for messages that are never sent, so that a debugger has pending operations to show.
#include <mpi.h>
#include <stdio.h>

static char named[24];
static int any[10];
static double last[5];

int main(int argc, char **argv)
{
    int rank;
    MPI_Comm halo;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &halo);
    MPI_Comm_set_name(halo, "halo");
    MPI_Irecv(named, 24, MPI_CHAR, 1 - rank, 7, halo, &requests[0]);
    MPI_Irecv(any, 10, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[1]);
    puts("pending");
    fflush(stdout);
    MPI_Recv(last, 5, MPI_DOUBLE, 1 - rank, 8, halo, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
