// SPDX-License-Identifier: MIT OR Apache-2.0
/* Measures the cost of empty QMPI tools per call (of MPI_Comm_rank), with none, one, two and four stacked tools. Each
 * figure comes from a separate process, because the stack is fixed when a process begins; the processes take turns. */
#include "report.h"
#if __has_include(<qmpi.h>)
#include <qmpi.h>
#define HAS_STACKS 1
#endif
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 9, BATCHES = 60, CALLS = 10000, STACKS = 8, MOST_TOOLS = 4 };
#define CHILD "BENCH_TOOLS_CHILD"

/* The number of tools, and their kind: they look up the next function in each call or once, or have MPICH's form. */
static const struct stack {
    int tools;
    const char *tool, *name;
} stacks[STACKS] = {
    {0, "", "no tool"},
    {1, "bench-asks", "1 empty tool"},
    {2, "bench-asks", "2 empty tools"},
    {4, "bench-asks", "4 empty tools"},
    {1, "bench-knows", "1 that knows the next"},
    {4, "bench-knows", "4 that know the next"},
    {1, "bench-numbered", "1 of MPICH's form"},
    {4, "bench-numbered", "4 of MPICH's form"},
};

#ifdef HAS_STACKS
/* Like most tools: looks up the next function in each call. */
static int asks(QMPI_Context context, MPI_Comm comm, int *rank) {
    QMPI_Comm_rank_t *next;
    QMPI_Context below;
    int id = -1;
    QMPIX_Context_get_tool_id(context, &id);
    QMPI_Get_function(id, MPI_COMM_RANK_T, (void (**)(void)) & next, &below);
    return next(below, comm, rank);
}

static struct {
    QMPI_Comm_rank_t *next;
    QMPI_Context below;
} known[MOST_TOOLS + 1];

static int knows(QMPI_Context context, MPI_Comm comm, int *rank) {
    int id = 0;
    QMPIX_Context_get_tool_id(context, &id);
    if (known[id].next == NULL)
        QMPI_Get_function(id, MPI_COMM_RANK_T, (void (**)(void)) & known[id].next, &known[id].below);
    return known[id].next(known[id].below, comm, rank);
}

/* MPICH's form: a function gets the id of its tool, and looks up the id of the next tool. */
typedef int numbered_t(QMPI_Context context, int id, MPI_Comm comm, int *rank);
int QMPI_Register_function(int id, enum QMPI_Functions_enum which, void (*function)(void));

static int numbered(QMPI_Context context, int id, MPI_Comm comm, int *rank) {
    numbered_t *next;
    union {
        QMPI_Context unused;
        int id;
    } below;
    QMPI_Get_function(id, MPI_COMM_RANK_T, (void (**)(void)) & next, &below.unused);
    return next(context, below.id, comm, rank);
}

static void begin_numbered(int id) {
    QMPI_Register_function(id, MPI_COMM_RANK_T, (void (*)(void))numbered);
}

static void begin_asks(int id) {
    QMPI_Register_tool_function(id, MPI_COMM_RANK_T, (void (*)(void))asks);
}

static void begin_knows(int id) {
    QMPI_Register_tool_function(id, MPI_COMM_RANK_T, (void (*)(void))knows);
}

__attribute__((constructor)) static void announce(void) {
    QMPI_Register_tool_name("bench-asks", begin_asks);
    QMPI_Register_tool_name("bench-knows", begin_knows);
    QMPI_Register_tool_name("bench-numbered", begin_numbered);
}
#endif

/* Prints the nanoseconds per call in this process: those of the best batch, because disturbances only make batches
 * longer. */
static int measure_here(void) {
    double batches[BATCHES];
    int rank;
    MPI_Init(NULL, NULL);
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now();
        for (int i = 0; i < CALLS; i++)
            MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        batches[batch] = (now() - start) / CALLS * 1e9;
    }
    qsort(batches, BATCHES, sizeof *batches, by_value);
    printf("%.6f\n", batches[0]);
    MPI_Finalize();
    return 0;
}

/* Runs measure_here in a new process with this stack, and returns its figure. */
static double measure_with(const struct stack *stack) {
    char line[4096], list[256] = "", self[2048];
    double value = -1;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        die(FAILED, "cannot find this program");
    self[length] = '\0';
    for (int i = 0; i < stack->tools; i++) {
        strcat(list, i ? ":" : "");
        strcat(list, stack->tool);
    }
    snprintf(line, sizeof line, CHILD "=1 RMPI_TOOLS='%s' exec '%s'", list, self);
    FILE *child = popen(line, "r");
    if (child == NULL || fscanf(child, "%lf", &value) != 1 || pclose(child) != 0)
        die(FAILED, "a process with tools has failed");
    return value;
}

static void print_row(int output, int index, const char *name, double middle, double largest) {
    if (output != TABLE)
        printf("%s{\"size\":%d,\"name\":\"%s\",\"median\":%.6g,\"worst\":%.6g}%s",
               output == ONE_LINE && index ? "," : "", index, name, middle, largest, output == LINES ? "\n" : "");
    else
        printf("%-32s%14.1f%14.1f\n", name, middle, largest);
}

static void print_sorted(int output, int index, const char *name, double *samples) {
    qsort(samples, ROUNDS, sizeof *samples, by_value);
    print_row(output, index, name, median(samples, ROUNDS), samples[ROUNDS - 1]);
}

static void measure_stacks(int output) {
    double times[STACKS][ROUNDS], first[2][ROUNDS], each[3][ROUNDS];
    char library[256];
    library_version(library, sizeof library);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < STACKS; i++)
            times[i][round] = measure_with(&stacks[i]);
        for (int i = 0; i < 3; i++)
            each[i][round] = (times[2 * i + 3][round] - times[0][round]) / stacks[2 * i + 3].tools;
        first[0][round] = times[1][round] - times[0][round];
        first[1][round] = times[6][round] - times[0][round];
    }
    if (output == TABLE)
        printf("# %s\n# ns per call of MPI_Comm_rank, median and largest of %d rounds\n%-32s%14s%14s\n", library, ROUNDS,
               "# What", "Median", "Largest");
    else
        printf("{\"benchmark\":\"tools\",\"unit\":\"ns\",\"title\":\"Median (ns)\",\"ranks\":1,\"library\":\"%s\","
               "\"steps\":%d,\"rows\":[%s",
               library, STACKS + 5, output == LINES ? "]}\n" : "");
    for (int i = 0; i < STACKS; i++)
        print_sorted(output, i, stacks[i].name, times[i]);
    print_sorted(output, STACKS, "the first", first[0]);
    print_sorted(output, STACKS + 1, "the first of MPICH's form", first[1]);
    print_sorted(output, STACKS + 2, "each of 4", each[0]);
    print_sorted(output, STACKS + 3, "each of 4 that know the next", each[1]);
    print_sorted(output, STACKS + 4, "each of 4 of MPICH's form", each[2]);
    if (output == ONE_LINE)
        printf("]}\n");
}

int main(int argc, char **argv) {
    int rank, output = TABLE;
    if (getenv(CHILD))
        return measure_here();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int code = parse_plain(argc, argv, "tools", "what empty tools of QMPI cost a call", NULL, rank, &output);
#ifdef HAS_STACKS
    if (code < 0 && rank == 0)
        measure_stacks(output);
#else
    if (code < 0) {
        fprintf(stderr, "tools: this MPI has no qmpi.h, so no tools can be stacked\n");
        code = FAILED;
    }
#endif
    MPI_Finalize();
    return code < 0 ? 0 : code;
}
