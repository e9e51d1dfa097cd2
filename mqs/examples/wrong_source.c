// SPDX-License-Identifier: MIT OR Apache-2.0
// The receive names a rank that sends nothing; the message comes from another rank.
//
// ranks: 3
// expected: deadlock: none of the 3 ranks can ever go on
// expected: MPI_Finalize: ranks 1 and 2 have come, rank 0 has not (it is in MPI_Recv)
// expected: rank 0: MPI_Recv from rank 2, tag 5, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
// expected: rank 0 waits for tag 5 from rank 2 on MPI_COMM_WORLD, and it has come from rank 1
// expected: rank 0 waits for a message from rank 2, which is in MPI_Finalize and sends no more
// expected: a message with this tag has come from rank 1, 4 bytes
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, value = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Recv(&value, 1, MPI_INT, 2, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Send(&value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
