// SPDX-License-Identifier: MIT OR Apache-2.0
/* Calls that callgrind counts in rank 0: MPI_Isend, MPI_Irecv and MPI_Wait after a warm-up, with the peer on this node.
 * Messages have 8 MPI_BYTE and no status; with a number of bytes as the first argument, that number of MPI_CHAR and a
 * status. The argument "multiple" selects MPI_THREAD_MULTIPLE; "dup" and "reversed" select a communicator other than
 * MPI_COMM_WORLD, with the ranks in the same or in reverse order. Each counted call has its own function, whose name is
 * given to callgrind, so the names and aliases of the library's symbols do not matter. Rank 1 of MPI_COMM_WORLD runs
 * natively.
 *
 * At MPI_Isend the peer has received all earlier messages. At MPI_Irecv no message has arrived. At MPI_Wait the message
 * has arrived, but the library has not been called since. */
#include "measure.h"

enum { CALLS = 100, WARM_UP = 50, DATA = 1, TOKEN = 2, MOST_BYTES = 1 << 20 };

static int bytes = 8;
static MPI_Comm comm;
/* The rank of the other process in `comm`. */
static int other;
static MPI_Datatype type;
static MPI_Status told;
static MPI_Status *status;
static char sent[MOST_BYTES + 1], received[MOST_BYTES + 1];

#define COUNTED __attribute__((noinline, noclone))

static COUNTED void counted_isend(const void *buf, MPI_Request *request) {
    MPI_Isend(buf, bytes, type, other, DATA, comm, request);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_irecv(void *buf, MPI_Request *request) {
    MPI_Irecv(buf, bytes, type, other, DATA, comm, request);
    __asm__ volatile("" ::: "memory");
}

static COUNTED void counted_wait(MPI_Request *request) {
    MPI_Wait(request, status);
    __asm__ volatile("" ::: "memory");
}

/* Callgrind writes its counts to a file at the entry of this function: one file per call. */
static COUNTED void end_of_call(void) {
    __asm__ volatile("" ::: "memory");
}

static void send_once(int counted) {
    MPI_Request request;
    char token;
    if (counted)
        counted_isend(sent, &request), end_of_call();
    else
        MPI_Isend(sent, bytes, type, other, DATA, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(&token, 1, MPI_CHAR, other, TOKEN, comm, MPI_STATUS_IGNORE);
}

/* Waits, without a call into the library, long enough for the native peer to answer a token. */
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
        MPI_Irecv(received, bytes, type, other, DATA, comm, &request);
    MPI_Send(&token, 1, MPI_CHAR, other, TOKEN, comm);
    let_the_message_come();
    if (counted)
        counted_wait(&request), end_of_call();
    else
        MPI_Wait(&request, status);
}

static void answer(int total) {
    char token = 0;
    for (int i = 0; i < total; i++) {
        MPI_Recv(received, bytes, type, other, DATA, comm, MPI_STATUS_IGNORE);
        MPI_Send(&token, 1, MPI_CHAR, other, TOKEN, comm);
    }
    for (int i = 0; i < total; i++) {
        MPI_Recv(&token, 1, MPI_CHAR, other, TOKEN, comm, MPI_STATUS_IGNORE);
        memset(sent, i + 1, (size_t)bytes);
        MPI_Send(sent, bytes, type, other, DATA, comm);
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
    if (count != bytes || status->MPI_SOURCE != other || status->MPI_TAG != DATA)
        die(BAD_PAYLOAD, "isend_count: the status is wrong");
}

static int has_word(int argc, char **argv, const char *word) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0)
            return 1;
    return 0;
}

/* Sets the communicator that the arguments select, and the other process's rank in it. */
static void choose_comm(int argc, char **argv) {
    int rank;
    comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    if (has_word(argc, argv, "dup"))
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (has_word(argc, argv, "reversed"))
        MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
    MPI_Comm_rank(comm, &rank);
    other = 1 - rank;
}

int main(int argc, char **argv) {
    int rank, ranks, provided;
    int wanted = has_word(argc, argv, "multiple") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    int has_size = argc > 1 && argv[1][0] >= '0' && argv[1][0] <= '9';
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    if (provided < wanted)
        die(BAD_OPTION, "isend_count: this MPI does not provide MPI_THREAD_MULTIPLE");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2)
        die(BAD_OPTION, "isend_count: needs exactly 2 ranks");
    type = has_size ? MPI_CHAR : MPI_BYTE;
    status = has_size ? &told : MPI_STATUS_IGNORE;
    bytes = has_size ? atoi(argv[1]) : 8;
    if (bytes < 0 || bytes > MOST_BYTES)
        die(BAD_OPTION, "isend_count: the number of bytes must be from 0 to 1048576");
    choose_comm(argc, argv);
    if (rank == 1)
        answer(WARM_UP + CALLS);
    for (int i = 0; i < WARM_UP + CALLS && rank == 0; i++)
        send_once(i >= WARM_UP);
    for (int i = 0; i < WARM_UP + CALLS && rank == 0; i++) {
        receive_once(i >= WARM_UP);
        verify(i);
    }
    if (comm != MPI_COMM_WORLD)
        MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
