// SPDX-License-Identifier: MIT OR Apache-2.0
// No deadlock: at any moment one or both of the ranks wait for a message that is in flight.
//
// ranks: 2
// unexpected: ever go on
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, value = 0;
    double begin;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    begin = MPI_Wtime();
    while (value >= 0) {
        if (rank == 0) {
            value = MPI_Wtime() - begin < 60 ? value : -1;
            MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        }
    }
    MPI_Finalize();
    return 0;
}
