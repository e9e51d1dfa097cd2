// SPDX-License-Identifier: MIT OR Apache-2.0
/* Measures how much computation overlaps with a nonblocking operation. Every batch times the operation alone, the
 * computation alone, and both together: start, compute, wait. The computation is made about as long as the operation.
 * The overlap is (alone + compute - together) / min(alone, compute), in per cent, limited to 0 to 100. It is calculated
 * from the three medians, which are printed too. */
#ifndef BENCH_OVERLAP_H
#define BENCH_OVERLAP_H

#include "report.h"

enum { POLLS = 10 };
static int poll_meanwhile;
static const struct flag overlap_flags[] = {
    {"--poll", &poll_meanwhile, "call MPI_Test ten times during the computation"},
    {NULL, NULL, NULL},
};
static const char *const overlap_extras[] = {"Alone (us)", "Compute (us)", "Together (us)"};

/* An operation: `start` posts it and sets `request`; `finish` waits for it and completes the iteration. A rank with a
 * `partner` calls only that, and does not compute. */
struct overlap {
    void (*start)(struct overlap *);
    void (*finish)(struct overlap *);
    void (*partner)(struct overlap *);
    struct buffers out, in;
    MPI_Request request;
    int size, rank;
    long steps; /* of computation per iteration */
    long turn;
};

/* Keeps the compiler from removing the computation. */
static volatile double result_of_computation;

static inline void compute(long steps) {
    double x = result_of_computation;
    for (long i = 0; i < steps; i++)
        x = x * 0.999999 + 0.5;
    result_of_computation = x;
}

static inline void compute_meanwhile(struct overlap *o) {
    int done = 0;
    if (!poll_meanwhile) {
        compute(o->steps);
        return;
    }
    for (int i = 0; i < POLLS; i++) {
        compute(o->steps / POLLS);
        if (!done)
            MPI_Test(&o->request, &done, MPI_STATUS_IGNORE);
    }
}

static inline void operate(struct overlap *o, long count, int computing) {
    for (long i = 0; i < count; i++, o->turn++) {
        if (o->partner) {
            o->partner(o);
            continue;
        }
        o->start(o);
        if (computing)
            compute_meanwhile(o);
        o->finish(o);
    }
}

static void alone(void *state, long count) {
    operate(state, count, 0);
}

static void together(void *state, long count) {
    operate(state, count, 1);
}

static void computation(void *state, long count) {
    struct overlap *o = state;
    for (long i = 0; i < count && !o->partner; i++)
        compute(o->steps);
}

/* Seconds of one step of computation: the shortest of ten trials, because disturbances only make trials longer. */
static inline double seconds_per_step(void) {
    const long steps = 200000;
    double shortest = 1;
    for (int i = 0; i < 10; i++) {
        double start = now();
        compute(steps);
        double seconds = (now() - start) / (double)steps;
        shortest = seconds < shortest ? seconds : shortest;
    }
    return shortest;
}

static inline double hidden(double by_itself, double computing, double both) {
    double shorter = by_itself < computing ? by_itself : computing;
    double share = shorter > 0 ? (by_itself + computing - both) / shorter : 0;
    return 100 * (share < 0 ? 0 : share > 1 ? 1 : share);
}

static inline double middle_us(double *samples, int count) {
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    return median(samples, count) * 1e6;
}

/* Calculates the reported values from the times of the batches, and sorts the times. */
static inline void conclude(struct timing *timing, double *times[3]) {
    int batches = timing->batches;
    double *shares = malloc((size_t)batches * sizeof *shares);
    if (shares == NULL)
        die(FAILED, "no memory for the samples");
    for (int i = 0; i < batches; i++)
        shares[i] = hidden(times[0][i], times[1][i], times[2][i]);
    qsort(shares, (size_t)batches, sizeof *shares, by_value);
    for (int i = 0; i < 3; i++)
        timing->extras[i] = middle_us(times[i], batches);
    timing->median = hidden(timing->extras[0], timing->extras[1], timing->extras[2]);
    timing->p99 = quantile(shares, batches, 0.01);
    timing->min = shares[batches - 1];
    timing->max = shares[0];
    free(shares);
}

/* Seconds of the operation alone, the same on all ranks: the shortest of five batches. */
static inline double seconds_alone(struct overlap *o, long count, enum clock_of whose) {
    double shortest = 1e9;
    for (int i = 0; i < 5; i++) {
        double seconds = agree(time_batch(alone, o, count, whose), whose, o->rank) / (double)count;
        shortest = seconds < shortest ? seconds : shortest;
    }
    return shortest;
}

static inline struct timing measure_overlap(const struct options *options, struct overlap *o, enum clock_of whose) {
    static run_fn *const phases[3] = {alone, computation, together};
    struct timing timing = {0};
    double batch_seconds, *times[3];
    long count = calibrate(options, &usual_pace, alone, o, whose, o->rank, &timing.warm_up, &batch_seconds);
    o->steps = (long)(seconds_alone(o, count, whose) / seconds_per_step()) + 1;
    plan_batches(options, 3 * batch_seconds, &count, &timing.batches);
    for (int i = 0; i < 3; i++)
        if ((times[i] = malloc((size_t)timing.batches * sizeof **times)) == NULL)
            die(FAILED, "no memory for the samples");
    double start = now();
    for (int batch = 0; batch < timing.batches; batch++) {
        for (int i = 0; i < 3; i++)
            times[i][batch] = time_batch(phases[i], o, count, whose) / (double)count;
        if (time_is_over(options, batch + 1, start, whose, o->rank))
            timing.batches = batch + 1;
    }
    for (int i = 0; i < 3; i++)
        take_all(times[i], timing.batches, whose, o->rank);
    if (o->rank == 0)
        conclude(&timing, times);
    timing.iterations = count * timing.batches;
    for (int i = 0; i < 3; i++)
        free(times[i]);
    return timing;
}

static inline void stand_by(struct overlap *o) {
    (void)o;
}

/* As measure_overlap, for an operation of rank 0 whose other side is the `partner` function of rank 1; `receiver` is
 * the rank that receives the data. */
static inline struct timing measure_pair(const struct options *options, struct overlap *o, int receiver) {
    size_t size = (size_t)o->size;
    MPI_Comm_rank(MPI_COMM_WORLD, &o->rank);
    o->partner = o->rank == 0 ? NULL : o->rank == 1 ? o->partner : stand_by;
    o->out = new_buffers(options, size, options->buffers);
    o->in = new_buffers(options, size, options->buffers);
    if (options->validate) {
        fill(buffer(&o->out, 0), size, 7);
        o->steps = 1000;
        together(o, 1);
        if (o->rank == receiver)
            check(buffer(&o->in, 0), size, 7);
    }
    struct timing timing = measure_overlap(options, o, CLOCK_OF_RANK_0);
    free_buffers(&o->out);
    free_buffers(&o->in);
    return timing;
}

static inline int overlap_main(int argc, char **argv, const struct program *program, int least_ranks,
                               one_size_fn *one_size) {
    return bench_main_with(overlap_extras, argc, argv, program, (struct column){"Overlap (%)", "%", PERCENT, 1},
                           least_ranks, one_size);
}

#endif
