// SPDX-License-Identifier: MIT OR Apache-2.0
// Persistent communication requests: MPI 5.0 section 3.9.
#include "check.h"

enum { TAG = 3, ROUNDS = 30 };

typedef int (*init_function)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void rounds(init_function init, int bytes, int ready)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *out = allocate((size_t)bytes), *in = allocate((size_t)bytes);
    MPI_Request send, receive;
    GOOD(init(out, bytes, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &send));
    GOOD(MPI_Recv_init(in, bytes, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &receive));
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)(rank + round));
        GOOD(MPI_Start(&receive));
        if (ready)
            MPI_Barrier(MPI_COMM_WORLD);
        GOOD(MPI_Start(&send));
        GOOD(MPI_Wait(&send, MPI_STATUS_IGNORE));
        GOOD(MPI_Wait(&receive, &status));
        STATUS(&status, left, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)(left + round));
        CHECK(send != MPI_REQUEST_NULL && receive != MPI_REQUEST_NULL, "a persistent request was freed");
    }
    GOOD(MPI_Request_free(&send));
    GOOD(MPI_Request_free(&receive));
    CHECK(send == MPI_REQUEST_NULL && receive == MPI_REQUEST_NULL, "a freed request is still set");
    free(out);
    free(in);
}

static const int sizes[] = {0, 8, 49, 5000, 100000};

static void s3_9_send_init_in_rounds(void)
{
    for (int i = 0; i < COUNT_OF(sizes); i++)
        rounds(MPI_Send_init, sizes[i], 0);
}

static void s3_9_ssend_init_in_rounds(void)
{
    for (int i = 0; i < COUNT_OF(sizes); i++)
        rounds(MPI_Ssend_init, sizes[i], 0);
}

static void s3_9_rsend_init_in_rounds(void)
{
    for (int i = 0; i < COUNT_OF(sizes); i++)
        rounds(MPI_Rsend_init, sizes[i], 1);
}

static void s3_9_bsend_init_in_rounds(void)
{
    // A rank can be ahead of its right neighbour by as many rounds as there are other ranks.
    int bytes = (size + 1) * (100000 + MPI_BSEND_OVERHEAD);
    void *buffer = allocate((size_t)bytes);
    MPI_Buffer_attach(buffer, bytes);
    for (int i = 0; i < COUNT_OF(sizes); i++)
        rounds(MPI_Bsend_init, sizes[i], 0);
    MPI_Buffer_detach(&buffer, &bytes);
    free(buffer);
}

// Startall of many, waited for in several ways.
static void s3_9_startall_of_many(void)
{
    enum { MANY = 10 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int out[MANY], in[MANY], flag, index, count, indices[2 * MANY];
    MPI_Request requests[2 * MANY];
    for (int i = 0; i < MANY; i++) {
        MPI_Recv_init(&in[i], 1, MPI_INT, left, TAG + i, MPI_COMM_WORLD, &requests[i]);
        MPI_Send_init(&out[i], 1, MPI_INT, right, TAG + i, MPI_COMM_WORLD, &requests[MANY + i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MANY; i++) {
            out[i] = rank * 1000 + round * 10 + i;
            in[i] = -1;
        }
        GOOD(MPI_Startall(2 * MANY, requests));
        switch (round % 4) {
        case 0:
            MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
            break;
        case 1:
            do
                MPI_Testall(2 * MANY, requests, &flag, MPI_STATUSES_IGNORE);
            while (!flag);
            break;
        case 2:
            for (int i = 0; i < 2 * MANY; i++)
                MPI_Waitany(2 * MANY, requests, &index, MPI_STATUS_IGNORE);
            MPI_Waitany(2 * MANY, requests, &index, MPI_STATUS_IGNORE);
            EQUAL(index, MPI_UNDEFINED);
            break;
        default:
            for (int left_over = 2 * MANY; left_over > 0; left_over -= count)
                MPI_Waitsome(2 * MANY, requests, &count, indices, MPI_STATUSES_IGNORE);
        }
        for (int i = 0; i < MANY; i++)
            EQUAL(in[i], left * 1000 + round * 10 + i);
    }
    for (int i = 0; i < 2 * MANY; i++)
        MPI_Request_free(&requests[i]);
}

// An inactive request is complete, with an empty status, and stays.
static void s3_9_inactive_requests_complete_at_once(void)
{
    int value = 0, flag = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Recv_init(&value, 1, MPI_INT, 0, TAG, MPI_COMM_SELF, &request);
    GOOD(MPI_Wait(&request, &status));
    EMPTY_STATUS(&status);
    GOOD(MPI_Test(&request, &flag, &status));
    EQUAL(flag, 1);
    EMPTY_STATUS(&status);
    GOOD(MPI_Waitall(1, &request, &status));
    EMPTY_STATUS(&status);
    CHECK(request != MPI_REQUEST_NULL, "an inactive request was freed");
    // Starting works after that.
    GOOD(MPI_Start(&request));
    int seven = 7;
    MPI_Send(&seven, 1, MPI_INT, 0, TAG, MPI_COMM_SELF);
    GOOD(MPI_Wait(&request, &status));
    EQUAL(value, 7);
    MPI_Request_free(&request);
}

// A persistent send may meet an ordinary receive, and the other way round.
static void s3_9_persistent_meets_ordinary(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, out = rank, in = -1;
    MPI_Request persistent, ordinary;
    MPI_Send_init(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &persistent);
    MPI_Start(&persistent);
    MPI_Recv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(in, left);
    MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    MPI_Request_free(&persistent);
    in = -1;
    MPI_Recv_init(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &persistent);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Start(&persistent);
    MPI_Isend(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &ordinary);
    MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    EQUAL(in, left);
    MPI_Wait(&ordinary, MPI_STATUS_IGNORE);
    MPI_Request_free(&persistent);
}

// "A request that is active may be freed": it completes first.
static void s3_9_freed_while_active(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1;
    static int out;
    MPI_Request request;
    out = rank;
    MPI_Send_init(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &request);
    MPI_Start(&request);
    GOOD(MPI_Request_free(&request));
    MPI_Recv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(in, left);
    MPI_Barrier(MPI_COMM_WORLD);
}

// With MPI_PROC_NULL each round is complete at once.
static void s3_9_proc_null_rounds(void)
{
    int value = 5;
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Send_init(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(&value, 1, MPI_INT, MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 3; i++) {
        GOOD(MPI_Startall(2, requests));
        GOOD(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        GOOD(MPI_Wait(&requests[1], &status));
        STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
        EQUAL(value, 5);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_9_send_init_in_rounds);
    RUN(s3_9_ssend_init_in_rounds);
    RUN(s3_9_rsend_init_in_rounds);
    RUN(s3_9_bsend_init_in_rounds);
    RUN(s3_9_startall_of_many);
    RUN(s3_9_inactive_requests_complete_at_once);
    RUN(s3_9_persistent_meets_ordinary);
    RUN(s3_9_freed_while_active);
    RUN(s3_9_proc_null_rounds);
    return finish();
}
