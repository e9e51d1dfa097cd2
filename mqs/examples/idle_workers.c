// SPDX-License-Identifier: MIT OR Apache-2.0
// The master waits for a result from any worker, each worker for work from the master.
//
// ranks: 4
// expected: deadlock: none of the 4 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: rank 0: MPI_Recv from any rank, any tag, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
// expected: ranks 1-3: MPI_Recv from rank 0, tag 1, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, work = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Recv(&work, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Recv(&work, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
