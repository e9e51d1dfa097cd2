// SPDX-License-Identifier: MIT OR Apache-2.0
/* Time of MPI_Alltoall; the size is that of one block (from one rank to one other). */
#include "report.h"

struct exchange {
    struct buffers out, in;
    int size, rank, ranks;
};

static void exchanges(void *state, long count) {
    struct exchange *all = state;
    for (long i = 0; i < count; i++)
        MPI_Alltoall(all->out.base, all->size, MPI_BYTE, all->in.base, all->size, MPI_BYTE, MPI_COMM_WORLD);
}

static void validate(struct exchange *all) {
    size_t size = (size_t)all->size;
    for (int peer = 0; peer < all->ranks; peer++)
        fill(all->out.base + (size_t)peer * size, size, (unsigned)(all->rank * all->ranks + peer));
    exchanges(all, 1);
    for (int peer = 0; peer < all->ranks; peer++)
        check(all->in.base + (size_t)peer * size, size, (unsigned)(peer * all->ranks + all->rank));
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    struct exchange all = {.size = (int)size};
    MPI_Comm_rank(MPI_COMM_WORLD, &all.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &all.ranks);
    all.out = new_buffers(options, size * (size_t)all.ranks, 1);
    all.in = new_buffers(options, size * (size_t)all.ranks, 1);
    if (options->validate)
        validate(&all);
    *per_iteration = 1;
    struct timing timing = measure(options, exchanges, &all, CLOCK_OF_SLOWEST);
    free_buffers(&all.out);
    free_buffers(&all.in);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "alltoall",
        "MPI_Alltoall, the size is one block's, the slowest rank's time",
        NULL,
        {{8, 1 << 10}, 2, 0, 3, 1.0, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Alltoall (us)", "us", TIME_US, 1}, 1, one_size);
}
