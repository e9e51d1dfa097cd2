// SPDX-License-Identifier: MIT OR Apache-2.0
// Looking at a request without freeing it: MPI 5.0 section 3.7.6.
#include "check.h"

enum { TAG = 3, MANY = 4 };

static void s3_7_6_get_status_leaves_the_request(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, out = rank, in = -1, flag = 9;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request);
    GOOD(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
    EQUAL(flag, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    do
        MPI_Request_get_status(request, &flag, &status);
    while (!flag);
    STATUS(&status, left, TAG, 4);
    // Again: it is still there.
    GOOD(MPI_Request_get_status(request, &flag, &status));
    EQUAL(flag, 1);
    STATUS(&status, left, TAG, 4);
    GOOD(MPI_Wait(&request, &status));
    STATUS(&status, left, TAG, 4);
    EQUAL(in, left);
}

static void s3_7_6_get_status_of_null(void)
{
    int flag = 0;
    MPI_Status status;
    GOOD(MPI_Request_get_status(MPI_REQUEST_NULL, &flag, &status));
    EQUAL(flag, 1);
    EMPTY_STATUS(&status);
}

static int in[MANY];
static MPI_Request requests[MANY];

static void post(void)
{
    for (int i = 0; i < MANY; i++)
        MPI_Irecv(&in[i], 1, MPI_INT, rank, TAG + i, MPI_COMM_WORLD, &requests[i]);
}

static void feed(int i)
{
    MPI_Send(&i, 1, MPI_INT, rank, TAG + i, MPI_COMM_WORLD);
}

static void s3_7_6_get_status_any(void)
{
    int index, flag = 9;
    MPI_Status status;
    post();
    GOOD(MPI_Request_get_status_any(MANY, requests, &index, &flag, &status));
    EQUAL(flag, 0);
    EQUAL(index, MPI_UNDEFINED);
    feed(2);
    do
        MPI_Request_get_status_any(MANY, requests, &index, &flag, &status);
    while (!flag);
    EQUAL(index, 2);
    STATUS(&status, rank, TAG + 2, 4);
    for (int i = 0; i < MANY; i++)
        CHECK(requests[i] != MPI_REQUEST_NULL, "request %d was freed", i);
    feed(0);
    feed(1);
    feed(3);
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
}

static void s3_7_6_get_status_all(void)
{
    int flag = 9;
    MPI_Status statuses[MANY];
    post();
    for (int i = 0; i < MANY; i++) {
        GOOD(MPI_Request_get_status_all(MANY, requests, &flag, statuses));
        EQUAL(flag, 0);
        feed(i);
    }
    do
        MPI_Request_get_status_all(MANY, requests, &flag, statuses);
    while (!flag);
    for (int i = 0; i < MANY; i++) {
        STATUS(&statuses[i], rank, TAG + i, 4);
        CHECK(requests[i] != MPI_REQUEST_NULL, "request %d was freed", i);
    }
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
}

static void s3_7_6_get_status_some(void)
{
    int count = 9, indices[MANY];
    MPI_Status statuses[MANY];
    post();
    GOOD(MPI_Request_get_status_some(MANY, requests, &count, indices, statuses));
    EQUAL(count, 0);
    feed(1);
    feed(3);
    do
        MPI_Request_get_status_some(MANY, requests, &count, indices, statuses);
    while (count < 2);
    EQUAL(count, 2);
    EQUAL(indices[0] + indices[1], 4);
    STATUS(&statuses[0], rank, TAG + indices[0], 4);
    feed(0);
    feed(2);
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    GOOD(MPI_Request_get_status_some(MANY, requests, &count, indices, statuses));
    EQUAL(count, MPI_UNDEFINED);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_7_6_get_status_leaves_the_request);
    RUN(s3_7_6_get_status_of_null);
    RUN(s3_7_6_get_status_any);
    RUN(s3_7_6_get_status_all);
    RUN(s3_7_6_get_status_some);
    return finish();
}
