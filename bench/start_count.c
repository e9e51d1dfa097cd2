// SPDX-License-Identifier: MIT OR Apache-2.0
/* A call that callgrind counts in rank 0: QMP_start of a halo with eight receives and eight sends, one of each per
 * neighbour, with all neighbours on this node, after a warm-up. The neighbours have started their receives, so no send
 * has to wait. The counted call has its own function, as in isend_count.c. The neighbours run natively. */
#include "measure.h"

#include <qmp.h>
#include <sched.h>

enum { CALLS = 100, WARM_UP = 50, DIRECTIONS = 8, BYTES = 1024, TOKEN = 2 };

#define COUNTED __attribute__((noinline, noclone))

static COUNTED void counted_start(QMP_msghandle_t halo) {
    QMP_start(halo);
    __asm__ volatile("" ::: "memory");
}

/* Callgrind writes its counts to a file at the entry of this function: one file per call. */
static COUNTED void end_of_call(void) {
    __asm__ volatile("" ::: "memory");
}

/* Also copies payload in the library, because the program's symbols take precedence. An option of callgrind excludes
 * this function from the count. */
COUNTED void *memmove(void *target, const void *source, size_t bytes) {
    char *to = target;
    const char *from = source;
    for (size_t i = 0; i < bytes; i++) {
        size_t at = to > from ? bytes - 1 - i : i;
        to[at] = from[at];
        __asm__ volatile("" ::: "memory"); /* keeps the compiler from making a call of memmove */
    }
    return target;
}

static void must(int good, const char *what) {
    if (!good)
        die(FAILED, what);
}

/* The messages of one rank: one to and one from each of `count` other ranks. */
struct halo {
    int count;
    char out[DIRECTIONS][BYTES], in[DIRECTIONS][BYTES];
    QMP_msghandle_t receives, sends, all;
};

static QMP_msghandle_t joined(QMP_msghandle_t *parts, int count) {
    QMP_msghandle_t whole = QMP_declare_multiple(parts, count);
    must(whole != NULL, "start_count: QMP_declare_multiple failed");
    return whole;
}

static struct halo *open_halo(int rank) {
    struct halo *halo = QMP_get_memory_pointer(QMP_allocate_memory(sizeof *halo));
    must(halo != NULL, "start_count: QMP_allocate_memory failed");
    halo->count = rank == 0 ? DIRECTIONS : 1;
    QMP_msghandle_t parts[2 * DIRECTIONS];
    for (int at = 0; at < halo->count; at++) {
        int peer = rank == 0 ? at + 1 : 0;
        parts[at] = QMP_declare_receive_from(QMP_declare_msgmem(halo->in[at], BYTES), peer, 0);
        parts[halo->count + at] = QMP_declare_send_to(QMP_declare_msgmem(halo->out[at], BYTES), peer, 0);
    }
    if (rank == 0) {
        halo->all = joined(parts, 2 * DIRECTIONS);
    } else {
        halo->receives = parts[0];
        halo->sends = parts[1];
    }
    return halo;
}

static char content(int from, int to, int round) {
    return (char)(from * 31 + to * 7 + round);
}

static void put_round(struct halo *halo, int rank, int round) {
    for (int at = 0; at < halo->count; at++)
        memset(halo->out[at], content(rank, rank == 0 ? at + 1 : 0, round), BYTES);
}

static void verify(const struct halo *halo, int rank, int round) {
    for (int at = 0; at < halo->count; at++)
        for (int i = 0; i < BYTES; i++)
            must(halo->in[at][i] == content(rank == 0 ? at + 1 : 0, rank, round), "start_count: a byte received is wrong");
}

static void start_middle(struct halo *halo, int counted) {
    char token;
    for (int at = 1; at <= DIRECTIONS; at++)
        MPI_Recv(&token, 1, MPI_CHAR, at, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (counted)
        counted_start(halo->all), end_of_call();
    else
        QMP_start(halo->all);
    for (int at = 1; at <= DIRECTIONS; at++)
        MPI_Send(&token, 1, MPI_CHAR, at, TOKEN, MPI_COMM_WORLD);
    must(QMP_wait(halo->all) == QMP_SUCCESS, "start_count: QMP_wait failed");
}

/* Neighbours poll instead of sleeping, so the counted start does not have to wake them. */
static void start_neighbour(struct halo *halo) {
    char token = 0;
    int is_there = 0;
    QMP_start(halo->receives);
    MPI_Send(&token, 1, MPI_CHAR, 0, TOKEN, MPI_COMM_WORLD);
    while (MPI_Iprobe(0, TOKEN, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE), !is_there)
        sched_yield();
    MPI_Recv(&token, 1, MPI_CHAR, 0, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    QMP_start(halo->sends);
    must(QMP_wait(halo->receives) == QMP_SUCCESS, "start_count: QMP_wait of a receive failed");
    must(QMP_wait(halo->sends) == QMP_SUCCESS, "start_count: QMP_wait of a send failed");
}

int main(int argc, char **argv) {
    QMP_thread_level_t provided;
    must(QMP_init_msg_passing(&argc, &argv, QMP_THREAD_SINGLE, &provided) == QMP_SUCCESS,
         "start_count: QMP_init_msg_passing failed");
    int rank = QMP_get_node_number();
    if (QMP_get_number_of_nodes() != DIRECTIONS + 1)
        die(BAD_OPTION, "start_count: needs exactly 9 ranks");
    struct halo *halo = open_halo(rank);
    for (int round = 0; round < WARM_UP + CALLS; round++) {
        put_round(halo, rank, round);
        if (rank == 0)
            start_middle(halo, round >= WARM_UP);
        else
            start_neighbour(halo);
        verify(halo, rank, round);
    }
    QMP_finalize_msg_passing();
    return 0;
}
