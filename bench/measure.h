// SPDX-License-Identifier: MIT OR Apache-2.0
/* Clock, batches, order statistics and message buffers of the benchmark programs.
 *
 * One sample is one batch: enough iterations to last about BATCH_SECONDS, so that the clock is read rarely. The median
 * and the 99th percentile of the batches' times per iteration are reported, never a mean over the whole run. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "options.h"
#include <mpi.h>
#include <stdint.h>
#include <time.h>

#define BATCH_SECONDS 0.5e-3

/* The shortest duration of a batch, and the seconds above which an iteration is measured only once. */
struct pace {
    double batch_seconds, once_above;
};
static const struct pace usual_pace = {BATCH_SECONDS, 1e9};

enum { MIN_BATCHES = 5, MAX_BATCHES = 2000, BATCHES_OF_FIXED = 100, BUFFER_ALIGNMENT = 4096 };
/* If a machine gets busy, its batches may take far longer than planned. Therefore, after each BATCHES_PER_LOOK batches,
 * the measurement ends if PATIENCE times the measuring time is over. */
enum { BATCHES_PER_LOOK = 8, PATIENCE = 3 };

/* Whose clock counts: rank 0's, in programs in which rank 0 sends the first and receives the last message of an
 * iteration; or the slowest rank's, in programs in which all ranks take part; or the average of all ranks. */
enum clock_of { CLOCK_OF_RANK_0, CLOCK_OF_SLOWEST, CLOCK_OF_ALL };

/* Seconds of the current batch that do not belong to the measured operation; a program that does something else in a
 * batch adds to them. */
static double uncounted;

/* Runs `count` iterations of the measured operation, on every rank. */
typedef void run_fn(void *state, long count);

