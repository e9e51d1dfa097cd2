/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* computes SECONDS: a rank that calls no MPI function for so long loses no message that it has sent or that was sent to it.
 *
 * Rank 0 has messages of all sizes under way in both directions when rank 1 begins to compute, and then the other way round. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MESSAGES = 24, LARGEST = 1 << 20 };

static int bytes_of(int message) { return (LARGEST >> (message % 12)) + message; }

static unsigned char byte_of(int message, int at) { return (unsigned char)(message * 31 + at * 7 + (at >> 8)); }

static void compute(double seconds) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
}

int main(int argc, char **argv) {
    int rank, size, wrong = 0;
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    static unsigned char out[MESSAGES][LARGEST + MESSAGES], in[MESSAGES][LARGEST + MESSAGES];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        fprintf(stderr, "computes: there are %d ranks, expected 2\n", size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int message = 0; message < MESSAGES; message++)
        for (int at = 0; at < bytes_of(message); at++)
            out[message][at] = byte_of(message, at);
    for (int who = 0; who < 2; who++) {
        MPI_Request requests[2 * MESSAGES];
        for (int message = 0; message < MESSAGES; message++) {
            for (int at = 0; at < bytes_of(message); at++)
                in[message][at] = 0;
            MPI_Irecv(in[message], bytes_of(message), MPI_BYTE, 1 - rank, message, MPI_COMM_WORLD, &requests[message]);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (int message = 0; message < MESSAGES; message++)
            MPI_Isend(out[message], bytes_of(message), MPI_BYTE, 1 - rank, message, MPI_COMM_WORLD,
                      &requests[MESSAGES + message]);
        if (rank == who)
            compute(seconds);
        MPI_Waitall(2 * MESSAGES, requests, MPI_STATUSES_IGNORE);
        for (int message = 0; message < MESSAGES; message++)
            for (int at = 0; at < bytes_of(message); at++)
                wrong += in[message][at] != byte_of(message, at);
    }
    if (wrong)
        printf("rank %d has %d wrong bytes\n", rank, wrong);
    else
        printf("ok\n");
    MPI_Finalize();
    return wrong != 0;
}
