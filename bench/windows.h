// SPDX-License-Identifier: MIT OR Apache-2.0
/* Windows of nonblocking messages, which bandwidth, bibw, rate and others measure. */
#ifndef BENCH_WINDOWS_H
#define BENCH_WINDOWS_H

#include "report.h"

struct windows {
    struct buffers out, in;
    MPI_Request *sends, *receives;
    MPI_Status *statuses; /* of the completed requests, or MPI_STATUSES_IGNORE */
    int size, rank, peer, window;
    int sender, receiver; /* whether this rank sends, and whether it receives */
    long turn;            /* windows so far */
    MPI_Comm comm;
};

/* Windows over existing buffers; close_windows frees these. */
static inline struct windows windows_over(struct buffers out, struct buffers in, int window, int rank, int peer) {
    struct windows w = {.out = out, .in = in, .size = (int)out.bytes, .rank = rank, .peer = peer, .window = window};
    w.comm = MPI_COMM_WORLD;
    w.statuses = MPI_STATUSES_IGNORE;
    w.sends = malloc((size_t)w.window * sizeof *w.sends);
    w.receives = malloc((size_t)w.window * sizeof *w.receives);
    if (w.sends == NULL || w.receives == NULL)
        die(FAILED, "no memory for the requests (try a smaller --window)");
    return w;
}

static inline struct windows open_windows(const struct options *options, size_t size, int rank, int peer) {
    struct buffers out = new_buffers(options, size, options->buffers), in = new_buffers(options, size, options->buffers);
    return windows_over(out, in, options->window, rank, peer);
}

static inline void close_windows(struct windows *w) {
    free_buffers(&w->out);
    free_buffers(&w->in);
    free(w->sends);
    free(w->receives);
}

static inline void one_window(struct windows *w) {
    long first = w->turn++ * w->window;
    if (w->receiver)
        for (int i = 0; i < w->window; i++)
            MPI_Irecv(buffer(&w->in, first + i), w->size, MPI_BYTE, w->peer, 1, w->comm, &w->receives[i]);
    if (w->sender) {
        for (int i = 0; i < w->window; i++)
            MPI_Isend(buffer(&w->out, first + i), w->size, MPI_BYTE, w->peer, 1, w->comm, &w->sends[i]);
        MPI_Waitall(w->window, w->sends, w->statuses);
    }
    if (w->receiver)
        MPI_Waitall(w->window, w->receives, w->statuses);
}

/* Runs `count` windows. With messages in one direction only, the sender continues when the receiver has acknowledged
 * the window. */
static inline void run_windows(void *state, long count) {
    struct windows *w = state;
    char ack = 0;
    for (long i = 0; i < count && (w->sender || w->receiver); i++) {
        one_window(w);
        if (w->receiver && !w->sender)
            MPI_Send(&ack, 1, MPI_CHAR, w->peer, 2, w->comm);
        else if (w->sender && !w->receiver)
            MPI_Recv(&ack, 1, MPI_CHAR, w->peer, 2, w->comm, MPI_STATUS_IGNORE);
    }
}

/* Sends every buffer at least once with its own pattern, and checks what is received. */
static inline void validate_windows(struct windows *w, size_t size) {
    int windows = (w->out.count + w->window - 1) / w->window;
    for (int i = 0; i < w->out.count && w->sender; i++)
        fill(buffer(&w->out, i), size, (unsigned)i);
    w->turn = 0;
    run_windows(w, windows);
    for (int i = 0; i < w->in.count && w->receiver; i++)
        check(buffer(&w->in, i), size, (unsigned)i);
}

#endif
