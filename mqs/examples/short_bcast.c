// SPDX-License-Identifier: MIT OR Apache-2.0
// The root broadcasts one number and returns; the others expect many, for which another algorithm is used. The root's arguments are
// no longer known, so there is no proof, but a hint.
//
// ranks: 3
// expected: no verdict: ranks 0-2 wait; data that ranks 1 and 2 wait for come from rank 0, which is through with the call; if they do not come, counts or datatypes differ
// expected: ranks 1 and 2: MPI_Bcast call 1 on MPI_COMM_WORLD with root 0: every rank has come
// expected: rank 0 is through with it: if its data do not come, it gave other counts or datatypes
#include <mpi.h>

static int data[100000];

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Bcast(data, rank == 0 ? 1 : 100000, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
