// SPDX-License-Identifier: MIT OR Apache-2.0
/* Calls to be counted by callgrind in rank 0: MPI_Isend, MPI_Irecv and MPI_Wait of 8 bytes, warm, with the peer on this
 * node. Each counted call has a function of its own around it, whose name is given to callgrind; how the library's own
 * symbols are named or aliased does not matter. Rank 1 runs natively.
 *
 * MPI_Isend: the peer has taken all earlier messages. MPI_Irecv: nothing has arrived. MPI_Wait: the message is there, but
 * the library has not been called since it came. */
#include "measure.h"

enum { CALLS = 100, WARM_UP = 50, DATA = 1, TOKEN = 2 };

#define COUNTED __attribute__((noinline, noclone))

static COUNTED void counted_isend(const void *buf, MPI_Request *request) {
    MPI_Isend(buf, 8, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, request);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_irecv(void *buf, MPI_Request *request) {
    MPI_Irecv(buf, 8, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, request);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_wait(MPI_Request *request) {
    MPI_Wait(request, MPI_STATUS_IGNORE);
    __asm__ volatile("" ::: "memory");
}

/* Callgrind writes what it has counted where this begins: one file per call. */
static COUNTED void end_of_call(void) {
    __asm__ volatile("" ::: "memory");
}

static void send_once(int counted, double *value) {
    MPI_Request request;
    char token;
    if (counted)
        counted_isend(value, &request), end_of_call();
    else
        MPI_Isend(value, 8, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(&token, 1, MPI_CHAR, 1, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Long enough for the native peer to answer a token, without a call into the library. */
static void let_the_message_come(void) {
    struct timespec pause = {0, 300000};
    nanosleep(&pause, NULL);
}

static void receive_once(int counted, double *value) {
    MPI_Request request;
    char token = 0;
    if (counted)
        counted_irecv(value, &request), end_of_call();
    else
        MPI_Irecv(value, 8, MPI_BYTE, 1, DATA, MPI_COMM_WORLD, &request);
    MPI_Send(&token, 1, MPI_CHAR, 1, TOKEN, MPI_COMM_WORLD);
    let_the_message_come();
    if (counted)
        counted_wait(&request), end_of_call();
    else
        MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void answer(int total) {
    double value = 0;
    char token = 0;
    for (int i = 0; i < total; i++) {
        MPI_Recv(&value, 8, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&token, 1, MPI_CHAR, 0, TOKEN, MPI_COMM_WORLD);
    }
    for (int i = 0; i < total; i++) {
        MPI_Recv(&token, 1, MPI_CHAR, 0, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        value = i;
        MPI_Send(&value, 8, MPI_BYTE, 0, DATA, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    int rank, ranks;
    double value = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        die(BAD_OPTION, "isend_count: needs exactly 2 ranks");
    if (rank == 1)
        answer(WARM_UP + CALLS);
    for (int i = 0; i < WARM_UP + CALLS && rank == 0; i++)
        send_once(i >= WARM_UP, &value);
    for (int i = 0; i < WARM_UP + CALLS && rank == 0; i++) {
        receive_once(i >= WARM_UP, &value);
        if (value != i)
            die(BAD_PAYLOAD, "isend_count: the value received is wrong");
    }
    MPI_Finalize();
    return 0;
}
