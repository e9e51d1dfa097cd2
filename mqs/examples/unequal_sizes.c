// SPDX-License-Identifier: MIT OR Apache-2.0
// One rank brings one number, the others bring many: small data go another way than large ones, so that they never meet.
//
// ranks: 3
// told: deadlock: none of the 3 ranks can ever go on
// told: not all ranks call the same collective on MPI_COMM_WORLD at the same place: rank 0 calls Allreduce with 4 bytes, ranks 1 and 2 call Allreduce with 400000 bytes
// told: rank 0: MPI_Allreduce call 1 on MPI_COMM_WORLD with 4 bytes: every rank has come, but not to the same
// told: rank 1 calls it with 400000 bytes
#include <mpi.h>

static int mine[100000], all[100000];

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(mine, all, rank == 0 ? 1 : 100000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
