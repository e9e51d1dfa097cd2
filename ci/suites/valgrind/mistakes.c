// SPDX-License-Identifier: MIT OR Apache-2.0
// Errors that memcheck finds with valgrind's wrappers of MPI, and correct calls in which it must find none: each rank
// sends to the next one, correctly or with the mistake that the first argument names.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, left, right;

// Sends every other one of six numbers; the others were never written.
static void gaps(void)
{
    int *out = malloc(6 * sizeof *out), in[3] = {0};
    MPI_Datatype every_other;
    MPI_Request request;
    MPI_Type_vector(3, 1, 2, MPI_INT, &every_other);
    MPI_Type_commit(&every_other);
    for (int i = 0; i < 6; i += 2)
        out[i] = i;
    MPI_Irecv(in, 3, MPI_INT, left, 1, MPI_COMM_WORLD, &request);
    MPI_Send(out, 1, every_other, right, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (in[2] != 4)
        printf("received %d, expected 4\n", in[2]);
    MPI_Type_free(&every_other);
    free(out);
}

// Received data count as initialized: small and large messages, a collective, and receives into memory that was never
// written.
static void exchange(void)
{
    int numbers = 100000, sum = 0, *out = malloc(numbers * sizeof *out), *in = malloc(numbers * sizeof *in);
    MPI_Request requests[2];
    for (int i = 0; i < numbers; i++)
        out[i] = i;
    for (int count = 1; count <= numbers; count *= 10) {
        MPI_Isend(out, count, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(in, count, MPI_INT, left, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (in[count - 1] != count - 1)
            printf("received %d, expected %d\n", in[count - 1], count - 1);
    }
    MPI_Allreduce(&in[1], &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum != size)
        printf("the sum is %d, expected %d\n", sum, size);
    MPI_Bcast(in, numbers, MPI_INT, 0, MPI_COMM_WORLD);
    free(out);
    free(in);
}

// The last of eight numbers was never written.
static void undefined(void)
{
    int *out = malloc(8 * sizeof *out), in[8];
    MPI_Request request;
    for (int i = 0; i < 7; i++)
        out[i] = i;
    MPI_Irecv(in, 8, MPI_INT, left, 3, MPI_COMM_WORLD, &request);
    MPI_Send(out, 8, MPI_INT, right, 3, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(out);
}

// Eight numbers are received into room for seven.
static void beyond(void)
{
    int *in = malloc(7 * sizeof *in), out[4] = {1, 2, 3, 4};
    MPI_Request request;
    MPI_Isend(out, 4, MPI_INT, right, 4, MPI_COMM_WORLD, &request);
    MPI_Recv(in, 8, MPI_INT, left, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(in);
}

// Four numbers arrive, and the fifth is read.
static void shorter(void)
{
    int *in = malloc(8 * sizeof *in), out[4] = {1, 2, 3, 4};
    MPI_Request request;
    MPI_Isend(out, 4, MPI_INT, right, 5, MPI_COMM_WORLD, &request);
    MPI_Recv(in, 8, MPI_INT, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (in[3] == 4 && in[4] == 5)
        puts("five by chance");
    free(in);
}

int main(int argc, char **argv)
{
    const char *mistake = argc < 2 ? "none" : argv[1];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    gaps();
    exchange();
    if (strcmp(mistake, "undefined") == 0)
        undefined();
    if (strcmp(mistake, "beyond") == 0)
        beyond();
    if (strcmp(mistake, "shorter") == 0)
        shorter();
    MPI_Finalize();
    return 0;
}
