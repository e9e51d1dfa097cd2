// SPDX-License-Identifier: MIT OR Apache-2.0
/* The parts that the programs of the grid share. One start measures many cells, each of which is an operation with a
 * number of bytes, and prints a JSON line for each cell as soon as it is measured. */
#ifndef BENCH_GRID_H
#define BENCH_GRID_H

#include "report.h"

enum { MAX_CELLS = 1024 };
#define SLOW_SECONDS 0.2

/* A program of the grid. The lists of operations and of flags end with a null name. */
struct grid {
    const char *name, *purpose;
    const struct named {
        const char *name, *help;
    } *operations;
    const struct flag *flags;
    const char *usual_cells;
    int least_ranks;
    int pairs; /* whether the number of ranks must be even */
};

struct cell {
    int operation; /* its index in the list */
    size_t bytes;
};

struct grid_options {
    struct options common; /* only the warm-up, the seconds and whether to validate are used */
    struct cell cells[MAX_CELLS];
    int cell_count;
};

static inline void print_grid_help(const struct grid *grid, const struct options *defaults) {
    printf("%s: %s\n\n", grid->name, grid->purpose);
    printf("  --cells LIST      OPERATION:BYTES:BYTES...,OPERATION:BYTES... (suffixes K and M are powers of 1024;\n"
           "                    default %s)\n"
           "  --seconds S       measuring time per cell (default %g)\n"
           "  --validate        check what is received in an extra pass that is not timed\n",
           grid->usual_cells, defaults->seconds);
    for (const struct flag *flag = grid->flags; flag && flag->name; flag++)
        printf("  %-17s %s\n", flag->name, flag->help);
    printf("\nOperations:\n");
    for (const struct named *operation = grid->operations; operation->name; operation++)
        printf("  %-20s %s\n", operation->name, operation->help);
}

/* The index of the operation whose name is the part of `text` before the first colon; -1 if there is none. */
static inline int find_operation(const struct grid *grid, const char *text) {
    size_t length = strcspn(text, ":,");
    for (int i = 0; grid->operations[i].name; i++)
        if (strlen(grid->operations[i].name) == length && strncmp(grid->operations[i].name, text, length) == 0)
            return i;
    return -1;
}

/* Reads OPERATION:BYTES:BYTES...,OPERATION:BYTES... */
static inline int parse_cells(const struct grid *grid, const char *text, struct grid_options *options) {
    options->cell_count = 0;
    for (;;) {
        int operation = find_operation(grid, text);
        text += strcspn(text, ":,");
        if (operation < 0 || *text != ':')
            return 0;
        while (*text == ':') {
            struct cell *cell = &options->cells[options->cell_count];
            char *end;
            if (options->cell_count == MAX_CELLS || !parse_size(text + 1, &end, &cell->bytes))
                return 0;
            cell->operation = operation;
            options->cell_count++;
            text = end;
        }
        if (*text != ',')
            return *text == '\0';
        text++;
    }
}

static inline int parse_grid_flag(const struct grid *grid, const char *word, struct options *options) {
    if (strcmp(word, "--validate") == 0)
        return options->validate = 1;
    for (const struct flag *flag = grid->flags; flag && flag->name; flag++)
        if (strcmp(flag->name, word) == 0)
            return *flag->value = 1;
    return 0;
}

/* Returns -1 to go on, otherwise the exit code. Only rank 0 prints messages. */
static inline int parse_grid(int argc, char **argv, const struct grid *grid, int rank, struct grid_options *options) {
    parse_cells(grid, grid->usual_cells, options);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            if (rank == 0)
                print_grid_help(grid, &options->common);
            return 0;
        }
        if (parse_grid_flag(grid, argv[i], &options->common))
            continue;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        int good = strcmp(argv[i], "--cells") == 0     ? parse_cells(grid, value, options)
                   : strcmp(argv[i], "--seconds") == 0 ? parse_seconds(value, &options->common.seconds)
                                                       : -1;
        if (good == 1) {
            i++;
            continue;
        }
        if (rank == 0 && good == 0)
            fprintf(stderr, "%s: %s cannot be \"%s\" (--help lists what it can be)\n", grid->name, argv[i], value);
        else if (rank == 0)
            fprintf(stderr, "%s: unknown option \"%s\" (--help lists the known ones)\n", grid->name, argv[i]);
        return BAD_OPTION;
    }
    return -1;
}

static inline void print_grid_head(const struct grid *grid, const struct grid_options *options, int ranks) {
    char library[256], machine[256];
    library_version(library, sizeof library);
    machine_name(machine, sizeof machine);
    printf("{\"grid\":\"%s\",\"ranks\":%d,\"cells\":%d,\"validated\":%s,\"library\":\"%s\",\"machine\":\"%s\"}\n",
           grid->name, ranks, options->cell_count, options->common.validate ? "true" : "false", library, machine);
    fflush(stdout);
}

/* Rank 0 only. For bandwidths the messages per second are printed too. */
static inline void print_cell(const char *metric, size_t bytes, struct column column, const struct timing *timing) {
    printf("{\"metric\":\"%s\",\"bytes\":%zu,\"unit\":\"%s\",\"value\":%.6g,\"p99\":%.6g,\"iterations\":%ld,"
           "\"batches\":%d",
           metric, bytes, column.unit, column_value(&column, bytes, timing->median),
           column_value(&column, bytes, timing->p99), timing->iterations, timing->batches);
    if (column.kind == MEGABYTES_PER_SECOND)
        printf(",\"messages_per_second\":%.6g", column.per_iteration / timing->median);
    printf("}\n");
    fflush(stdout);
}

/* Measures one cell on all ranks; sets `column` if the figure is not a time per call. */
typedef struct timing one_cell_fn(const struct options *options, const struct cell *cell, struct column *column);

/* The part of both programs after MPI_Init: parses the options, measures one cell after the other, and calls
 * MPI_Finalize. */
static inline int grid_main(int argc, char **argv, const struct grid *grid, struct options defaults,
                            one_cell_fn *one_cell) {
    static struct grid_options options;
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    options.common = defaults;
    int code = parse_grid(argc, argv, grid, rank, &options);
    if (code < 0 && ranks < grid->least_ranks) {
        if (rank == 0)
            fprintf(stderr, "%s: needs at least %d ranks, was started with %d (use mpiexec -n %d)\n", grid->name,
                    grid->least_ranks, ranks, grid->least_ranks);
        code = BAD_OPTION;
    }
    if (code < 0 && grid->pairs && ranks % 2 != 0) {
        if (rank == 0)
            fprintf(stderr, "%s: needs an even number of ranks, was started with %d\n", grid->name, ranks);
        code = BAD_OPTION;
    }
    if (code < 0 && rank == 0)
        print_grid_head(grid, &options, ranks);
    for (int i = 0; i < options.cell_count && code < 0; i++) {
        const struct cell *cell = &options.cells[i];
        struct column column = {"", "us", TIME_US, 1};
        struct timing timing = one_cell(&options.common, cell, &column);
        if (rank == 0)
            print_cell(grid->operations[cell->operation].name, cell->bytes, column, &timing);
    }
    MPI_Finalize();
    return code < 0 ? 0 : code;
}

#endif
