// SPDX-License-Identifier: MIT OR Apache-2.0
// Both ranks send before they receive, above the eager limit: each MPI_Send waits for the other's MPI_Recv.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: rank 0: MPI_Send to rank 1, tag 7, 4194304 bytes (4194304 of MPI_CHAR), on MPI_COMM_WORLD
#include <mpi.h>

static char mine[4 << 20], theirs[4 << 20];

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Send(mine, sizeof mine, MPI_CHAR, 1 - rank, 7, MPI_COMM_WORLD);
    MPI_Recv(theirs, sizeof theirs, MPI_CHAR, 1 - rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
