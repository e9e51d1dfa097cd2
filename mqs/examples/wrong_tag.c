// SPDX-License-Identifier: MIT OR Apache-2.0
// The message has another tag than its receive.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: rank 1: MPI_Recv from rank 0, tag 7, 40 bytes (10 of MPI_INT), on MPI_COMM_WORLD
// expected: what has come from rank 0: tag 8, 40 bytes
// expected: rank 1 waits for tag 7 from rank 0 on MPI_COMM_WORLD, and tag 8 has come from it
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, work[10] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Send(work, 10, MPI_INT, 1, 8, MPI_COMM_WORLD);
        MPI_Recv(work, 10, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(work, 10, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(work, 10, MPI_INT, 0, 9, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
