// SPDX-License-Identifier: MIT OR Apache-2.0
// A receive from any rank has matched the message that the next receive needs.
//
// ranks: 3
// expected: deadlock: none of the 3 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: rank 0: MPI_Recv from rank 1, tag 0, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
// expected: a message with this tag has come from rank 2, 4 bytes
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 2)
        MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0) {
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Ssend(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    if (rank == 1) {
        MPI_Send(&value, 1, MPI_INT, 2, 9, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
