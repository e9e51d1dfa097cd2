/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* bulk MIB: rank 0 sends MIB mebibytes to rank 1 and receives as much, in messages of 16 B to 1 MiB of which several are active; each
 * byte is compared. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { UNDER_WAY = 8, LARGEST = 1 << 20 };

/* Every other message is a large one. */
static int bytes_of(long message) { return message % 2 ? LARGEST : 16 << message % 13; }

/* Different for each message and for each position in it. */
static uint64_t word_of(int from, long message, int at) {
    uint64_t word = ((uint64_t)message << 24 | (uint64_t)at << 1 | from) * 0x9e3779b97f4a7c15u;
    return word ^ word >> 29;
}

int main(int argc, char **argv) {
    int rank, size;
    long wrong = 0, messages = 0;
    double left = (argc > 1 ? atof(argv[1]) : 1) * LARGEST;
    static uint64_t out[UNDER_WAY][LARGEST / 8], in[UNDER_WAY][LARGEST / 8];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        fprintf(stderr, "bulk: there are %d ranks, expected 2\n", size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (; left > 0; messages++)
        left -= bytes_of(messages);
    double begin = MPI_Wtime();
    MPI_Request requests[UNDER_WAY][2];
    for (long next = 0; next < messages + UNDER_WAY; next++) {
        int slot = next % UNDER_WAY;
        long done = next - UNDER_WAY;
        if (done >= 0) {
            MPI_Waitall(2, requests[slot], MPI_STATUSES_IGNORE);
            for (int at = 0; at < bytes_of(done) / 8; at++)
                wrong += in[slot][at] != word_of(1 - rank, done, at);
        }
        if (next < messages) {
            int bytes = bytes_of(next);
            for (int at = 0; at < bytes / 8; at++)
                out[slot][at] = word_of(rank, next, at), in[slot][at] = 0;
            MPI_Irecv(in[slot], bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[slot][0]);
            MPI_Isend(out[slot], bytes, MPI_BYTE, 1 - rank, 1, MPI_COMM_WORLD, &requests[slot][1]);
        }
    }
    double seconds = MPI_Wtime() - begin;
    if (wrong)
        printf("rank %d has %ld wrong words\n", rank, wrong);
    else
        printf("ok, %.1f MB/s each way\n", (argc > 1 ? atof(argv[1]) : 1) * LARGEST / seconds / 1e6);
    MPI_Finalize();
    return wrong != 0;
}
