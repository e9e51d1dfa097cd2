// SPDX-License-Identifier: MIT OR Apache-2.0
// Sent on one communicator, expected on another.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: rank 0: MPI_Ssend to rank 1, tag 3, 8 bytes (1 of MPI_DOUBLE), on halo
// expected: rank 1 receives from it on MPI_COMM_WORLD, 8 bytes
// expected: rank 1: MPI_Recv from rank 0, tag 3, 8 bytes (1 of MPI_DOUBLE), on MPI_COMM_WORLD
// expected: what has come from rank 0: on halo, 8 bytes
// expected: rank 1 waits for tag 3 from rank 0 on MPI_COMM_WORLD, and it has come on halo
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank;
    double value = 1;
    MPI_Comm halo;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &halo);
    MPI_Comm_set_name(halo, "halo");
    if (rank == 0)
        MPI_Ssend(&value, 1, MPI_DOUBLE, 1, 3, halo);
    else
        MPI_Recv(&value, 1, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_free(&halo);
    MPI_Finalize();
    return 0;
}
