// SPDX-License-Identifier: MIT OR Apache-2.0
/* Bandwidth in both directions at the same time between ranks 0 and 1: each posts a window of receives and one of
 * sends. */
#include "windows.h"

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct windows w = open_windows(options, size, rank, 1 - rank);
    w.sender = w.receiver = rank < 2;
    if (options->validate)
        validate_windows(&w, size);
    *per_iteration = 2.0 * options->window;
    struct timing timing = measure(options, run_windows, &w, CLOCK_OF_RANK_0);
    close_windows(&w);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "bibw",
        "both ways at once between ranks 0 and 1",
        NULL,
        {{1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20,
          2 << 20, 4 << 20},
         13, 0, 20, 0.3, 64, 64, 0, 0, 0},
    };
    return bench_main(argc, argv, &program,
                      (struct column){"Bidirectional (MB/s)", "MB/s", MEGABYTES_PER_SECOND, 128}, 2, one_size);
}
