// SPDX-License-Identifier: MIT OR Apache-2.0
// The last rank contributes one number, the others many: MPI_Scan uses another algorithm for small data than for large, so the
// ranks' messages do not match. (The first rank waits only for the second, and returns.)
//
// ranks: 3
// expected: deadlock: none of the 3 ranks can ever go on
// expected: not all ranks call the same collective on MPI_COMM_WORLD at the same place: rank 2 calls Scan with 4 bytes, rank 1 calls Scan with 400000 bytes
// expected: rank 2: MPI_Scan call 1 on MPI_COMM_WORLD with 4 bytes: every rank has come, but not to the same
// expected: rank 1 calls it with 400000 bytes
#include <mpi.h>

static int mine[100000], all[100000];

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Scan(mine, all, rank == 2 ? 1 : 100000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
