// SPDX-License-Identifier: MIT OR Apache-2.0
/* Ping-pong of many pairs at the same time: rank i of the first half of n ranks with rank i + n/2. The slowest pair's
 * time counts. */
#include "report.h"

struct pairs {
    struct buffers out, in;
    int size, first, paired, peer;
    long turn;
};

static void ping_pong(void *state, long count) {
    struct pairs *p = state;
    for (long i = 0; i < count && p->paired; i++, p->turn++) {
        void *out = buffer(&p->out, p->turn), *in = buffer(&p->in, p->turn);
        if (p->first)
            MPI_Send(out, p->size, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD);
        MPI_Recv(in, p->size, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!p->first)
            MPI_Send(out, p->size, MPI_BYTE, p->peer, 1, MPI_COMM_WORLD);
    }
}

static void validate(struct pairs *p, size_t size, int rank) {
    for (unsigned i = 0; i < 20; i++) {
        fill(buffer(&p->out, p->turn), size, i + (unsigned)rank);
        ping_pong(p, 1);
        if (p->paired)
            check(buffer(&p->in, p->turn - 1), size, i + (unsigned)p->peer);
    }
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int half = ranks / 2;
    struct pairs pairs = {.size = (int)size, .first = rank < half, .paired = rank < 2 * half};
    pairs.peer = pairs.first ? rank + half : rank - half;
    pairs.out = new_buffers(options, size, options->buffers);
    pairs.in = new_buffers(options, size, options->buffers);
    if (options->validate)
        validate(&pairs, size, rank);
    *per_iteration = 2;
    struct timing timing = measure(options, ping_pong, &pairs, CLOCK_OF_SLOWEST);
    free_buffers(&pairs.out);
    free_buffers(&pairs.in);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "multi-latency",
        "one-way time while all pairs of ranks talk at once (rank i with i + n/2), the slowest pair's",
        NULL,
        {{0, 8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}, 8, 0, 100, 0.3, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Latency (us)", "us", TIME_US, 2}, 2, one_size);
}
