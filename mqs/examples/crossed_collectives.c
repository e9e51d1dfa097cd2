// SPDX-License-Identifier: MIT OR Apache-2.0
// Two nonblocking collectives, which the two ranks start in opposite order.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: not all ranks call the same collective on MPI_COMM_WORLD at the same place: rank 0 calls Gather with root 0, rank 1 calls Gather with root 1
// expected: rank 0: MPI_Waitall (0 of 2 requests are done) for all of 2
// expected: Gather with root 0, on MPI_COMM_WORLD: every rank has come, but not to the same
// expected: rank 1 calls it with root 1
#include <mpi.h>

static int mine[1 << 20], all[2][2 << 20];

int main(int argc, char **argv)
{
    int rank;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    // Each rank starts with the one of which it is the root.
    MPI_Igather(mine, 1 << 20, MPI_INT, all[0], 1 << 20, MPI_INT, rank, MPI_COMM_WORLD, &requests[0]);
    MPI_Igather(mine, 1 << 20, MPI_INT, all[1], 1 << 20, MPI_INT, 1 - rank, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Finalize();
    return 0;
}
