// SPDX-License-Identifier: MIT OR Apache-2.0
// Messages of all sizes round a ring, with their contents checked: where resources are limited, the program must run or
// report why it cannot. Rank 0 prints `well` at the end. `exchange [LARGEST]`: bytes, 4 MiB unless given.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char expected(int rank, int round, long at)
{
    return (unsigned char)(rank * 31 + round * 7 + at % 251);
}

static int exchange(int rank, int size, int round, int bytes)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    unsigned char *out = malloc((size_t)bytes + 1), *in = malloc((size_t)bytes + 1);
    if (!out || !in) {
        fprintf(stderr, "rank %d: no memory for %d bytes\n", rank, bytes);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    for (long i = 0; i < bytes; i++)
        out[i] = expected(rank, round, i);
    MPI_Sendrecv(out, bytes, MPI_BYTE, right, round, in, bytes, MPI_BYTE, left, round, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    int wrong = 0;
    for (long i = 0; i < bytes; i++)
        wrong += in[i] != expected(left, round, i);
    free(out);
    free(in);
    return wrong;
}

int main(int argc, char **argv)
{
    int rank, size, wrong = 0, all = 0;
    int largest = argc > 1 ? atoi(argv[1]) : 4 << 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0, bytes = 0; bytes <= largest; round++, bytes = bytes ? bytes * 4 : 1)
        wrong += exchange(rank, size, round, bytes);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        puts(all ? "wrong" : "well");
    MPI_Finalize();
    return all != 0;
}
