// SPDX-License-Identifier: MIT OR Apache-2.0
// No deadlock: the other ranks wait for one that computes.
//
// ranks: 3
// expected: no deadlock: ranks 0 and 1 wait; rank 2 is not waiting in MPI and may still come
// expected: MPI_Barrier, call 1 of it on MPI_COMM_WORLD: rank 0 has come, ranks 1 and 2 have not
// expected: rank 1: MPI_Recv from rank 2, tag 0, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
// expected: rank 2: not waiting in MPI
// unexpected: ever go on
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, value = 0;
    double begin;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    begin = MPI_Wtime();
    while (rank == 2 && MPI_Wtime() - begin < 60)
        value++;
    if (rank == 2)
        MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Recv(&value, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
