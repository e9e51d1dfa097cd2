// SPDX-License-Identifier: MIT OR Apache-2.0
// A message from one of two ranks would be enough, but both wait for a reply.
//
// ranks: 3
// expected: deadlock: none of the 3 ranks can ever go on
// expected: rank 0: MPI_Waitany for one of 2
// expected: ranks 1 and 2: MPI_Recv from rank 0, tag 1, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, which, value = 0, values[2];
    MPI_Request both[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Irecv(&values[0], 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &both[0]);
        MPI_Irecv(&values[1], 1, MPI_INT, 2, 0, MPI_COMM_WORLD, &both[1]);
        MPI_Waitany(2, both, &which, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
