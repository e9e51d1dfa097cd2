// SPDX-License-Identifier: MIT OR Apache-2.0
/* Memory per rank in KiB, from /proc/self/smaps_rollup: after MPI_Init and a barrier, and after every pair of ranks has
 * exchanged 1 KiB. Pss counts a page shared by n processes as 1/n in each. */
#include "report.h"

enum { FIGURES = 4, EXCHANGED = 1024 };

static double rollup_kib(const char *field) {
    char line[256];
    double kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && kib < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = strtod(line + strlen(field), NULL);
    if (file)
        fclose(file);
    return kib;
}

static void exchange_with_all(int rank, int ranks) {
    static char out[EXCHANGED], in[EXCHANGED];
    for (int step = 1; step < ranks; step++)
        MPI_Sendrecv(out, EXCHANGED, MPI_CHAR, (rank + step) % ranks, 1, in, EXCHANGED, MPI_CHAR,
                     (rank + ranks - step) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Gathers one figure with messages, because collectives would allocate memory of their own. Returns the median on rank
 * 0. */
static double median_over_ranks(double figure, int rank, int ranks, double *largest) {
    if (rank != 0) {
        MPI_Send(&figure, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
        return 0;
    }
    double *all = malloc((size_t)ranks * sizeof *all);
    if (all == NULL)
        die(FAILED, "no memory");
    all[0] = figure;
    for (int peer = 1; peer < ranks; peer++)
        MPI_Recv(&all[peer], 1, MPI_DOUBLE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    qsort(all, (size_t)ranks, sizeof *all, by_value);
    double middle = median(all, ranks);
    *largest = all[ranks - 1];
    free(all);
    return middle;
}

static void print_head(int output, int ranks) {
    char library[256];
    library_version(library, sizeof library);
    if (output == TABLE)
        printf("# %s\n# %d ranks, KiB per rank\n%-40s%14s%14s\n", library, ranks, "# What", "Median", "Largest");
    else
        printf("{\"benchmark\":\"memory\",\"unit\":\"KiB\",\"title\":\"Median (KiB)\",\"ranks\":%d,\"library\":\"%s\","
               "\"steps\":%d,\"rows\":[%s",
               ranks, library, FIGURES, output == LINES ? "]}\n" : "");
}

static void print_row(int output, int index, const char *name, double middle, double largest) {
    if (output != TABLE)
        printf("%s{\"size\":%d,\"name\":\"%s\",\"median\":%.6g,\"worst\":%.6g}%s",
               output == ONE_LINE && index ? "," : "", index, name, middle, largest, output == LINES ? "\n" : "");
    else
        printf("%-40s%14.0f%14.0f\n", name, middle, largest);
}

static void measure_memory(int rank, int ranks, int output) {
    static const char *const names[FIGURES] = {"private dirty after init", "Pss after init",
                                               "private dirty after all pairs", "Pss after all pairs"};
    double figures[FIGURES];
    MPI_Barrier(MPI_COMM_WORLD);
    figures[0] = rollup_kib("Private_Dirty:");
    figures[1] = rollup_kib("Pss:");
    MPI_Barrier(MPI_COMM_WORLD);
    exchange_with_all(rank, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    figures[2] = rollup_kib("Private_Dirty:");
    figures[3] = rollup_kib("Pss:");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        print_head(output, ranks);
    for (int i = 0; i < FIGURES; i++) {
        double largest = 0, middle = median_over_ranks(figures[i], rank, ranks, &largest);
        if (rank == 0)
            print_row(output, i, names[i], middle, largest);
    }
    if (rank == 0 && output == ONE_LINE)
        printf("]}\n");
}

int main(int argc, char **argv) {
    int rank, ranks, output = TABLE;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int code = parse_plain(argc, argv, "memory", "memory per rank", NULL, rank, &output);
    if (code < 0)
        measure_memory(rank, ranks, output);
    MPI_Finalize();
    return code < 0 ? 0 : code;
}
