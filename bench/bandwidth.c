// SPDX-License-Identifier: MIT OR Apache-2.0
/* Bandwidth from rank 0 to rank 1 with windows of nonblocking messages, or of a ping-pong with --one-at-a-time. */
#include "windows.h"

static int one_at_a_time;

static void ping_pong(void *state, long count) {
    struct windows *w = state;
    for (long i = 0; i < count && w->rank < 2; i++, w->turn++) {
        void *out = buffer(&w->out, w->turn), *in = buffer(&w->in, w->turn);
        if (w->rank == 0)
            MPI_Send(out, w->size, MPI_BYTE, w->peer, 1, MPI_COMM_WORLD);
        MPI_Recv(in, w->size, MPI_BYTE, w->peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (w->rank == 1)
            MPI_Send(out, w->size, MPI_BYTE, w->peer, 1, MPI_COMM_WORLD);
    }
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct windows w = open_windows(options, size, rank, 1 - rank);
    w.sender = rank == 0;
    w.receiver = rank == 1;
    if (options->validate)
        validate_windows(&w, size);
    *per_iteration = one_at_a_time ? 2 : options->window;
    struct timing timing = measure(options, one_at_a_time ? ping_pong : run_windows, &w, CLOCK_OF_RANK_0);
    close_windows(&w);
    return timing;
}

int main(int argc, char **argv) {
    static const struct flag flags[] = {
        {"--one-at-a-time", &one_at_a_time, "ping-pong: bytes over the one-way time, no window"},
        {NULL, NULL, NULL},
    };
    static const struct program program = {
        "bandwidth",
        "one way from rank 0 to rank 1",
        flags,
        {{1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20,
          2 << 20, 4 << 20},
         13, 0, 20, 0.3, 64, 64, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Bandwidth (MB/s)", "MB/s", MEGABYTES_PER_SECOND, 64}, 2,
                      one_size);
}
