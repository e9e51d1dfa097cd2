// SPDX-License-Identifier: MIT OR Apache-2.0
// Prints with which library it runs, and checks that messages and reductions work. It is built with one MPI's compiler
// wrapper and run with another's library, which has the standard ABI too. It uses what the ABI defines: the layout of a
// status, values of constants, handles, MPI_IN_PLACE. No call fails on purpose: Intel's ABI library (2021.18) aborts in
// spite of MPI_ERRORS_RETURN.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { TAG = 3, BYTES = 200000, ROWS = 50, COLUMNS = 7, COLUMN = 2 };

static int rank, size, right, left, any;
static char out[BYTES], in[BYTES];

// A large message around the ring, and its status.
static int ring(void)
{
    int count = -1;
    MPI_Status status;
    memset(out, rank + 1, BYTES);
    MPI_Sendrecv(out, BYTES, MPI_CHAR, right, TAG, in, BYTES, MPI_CHAR, left, TAG, MPI_COMM_WORLD,
                 &status);
    MPI_Get_count(&status, MPI_CHAR, &count);
    return status.MPI_SOURCE == left && status.MPI_TAG == TAG && count == BYTES &&
           in[0] == (char)(left + 1) && in[BYTES - 1] == (char)(left + 1);
}

// To both neighbours at once, one from any source; arrays of requests and statuses.
static int neighbours(void)
{
    int from_left = -1, from_right = -1, good = 1;
    MPI_Request requests[4];
    MPI_Status statuses[4];
    MPI_Irecv(&from_left, 1, MPI_INT, any, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&from_right, 1, MPI_INT, right, TAG + 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&rank, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&rank, 1, MPI_INT, left, TAG + 1, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, statuses);
    for (int i = 0; i < 4; i++)
        good &= requests[i] == MPI_REQUEST_NULL;
    good &= from_left == left && statuses[0].MPI_SOURCE == left && statuses[0].MPI_TAG == TAG;
    return good && from_right == right && statuses[1].MPI_SOURCE == right;
}

// A column of a matrix, received as plain numbers; rank 0 and the last rank have MPI_PROC_NULL as a neighbour.
static int column(void)
{
    static double matrix[ROWS][COLUMNS], got[ROWS];
    MPI_Datatype vector;
    MPI_Status status;
    int count = -1, good = 1;
    for (int i = 0; i < ROWS; i++)
        matrix[i][COLUMN] = 1000 * rank + i;
    MPI_Type_vector(ROWS, 1, COLUMNS, MPI_DOUBLE, &vector);
    MPI_Type_commit(&vector);
    int source = rank == 0 ? MPI_PROC_NULL : left;
    int target = rank == size - 1 ? MPI_PROC_NULL : right;
    MPI_Sendrecv(&matrix[0][COLUMN], 1, vector, target, TAG, got, ROWS, MPI_DOUBLE, source, TAG,
                 MPI_COMM_WORLD, &status);
    MPI_Type_free(&vector);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    good &= status.MPI_SOURCE == source && count == (rank == 0 ? 0 : ROWS);
    for (int i = 0; i < count; i++)
        good &= got[i] == 1000 * left + i;
    return good && vector == MPI_DATATYPE_NULL;
}

// The even and the odd ranks by themselves, in reverse order.
static int halves(void)
{
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    int half_rank = -1, half_size = -1, last = rank, sum = rank, expected = 0;
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_size);
    MPI_Bcast(&last, 1, MPI_INT, 0, half);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, half);
    MPI_Comm_free(&half);
    for (int other = rank % 2; other < size; other += 2)
        expected += other;
    return half == MPI_COMM_NULL && last == rank % 2 + 2 * (half_size - 1) &&
           half_rank == (last - rank) / 2 && sum == expected;
}

// Messages of a duplicate are separate: the same tag in both communicators does not mix.
static int duplicate(void)
{
    MPI_Comm copy;
    int mine[2] = {rank, rank + size}, got[2] = {-1, -1};
    MPI_Request requests[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Irecv(&got[1], 1, MPI_INT, left, TAG, copy, &requests[1]);
    MPI_Irecv(&got[0], 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Send(&mine[0], 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    MPI_Send(&mine[1], 1, MPI_INT, right, TAG, copy);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    int relation = -1;
    MPI_Comm_compare(MPI_COMM_WORLD, copy, &relation);
    MPI_Comm_free(&copy);
    return got[0] == left && got[1] == left + size && relation == MPI_CONGRUENT;
}

// With the argument `named`, nothing is received from MPI_ANY_SOURCE.
int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } parts[] = {{"ring", ring},
                 {"neighbours", neighbours},
                 {"column", column},
                 {"halves", halves},
                 {"duplicate", duplicate}};
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, good = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    any = argc > 1 && strcmp(argv[1], "named") == 0 ? left : MPI_ANY_SOURCE;
    MPI_Get_library_version(version, &length);
    if (rank == 0)
        printf("library: %s\n", version);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].run())
            continue;
        printf("rank %d: %s went wrong\n", rank, parts[i].name);
        good = 0;
    }

    // The results of all ranks are combined, so that one line reports them.
    int all = 0;
    MPI_Reduce(&good, &all, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s on %d ranks\n", all ? "good" : "WRONG", size);
    MPI_Finalize();
    return good ? 0 : 1;
}
