// SPDX-License-Identifier: MIT OR Apache-2.0
/* Ping-pong between ranks 0 and 1 with MPI_Send and MPI_Recv: half of the round trip. */
#include "report.h"

struct ping {
    struct buffers out, in;
    int size, rank;
    long turn;
};

static void ping_pong(void *state, long count) {
    struct ping *ping = state;
    for (long i = 0; i < count; i++, ping->turn++) {
        void *out = buffer(&ping->out, ping->turn), *in = buffer(&ping->in, ping->turn);
        if (ping->rank == 0) {
            MPI_Send(out, ping->size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, ping->size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (ping->rank == 1) {
            MPI_Recv(in, ping->size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, ping->size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
}

static void validate(struct ping *ping, size_t size) {
    for (unsigned i = 0; i < 100; i++) {
        fill(buffer(&ping->out, ping->turn), size, i + (unsigned)ping->rank);
        ping_pong(ping, 1);
        if (ping->rank < 2)
            check(buffer(&ping->in, ping->turn - 1), size, i + 1 - (unsigned)ping->rank);
    }
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    struct ping ping = {.size = (int)size};
    MPI_Comm_rank(MPI_COMM_WORLD, &ping.rank);
    ping.out = new_buffers(options, size, options->buffers);
    ping.in = new_buffers(options, size, options->buffers);
    if (options->validate)
        validate(&ping, size);
    *per_iteration = 2;
    struct timing timing = measure(options, ping_pong, &ping, CLOCK_OF_RANK_0);
    free_buffers(&ping.out);
    free_buffers(&ping.in);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "latency",
        "one-way time of one message at a time, blocking, between ranks 0 and 1",
        NULL,
        {{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10,
          128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20},
         24, 0, 1000, 0.2, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Latency (us)", "us", TIME_US, 2}, 2, one_size);
}
