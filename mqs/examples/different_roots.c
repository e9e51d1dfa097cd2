// SPDX-License-Identifier: MIT OR Apache-2.0
// Each rank gathers to itself: all are in the same call, and each waits for data that the other does not send.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: not all ranks call the same collective on MPI_COMM_WORLD at the same place: rank 0 calls Gather with root 0, rank 1 calls Gather with root 1
// expected: rank 0: MPI_Gather call 1 on MPI_COMM_WORLD with root 0: every rank has come, but not to the same
// expected: rank 1 calls it with root 1
#include <mpi.h>

/* Above the limit of the shared-memory algorithm, in which both ranks would return an error. */
enum { COUNT = 1 << 22 };
static int mine[COUNT], all[2 * COUNT];

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Gather(mine, COUNT, MPI_INT, all, COUNT, MPI_INT, rank, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
