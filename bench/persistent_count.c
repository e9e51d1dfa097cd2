// SPDX-License-Identifier: MIT OR Apache-2.0
/* Calls that callgrind counts in rank 0 of a program whose only messages are persistent requests: MPI_Startall and
 * MPI_Waitall of a receive and a send of 8 MPI_CHAR with statuses, after a warm-up, with the peer on this node. At the
 * wait the message has arrived. One MPI_Ibarrier runs during the warm-up. Each counted call has its own function, as in
 * isend_count.c. Rank 1 runs natively. */
#include "measure.h"

enum { CALLS = 100, WARM_UP = 50, TOTAL = CALLS + WARM_UP, DATA = 1, BYTES = 8 };

static char sent[BYTES], received[BYTES];
static MPI_Request requests[2];
static MPI_Status statuses[2];

#define COUNTED __attribute__((noinline, noclone))

static COUNTED void counted_startall(void) {
    MPI_Startall(2, requests);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_waitall(void) {
    MPI_Waitall(2, requests, statuses);
    __asm__ volatile("" ::: "memory");
}

/* Callgrind writes its counts to a file at the entry of this function: one file per call. */
static COUNTED void end_of_call(void) {
    __asm__ volatile("" ::: "memory");
}

static void meet(void) {
    MPI_Request barrier;
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
}

static void exchange(int round) {
    struct timespec pause = {0, 300000};
    memset(sent, round + 1, BYTES);
    if (round < WARM_UP) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, statuses);
    } else {
        counted_startall(), end_of_call();
        nanosleep(&pause, NULL);
        counted_waitall(), end_of_call();
    }
    for (int i = 0; i < BYTES; i++)
        if (received[i] != (char)(round + 1))
            die(BAD_PAYLOAD, "persistent_count: a byte received is wrong");
}

/* Receives before it sends, so its message arrives when the other rank has started its receive. */
static void answer(int round) {
    for (int which = 0; which < 2; which++) {
        memset(sent, round + 1, BYTES);
        MPI_Start(&requests[which]);
        MPI_Wait(&requests[which], statuses);
    }
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        die(BAD_OPTION, "persistent_count: needs exactly 2 ranks");
    MPI_Recv_init(received, BYTES, MPI_CHAR, 1 - rank, DATA, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(sent, BYTES, MPI_CHAR, 1 - rank, DATA, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < TOTAL; round++) {
        if (round == WARM_UP / 2)
            meet();
        rank == 0 ? exchange(round) : answer(round);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Finalize();
    return 0;
}