/* Seconds per iteration over the batches, and the values of a program's further columns. */
enum { MAX_EXTRAS = 3 };
struct timing {
    double median, p99, min, max;
    double extras[MAX_EXTRAS];
    long iterations, warm_up;
    int batches;
};

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void die(int code, const char *message) {
    fprintf(stderr, "%s\n", message);
    MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

/* All ranks get the time that rank 0 measured, or the slowest rank's, or the average. With two ranks a single message
 * is enough. */
static inline double agree(double seconds, enum clock_of whose, int rank) {
    double all = seconds;
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (whose != CLOCK_OF_RANK_0) {
        MPI_Allreduce(&seconds, &all, 1, MPI_DOUBLE, whose == CLOCK_OF_ALL ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD);
        return whose == CLOCK_OF_ALL ? all / size : all;
    }
    if (rank == 0)
        for (int peer = 1; peer < size; peer++)
            MPI_Send(&all, 1, MPI_DOUBLE, peer, 99, MPI_COMM_WORLD);
    else
        MPI_Recv(&all, 1, MPI_DOUBLE, 0, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return all;
}

static inline double time_batch(run_fn *run, void *state, long count, enum clock_of whose) {
    if (whose != CLOCK_OF_RANK_0)
        MPI_Barrier(MPI_COMM_WORLD);
    uncounted = 0;
    double start = now();
    run(state, count);
    return now() - start - uncounted;
}

/* Runs batches of growing size until one is long enough and the warm-up is done; returns iterations per batch. */
static inline long calibrate(const struct options *options, const struct pace *pace, run_fn *run, void *state,
                             enum clock_of whose, int rank, long *warmed, double *batch_seconds) {
    long count = 1;
    for (;;) {
                /* The uncounted seconds are part of the batch's duration. */
        double counted = time_batch(run, state, count, whose);
        *batch_seconds = agree(counted + uncounted, whose, rank);
        *warmed += count;
        int warm = *warmed >= options->warm_up || *batch_seconds * (double)(*warmed / count) > options->seconds;
        int slow = *batch_seconds > pace->once_above * (double)count;
        if (slow || (*batch_seconds >= pace->batch_seconds && warm))
            return count;
        if (*batch_seconds < pace->batch_seconds)
            count *= 2;
    }
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest sample that at least `share` of the sorted samples do not exceed. */
static inline double quantile(const double *sorted, int count, double share) {
    int index = (int)(share * (double)count + 0.999999) - 1;
    return sorted[index < 0 ? 0 : index >= count ? count - 1 : index];
}

static inline double median(const double *sorted, int count) {
    return count % 2 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
}

static inline void plan_batches(const struct options *options, double batch_seconds, long *count, int *batches) {
    if (options->iterations > 0) {
        *count = options->iterations / BATCHES_OF_FIXED;
        if (*count < 1)
            *count = 1;
        *batches = (int)(options->iterations / *count);
        return;
    }
    double fit = options->seconds / batch_seconds;
    *batches = fit < MIN_BATCHES ? MIN_BATCHES : fit > MAX_BATCHES ? MAX_BATCHES : (int)fit;
}

/* Sorts the samples and summarises them. */
static inline void summarise(struct timing *timing, double *samples) {
    qsort(samples, (size_t)timing->batches, sizeof *samples, by_value);
    timing->median = median(samples, timing->batches);
    timing->p99 = quantile(samples, timing->batches, 0.99);
    timing->min = samples[0];
    timing->max = samples[timing->batches - 1];
}

/* Rank 0 gets the slowest rank's time of each batch, or the average of all ranks, if these count. */
static inline void take_all(double *samples, int batches, enum clock_of whose, int rank) {
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (whose != CLOCK_OF_RANK_0)
        MPI_Reduce(rank == 0 ? MPI_IN_PLACE : samples, samples, batches, MPI_DOUBLE,
                   whose == CLOCK_OF_ALL ? MPI_SUM : MPI_MAX, 0, MPI_COMM_WORLD);
    for (int i = 0; i < batches && whose == CLOCK_OF_ALL; i++)
        samples[i] /= size;
}

/* Whether the measurement ends after `done` batches because of the time. The decision uses the clock of `whose`, so all
 * ranks make the same one. */
static inline int time_is_over(const struct options *options, int done, double start, enum clock_of whose, int rank) {
    if (options->iterations > 0 || done % BATCHES_PER_LOOK != 0)
        return 0;
    return agree(now() - start, whose, rank) > PATIENCE * options->seconds;
}

/* Measures `run` in batches; the result is complete only on rank 0. */
static inline struct timing measure_at(const struct options *options, const struct pace *pace, run_fn *run,
                                       void *state, enum clock_of whose) {
    struct timing timing = {0};
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double batch_seconds;
    long count = calibrate(options, pace, run, state, whose, rank, &timing.warm_up, &batch_seconds);
    plan_batches(options, batch_seconds, &count, &timing.batches);
    if (batch_seconds > pace->once_above * (double)count)
        timing.batches = 1;
    double *samples = malloc((size_t)timing.batches * sizeof *samples);
    if (samples == NULL)
        die(FAILED, "no memory for the samples");
    double start = now();
    for (int i = 0; i < timing.batches; i++) {
        samples[i] = time_batch(run, state, count, whose) / (double)count;
        if (time_is_over(options, i + 1, start, whose, rank))
            timing.batches = i + 1;
    }
    take_all(samples, timing.batches, whose, rank);
    summarise(&timing, samples);
    timing.iterations = count * timing.batches;
    free(samples);
    return timing;
}

/* As measure_at, with the usual pace. */
static inline struct timing measure(const struct options *options, run_fn *run, void *state, enum clock_of whose) {
    return measure_at(options, &usual_pace, run, state, whose);
}

/* `count` buffers of `bytes` bytes each. Those of new_buffers each start on their own cache line, large ones on their
 * own page. */
struct buffers {
    unsigned char *base;
    size_t bytes, stride;
    int count, mpi_memory;
    size_t shift; /* bytes of the allocation before `base` */
};

static inline struct buffers new_buffers(const struct options *options, size_t bytes, int count) {
    struct buffers buffers = {NULL, bytes, 0, count, options->mpi_memory, 0};
    size_t unit = bytes >= BUFFER_ALIGNMENT ? BUFFER_ALIGNMENT : 64;
    buffers.stride = (bytes + unit - 1) / unit * unit + (bytes == 0 ? unit : 0);
    size_t total = (buffers.stride * (size_t)count + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    if (options->mpi_memory)
        MPI_Alloc_mem((MPI_Aint)total, MPI_INFO_NULL, &buffers.base);
    else
        buffers.base = aligned_alloc(BUFFER_ALIGNMENT, total);
    if (buffers.base == NULL)
        die(FAILED, "no memory for the buffers (try fewer with --buffers)");
    memset(buffers.base, 1, total); /* written here, so that no page fault is timed */
    return buffers;
}

/* Contiguous buffers in memory from `malloc`, which begin `shift` bytes behind its start. */
static inline struct buffers plain_buffers(size_t bytes, int count, size_t shift) {
    struct buffers buffers = {NULL, bytes, bytes, count, 0, shift};
    size_t total = bytes * (size_t)count + shift;
    unsigned char *memory = malloc(total ? total : 1);
    if (memory == NULL)
        die(FAILED, "no memory for the buffers");
    memset(memory, 1, total);
    buffers.base = memory + shift;
    return buffers;
}

static inline void free_buffers(struct buffers *buffers) {
    if (buffers->mpi_memory)
        MPI_Free_mem(buffers->base);
    else
        free(buffers->base - buffers->shift);
    buffers->base = NULL;
}

static inline unsigned char *buffer(const struct buffers *buffers, long index) {
    return buffers->base + buffers->stride * (size_t)(index % buffers->count);
}

static inline unsigned char pattern(size_t byte, unsigned seed) {
    return (unsigned char)((byte * 131u) ^ (byte >> 8) ^ (seed * 57u + 3u));
}

static inline void fill(unsigned char *bytes, size_t count, unsigned seed) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = pattern(i, seed);
}

static inline void check(const unsigned char *bytes, size_t count, unsigned seed) {
    char message[160];
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == pattern(i, seed))
            continue;
        snprintf(message, sizeof message, "payload is wrong: byte %zu of %zu is %u, expected %u", i, count, bytes[i],
                 pattern(i, seed));
        die(BAD_PAYLOAD, message);
    }
}

#endif
