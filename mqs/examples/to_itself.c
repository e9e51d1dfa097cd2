// SPDX-License-Identifier: MIT OR Apache-2.0
// A synchronous send to itself before the receive is posted.
//
// ranks: 1
// expected: deadlock: rank 0 can never go on
// expected: rank 0 waits for itself
// expected: rank 0: MPI_Ssend to rank 0, tag 6, 4 bytes (1 of MPI_INT), on MPI_COMM_SELF
#include <mpi.h>

int main(int argc, char **argv)
{
    int value = 1;
    MPI_Init(&argc, &argv);
    MPI_Ssend(&value, 1, MPI_INT, 0, 6, MPI_COMM_SELF);
    MPI_Recv(&value, 1, MPI_INT, 0, 6, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
