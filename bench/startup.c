// SPDX-License-Identifier: MIT OR Apache-2.0
/* The smallest MPI program: init, a line per rank, finalize. The driver measures its time from start to finish; with
 * --json or --times rank 0 prints how long the slowest rank was in MPI_Init. */
#include "report.h"

static void print_times(int output, int rank, int ranks, double init_ms) {
    double slowest = init_ms;
    char library[256];
    MPI_Reduce(&init_ms, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank != 0)
        return;
    library_version(library, sizeof library);
    if (output != TABLE)
        printf("{\"benchmark\":\"startup\",\"unit\":\"ms\",\"ranks\":%d,\"library\":\"%s\",\"rows\":[{\"size\":0,"
               "\"median\":%.6g}]}\n",
               ranks, library, slowest);
    else
        printf("# %s\n%-10s%22s\n%-10d%22.3f\n", library, "# Ranks", "MPI_Init (ms)", ranks, slowest);
}

int main(int argc, char **argv) {
    static int times;
    static const struct flag flag = {"--times", &times, "print how long the slowest rank was in MPI_Init"};
    int rank, ranks, output = TABLE;
    double start = now();
    MPI_Init(&argc, &argv);
    double init_ms = (now() - start) * 1e3;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int code = parse_plain(argc, argv, "startup", "init, a line per rank, finalize", &flag, rank, &output);
    if (code < 0 && (times || output != TABLE))
        print_times(output, rank, ranks, init_ms);
    else if (code < 0)
        printf("hello from rank %d of %d\n", rank, ranks);
    MPI_Finalize();
    return code < 0 ? 0 : code;
}
