// SPDX-License-Identifier: MIT OR Apache-2.0
/* Calls to be counted by callgrind in rank 0: MPI_Isend, MPI_Irecv and MPI_Wait, warm, with the peer on this node: of 8
 * MPI_BYTE without a status, or, with a number of bytes as the argument, of so many MPI_CHAR with one; with "multiple" behind
 * it, at MPI_THREAD_MULTIPLE. Each counted call has a function of its own around it, whose name is given to callgrind; how the
 * library's own symbols are named or aliased does not matter. Rank 1 runs natively.
 *
 * MPI_Isend: the peer has taken all earlier messages. MPI_Irecv: nothing has arrived. MPI_Wait: the message is there, but
 * the library has not been called since it came. */
#include "measure.h"

enum { CALLS = 100, WARM_UP = 50, DATA = 1, TOKEN = 2, MOST_BYTES = 1 << 20 };

static int bytes = 8;
static MPI_Datatype type;
static MPI_Status told;
static MPI_Status *status;
static char sent[MOST_BYTES + 1], received[MOST_BYTES + 1];

#define COUNTED __attribute__((noinline, noclone))

static COUNTED void counted_isend(const void *buf, MPI_Request *request) {
    MPI_Isend(buf, bytes, type, 1, DATA, MPI_COMM_WORLD, request);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_irecv(void *buf, MPI_Request *request) {
    MPI_Irecv(buf, bytes, type, 1, DATA, MPI_COMM_WORLD, request);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_wait(MPI_Request *request) {
    MPI_Wait(request, status);
    __asm__ volatile("" ::: "memory");
}

/* Callgrind writes what it has counted where this begins: one file per call. */
static COUNTED void end_of_call(void) {
    __asm__ volatile("" ::: "memory");
}

static void send_once(int counted) {
    MPI_Request request;
    char token;
    if (counted)
        counted_isend(sent, &request), end_of_call();
    else
        MPI_Isend(sent, bytes, type, 1, DATA, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(&token, 1, MPI_CHAR, 1, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Long enough for the native peer to answer a token, without a call into the library. */
static void let_the_message_come(void) {
    struct timespec pause = {0, 300000};
    nanosleep(&pause, NULL);
}

static void receive_once(int counted) {
    MPI_Request request;
    char token = 0;
    if (counted)
        counted_irecv(received, &request), end_of_call();
    else
        MPI_Irecv(received, bytes, type, 1, DATA, MPI_COMM_WORLD, &request);
    MPI_Send(&token, 1, MPI_CHAR, 1, TOKEN, MPI_COMM_WORLD);
    let_the_message_come();
    if (counted)
        counted_wait(&request), end_of_call();
    else
        MPI_Wait(&request, status);
}

static void answer(int total) {
    char token = 0;
    for (int i = 0; i < total; i++) {
        MPI_Recv(received, bytes, type, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&token, 1, MPI_CHAR, 0, TOKEN, MPI_COMM_WORLD);
    }
    for (int i = 0; i < total; i++) {
        MPI_Recv(&token, 1, MPI_CHAR, 0, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        memset(sent, i + 1, (size_t)bytes);
        MPI_Send(sent, bytes, type, 0, DATA, MPI_COMM_WORLD);
    }
}

static void verify(int round) {
    for (int i = 0; i < bytes; i++)
        if (received[i] != (char)(round + 1))
            die(BAD_PAYLOAD, "isend_count: a byte received is wrong");
    if (received[bytes] != 0)
        die(BAD_PAYLOAD, "isend_count: a byte behind the message was written");
    int count;
    if (status == MPI_STATUS_IGNORE)
        return;
    MPI_Get_count(status, type, &count);
    if (count != bytes || status->MPI_SOURCE != 1 || status->MPI_TAG != DATA)
        die(BAD_PAYLOAD, "isend_count: the status is wrong");
}

int main(int argc, char **argv) {
    int rank, ranks, provided, wanted = argc > 2 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    if (provided < wanted)
        die(BAD_OPTION, "isend_count: this MPI does not provide MPI_THREAD_MULTIPLE");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        die(BAD_OPTION, "isend_count: needs exactly 2 ranks");
    type = argc > 1 ? MPI_CHAR : MPI_BYTE;
    status = argc > 1 ? &told : MPI_STATUS_IGNORE;
    bytes = argc > 1 ? atoi(argv[1]) : 8;
    if (bytes < 0 || bytes > MOST_BYTES)
        die(BAD_OPTION, "isend_count: the number of bytes must be from 0 to 1048576");
    if (rank == 1)
        answer(WARM_UP + CALLS);
    for (int i = 0; i < WARM_UP + CALLS && rank == 0; i++)
        send_once(i >= WARM_UP);
    for (int i = 0; i < WARM_UP + CALLS && rank == 0; i++) {
        receive_once(i >= WARM_UP);
        verify(i);
    }
    MPI_Finalize();
    return 0;
}
