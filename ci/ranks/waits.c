// SPDX-License-Identifier: MIT OR Apache-2.0
// The wait and test families: MPI 5.0 sections 3.7.3 to 3.7.6.
#include "check.h"

enum { MANY = 8, TAG = 3, GO = 4 };

// Rank 1: sends message `tag` when rank 0 requests it, so that rank 0 decides which request completes when.
static void serve(void)
{
    for (;;) {
        int tag;
        MPI_Recv(&tag, 1, MPI_INT, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (tag < 0)
            return;
        int value = 100 + tag;
        MPI_Send(&value, 1, MPI_INT, 0, TAG + tag, MPI_COMM_WORLD);
    }
}

static void ask_for(int tag)
{
    MPI_Send(&tag, 1, MPI_INT, 1, GO, MPI_COMM_WORLD);
}

static int values[MANY];
static MPI_Request requests[MANY];
static MPI_Status statuses[MANY];
static int indices[MANY];

static void post_all(void)
{
    for (int i = 0; i < MANY; i++) {
        values[i] = -1;
        MPI_Irecv(&values[i], 1, MPI_INT, 1, TAG + i, MPI_COMM_WORLD, &requests[i]);
    }
}

static void all_are_null(void)
{
    for (int i = 0; i < MANY; i++)
        CHECK(requests[i] == MPI_REQUEST_NULL, "request %d is still set", i);
}

// Runs `body` on rank 0 while rank 1 serves.
static void with_server(void (*body)(void))
{
    if (size < 2)
        return;
    if (rank == 1)
        serve();
    if (rank == 0) {
        post_all();
        body();
        all_are_null();
        ask_for(-1);
    }
}

static void waitall_body(void)
{
    for (int i = MANY - 1; i >= 0; i--)
        ask_for(i);
    MPI_Waitall(MANY, requests, statuses);
    for (int i = 0; i < MANY; i++) {
        STATUS(&statuses[i], 1, TAG + i, 4);
        EQUAL(values[i], 100 + i);
    }
}

static void waitany_body(void)
{
    for (int i = MANY - 1; i >= 0; i--) {
        int index = -5;
        ask_for(i);
        MPI_Waitany(MANY, requests, &index, &statuses[0]);
        EQUAL(index, i);
        STATUS(&statuses[0], 1, TAG + i, 4);
        EQUAL(values[i], 100 + i);
    }
    int index = 3;
    MPI_Waitany(MANY, requests, &index, &statuses[0]);
    EQUAL(index, MPI_UNDEFINED);
    EMPTY_STATUS(&statuses[0]);
}

static void waitsome_body(void)
{
    int left = MANY, count;
    for (int i = 0; i < MANY; i += 2) {
        ask_for(i);
        ask_for(i + 1);
    }
    while (left > 0) {
        MPI_Waitsome(MANY, requests, &count, indices, statuses);
        CHECK(count > 0 && count <= left, "count %d of %d", count, left);
        for (int i = 0; i < count; i++) {
            STATUS(&statuses[i], 1, TAG + indices[i], 4);
            EQUAL(values[indices[i]], 100 + indices[i]);
        }
        left -= count;
    }
    MPI_Waitsome(MANY, requests, &count, indices, statuses);
    EQUAL(count, MPI_UNDEFINED);
}

static void test_body(void)
{
    for (int i = 0; i < MANY; i++) {
        int flag = 9;
        MPI_Test(&requests[i], &flag, &statuses[i]);
        EQUAL(flag, 0);
        CHECK(requests[i] != MPI_REQUEST_NULL, "an open request became null");
        ask_for(i);
        do
            MPI_Test(&requests[i], &flag, &statuses[i]);
        while (!flag);
        STATUS(&statuses[i], 1, TAG + i, 4);
        MPI_Test(&requests[i], &flag, &statuses[i]);
        EQUAL(flag, 1);
        EMPTY_STATUS(&statuses[i]);
    }
}

static void testall_body(void)
{
    int flag;
    for (int i = 0; i < MANY; i++) {
        flag = 9;
        MPI_Testall(MANY, requests, &flag, statuses);
        EQUAL(flag, 0);
        // "flag = false: neither the array of requests nor the array of statuses is modified."
        for (int j = 0; j < MANY; j++)
            CHECK(requests[j] != MPI_REQUEST_NULL, "request %d was taken alone", j);
        ask_for(i);
    }
    do
        MPI_Testall(MANY, requests, &flag, statuses);
    while (!flag);
    for (int i = 0; i < MANY; i++)
        STATUS(&statuses[i], 1, TAG + i, 4);
}

static void testany_body(void)
{
    int flag = 9, index = 9;
    MPI_Testany(MANY, requests, &index, &flag, &statuses[0]);
    EQUAL(flag, 0);
    EQUAL(index, MPI_UNDEFINED);
    for (int i = 0; i < MANY; i++) {
        int wanted = (i * 3) % MANY;
        ask_for(wanted);
        do
            MPI_Testany(MANY, requests, &index, &flag, &statuses[0]);
        while (!flag);
        EQUAL(index, wanted);
        STATUS(&statuses[0], 1, TAG + wanted, 4);
    }
    MPI_Testany(MANY, requests, &index, &flag, &statuses[0]);
    EQUAL(flag, 1);
    EQUAL(index, MPI_UNDEFINED);
    EMPTY_STATUS(&statuses[0]);
}

static void testsome_body(void)
{
    int count = 9, left = MANY;
    MPI_Testsome(MANY, requests, &count, indices, statuses);
    EQUAL(count, 0);
    for (int i = 0; i < MANY; i++)
        ask_for(i);
    while (left > 0) {
        MPI_Testsome(MANY, requests, &count, indices, statuses);
        for (int i = 0; i < count; i++)
            STATUS(&statuses[i], 1, TAG + indices[i], 4);
        left -= count;
    }
    MPI_Testsome(MANY, requests, &count, indices, statuses);
    EQUAL(count, MPI_UNDEFINED);
}

static void ignore_body(void)
{
    int index, count, flag;
    ask_for(0);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    ask_for(1);
    MPI_Waitany(MANY, requests, &index, MPI_STATUS_IGNORE);
    EQUAL(index, 1);
    ask_for(2);
    MPI_Waitsome(MANY, requests, &count, indices, MPI_STATUSES_IGNORE);
    EQUAL(count, 1);
    EQUAL(indices[0], 2);
    ask_for(3);
    do
        MPI_Testsome(MANY, requests, &count, indices, MPI_STATUSES_IGNORE);
    while (count == 0);
    ask_for(4);
    do
        MPI_Testany(MANY, requests, &index, &flag, MPI_STATUS_IGNORE);
    while (!flag);
    for (int i = 5; i < MANY; i++)
        ask_for(i);
    do
        MPI_Testall(MANY, requests, &flag, MPI_STATUSES_IGNORE);
    while (!flag);
    MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++)
        EQUAL(values[i], 100 + i);
}

