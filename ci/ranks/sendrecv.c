// SPDX-License-Identifier: MIT OR Apache-2.0
// Send-receive and its nonblocking forms: MPI 5.0 sections 3.9 and 3.10.
#include "check.h"

enum { TAG = 3, BACK = 4 };

static void s3_9_ring_shift_at_every_size(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *out = allocate((size_t)check_size_max()), *in = allocate((size_t)check_size_max());
    for (int i = 0; i < check_size_count(); i++) {
        int bytes = check_sizes[i];
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)(rank + i));
        MPI_Sendrecv(out, bytes, MPI_BYTE, right, TAG, in, bytes, MPI_BYTE, left, TAG,
                     MPI_COMM_WORLD, &status);
        STATUS(&status, left, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)(left + i));
    }
    free(out);
    free(in);
}

// Different sizes, types and tags in the two directions.
static void s3_9_both_halves_are_independent(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    double out[4] = {rank, 1, 2, 3}, in[8];
    MPI_Status status;
    int count;
    MPI_Sendrecv(out, 4, MPI_DOUBLE, right, TAG, in, 8, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    EQUAL(count, 4);
    EQUAL(status.MPI_SOURCE, left);
    EQUAL(in[0], left);
    // The messages of a Sendrecv may be received by Recv and sent by Send (section 3.9).
    if (size >= 2 && rank < 2) {
        int mine = 10 + rank, theirs = -1;
        if (rank == 0) {
            MPI_Sendrecv(&mine, 1, MPI_INT, 1, TAG, &theirs, 1, MPI_INT, 1, BACK, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&theirs, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&mine, 1, MPI_INT, 0, BACK, MPI_COMM_WORLD);
        }
        EQUAL(theirs, 11 - rank);
    }
}

static void s3_9_with_oneself(void)
{
    char *out = allocate((size_t)check_size_max()), *in = allocate((size_t)check_size_max());
    for (int i = 0; i < check_size_count(); i++) {
        int bytes = check_sizes[i];
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)i);
        MPI_Sendrecv(out, bytes, MPI_BYTE, rank, TAG, in, bytes, MPI_BYTE, rank, TAG, MPI_COMM_WORLD,
                     &status);
        STATUS(&status, rank, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)i);
        MPI_Sendrecv_replace(in, bytes, MPI_BYTE, 0, TAG, 0, TAG, MPI_COMM_SELF, &status);
        PAYLOAD(in, (size_t)bytes, (unsigned)i);
    }
    free(out);
    free(in);
}

static void s3_9_replace_at_every_size(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *buffer = allocate((size_t)check_size_max());
    for (int i = 0; i < check_size_count(); i++) {
        int bytes = check_sizes[i];
        MPI_Status status;
        fill(buffer, (size_t)bytes, (unsigned)(rank + i));
        MPI_Sendrecv_replace(buffer, bytes, MPI_BYTE, right, TAG, left, TAG, MPI_COMM_WORLD, &status);
        STATUS(&status, left, TAG, bytes);
        PAYLOAD(buffer, (size_t)bytes, (unsigned)(left + i));
    }
    free(buffer);
}

// Section 3.10: one half with MPI_PROC_NULL, as at the ends of a line of ranks.
static void s3_10_ends_of_a_line(void)
{
    int right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL, left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int mine = rank, theirs = -7;
    MPI_Status status;
    MPI_Sendrecv(&mine, 1, MPI_INT, right, TAG, &theirs, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &status);
    if (left == MPI_PROC_NULL) {
        EQUAL(theirs, -7);
        STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    } else {
        EQUAL(theirs, left);
        STATUS(&status, left, TAG, 4);
    }
    MPI_Sendrecv_replace(&mine, 1, MPI_INT, left, TAG, right, TAG, MPI_COMM_WORLD, &status);
    EQUAL(mine, right == MPI_PROC_NULL ? rank : right);
}

static void s3_9_nonblocking_forms(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *out = allocate((size_t)check_size_max()), *in = allocate((size_t)check_size_max());
    for (int i = 0; i < check_size_count(); i++) {
        int bytes = check_sizes[i];
        MPI_Request requests[2];
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)(rank + i));
        MPI_Isendrecv(out, bytes, MPI_BYTE, right, TAG, in, bytes, MPI_BYTE, left, TAG,
                      MPI_COMM_WORLD, &requests[0]);
        MPI_Wait(&requests[0], &status);
        STATUS(&status, left, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)(left + i));
        MPI_Isendrecv_replace(in, bytes, MPI_BYTE, left, BACK, right, BACK, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        PAYLOAD(in, (size_t)bytes, (unsigned)(rank + i));
    }
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_9_ring_shift_at_every_size);
    RUN(s3_9_both_halves_are_independent);
    RUN(s3_9_with_oneself);
    RUN(s3_9_replace_at_every_size);
    RUN(s3_10_ends_of_a_line);
    RUN(s3_9_nonblocking_forms);
    return finish();
}
