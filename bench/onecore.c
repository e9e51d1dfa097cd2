// SPDX-License-Identifier: MIT OR Apache-2.0
/* Ping-pong of two ranks that share one CPU. The program binds itself to the CPU before MPI_Init, or with --late after
 * it, when the library has already read its affinity mask. */
#define _GNU_SOURCE
#include <sched.h>

#include "report.h"

static int late;

static void bind_to_first_cpu(void) {
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        CPU_SET(cpu, &one);
        break;
    }
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        perror("onecore: cannot bind to one CPU");
}

struct ping {
    char out[1 << 16], in[1 << 16];
    int size, rank;
};

static void ping_pong(void *state, long count) {
    struct ping *ping = state;
    for (long i = 0; i < count && ping->rank < 2; i++) {
        if (ping->rank == 0)
            MPI_Send(ping->out, ping->size, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(ping->in, ping->size, MPI_BYTE, 1 - ping->rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (ping->rank == 1)
            MPI_Send(ping->out, ping->size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    static struct ping ping;
    if (late)
        bind_to_first_cpu();
    if (size > sizeof ping.out)
        die(BAD_OPTION, "onecore: sizes go up to 64K");
    ping.size = (int)size;
    MPI_Comm_rank(MPI_COMM_WORLD, &ping.rank);
    *per_iteration = 2;
    return measure(options, ping_pong, &ping, CLOCK_OF_RANK_0);
}

int main(int argc, char **argv) {
    static const struct flag flags[] = {
        {"--late", &late, "bind after MPI_Init instead of before it"},
        {NULL, NULL, NULL},
    };
    static const struct program program = {
        "onecore",
        "one-way time between two ranks on one CPU",
        flags,
        {{8, 1 << 10, 64 << 10}, 3, 0, 100, 0.2, 1, 1, 0, 0, 0},
    };
    int early = 1;
    for (int i = 1; i < argc; i++)
        early = early && strcmp(argv[i], "--late") != 0;
    if (early)
        bind_to_first_cpu();
    return bench_main(argc, argv, &program, (struct column){"Latency (us)", "us", TIME_US, 2}, 2, one_size);
}
