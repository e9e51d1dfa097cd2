// SPDX-License-Identifier: MIT OR Apache-2.0
// Tens of thousands of active requests, matched in unfavourable orders: MPI 5.0 section 3.7.
#include "check.h"

enum { TAG = 3 };

static int many;
static int *values;
static MPI_Request *requests;

// Receives posted in one order, messages sent in the opposite one: matching by tag.
static void s3_7_opposite_orders(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < many; i++) {
        values[i] = -1;
        MPI_Irecv(&values[i], 1, MPI_INT, left, i, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = many - 1; i >= 0; i--) {
        int value = i ^ rank;
        MPI_Send(&value, 1, MPI_INT, right, i, MPI_COMM_WORLD);
    }
    MPI_Waitall(many, requests, MPI_STATUSES_IGNORE);
    int wrong = 0;
    for (int i = 0; i < many; i++)
        wrong += values[i] != (i ^ left);
    EQUAL(wrong, 0);
}

// Everything unexpected, received from the last tag to the first.
static void s3_7_all_unexpected_backwards(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, wrong = 0;
    for (int i = 0; i < many; i++) {
        values[i] = i + rank;
        MPI_Isend(&values[i], 1, MPI_INT, right, i, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = many - 1; i >= 0; i--) {
        int value = -1;
        MPI_Recv(&value, 1, MPI_INT, left, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong += value != i + left;
    }
    EQUAL(wrong, 0);
    MPI_Waitall(many, requests, MPI_STATUSES_IGNORE);
}

// Wait for any of many, one after the other.
static void s3_7_5_waitany_of_many(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, some = many / 16, wrong = 0;
    char *seen = calloc((size_t)some, 1);
    for (int i = 0; i < some; i++)
        MPI_Irecv(&values[i], 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < some; i++)
        MPI_Send(&i, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    for (int i = 0; i < some; i++) {
        int index = -1;
        MPI_Waitany(some, requests, &index, MPI_STATUS_IGNORE);
        CHECK(index >= 0 && index < some, "index %d", index);
        if (index >= 0 && index < some)
            wrong += seen[index]++ || values[index] != index;
    }
    EQUAL(wrong, 0);
    free(seen);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    many = size > 16 ? 500 : 20000;
    values = allocate((size_t)many * sizeof *values);
    requests = allocate((size_t)many * sizeof *requests);
    RUN(s3_7_opposite_orders);
    RUN(s3_7_all_unexpected_backwards);
    RUN(s3_7_5_waitany_of_many);
    free(values);
    free(requests);
    return finish();
}
