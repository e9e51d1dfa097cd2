// SPDX-License-Identifier: MIT OR Apache-2.0
// Requests that are freed while they are active: MPI 5.0 section 3.7.3.
#include "check.h"

enum { TAG = 3, MANY = 40 };

// "Any ongoing communication will be allowed to complete."
static void s3_7_3_freed_sends_arrive(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *out[MANY], *in = allocate(100000);
    for (int i = 0; i < MANY; i++) {
        MPI_Request request;
        int bytes = i % 4 == 3 ? 100000 : 10 + i;
        out[i] = allocate((size_t)bytes);
        fill(out[i], (size_t)bytes, (unsigned)(rank + i));
        MPI_Isend(out[i], bytes, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &request);
        GOOD(MPI_Request_free(&request));
        CHECK(request == MPI_REQUEST_NULL, "the freed request is still set");
    }
    for (int i = 0; i < MANY; i++) {
        MPI_Status status;
        int bytes = i % 4 == 3 ? 100000 : 10 + i;
        MPI_Recv(in, 100000, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &status);
        STATUS(&status, left, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)(left + i));
    }
    // After this all messages have been received, and the buffers may be used again.
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++)
        free(out[i]);
    free(in);
}

// A freed receive completes, too; a later message shows when.
static void s3_7_3_freed_receives_are_filled(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, told = -1;
    static int in[MANY];
    for (int i = 0; i < MANY; i++) {
        MPI_Request request;
        in[i] = -1;
        MPI_Irecv(&in[i], 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request);
        GOOD(MPI_Request_free(&request));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY; i++)
        MPI_Send(&i, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    MPI_Sendrecv(&rank, 1, MPI_INT, right, TAG, &told, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(told, left);
    for (int i = 0; i < MANY; i++)
        EQUAL(in[i], i);
}

// Resources are not exhausted if requests are freed often.
static void s3_7_3_freed_requests_come_back(void)
{
    int rounds = size > 16 ? 500 : 20000, in = -1;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < rounds; i++) {
        MPI_Request request;
        MPI_Isend(&rank, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        MPI_Recv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EQUAL(in, left);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_7_3_freed_sends_arrive);
    RUN(s3_7_3_freed_receives_are_filled);
    RUN(s3_7_3_freed_requests_come_back);
    return finish();
}
