// SPDX-License-Identifier: MIT OR Apache-2.0
// A persistent exchange that is started repeatedly, and at last without its receives: its sends, which no longer use RTS, wait.
//
// ranks: 2
// expected: deadlock: none of the 2 ranks can ever go on
// expected: ranks 0 and 1 wait for each other
// expected: rank 0: MPI_Wait to rank 1, tag 5, 100000 bytes (100000 of MPI_CHAR), on MPI_COMM_WORLD
// expected: (send, persistent; waits for its receive; 100000 of MPI_CHAR; in MPI_Wait)
#include <mpi.h>

enum { BYTES = 100000 };

int main(int argc, char **argv)
{
    int rank;
    char *out, *in;
    MPI_Request send, receive;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Alloc_mem(BYTES, MPI_INFO_NULL, &out);
    MPI_Alloc_mem(BYTES, MPI_INFO_NULL, &in);
    MPI_Send_init(out, BYTES, MPI_CHAR, 1 - rank, 5, MPI_COMM_WORLD, &send);
    MPI_Recv_init(in, BYTES, MPI_CHAR, 1 - rank, 5, MPI_COMM_WORLD, &receive);
    for (int step = 0; step < 20; step++) {
        MPI_Start(&receive);
        MPI_Start(&send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
    }
    MPI_Start(&send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
