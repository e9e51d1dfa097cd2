// SPDX-License-Identifier: MIT OR Apache-2.0
/* Measures how much computation overlaps with MPI_Iallreduce (sum of doubles). Every rank computes; the slowest rank's
 * times count. */
#include "overlap.h"

static void start(struct overlap *o) {
    MPI_Iallreduce(o->out.base, o->in.base, o->size / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD,
                   &o->request);
}

static void finish(struct overlap *o) {
    MPI_Wait(&o->request, MPI_STATUS_IGNORE);
}

static void validate(struct overlap *o) {
    double *out = (double *)(void *)o->out.base, *in = (double *)(void *)o->in.base;
    int ranks, doubles = o->size / (int)sizeof(double);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < doubles; i++)
        out[i] = o->rank + i;
    o->steps = 1000;
    together(o, 1);
    for (int i = 0; i < doubles; i++)
        if (in[i] != 0.5 * ranks * (ranks - 1) + (double)i * ranks)
            die(BAD_PAYLOAD, "overlap-allreduce: the sum is wrong");
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    struct overlap o = {.start = start, .finish = finish, .size = (int)size};
    MPI_Comm_rank(MPI_COMM_WORLD, &o.rank);
    o.out = new_buffers(options, size, 1);
    o.in = new_buffers(options, size, 1);
    if (options->validate)
        validate(&o);
    for (int i = 0; i < o.size / (int)sizeof(double); i++)
        ((double *)(void *)o.out.base)[i] = o.rank;
    *per_iteration = 1;
    struct timing timing = measure_overlap(options, &o, CLOCK_OF_SLOWEST);
    free_buffers(&o.out);
    free_buffers(&o.in);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "overlap-allreduce",
        "computation that MPI_Iallreduce hides, the slowest rank's times",
        overlap_flags,
        {{8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}, 6, 0, 3, 0.5, 1, 1, 0, 0, 0},
    };
    return overlap_main(argc, argv, &program, 1, one_size);
}
