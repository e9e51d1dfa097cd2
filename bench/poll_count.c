// SPDX-License-Identifier: MIT OR Apache-2.0
/* Calls that callgrind counts in rank 0: MPI_Test of a receive whose message has not arrived, and MPI_Iprobe without a
 * message, as in a polling loop. The rank has its own core. Each counted call has its own function, as in
 * isend_count.c. Rank 1 runs natively. */
#include "measure.h"

enum { CALLS = 100, WARM_UP = 50, DATA = 1, OTHER = 2 };

#define COUNTED __attribute__((noinline, noclone))

static COUNTED void counted_test(MPI_Request *request, int *flag) {
    MPI_Test(request, flag, MPI_STATUS_IGNORE);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_iprobe(int *flag) {
    MPI_Iprobe(1, OTHER, MPI_COMM_WORLD, flag, MPI_STATUS_IGNORE);
    __asm__ volatile("" ::: "memory");
}

/* Callgrind writes its counts to a file at the entry of this function: one file per call. */
static COUNTED void end_of_call(void) {
    __asm__ volatile("" ::: "memory");
}

static void poll_in_vain(MPI_Request *request) {
    for (int i = 0; i < WARM_UP + CALLS; i++) {
        int flag = 1;
        if (i < WARM_UP)
            MPI_Test(request, &flag, MPI_STATUS_IGNORE);
        else
            counted_test(request, &flag), end_of_call();
        if (flag)
            die(FAILED, "poll_count: MPI_Test found a message that was not sent");
    }
    for (int i = 0; i < WARM_UP + CALLS; i++) {
        int flag = 1;
        if (i < WARM_UP)
            MPI_Iprobe(1, OTHER, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        else
            counted_iprobe(&flag), end_of_call();
        if (flag)
            die(FAILED, "poll_count: MPI_Iprobe found a message that was not sent");
    }
}

int main(int argc, char **argv) {
    int rank, ranks;
    double value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        die(BAD_OPTION, "poll_count: needs exactly 2 ranks");
    if (rank == 0) {
        MPI_Request request;
        MPI_Irecv(&value, 8, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &request);
        poll_in_vain(&request);
        MPI_Send(&value, 8, MPI_BYTE, 1, DATA, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&value, 8, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&value, 8, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
