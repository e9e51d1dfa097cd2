// SPDX-License-Identifier: MIT OR Apache-2.0
// Nonblocking sends in four modes, nonblocking receives, and what completion means: section 3.7.
#include "check.h"

enum { TAG = 3, GO = 4, FIRST = 5, SECOND = 6 };

typedef int (*isend_function)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

// Messages of all sizes are active at once, to the right neighbour and from the left one.
static void all_in_flight(isend_function isend)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, n = check_size_count();
    MPI_Request requests[2 * COUNT_OF(check_sizes)];
    MPI_Status statuses[2 * COUNT_OF(check_sizes)];
    char *out[COUNT_OF(check_sizes)], *in[COUNT_OF(check_sizes)];
    for (int i = 0; i < n; i++) {
        in[i] = allocate((size_t)check_sizes[i]);
        GOOD(MPI_Irecv(in[i], check_sizes[i], MPI_BYTE, left, TAG + i, MPI_COMM_WORLD, &requests[i]));
    }
    // For the ready mode: all receives are posted now.
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        out[i] = allocate((size_t)check_sizes[i]);
        fill(out[i], (size_t)check_sizes[i], (unsigned)(rank + i));
        GOOD(isend(out[i], check_sizes[i], MPI_BYTE, right, TAG + i, MPI_COMM_WORLD, &requests[n + i]));
    }
    GOOD(MPI_Waitall(2 * n, requests, statuses));
    for (int i = 0; i < n; i++) {
        STATUS(&statuses[i], left, TAG + i, check_sizes[i]);
        PAYLOAD(in[i], (size_t)check_sizes[i], (unsigned)(left + i));
        CHECK(requests[i] == MPI_REQUEST_NULL, "request %d is still set", i);
        free(out[i]);
        free(in[i]);
    }
}

static void s3_7_2_isend_at_every_size(void)
{
    all_in_flight(MPI_Isend);
}

static void s3_7_2_issend_at_every_size(void)
{
    all_in_flight(MPI_Issend);
}

static void s3_7_2_irsend_at_every_size(void)
{
    all_in_flight(MPI_Irsend);
}

static void s3_7_2_ibsend_at_every_size(void)
{
    int bytes = COUNT_OF(check_sizes) * MPI_BSEND_OVERHEAD;
    for (int i = 0; i < check_size_count(); i++)
        bytes += check_sizes[i] + 64;
    void *buffer = allocate((size_t)bytes);
    MPI_Buffer_attach(buffer, bytes);
    all_in_flight(MPI_Ibsend);
    MPI_Buffer_detach(&buffer, &bytes);
    free(buffer);
}

// Receives that are posted after the messages have come.
static void s3_7_4_late_receives(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, n = check_size_count();
    MPI_Request requests[COUNT_OF(check_sizes)];
    char *out = allocate((size_t)check_size_max()), *in = allocate((size_t)check_size_max());
    fill(out, (size_t)check_size_max(), 77);
    for (int i = 0; i < n; i++)
        MPI_Isend(out, check_sizes[i], MPI_BYTE, right, TAG + i, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = n - 1; i >= 0; i--) {
        MPI_Status status;
        MPI_Recv(in, check_sizes[i], MPI_BYTE, left, TAG + i, MPI_COMM_WORLD, &status);
        STATUS(&status, left, TAG + i, check_sizes[i]);
        PAYLOAD(in, (size_t)check_sizes[i], 77);
    }
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
    free(out);
    free(in);
}

// A synchronous send is not complete before its receive has started (section 3.4). Rank 1 takes the
// second message first, and only then the synchronous one.
static void s3_4_issend_waits_for_its_receive(void)
{
    static const int sizes[] = {0, 8, 1000, 100000};
    if (size < 2 || rank > 1)
        return;
    char *buffer = calloc(100000, 1);
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        if (rank == 0) {
            MPI_Request request;
            int flag = 0;
            MPI_Issend(buffer, sizes[i], MPI_BYTE, 1, FIRST, MPI_COMM_WORLD, &request);
            for (int poll = 0; poll < 1000; poll++) {
                MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
                EQUAL(flag, 0);
            }
            MPI_Send(NULL, 0, MPI_BYTE, 1, SECOND, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(NULL, 0, MPI_BYTE, 0, SECOND, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(buffer, sizes[i], MPI_BYTE, 0, FIRST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    free(buffer);
}

// Completion is local: a receive completes by polling alone, with no other call in between.
static void s3_7_4_test_makes_progress(void)
{
    int peer = rank ^ 1;
    if (peer >= size)
        return;
    static char out[300000], in[300000];
    MPI_Request requests[2];
    int done = 0;
    fill(out, sizeof out, (unsigned)rank);
    MPI_Irecv(in, sizeof in, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, sizeof out, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 2; i++)
        do
            MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
        while (!done);
    PAYLOAD(in, sizeof in, (unsigned)peer);
}

// A large send completes while its sender waits in some other call (section 3.5, progress).
static void s3_5_progress_inside_another_call(void)
{
    if (size < 2 || rank > 1)
        return;
    static char big[2000000];
    if (rank == 0) {
        MPI_Request request;
        fill(big, sizeof big, 3);
        MPI_Isend(big, sizeof big, MPI_BYTE, 1, FIRST, MPI_COMM_WORLD, &request);
        MPI_Recv(NULL, 0, MPI_BYTE, 1, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(big, sizeof big, MPI_BYTE, 0, FIRST, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        PAYLOAD(big, sizeof big, 3);
        MPI_Send(NULL, 0, MPI_BYTE, 0, GO, MPI_COMM_WORLD);
    }
}

// Several sends may read one buffer at once (section 3.7.2).
static void s3_7_2_one_buffer_many_sends(void)
{
    enum { BYTES = 40000 };
    char *out = allocate(BYTES), *in = allocate((size_t)size * BYTES);
    MPI_Request *requests = allocate((size_t)(2 * size) * sizeof *requests);
    fill(out, BYTES, (unsigned)rank);
    for (int i = 0; i < size; i++) {
        MPI_Irecv(in + (size_t)i * BYTES, BYTES, MPI_BYTE, i, TAG, MPI_COMM_WORLD, &requests[i]);
        MPI_Isend(out, BYTES, MPI_BYTE, i, TAG, MPI_COMM_WORLD, &requests[size + i]);
    }
    MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < size; i++)
        PAYLOAD(in + (size_t)i * BYTES, BYTES, (unsigned)i);
    free(out);
    free(in);
    free(requests);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_7_2_isend_at_every_size);
    RUN(s3_7_2_issend_at_every_size);
    RUN(s3_7_2_irsend_at_every_size);
    RUN(s3_7_2_ibsend_at_every_size);
    RUN(s3_7_4_late_receives);
    RUN(s3_4_issend_waits_for_its_receive);
    RUN(s3_7_4_test_makes_progress);
    RUN(s3_5_progress_inside_another_call);
    RUN(s3_7_2_one_buffer_many_sends);
    return finish();
}
