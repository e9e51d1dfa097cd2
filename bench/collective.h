// SPDX-License-Identifier: MIT OR Apache-2.0
/* The parts that programs of collectives share: blocks, and the root. The root changes from call to call, so each
 * operation waits for the one before; with --root-0 it is always rank 0, and operations may overlap. */
#ifndef BENCH_COLLECTIVE_H
#define BENCH_COLLECTIVE_H

#include "report.h"

static int root_0;
static const struct flag root_flags[] = {
    {"--root-0", &root_0, "rank 0 is always the root; operations may overlap"},
    {NULL, NULL, NULL},
};

struct collective {
    struct buffers out, in;
    int size; /* bytes of a block */
    int rank, ranks;
    long turn;
};

static inline int next_root(struct collective *c) {
    return root_0 ? 0 : (int)(c->turn++ % c->ranks);
}

static inline unsigned char *block(const struct buffers *buffers, int size, int index) {
    return buffers->base + (size_t)index * (size_t)size;
}

/* Allocates buffers of `give` blocks to send and `take` blocks to receive, validates once if --validate is given, and
 * measures. */
static inline struct timing measure_collective(const struct options *options, size_t size, int give, int take,
                                               run_fn *run, void (*validate)(struct collective *)) {
    struct collective c = {.size = (int)size};
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.ranks);
    c.out = new_buffers(options, size * (size_t)give, 1);
    c.in = new_buffers(options, size * (size_t)take, 1);
    if (options->validate)
        validate(&c);
    struct timing timing = measure(options, run, &c, CLOCK_OF_SLOWEST);
    free_buffers(&c.out);
    free_buffers(&c.in);
    return timing;
}

/* The number of blocks that a rank has if it has one for each rank: the number of ranks. */
static inline int one_each(void) {
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return ranks;
}

#endif
