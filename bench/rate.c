// SPDX-License-Identifier: MIT OR Apache-2.0
/* Message rate: the first half of the ranks sends windows of small messages to the second half, pair by pair. */
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
    struct timing timing = measure(options, run_windows, &w, pairs == 1 ? CLOCK_OF_RANK_0 : CLOCK_OF_SLOWEST);
    close_windows(&w);
    return timing;
}

int main(int argc, char **argv) {
    static const struct program program = {
        "rate",
        "messages per second over all pairs (rank i sends to rank i + n/2)",
        NULL,
        {{8}, 1, 0, 100, 0.5, 64, 64, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Messages/s", "messages/s", MESSAGES_PER_SECOND, 64}, 2,
                      one_size);
}
