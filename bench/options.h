// SPDX-License-Identifier: MIT OR Apache-2.0
/* The options that all benchmark programs share. Every rank parses them itself, so they are not broadcast. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 64, FAILED = 1, BAD_OPTION = 2, BAD_PAYLOAD = 3 };

/* The output: a table for people; one JSON line with everything; or, for a program that reads the rows as they come, a
 * JSON line for the head and one for each row as soon as it is measured. */
enum output { TABLE, ONE_LINE, LINES };

struct options {
    size_t sizes[MAX_SIZES]; /* message sizes in bytes */
    int size_count;
    long iterations;  /* per size; 0: as many as fit into `seconds` */
    long warm_up;     /* iterations before the first measured one */
    double seconds;   /* measuring time per size when `iterations` is 0 */
    int window;       /* messages in flight */
    int buffers;      /* distinct buffers that the messages rotate over */
    int json;         /* the output: a value of `enum output` */
    int validate;     /* check payloads in an extra, untimed pass */
    int mpi_memory;   /* buffers from MPI_Alloc_mem instead of the heap */
};

/* An option that one program adds; `*value` becomes 1 if it is given. A list ends with a null name. */
struct flag {
    const char *name;
    int *value;
    const char *help;
};

struct program {
    const char *name;
    const char *purpose;
    const struct flag *flags;
    struct options defaults;
};

static inline void print_help(const struct program *program) {
    printf("%s: %s\n\n", program->name, program->purpose);
    printf("  --sizes A,B,...   message sizes in bytes (suffixes K and M are powers of 1024)\n"
           "  -m MIN:MAX        sizes MIN, 2 MIN, 4 MIN, ... up to MAX\n"
           "  -i N              iterations per size; without it as many as fit into --seconds\n"
           "  -x N              warm-up iterations before them (default %ld)\n"
           "  --seconds S       measuring time per size (default %g)\n"
           "  --window N        messages in flight (default %d)\n"
           "  --buffers N       distinct buffers the messages rotate over; 1: always the same (default %d)\n"
           "  --alloc heap|mpi  where the buffers come from: aligned_alloc or MPI_Alloc_mem\n"
           "  --validate        check every payload byte in an extra pass that is not timed\n"
           "  --json            print one JSON line instead of the table\n"
           "  --lines           print a JSON line for the head and one per row, as they come\n",
           program->defaults.warm_up, program->defaults.seconds, program->defaults.window,
           program->defaults.buffers);
    for (const struct flag *flag = program->flags; flag && flag->name; flag++)
        printf("  %-17s %s\n", flag->name, flag->help);
}

/* Reads a size such as 8, 64K or 4M; returns 0 if the text is no size. */
static inline int parse_size(const char *text, char **end, size_t *size) {
    unsigned long long value = strtoull(text, end, 10);
    if (*end == text || *text == '-')
        return 0;
    if (**end == 'K' || **end == 'k')
        value <<= 10, ++*end;
    else if (**end == 'M' || **end == 'm')
        value <<= 20, ++*end;
    *size = (size_t)value;
    return value <= (1ull << 30);
}

