// SPDX-License-Identifier: MIT OR Apache-2.0
/* Time of MPI_Bcast: the root goes round, so that each broadcast waits for the one before; or with --root-0 it stays and
 * broadcasts may overlap. */
#include "report.h"

static int root_0;

struct cast {
    unsigned char *bytes;
    int size, ranks;
    long turn;
};

static int next_root(struct cast *cast) {
    return root_0 ? 0 : (int)(cast->turn++ % cast->ranks);
}

static void casts(void *state, long count) {
    struct cast *cast = state;
    for (long i = 0; i < count; i++)
        MPI_Bcast(cast->bytes, cast->size, MPI_BYTE, next_root(cast), MPI_COMM_WORLD);
}

static void validate(struct cast *cast, int rank) {
    for (int root = 0; root < cast->ranks; root++) {
        fill(cast->bytes, (size_t)cast->size, (unsigned)(rank == root ? root : rank + 100));
        MPI_Bcast(cast->bytes, cast->size, MPI_BYTE, root, MPI_COMM_WORLD);
        check(cast->bytes, (size_t)cast->size, (unsigned)root);
    }
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    int rank;
    struct buffers memory = new_buffers(options, size, 1);
    struct cast cast = {.bytes = buffer(&memory, 0), .size = (int)size};
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &cast.ranks);
    if (options->validate)
        validate(&cast, rank);
    *per_iteration = 1;
    struct timing timing = measure(options, casts, &cast, CLOCK_OF_SLOWEST);
    free_buffers(&memory);
    return timing;
}

int main(int argc, char **argv) {
    static const struct flag flags[] = {
        {"--root-0", &root_0, "rank 0 is always the root; broadcasts may overlap"},
        {NULL, NULL, NULL},
    };
    static const struct program program = {
        "bcast",
        "MPI_Bcast, the root goes round, the slowest rank's time",
        flags,
        {{8, 1 << 10, 64 << 10}, 3, 0, 3, 1.0, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Bcast (us)", "us", TIME_US, 1}, 1, one_size);
}