// Section 3.7.3: null requests complete at once with an empty status.
static void s3_7_3_null_requests_are_complete(void)
{
    MPI_Request none = MPI_REQUEST_NULL, several[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status, three[3];
    int flag = 0, index = 0, count = 0;
    GOOD(MPI_Wait(&none, &status));
    EMPTY_STATUS(&status);
    GOOD(MPI_Test(&none, &flag, &status));
    EQUAL(flag, 1);
    EMPTY_STATUS(&status);
    GOOD(MPI_Waitall(3, several, three));
    for (int i = 0; i < 3; i++)
        EMPTY_STATUS(&three[i]);
    GOOD(MPI_Testall(3, several, &flag, three));
    EQUAL(flag, 1);
    GOOD(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
    GOOD(MPI_Testall(0, NULL, &flag, MPI_STATUSES_IGNORE));
    EQUAL(flag, 1);
    GOOD(MPI_Waitany(0, NULL, &index, &status));
    EQUAL(index, MPI_UNDEFINED);
    GOOD(MPI_Waitsome(0, NULL, &count, NULL, MPI_STATUSES_IGNORE));
    EQUAL(count, MPI_UNDEFINED);
}

// Null requests between open ones are passed over.
static void s3_7_5_null_requests_between_open_ones(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, out = rank, in = -1, index;
    MPI_Request mixed[5] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                            MPI_REQUEST_NULL};
    MPI_Status status, all[5];
    MPI_Irecv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &mixed[3]);
    MPI_Send(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    MPI_Waitany(5, mixed, &index, &status);
    EQUAL(index, 3);
    STATUS(&status, left, TAG, 4);
    MPI_Irecv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &mixed[1]);
    MPI_Send(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    MPI_Waitall(5, mixed, all);
    EMPTY_STATUS(&all[0]);
    STATUS(&all[1], left, TAG, 4);
    EMPTY_STATUS(&all[4]);
}

static void s3_7_5_waitall(void)
{
    with_server(waitall_body);
}

static void s3_7_5_waitany(void)
{
    with_server(waitany_body);
}

static void s3_7_5_waitsome(void)
{
    with_server(waitsome_body);
}

static void s3_7_3_test(void)
{
    with_server(test_body);
}

static void s3_7_5_testall(void)
{
    with_server(testall_body);
}

static void s3_7_5_testany(void)
{
    with_server(testany_body);
}

static void s3_7_5_testsome(void)
{
    with_server(testsome_body);
}

static void s3_2_6_statuses_can_be_ignored(void)
{
    with_server(ignore_body);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_7_5_waitall);
    RUN(s3_7_5_waitany);
    RUN(s3_7_5_waitsome);
    RUN(s3_7_3_test);
    RUN(s3_7_5_testall);
    RUN(s3_7_5_testany);
    RUN(s3_7_5_testsome);
    RUN(s3_2_6_statuses_can_be_ignored);
    RUN(s3_7_3_null_requests_are_complete);
    RUN(s3_7_5_null_requests_between_open_ones);
    return finish();
}
