// SPDX-License-Identifier: MIT OR Apache-2.0
// A ring in which every rank receives before it sends.
//
// ranks: 3
// expected: deadlock: none of the 3 ranks can ever go on
// expected: ranks wait in a circle, each for the next: 0 -> 2 -> 1 -> 0
// expected: ranks 0-2: MPI_Recv from the rank before, tag 7, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, size, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Recv(&token, 1, MPI_INT, (rank + size - 1) % size, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
