// SPDX-License-Identifier: MIT OR Apache-2.0
/* The output of the benchmark programs: columns like those of the OSU benchmarks, or JSON. A megabyte is 10^6 bytes. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "measure.h"
#include <sys/utsname.h>

/* A column of values, and how a time per iteration is converted to its values. For a rate, the 99th percentile of the
 * time gives the rate that 99 of 100 batches reach or exceed. */
struct column {
    const char *title; /* in the head of the table */
    const char *unit;  /* in JSON */
    enum { TIME_US, MEGABYTES_PER_SECOND, MESSAGES_PER_SECOND, PERCENT } kind;
    double per_iteration; /* the number of hops or messages in one iteration */
};

/* rmpi's counters of network traffic: frames of all providers, and datagrams, which only verbs sends. */
enum { NET_FRAMES, NET_DATAGRAMS, NET_COUNTERS };

struct net_counters {
    int open; /* 0 if this MPI has no such counters */
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handles[NET_COUNTERS];
};

struct report {
    const struct program *program;
    const struct options *options;
    struct column column;
    const char *const *extras; /* titles of the further columns, MAX_EXTRAS or a null at the end; or null */
    int ranks, rows;
    struct net_counters net;
};

static inline double column_value(const struct column *column, size_t size, double seconds) {
    switch (column->kind) {
    case MEGABYTES_PER_SECOND:
        return (double)size * column->per_iteration / seconds * 1e-6;
    case MESSAGES_PER_SECOND:
        return column->per_iteration / seconds;
    case PERCENT:
        return seconds;
    default:
        return seconds / column->per_iteration * 1e6;
    }
}

/* Copies the first line of `text`, without characters that a JSON string or a comment line cannot hold. */
static inline void plain_text(char *to, size_t room, const char *text) {
    size_t used = 0;
    for (; *text && *text != '\n' && used + 1 < room; text++)
        if (*text >= ' ' && *text != '"' && *text != '\\' && (unsigned char)*text < 127)
            to[used++] = *text;
    to[used] = '\0';
}

static inline void library_version(char *to, size_t room) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int length;
    MPI_Get_library_version(version, &length);
    for (char *c = version; *c; c++)
        if (*c == '\t')
            *c = ' ';
    plain_text(to, room, version);
}

/* Starts the counters. Only rmpi's are used: performance variables of other MPIs with these names would count something
 * else. */
static inline void open_net_counters(struct net_counters *net, const char *library) {
    static const char *const names[NET_COUNTERS] = {"net_frames_sent", "net_datagrams"};
    int provided, index, count;
    if (strncmp(library, "rmpi ", 5) != 0 || MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS ||
        MPI_T_pvar_session_create(&net->session) != MPI_SUCCESS)
        return;
    for (int i = 0; i < NET_COUNTERS; i++)
        if (MPI_T_pvar_get_index(names[i], MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS ||
            MPI_T_pvar_handle_alloc(net->session, index, NULL, &net->handles[i], &count) != MPI_SUCCESS ||
            MPI_T_pvar_start(net->session, net->handles[i]) != MPI_SUCCESS)
            return;
    net->open = 1;
}

/* The provider of messages over a network since open_net_counters; NULL if there were none or it is not known. */
static inline const char *carrier(const struct net_counters *net) {
    unsigned long long values[NET_COUNTERS] = {0};
    for (int i = 0; i < NET_COUNTERS; i++)
        if (!net->open || MPI_T_pvar_read(net->session, net->handles[i], &values[i]) != MPI_SUCCESS)
            return NULL;
    if (values[NET_FRAMES] == 0)
        return NULL;
    return values[NET_DATAGRAMS] ? "verbs" : "tcp";
}

static inline void cpu_model(char *to, size_t room) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    plain_text(to, room, "unknown CPU");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        plain_text(to, room, colon + 2);
        break;
    }
    if (file)
        fclose(file);
}

static inline void machine_name(char *to, size_t room) {
    char cpu[128];
    struct utsname system;
    cpu_model(cpu, sizeof cpu);
    if (uname(&system) != 0)
        memset(&system, 0, sizeof system);
    char text[sizeof cpu + sizeof system];
    snprintf(text, sizeof text, "%s, %s %s %s", cpu, system.sysname, system.release, system.machine);
    plain_text(to, room, text);
}

static inline const char *extra_title(const struct report *report, int index) {
    return report->extras && index < MAX_EXTRAS ? report->extras[index] : NULL;
}

static inline void print_json_head(const struct report *report, const char *library, const char *machine) {
    const struct options *options = report->options;
    printf("{\"benchmark\":\"%s\",\"unit\":\"%s\",\"title\":\"%s\",\"ranks\":%d,\"window\":%d,\"buffers\":%d,"
           "\"validated\":%s,\"memory\":\"%s\",\"library\":\"%s\",\"machine\":\"%s\",\"steps\":%d,\"extras\":[",
           report->program->name, report->column.unit, report->column.title, report->ranks, options->window,
           options->buffers, options->validate ? "true" : "false", options->mpi_memory ? "mpi" : "heap", library,
           machine, options->size_count);
    for (int i = 0; extra_title(report, i); i++)
        printf("%s\"%s\"", i ? "," : "", extra_title(report, i));
    printf(options->json == LINES ? "],\"rows\":[]}\n" : "],\"rows\":[");
    fflush(stdout);
}

