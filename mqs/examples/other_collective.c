// SPDX-License-Identifier: MIT OR Apache-2.0
// Ranks are in different collectives of one communicator.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: not all ranks call the same collective on MPI_COMM_WORLD at the same place: rank 0 calls Bcast with root 1, rank 1 calls Gather with root 1
// expected: rank 1 is in MPI_Gather on MPI_COMM_WORLD instead
#include <mpi.h>

static int mine[1 << 20], theirs[2 << 20];

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Bcast(mine, 1 << 20, MPI_INT, 1, MPI_COMM_WORLD);
    else
        MPI_Gather(mine, 1 << 20, MPI_INT, theirs, 1 << 20, MPI_INT, 1, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
