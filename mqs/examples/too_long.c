// SPDX-License-Identifier: MIT OR Apache-2.0
// Sent in one message, expected in two: the first receive fails, and nothing comes for the second.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: a receive of rank 1 has failed: the message from rank 0 with tag 1 has 80 bytes, the buffer 40 bytes (10 of MPI_INT)
// expected: rank 1: MPI_Recv from rank 0, tag 1, 40 bytes (10 of MPI_INT), on MPI_COMM_WORLD
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, numbers[20] = {0};
    MPI_Request first;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Send(numbers, 20, MPI_INT, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(numbers, 20, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Irecv(numbers, 10, MPI_INT, 0, 1, MPI_COMM_WORLD, &first);
        MPI_Recv(numbers + 10, 10, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&first, MPI_STATUS_IGNORE);
        MPI_Send(numbers, 20, MPI_INT, 0, 2, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
