// SPDX-License-Identifier: MIT OR Apache-2.0
/* Time of MPI_Reduce (sum of doubles). */
#include "collective.h"

static void reduces(void *state, long count) {
    struct collective *c = state;
    int doubles = c->size / (int)sizeof(double);
    for (long i = 0; i < count; i++)
        MPI_Reduce(c->out.base, c->in.base, doubles, MPI_DOUBLE, MPI_SUM, next_root(c), MPI_COMM_WORLD);
}

static void validate(struct collective *c) {
    double *out = (double *)(void *)c->out.base, *in = (double *)(void *)c->in.base;
    int doubles = c->size / (int)sizeof(double);
    for (int root = 0; root < c->ranks; root++) {
        for (int i = 0; i < doubles; i++)
            out[i] = c->rank + i + root;
        MPI_Reduce(out, in, doubles, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
        for (int i = 0; i < doubles && c->rank == root; i++)
            if (in[i] != 0.5 * c->ranks * (c->ranks - 1) + (double)(i + root) * c->ranks)
                die(BAD_PAYLOAD, "reduce: the sum is wrong");
    }
    for (int i = 0; i < doubles; i++)
        out[i] = c->rank;
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    *per_iteration = 1;
    return measure_collective(options, size, 1, 1, reduces, validate);
}

int main(int argc, char **argv) {
    static const struct program program = {
        "reduce",
        "MPI_Reduce, sum of doubles, the root goes round, the slowest rank's time",
        root_flags,
        {{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}, 7, 0, 3, 0.3, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Reduce (us)", "us", TIME_US, 1}, 1, one_size);
}
