// SPDX-License-Identifier: MIT OR Apache-2.0
// All operations are nonblocking, and still no rank progresses: messages are sent with tag 1 and expected with tag 2.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: rank 0: MPI_Waitall (0 of 2 requests are done) for all of 2
// expected: from rank 1, tag 2, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
// expected: to rank 1, tag 1, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
// expected: rank 1 receives from it tag 2, 4 bytes (1 of MPI_INT)
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, mine = 0, theirs;
    MPI_Request both[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Irecv(&theirs, 1, MPI_INT, 1 - rank, 2, MPI_COMM_WORLD, &both[0]);
    MPI_Issend(&mine, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, &both[1]);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    MPI_Finalize();
    return 0;
}