/* Rank 0 only. */
static inline struct report open_report(const struct program *program, const struct options *options,
                                        struct column column, const char *const *extras) {
    struct report report = {program, options, column, extras, 0, 0, {0}};
    char library[256], machine[256];
    MPI_Comm_size(MPI_COMM_WORLD, &report.ranks);
    library_version(library, sizeof library);
    machine_name(machine, sizeof machine);
    if (options->json == ONE_LINE)
        open_net_counters(&report.net, library);
    if (options->json) {
        print_json_head(&report, library, machine);
        return report;
    }
    printf("# %s: %s\n", program->name, program->purpose);
    printf("# %d rank%s, window %d, %d buffer%s, median and 99th percentile of batches\n", report.ranks,
           report.ranks == 1 ? "" : "s", options->window, options->buffers, options->buffers == 1 ? "" : "s");
    printf("# %s\n# %s\n", library, machine);
    char tail[32];
    const char *unit = strchr(column.title, '(');
    snprintf(tail, sizeof tail, "p99 %s", unit ? unit : "");
    printf("%-10s%22s%18s", "# Size", column.title, tail);
    for (int i = 0; extra_title(&report, i); i++)
        printf("%18s", extra_title(&report, i));
    printf("%14s%10s\n", "Iterations", "Warm-up");
    fflush(stdout);
    return report;
}

static inline void table_row(const struct report *report, size_t size, const struct timing *timing, double middle,
                             double tail) {
    int digits = middle < 100 ? 3 : 2;
    printf("%-10zu%22.*f%18.*f", size, digits, middle, digits, tail);
    for (int i = 0; extra_title(report, i); i++)
        printf("%18.*f", timing->extras[i] < 100 ? 3 : 2, timing->extras[i]);
    printf("%14ld%10ld\n", timing->iterations, timing->warm_up);
}

static inline void json_row(const struct report *report, size_t size, const struct timing *timing, double middle,
                            double tail) {
    const struct column *column = &report->column;
    printf("{\"size\":%zu,\"median\":%.6g,\"p99\":%.6g,\"best\":%.6g,\"worst\":%.6g,\"iterations\":%ld,"
           "\"batches\":%d,\"warm_up\":%ld,\"extras\":[",
           size, middle, tail, column_value(column, size, timing->min), column_value(column, size, timing->max),
           timing->iterations, timing->batches, timing->warm_up);
    for (int i = 0; extra_title(report, i); i++)
        printf("%s%.6g", i ? "," : "", timing->extras[i]);
    printf("]}");
}

static inline void report_row(struct report *report, size_t size, const struct timing *timing) {
    const struct column *column = &report->column;
    double middle = column_value(column, size, timing->median);
    double tail = column_value(column, size, timing->p99);
    switch (report->options->json) {
    case TABLE:
        table_row(report, size, timing, middle, tail);
        break;
    case LINES:
        json_row(report, size, timing, middle, tail);
        printf("\n");
        break;
    default:
        printf("%s", report->rows++ ? "," : "");
        json_row(report, size, timing, middle, tail);
    }
    fflush(stdout);
}

static inline void close_report(const struct report *report) {
    const char *carried_by = carrier(&report->net);
    if (report->options->json == ONE_LINE && carried_by)
        printf("],\"carrier\":\"%s\"}\n", carried_by);
    else if (report->options->json == ONE_LINE)
        printf("]}\n");
    fflush(stdout);
}

/* Measures one size on all ranks; may set `per_iteration`, the number of messages or hops in one iteration. */
typedef struct timing one_size_fn(const struct options *options, size_t size, double *per_iteration);

/* A program whose threads all call MPI defines BENCH_THREADS before this file is included. */
static inline void bench_init(int *argc, char ***argv) {
#ifdef BENCH_THREADS
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    if (provided != MPI_THREAD_MULTIPLE)
        die(FAILED, "this MPI does not provide MPI_THREAD_MULTIPLE");
#else
    MPI_Init(argc, argv);
#endif
}

/* The main function of every program: parses the options, measures one size after the other on all ranks, and reports
 * on rank 0. Fewer ranks than `least_ranks` are an error. `extras` are the titles of further columns, whose values
 * `one_size` sets. */
static inline int bench_main_with(const char *const *extras, int argc, char **argv, const struct program *program,
                                  struct column column, int least_ranks, one_size_fn *one_size) {
    int rank, ranks;
    struct options options;
    struct report report = {0};
    bench_init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int code = parse_options(argc, argv, program, rank, &options);
    if (code < 0 && ranks < least_ranks) {
        if (rank == 0)
            fprintf(stderr, "%s: needs at least %d ranks, was started with %d (use mpiexec -n %d)\n", program->name,
                    least_ranks, ranks, least_ranks);
        code = BAD_OPTION;
    }
    if (code >= 0) {
        MPI_Finalize();
        return code;
    }
    if (rank == 0)
        report = open_report(program, &options, column, extras);
    for (int i = 0; i < options.size_count; i++) {
        struct timing timing = one_size(&options, options.sizes[i], &report.column.per_iteration);
        if (rank == 0)
            report_row(&report, options.sizes[i], &timing);
    }
    if (rank == 0)
        close_report(&report);
    MPI_Finalize();
    return 0;
}

static inline int bench_main(int argc, char **argv, const struct program *program, struct column column,
                             int least_ranks, one_size_fn *one_size) {
    return bench_main_with(NULL, argc, argv, program, column, least_ranks, one_size);
}

#endif
