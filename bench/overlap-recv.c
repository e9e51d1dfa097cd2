// SPDX-License-Identifier: MIT OR Apache-2.0
/* Measures how much computation overlaps with MPI_Irecv: rank 0 posts it and sends an empty message to rank 1, which
 * then sends the data. */
#include "overlap.h"

static void start(struct overlap *o) {
    MPI_Irecv(buffer(&o->in, o->turn), o->size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &o->request);
    MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
}

static void finish(struct overlap *o) {
    MPI_Wait(&o->request, MPI_STATUS_IGNORE);
}

static void sender(struct overlap *o) {
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(buffer(&o->out, o->turn), o->size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    struct overlap o = {.start = start, .finish = finish, .partner = sender, .size = (int)size};
    *per_iteration = 1;
    return measure_pair(options, &o, 0);
}

int main(int argc, char **argv) {
    static const struct program program = {
        "overlap-recv",
        "computation that MPI_Irecv hides at rank 0, rank 1 sends when asked",
        overlap_flags,
        {{8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}, 7, 0, 20, 0.3, 1, 1, 0, 0, 0},
    };
    return overlap_main(argc, argv, &program, 2, one_size);
}
