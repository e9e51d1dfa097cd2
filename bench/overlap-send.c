// SPDX-License-Identifier: MIT OR Apache-2.0
/* Measures how much computation overlaps with MPI_Isend: rank 0 sends to rank 1, which answers each message with an
 * empty one. */
#include "overlap.h"

static void start(struct overlap *o) {
    MPI_Isend(buffer(&o->out, o->turn), o->size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &o->request);
}

static void finish(struct overlap *o) {
    MPI_Wait(&o->request, MPI_STATUS_IGNORE);
    MPI_Recv(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void receiver(struct overlap *o) {
    MPI_Recv(buffer(&o->in, o->turn), o->size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    struct overlap o = {.start = start, .finish = finish, .partner = receiver, .size = (int)size};
    *per_iteration = 1;
    return measure_pair(options, &o, 1);
}

int main(int argc, char **argv) {
    static const struct program program = {
        "overlap-send",
        "computation that MPI_Isend hides at rank 0, rank 1 answers each message",
        overlap_flags,
        {{8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}, 7, 0, 20, 0.3, 1, 1, 0, 0, 0},
    };
    return overlap_main(argc, argv, &program, 2, one_size);
}
