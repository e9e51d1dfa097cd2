// SPDX-License-Identifier: MIT OR Apache-2.0
/* Time of MPI_Bcast. */
#include "collective.h"

static void casts(void *state, long count) {
    struct collective *c = state;
    for (long i = 0; i < count; i++)
        MPI_Bcast(c->in.base, c->size, MPI_BYTE, next_root(c), MPI_COMM_WORLD);
}

static void validate(struct collective *c) {
    for (int root = 0; root < c->ranks; root++) {
        fill(c->in.base, (size_t)c->size, (unsigned)(c->rank == root ? root : c->rank + 100));
        MPI_Bcast(c->in.base, c->size, MPI_BYTE, root, MPI_COMM_WORLD);
        check(c->in.base, (size_t)c->size, (unsigned)root);
    }
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    *per_iteration = 1;
    return measure_collective(options, size, 0, 1, casts, validate);
}

int main(int argc, char **argv) {
    static const struct program program = {
        "bcast",
        "MPI_Bcast, the root goes round, the slowest rank's time",
        root_flags,
        {{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}, 7, 0, 3, 0.3, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Bcast (us)", "us", TIME_US, 1}, 1, one_size);
}
