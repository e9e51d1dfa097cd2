// SPDX-License-Identifier: MIT OR Apache-2.0
/* Time of MPI_Allgather; the size is that of one rank's block. */
#include "collective.h"

static void allgathers(void *state, long count) {
    struct collective *c = state;
    for (long i = 0; i < count; i++)
        MPI_Allgather(c->out.base, c->size, MPI_BYTE, c->in.base, c->size, MPI_BYTE, MPI_COMM_WORLD);
}

static void validate(struct collective *c) {
    fill(c->out.base, (size_t)c->size, (unsigned)c->rank);
    allgathers(c, 1);
    for (int peer = 0; peer < c->ranks; peer++)
        check(block(&c->in, c->size, peer), (size_t)c->size, (unsigned)peer);
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    *per_iteration = 1;
    return measure_collective(options, size, 1, one_each(), allgathers, validate);
}

int main(int argc, char **argv) {
    static const struct program program = {
        "allgather",
        "MPI_Allgather, the size is one block's, the slowest rank's time",
        NULL,
        {{8, 64, 512, 4 << 10, 32 << 10, 64 << 10}, 6, 0, 3, 0.3, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Allgather (us)", "us", TIME_US, 1}, 1, one_size);
}
