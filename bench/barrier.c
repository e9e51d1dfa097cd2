// SPDX-License-Identifier: MIT OR Apache-2.0
/* Time of MPI_Barrier over all ranks. */
#include "report.h"

static void barriers(void *state, long count) {
    (void)state;
    for (long i = 0; i < count; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    (void)size;
    *per_iteration = 1;
    return measure(options, barriers, NULL, CLOCK_OF_SLOWEST);
}

int main(int argc, char **argv) {
    static const struct program program = {
        "barrier", "MPI_Barrier over all ranks, the slowest rank's time", NULL, {{0}, 1, 0, 3, 0.5, 1, 1, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Barrier (us)", "us", TIME_US, 1}, 1, one_size);
}
