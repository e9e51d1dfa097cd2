// SPDX-License-Identifier: MIT OR Apache-2.0
// Rank 0 broadcasts from itself, the others from rank 1. Rank 2 receives its data and enters a barrier, where it waits for both.
//
// ranks: 3
// expected: deadlock: none of the 3 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: not all ranks call the same collective on MPI_COMM_WORLD at the same place: rank 0 calls Bcast with root 0, rank 1 calls Bcast with root 1
// expected: MPI_Barrier, call 1 of it on MPI_COMM_WORLD: rank 2 has come, ranks 0 and 1 have not (they are in MPI_Bcast)
// expected: rank 2: MPI_Barrier call 1 on MPI_COMM_WORLD: waits for ranks 0 and 1
#include <mpi.h>

static char data[100000];

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Bcast(data, sizeof data, MPI_CHAR, rank == 0 ? 0 : 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
