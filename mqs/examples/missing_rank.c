// SPDX-License-Identifier: MIT OR Apache-2.0
// One rank does not enter a collective: it waits for a message from a rank that is in it.
//
// ranks: 4
// expected: deadlock: none of the 4 ranks can ever go on
// expected: ranks 0 and 3 wait for each other
// expected: MPI_Barrier, call 1 of it on MPI_COMM_WORLD: ranks 0-2 have come, rank 3 has not (it is in MPI_Recv)
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, size, go = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == size - 1)
        MPI_Recv(&go, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Send(&go, 1, MPI_INT, size - 1, 1, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
