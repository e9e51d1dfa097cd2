// SPDX-License-Identifier: MIT OR Apache-2.0
// One receive too many: the sender is already in MPI_Finalize.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: rank 0 waits for a message from rank 1, which is in MPI_Finalize and sends no more
// expected: MPI_Finalize: rank 1 has come, rank 0 has not (it is in MPI_Wait)
// expected: rank 0: MPI_Wait from rank 1, tag 2, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, value = 0;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Irecv(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
