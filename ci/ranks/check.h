// SPDX-License-Identifier: MIT OR Apache-2.0
// Shared by all programs here: start and end, checks that count errors, and payloads that identify where a byte came
// from. A program is a list of functions named after the section of MPI 5.0 that they test.
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNUSED __attribute__((unused))
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static int rank UNUSED, size UNUSED;
static int check_errors;
static const char *check_test = "start";

enum { CHECK_ERRORS_SHOWN = 10, CHECK_ERRORS_MAX = 1000 };

__attribute__((format(printf, 4, 5), unused)) static void
check_failed(const char *file, int line, const char *condition, const char *format, ...)
{
    int before = __atomic_fetch_add(&check_errors, 1, __ATOMIC_RELAXED);
    if (before < CHECK_ERRORS_SHOWN) {
        char text[512];
        __builtin_va_list arguments;
        __builtin_va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        __builtin_va_end(arguments);
        fprintf(stderr, "rank %d: %s:%d: %s: not true: %s: %s\n", rank, file, line, check_test,
                condition, text);
    }
    if (before == CHECK_ERRORS_MAX) {
        fprintf(stderr, "rank %d: too many errors\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 99);
    }
}

// CHECK(condition, "printf format", values...): if the condition is false, counts and prints an error and continues.
#define CHECK(condition, ...)                                                                      \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__))

// EQUAL(got, wanted): two integers must be equal.
#define EQUAL(got, wanted)                                                                         \
    do {                                                                                           \
        long long got_ = (long long)(got), wanted_ = (long long)(wanted);                          \
        CHECK(got_ == wanted_, "%s is %lld, expected %lld", #got, got_, wanted_);                  \
    } while (0)

// GOOD(call): it returns MPI_SUCCESS.
#define GOOD(call) EQUAL(call, MPI_SUCCESS)

// FAILS(call, MPI_ERR_X): it returns an error of that class.
#define FAILS(call, wanted)                                                                        \
    do {                                                                                           \
        int code_ = (call), class_ = -1;                                                           \
        MPI_Error_class(code_, &class_);                                                           \
        CHECK(class_ == (wanted), "error class %d, expected %d (%s)", class_, wanted, #wanted);    \
    } while (0)

// RUN(function): a test with its name in the messages; all ranks enter together. With CHECK_TRACE in the environment
// rank 0 prints the name.
#define RUN(function)                                                                              \
    do {                                                                                           \
        check_test = #function;                                                                    \
        if (rank == 0 && getenv("CHECK_TRACE"))                                                    \
            fprintf(stderr, "%s\n", check_test);                                                   \
        MPI_Barrier(MPI_COMM_WORLD);                                                               \
        function();                                                                                \
        check_test = "between tests";                                                              \
    } while (0)

UNUSED static void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

// As `start`, for programs whose threads all call MPI; without MPI_THREAD_MULTIPLE the job is aborted.
UNUSED static void start_threads(int *argc, char ***argv)
{
    int provided = -1;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided != MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "rank %d: thread level %d, expected MPI_THREAD_MULTIPLE\n", rank, provided);
        MPI_Abort(MPI_COMM_WORLD, 98);
    }
}

// The exit code of main: one line `ok` from each rank that found no error.
UNUSED static int finish(void)
{
    MPI_Finalize();
    if (check_errors > 0) {
        fprintf(stderr, "rank %d: %d errors\n", rank, check_errors);
        return 1;
    }
    puts("ok");
    fflush(stdout);
    return 0;
}

// Byte `i` of a message follows from its seed.
UNUSED static inline unsigned char payload_byte(size_t i, unsigned seed)
{
    return (unsigned char)((i * 131u) ^ (i >> 8) ^ (seed * 2654435761u >> 13));
}

UNUSED static void fill(void *buffer, size_t bytes, unsigned seed)
{
    unsigned char *to = buffer;
    for (size_t i = 0; i < bytes; i++)
        to[i] = payload_byte(i, seed);
}

// The index of the first wrong byte, or -1.
UNUSED static long long first_wrong(const void *buffer, size_t bytes, unsigned seed)
{
    const unsigned char *from = buffer;
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != payload_byte(i, seed))
            return (long long)i;
    return -1;
}

#define PAYLOAD(buffer, bytes, seed)                                                               \
    do {                                                                                           \
        long long wrong_ = first_wrong(buffer, bytes, seed);                                       \
        CHECK(wrong_ == -1, "byte %lld of %lld is wrong", wrong_, (long long)(bytes));             \
    } while (0)

// Checks the status of a completed receive.
UNUSED static void check_status(const char *file, int line, const MPI_Status *status, int source,
                                int tag, int bytes)
{
    int got = -1;
    MPI_Get_count(status, MPI_BYTE, &got);
    if (status->MPI_SOURCE != source || status->MPI_TAG != tag || got != bytes)
        check_failed(file, line, "status", "source %d tag %d bytes %d, expected %d %d %d",
                     status->MPI_SOURCE, status->MPI_TAG, got, source, tag, bytes);
}
#define STATUS(status, source, tag, bytes)                                                         \
    check_status(__FILE__, __LINE__, status, source, tag, bytes)

// An empty status, MPI 5.0 section 3.7.3.
#define EMPTY_STATUS(status) STATUS(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0)

UNUSED static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "rank %d: no memory for %zu bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 98);
    }
    return memory;
}

// Whether all ranks are on one host, according to the launcher's environment.
UNUSED static int on_one_host(void)
{
    const char *local = getenv("RMPI_LOCAL_SIZE");
    return !local || atoi(local) == size;
}

// Sizes at and around the places where protocols change.
static const int check_sizes[] = {0,    1,    8,    47,    48,    49,      1000,       4096,
                                  8191, 8192, 8193, 65536, 65537, 1 << 20, 5 * 1000000};

// The number of sizes to use: jobs of many ranks leave out the large ones.
UNUSED static int check_size_count(void)
{
    return size > 16 ? 12 : COUNT_OF(check_sizes);
}

UNUSED static int check_size_max(void)
{
    return check_sizes[check_size_count() - 1];
}

#endif
