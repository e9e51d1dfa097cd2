// SPDX-License-Identifier: MIT OR Apache-2.0
/* Bandwidth and message rate of many pairs at the same time: the first half of the ranks sends windows to the second
 * half. */
#include "windows.h"

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int pairs = ranks / 2, paired = rank < 2 * pairs;
    struct windows w = open_windows(options, size, rank, rank < pairs ? rank + pairs : rank - pairs);
    w.sender = rank < pairs;
    w.receiver = paired && !w.sender;
    if (options->validate)
        validate_windows(&w, size);
    *per_iteration = (double)options->window * pairs;
    struct timing timing = measure(options, run_windows, &w, CLOCK_OF_SLOWEST);
    timing.extras[0] = *per_iteration / timing.median;
    close_windows(&w);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "multi-bandwidth",
        "all pairs of ranks at once, one way (rank i sends to rank i + n/2), the sum of all",
        NULL,
        {{8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20}, 7, 0, 20, 0.3, 64, 64, 0, 0, 0},
    };
    static const char *const extras[] = {"Messages/s", NULL};
    return bench_main_with(extras, argc, argv, &program,
                           (struct column){"Bandwidth (MB/s)", "MB/s", MEGABYTES_PER_SECOND, 64}, 2, one_size);
}
