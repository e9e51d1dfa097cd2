// SPDX-License-Identifier: MIT OR Apache-2.0
// Two ranks can never go on, while the others work.
//
// ranks: 4
// expected: deadlock: ranks 0 and 1 of 4 can never go on
// expected: ranks 0 and 1 wait for each other
// expected: ranks 2 and 3: not waiting in MPI
#include <mpi.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank < 2)
        MPI_Recv(&value, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        sleep(60);
    MPI_Finalize();
    return 0;
}
