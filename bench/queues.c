// SPDX-License-Identifier: MIT OR Apache-2.0
/* Measures how long rmpi-queues takes, from its start to its end, to print the pending receives of all ranks of a job,
 * 10000 per rank. rmpi-queues must be in the folder of the launcher. */
#include "report.h"
#include <sys/wait.h>
#include <unistd.h>

enum { PENDING = 10000, FIGURES = 2, LOOKS = 7, BAR_MS = 2000 };

/* Writes the command line of rmpi-queues for the launcher's process, which selects all its ranks. */
static void command_line(char *line, size_t room, const char *option) {
    char name[64], path[2048];
    long launcher = (long)getppid();
    snprintf(name, sizeof name, "/proc/%ld/exe", launcher);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0)
        die(FAILED, "cannot tell where the launcher lies");
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    snprintf(line, room, "'%s/rmpi-queues' %s %ld > /dev/null", path, option, launcher);
}

static double look_ms(const char *line) {
    double start = now();
    int status = system(line);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        die(FAILED, "rmpi-queues failed, or does not lie beside the launcher");
    return (now() - start) * 1e3;
}

static void print_head(int output, int ranks) {
    char library[256];
    library_version(library, sizeof library);
    if (output == TABLE)
        printf("# %s\n# %d ranks, %d receives each, ms; the bar is %d\n%-24s%14s%14s\n", library, ranks, PENDING, BAR_MS,
               "# What", "Median", "Worst");
    else
        printf("{\"benchmark\":\"queues\",\"unit\":\"ms\",\"title\":\"Median (ms)\",\"ranks\":%d,\"library\":\"%s\","
               "\"steps\":%d,\"rows\":[%s",
               ranks, library, FIGURES, output == LINES ? "]}\n" : "");
}

static void print_row(int output, int index, const char *name, double middle, double worst) {
    if (output != TABLE)
        printf("%s{\"size\":%d,\"name\":\"%s\",\"median\":%.6g,\"worst\":%.6g}%s",
               output == ONE_LINE && index ? "," : "", index, name, middle, worst, output == LINES ? "\n" : "");
    else
        printf("%-24s%14.0f%14.0f\n", name, middle, worst);
}

static void measure_looks(int ranks, int output) {
    static const char *const options[FIGURES] = {"", "--json"};
    static const char *const names[FIGURES] = {"rmpi-queues", "rmpi-queues --json"};
    print_head(output, ranks);
    for (int i = 0; i < FIGURES; i++) {
        char line[4096];
        double times[LOOKS];
        command_line(line, sizeof line, options[i]);
        for (int look = 0; look < LOOKS; look++)
            times[look] = look_ms(line);
        qsort(times, LOOKS, sizeof *times, by_value);
        print_row(output, i, names[i], median(times, LOOKS), times[LOOKS - 1]);
    }
    if (output == ONE_LINE)
        printf("]}\n");
}

/* Posts receives that are never matched, measures rmpi-queues on rank 0, and cancels the receives. */
static void measure_pending(int rank, int ranks, int output) {
    static int buffers[PENDING];
    static MPI_Request requests[PENDING];
    for (int i = 0; i < PENDING; i++)
        MPI_Irecv(&buffers[i], 1, MPI_INT, (rank + i) % ranks, i, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        measure_looks(ranks, output);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < PENDING; i++)
        MPI_Cancel(&requests[i]);
    MPI_Waitall(PENDING, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
    int rank, ranks, output = TABLE;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int code = parse_plain(argc, argv, "queues", "how long rmpi-queues takes", NULL, rank, &output);
    if (code < 0)
        measure_pending(rank, ranks, output);
    MPI_Finalize();
    return code < 0 ? 0 : code;
}
