// SPDX-License-Identifier: MIT OR Apache-2.0
// No deadlock: each step begins when the slowest rank is ready, which sleeps before it sends.
//
// ranks: 4
// unexpected: ever go on
#include <mpi.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size, step, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (step = 0; step < 200; step++) {
        if (rank != 0)
            MPI_Recv(&value, 1, MPI_INT, rank - 1, step, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        usleep(rank == step % size ? 200000 : 0);
        if (rank != size - 1)
            MPI_Send(&value, 1, MPI_INT, rank + 1, step, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
