// SPDX-License-Identifier: MIT OR Apache-2.0
/* Time of MPI_Allreduce (sum of doubles) over all ranks. */
#include "report.h"

struct sum {
    double *in, *out;
    int count;
};

static void sums(void *state, long count) {
    struct sum *sum = state;
    for (long i = 0; i < count; i++)
        MPI_Allreduce(sum->in, sum->out, sum->count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void validate(struct sum *sum, int rank, int ranks) {
    for (int i = 0; i < sum->count; i++)
        sum->in[i] = rank + i;
    sums(sum, 1);
    for (int i = 0; i < sum->count; i++)
        if (sum->out[i] != 0.5 * ranks * (ranks - 1) + (double)i * ranks)
            die(BAD_PAYLOAD, "allreduce: the sum is wrong");
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct buffers in = new_buffers(options, size, 1), out = new_buffers(options, size, 1);
    struct sum sum = {(double *)(void *)buffer(&in, 0), (double *)(void *)buffer(&out, 0),
                      (int)(size / sizeof(double))};
    if (options->validate)
        validate(&sum, rank, ranks);
    for (int i = 0; i < sum.count; i++)
        sum.in[i] = rank;
    *per_iteration = 1;
    struct timing timing = measure(options, sums, &sum, CLOCK_OF_SLOWEST);
    free_buffers(&in);
    free_buffers(&out);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "allreduce",
        "MPI_Allreduce, sum of doubles, the slowest rank's time",
        NULL,
        {{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}, 7, 0, 3, 0.3, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Allreduce (us)", "us", TIME_US, 1}, 1, one_size);
}