static inline int parse_size_list(const char *text, struct options *options) {
    options->size_count = 0;
    for (;;) {
        char *end;
        if (options->size_count == MAX_SIZES ||
            !parse_size(text, &end, &options->sizes[options->size_count]))
            return 0;
        options->size_count++;
        if (*end == '\0')
            return 1;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
}

static inline int parse_size_range(const char *text, struct options *options) {
    size_t from = 0, to = 0;
    char *end;
    if (strchr(text, ':') == NULL)
        return parse_size(text, &end, &options->sizes[0]) && *end == '\0' ? options->size_count = 1 : 0;
    if (!parse_size(text, &end, &from) || *end != ':' || !parse_size(end + 1, &end, &to) || *end != '\0')
        return 0;
    options->size_count = 0;
    for (size_t size = from; size <= to && options->size_count < MAX_SIZES; size = size ? 2 * size : 1)
        options->sizes[options->size_count++] = size;
    return options->size_count > 0;
}

static inline int parse_number(const char *text, long low, long *value) {
    char *end;
    *value = strtol(text, &end, 10);
    return end != text && *end == '\0' && *value >= low && *value <= 1000000000L;
}

static inline int parse_count(const char *text, int *value) {
    long number;
    int good = parse_number(text, 1, &number);
    if (good)
        *value = (int)number;
    return good;
}

static inline int parse_seconds(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && *value > 0 && *value <= 3600;
}

static inline int parse_memory(const char *text, int *mpi_memory) {
    *mpi_memory = strcmp(text, "mpi") == 0;
    return *mpi_memory || strcmp(text, "heap") == 0;
}

/* Parses an option with a value. Returns 1 for a good value, 0 for a bad value, -1 for another option. */
static inline int parse_valued(const char *name, const char *value, struct options *options) {
    if (strcmp(name, "--sizes") == 0)
        return parse_size_list(value, options);
    if (strcmp(name, "-m") == 0)
        return parse_size_range(value, options);
    if (strcmp(name, "-i") == 0)
        return parse_number(value, 1, &options->iterations);
    if (strcmp(name, "-x") == 0)
        return parse_number(value, 0, &options->warm_up);
    if (strcmp(name, "--seconds") == 0)
        return parse_seconds(value, &options->seconds);
    if (strcmp(name, "--window") == 0)
        return parse_count(value, &options->window);
    if (strcmp(name, "--buffers") == 0)
        return parse_count(value, &options->buffers);
    if (strcmp(name, "--alloc") == 0)
        return parse_memory(value, &options->mpi_memory);
    return -1;
}

static inline int parse_flag(const char *name, const struct program *program, struct options *options) {
    if (strcmp(name, "--json") == 0)
        return options->json = ONE_LINE;
    if (strcmp(name, "--lines") == 0)
        return options->json = LINES;
    if (strcmp(name, "--validate") == 0)
        return options->validate = 1;
    for (const struct flag *flag = program->flags; flag && flag->name; flag++)
        if (strcmp(flag->name, name) == 0)
            return *flag->value = 1;
    return 0;
}

/* Returns -1 to go on, otherwise the exit code. Only rank 0 prints messages. */
static inline int parse_options(int argc, char **argv, const struct program *program, int rank,
                                struct options *options) {
    *options = program->defaults;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            if (rank == 0)
                print_help(program);
            return 0;
        }
        if (parse_flag(argv[i], program, options))
            continue;
        int good = parse_valued(argv[i], i + 1 < argc ? argv[i + 1] : "", options);
        if (good == 1) {
            i++;
            continue;
        }
        if (rank == 0 && good == 0)
            fprintf(stderr, "%s: %s cannot be \"%s\" (--help lists what it can be)\n", program->name, argv[i],
                    i + 1 < argc ? argv[i + 1] : "");
        else if (rank == 0)
            fprintf(stderr, "%s: unknown option \"%s\" (--help lists the known ones)\n", program->name, argv[i]);
        return BAD_OPTION;
    }
    return -1;
}

/* As parse_options, for a program without message sizes: it accepts only the kinds of output, and `flag` if there is
 * one. */
static inline int parse_plain(int argc, char **argv, const char *name, const char *purpose, const struct flag *flag,
                              int rank, int *output) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            *output = ONE_LINE;
        else if (strcmp(argv[i], "--lines") == 0)
            *output = LINES;
        else if (flag && strcmp(argv[i], flag->name) == 0)
            *flag->value = 1;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            if (rank == 0)
                printf("%s: %s\n\n  --json   print one JSON line instead of the table\n"
                       "  --lines  print a JSON line for the head and one per row\n",
                       name, purpose);
            if (rank == 0 && flag)
                printf("  %s  %s\n", flag->name, flag->help);
            return 0;
        } else {
            if (rank == 0)
                fprintf(stderr, "%s: unknown option \"%s\" (--help lists the known ones)\n", name, argv[i]);
            return BAD_OPTION;
        }
    }
    return -1;
}

#endif
