// SPDX-License-Identifier: MIT OR Apache-2.0
// A busy program of which one rank is ended: `victim WAY RANK MICROSECONDS CODE`.
//
// All ranks pass messages round a ring, so that the rank ends during sends, receives and waits. With WAY `wait` no rank
// ends itself: the rank is killed from outside.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void die(const char *way, int code)
{
    if (!strcmp(way, "segv"))
        *(volatile int *)0 = 1;
    if (!strcmp(way, "exit"))
        exit(code);
    if (!strcmp(way, "abort"))
        MPI_Abort(MPI_COMM_WORLD, code);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: victim wait|segv|exit|abort RANK MICROSECONDS CODE\n");
        return 2;
    }
    const char *way = argv[1];
    int victim = atoi(argv[2]);
    double after_us = atof(argv[3]);
    int code = atoi(argv[4]);

    double start = now_us();
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    static char out[70000], in[70000];
    for (long round = 0;; round++) {
        if (rank == victim && now_us() - start >= after_us)
            die(way, code);
        // Small and large messages in turn, so that a rank may end in the middle of each protocol.
        int bytes = round % 8 == 7 ? (int)sizeof out : 64;
        MPI_Sendrecv(out, bytes, MPI_BYTE, right, 1, in, bytes, MPI_BYTE, left, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
}
