// SPDX-License-Identifier: MIT OR Apache-2.0
/* Time of MPI_Alltoall; the size is that of one block (from one rank to one other). */
#include "collective.h"

static void exchanges(void *state, long count) {
    struct collective *c = state;
    for (long i = 0; i < count; i++)
        MPI_Alltoall(c->out.base, c->size, MPI_BYTE, c->in.base, c->size, MPI_BYTE, MPI_COMM_WORLD);
}

static void validate(struct collective *c) {
    for (int peer = 0; peer < c->ranks; peer++)
        fill(block(&c->out, c->size, peer), (size_t)c->size, (unsigned)(c->rank * c->ranks + peer));
    exchanges(c, 1);
    for (int peer = 0; peer < c->ranks; peer++)
        check(block(&c->in, c->size, peer), (size_t)c->size, (unsigned)(peer * c->ranks + c->rank));
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    *per_iteration = 1;
    return measure_collective(options, size, one_each(), one_each(), exchanges, validate);
}

int main(int argc, char **argv) {
    static const struct program program = {
        "alltoall",
        "MPI_Alltoall, the size is one block's, the slowest rank's time",
        NULL,
        {{8, 64, 512, 4 << 10, 32 << 10}, 5, 0, 3, 0.3, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Alltoall (us)", "us", TIME_US, 1}, 1, one_size);
}
