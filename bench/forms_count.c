// SPDX-License-Identifier: MIT OR Apache-2.0
/* Calls that callgrind counts in rank 0: MPI_Sendrecv, MPI_Startall and MPI_Waitall of a persistent receive and a
 * persistent send, and MPI_Test, MPI_Testall and MPI_Waitany of a receive. Messages are 8 MPI_CHAR with a status, to
 * and from a peer on this node, after a warm-up. In all calls except MPI_Startall the message has arrived, and the
 * library has not been called since. Each counted call has its own function, as in isend_count.c. Rank 1 runs
 * natively. */
#include "measure.h"

enum { CALLS = 100, WARM_UP = 50, TOTAL = CALLS + WARM_UP, DATA = 1, TOKEN = 2, BYTES = 8 };

static char sent[BYTES], received[BYTES];
static MPI_Request requests[2];
static MPI_Status statuses[2];
static int done;

#define COUNTED __attribute__((noinline, noclone))

static COUNTED void counted_sendrecv(void) {
    MPI_Sendrecv(sent, BYTES, MPI_CHAR, 1, DATA, received, BYTES, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, statuses);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_startall(void) {
    MPI_Startall(2, requests);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_waitall(void) {
    MPI_Waitall(2, requests, statuses);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_test(void) {
    MPI_Test(requests, &done, statuses);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_testall(void) {
    MPI_Testall(2, requests, &done, statuses);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_waitany(void) {
    int at;
    MPI_Waitany(2, requests, &at, statuses);
    done = at == 0;
    __asm__ volatile("" ::: "memory");
}

/* Callgrind writes its counts to a file at the entry of this function: one file per call. */
static COUNTED void end_of_call(void) {
    __asm__ volatile("" ::: "memory");
}

/* Enough time (ns) for a message to arrive from a peer that may have to wait for its core. */
static long pause_ns = 300000;

static void wait_for_it(void) {
    struct timespec pause = {0, pause_ns};
    nanosleep(&pause, NULL);
}

/* Requests a message from the peer, and waits for its arrival without a call into the library. */
static void have_a_message_sent(void) {
    char token = 0;
    MPI_Send(&token, 1, MPI_CHAR, 1, TOKEN, MPI_COMM_WORLD);
    wait_for_it();
}

static void verify(int round, const MPI_Status *status) {
    int count;
    MPI_Get_count(status, MPI_CHAR, &count);
    for (int i = 0; i < BYTES; i++)
        if (received[i] != (char)(round + 1))
            die(BAD_PAYLOAD, "forms_count: a byte received is wrong");
    if (count != BYTES || status->MPI_SOURCE != 1 || status->MPI_TAG != DATA)
        die(BAD_PAYLOAD, "forms_count: the status is wrong");
}

static void exchange(int round) {
    have_a_message_sent();
    counted_sendrecv();
    if (round >= WARM_UP)
        end_of_call();
    verify(round, statuses);
}

static void start_and_wait(int round) {
    counted_startall();
    if (round >= WARM_UP)
        end_of_call();
    have_a_message_sent();
    counted_waitall();
    if (round >= WARM_UP)
        end_of_call();
    verify(round, statuses);
}

static void find(int round, void (*counted)(void)) {
    MPI_Irecv(received, BYTES, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, requests);
    requests[1] = MPI_REQUEST_NULL;
    have_a_message_sent();
    done = 0;
    for (counted(); !done; counted()) {
                /* The machine is busy: the count of this call is too high, and later messages get more time. */
        if (pause_ns > 250000000)
            die(FAILED, "forms_count: a message that had come was not found");
        pause_ns *= 2;
        wait_for_it();
    }
    if (round >= WARM_UP)
        end_of_call();
    verify(round, statuses);
}

static void count_all(void) {
    for (int i = 0; i < TOTAL; i++)
        exchange(i);
    MPI_Recv_init(received, BYTES, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(sent, BYTES, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < TOTAL; i++)
        start_and_wait(i);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    void (*const finds[])(void) = {counted_test, counted_testall, counted_waitany};
    for (int which = 0; which < 3; which++)
        for (int i = 0; i < TOTAL; i++)
            find(i, finds[which]);
}

/* Sends a message at each token. `takes`: the other rank sends a message in each round too. */
static void answer(int takes) {
    for (int i = 0; i < TOTAL; i++) {
        char token;
        MPI_Recv(&token, 1, MPI_CHAR, 0, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        memset(sent, i + 1, BYTES);
        MPI_Send(sent, BYTES, MPI_CHAR, 0, DATA, MPI_COMM_WORLD);
        if (takes)
            MPI_Recv(received, BYTES, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        die(BAD_OPTION, "forms_count: needs exactly 2 ranks");
    if (rank == 0)
        count_all();
    for (int part = 0; part < 5 && rank == 1; part++)
        answer(part < 2);
    MPI_Finalize();
    return 0;
}
