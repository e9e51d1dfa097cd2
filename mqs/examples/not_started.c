// SPDX-License-Identifier: MIT OR Apache-2.0
// The last of three persistent receives is not started: a send waits for it, and the receiver waits for the next message.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: rank 0 waits until rank 1 receives tag 2 on MPI_COMM_WORLD: its persistent receive would, but was not started
// expected: rank 0: MPI_Ssend to rank 1, tag 2, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
// expected: rank 1 has a persistent receive that fits and is not started (MPI_Recv_init without MPI_Start)
// expected: rank 1: MPI_Waitall (2 of 3 requests are done) from rank 0, tag 7, 4 bytes (1 of MPI_INT), on MPI_COMM_WORLD
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank, numbers[4] = {0};
    MPI_Request receives[3], all[3];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Ssend(numbers, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Ssend(numbers, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        MPI_Ssend(numbers, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
        MPI_Send(numbers, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
    } else {
        for (int tag = 0; tag < 3; tag++)
            MPI_Recv_init(&numbers[tag], 1, MPI_INT, 0, tag, MPI_COMM_WORLD, &receives[tag]);
        MPI_Startall(2, receives);
        MPI_Irecv(&numbers[3], 1, MPI_INT, 0, 7, MPI_COMM_WORLD, &all[2]);
        all[0] = receives[0], all[1] = receives[1];
        MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
