// SPDX-License-Identifier: MIT OR Apache-2.0
// Empty messages, MPI_PROC_NULL and messages to oneself: MPI 5.0 sections 3.2.2, 3.10 and 3.5.
#include "check.h"

enum { TAG = 3 };

static void s3_2_2_empty_messages_with_null_buffers(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Request requests[2];
    MPI_Status status, statuses[2];
    MPI_Sendrecv(NULL, 0, MPI_INT, right, TAG, NULL, 0, MPI_DOUBLE, left, TAG, MPI_COMM_WORLD, &status);
    STATUS(&status, left, TAG, 0);
    MPI_Irecv(NULL, 0, MPI_INT, left, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Issend(NULL, 0, MPI_INT, right, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    STATUS(&statuses[0], left, TAG, 0);
    // An empty message into a large buffer leaves it alone.
    char in[100];
    memset(in, 7, sizeof in);
    MPI_Sendrecv(NULL, 0, MPI_INT, right, TAG, in, 100, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &status);
    STATUS(&status, left, TAG, 0);
    for (int i = 0; i < 100; i++)
        EQUAL(in[i], 7);
}

static void s3_10_blocking_calls_with_proc_null(void)
{
    int value = 5;
    MPI_Status status;
    GOOD(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD));
    GOOD(MPI_Ssend(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD));
    GOOD(MPI_Rsend(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD));
    GOOD(MPI_Bsend(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD));
    GOOD(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &status));
    STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    EQUAL(value, 5);
    GOOD(MPI_Sendrecv(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, &value, 1, MPI_INT, MPI_PROC_NULL, TAG,
                      MPI_COMM_WORLD, &status));
    STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
}

static void s3_10_nonblocking_calls_with_proc_null(void)
{
    int value = 5;
    MPI_Request requests[5];
    MPI_Status statuses[5];
    GOOD(MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &requests[0]));
    GOOD(MPI_Isend(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &requests[1]));
    GOOD(MPI_Issend(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &requests[2]));
    GOOD(MPI_Irsend(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &requests[3]));
    GOOD(MPI_Ibsend(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &requests[4]));
    GOOD(MPI_Waitall(5, requests, statuses));
    STATUS(&statuses[0], MPI_PROC_NULL, MPI_ANY_TAG, 0);
    EQUAL(value, 5);
}

// Messages to the rank itself, in both communicators, with receives posted before and after.
static void s3_5_messages_to_oneself(void)
{
    MPI_Comm comms[2] = {MPI_COMM_WORLD, MPI_COMM_SELF};
    char *out = allocate((size_t)check_size_max()), *in = allocate((size_t)check_size_max());
    for (int i = 0; i < 2 * check_size_count(); i++) {
        int bytes = check_sizes[i / 2], me = i % 2 ? 0 : rank;
        MPI_Comm comm = comms[i % 2];
        MPI_Request request;
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)i);
        MPI_Irecv(in, bytes, MPI_BYTE, me, TAG, comm, &request);
        MPI_Ssend(out, bytes, MPI_BYTE, me, TAG, comm);
        MPI_Wait(&request, &status);
        STATUS(&status, me, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)i);
        memset(in, 0, (size_t)bytes);
        MPI_Isend(out, bytes, MPI_BYTE, me, TAG, comm, &request);
        MPI_Recv(in, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        STATUS(&status, me, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)i);
    }
    free(out);
    free(in);
}

static void s3_5_many_small_ones_to_oneself_keep_order(void)
{
    enum { MANY = 2000 };
    static MPI_Request requests[MANY];
    static int out[MANY];
    for (int i = 0; i < MANY; i++) {
        out[i] = i;
        MPI_Isend(&out[i], 1, MPI_INT, 0, TAG, MPI_COMM_SELF, &requests[i]);
    }
    for (int i = 0; i < MANY; i++) {
        int in = -1;
        MPI_Recv(&in, 1, MPI_INT, 0, TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        EQUAL(in, i);
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_2_2_empty_messages_with_null_buffers);
    RUN(s3_10_blocking_calls_with_proc_null);
    RUN(s3_10_nonblocking_calls_with_proc_null);
    RUN(s3_5_messages_to_oneself);
    RUN(s3_5_many_small_ones_to_oneself_keep_order);
    return finish();
}
