// SPDX-License-Identifier: MIT OR Apache-2.0
// The program of `cargo xtask demo`: each rank prints a greeting, in the order of ranks, and a token that is passed
// round the ring adds up all rank numbers.
#include <mpi.h>
#include <stdio.h>

enum { TOKEN = 1, LINE = 2, LINE_BYTES = 128 };

// Rank 0 prints the lines of all ranks, so that their order does not depend on scheduling.
static void say_hello(int rank, int size)
{
    char host[MPI_MAX_PROCESSOR_NAME], line[LINE_BYTES];
    int length;
    MPI_Get_processor_name(host, &length);
    snprintf(line, sizeof line, "hello from rank %2d of %d on %.64s", rank, size, host);
    if (rank != 0) {
        MPI_Send(line, LINE_BYTES, MPI_CHAR, 0, LINE, MPI_COMM_WORLD);
        return;
    }
    puts(line);
    for (int from = 1; from < size; from++) {
        MPI_Recv(line, LINE_BYTES, MPI_CHAR, from, LINE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        puts(line);
    }
}

// Each rank adds its number to the token and passes it on; rank 0 receives the sum.
static long ring_sum(int rank, int size)
{
    long sum = 0;
    if (size == 1)
        return 0;
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    if (rank != 0)
        MPI_Recv(&sum, 1, MPI_LONG, left, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum += rank;
    MPI_Send(&sum, 1, MPI_LONG, right, TOKEN, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Recv(&sum, 1, MPI_LONG, left, TOKEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return sum;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    say_hello(rank, size);
    double start = MPI_Wtime();
    long sum = ring_sum(rank, size);
    double time = MPI_Wtime() - start;

    int good = 1;
    if (rank == 0) {
        long expected = (long)size * (size - 1) / 2;
        good = sum == expected;
        printf("the ring of %d rank%s added up %ld (%s) in %.0f microseconds\n", size,
               size == 1 ? "" : "s", sum, good ? "right" : "WRONG", 1e6 * time);
    }
    MPI_Finalize();
    return good ? 0 : 1;
}
