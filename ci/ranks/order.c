// SPDX-License-Identifier: MIT OR Apache-2.0
// Order and matching: MPI 5.0 section 3.5.
#include "check.h"

enum { MESSAGES = 300, TAG = 5, OTHER_TAG = 6 };

// Sizes on both sides of every protocol change, in an order that mixes them.
static int mixed_bytes(int i)
{
    static const int sizes[] = {4, 100000, 8, 48, 49, 9000, 16, 70000, 4, 4, 1000, 200000};
    return sizes[i % COUNT_OF(sizes)];
}
enum { MIXED_MAX = 200000 };

static void check_message(const char *in, const MPI_Status *status, int i)
{
    int number;
    memcpy(&number, in, sizeof number);
    EQUAL(number, i);
    STATUS(status, status->MPI_SOURCE, TAG, mixed_bytes(i));
    PAYLOAD(in + 4, (size_t)mixed_bytes(i) - 4, (unsigned)i);
}

static void make_message(char *out, int i)
{
    memcpy(out, &i, sizeof i);
    fill(out + 4, (size_t)mixed_bytes(i) - 4, (unsigned)i);
}

// "If a sender sends two messages in succession to the same destination, and both match the same
// receive, then this operation cannot receive the second message if the first one is still pending."
static void s3_5_same_source_same_tag_keeps_order(void)
{
    char *buffer = allocate(MIXED_MAX);
    if (rank == 0 && size > 1)
        for (int i = 0; i < MESSAGES; i++) {
            make_message(buffer, i);
            MPI_Send(buffer, mixed_bytes(i), MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        }
    if (rank == 1)
        for (int i = 0; i < MESSAGES; i++) {
            MPI_Status status;
            int source = i % 2 ? MPI_ANY_SOURCE : 0, tag = i % 3 ? MPI_ANY_TAG : TAG;
            MPI_Recv(buffer, MIXED_MAX, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status);
            check_message(buffer, &status, i);
        }
    free(buffer);
}

// The order is kept with all requests active at once, with receives posted before and after the sends.
static void s3_7_4_nonblocking_keeps_order(void)
{
    enum { BATCH = 24 };
    char *buffers = allocate((size_t)BATCH * MIXED_MAX);
    MPI_Request requests[BATCH];
    MPI_Status statuses[BATCH];
    for (int posted_first = 0; posted_first < 2; posted_first++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0 && size > 1) {
            if (posted_first)
                MPI_Recv(NULL, 0, MPI_BYTE, 1, OTHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < BATCH; i++) {
                make_message(buffers + (size_t)i * MIXED_MAX, i);
                MPI_Isend(buffers + (size_t)i * MIXED_MAX, mixed_bytes(i), MPI_BYTE, 1, TAG,
                          MPI_COMM_WORLD, &requests[i]);
            }
            if (!posted_first)
                MPI_Send(NULL, 0, MPI_BYTE, 1, OTHER_TAG, MPI_COMM_WORLD);
            MPI_Waitall(BATCH, requests, statuses);
        }
        if (rank == 1) {
            if (!posted_first)
                MPI_Recv(NULL, 0, MPI_BYTE, 0, OTHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < BATCH; i++)
                MPI_Irecv(buffers + (size_t)i * MIXED_MAX, MIXED_MAX, MPI_BYTE, 0, TAG,
                          MPI_COMM_WORLD, &requests[i]);
            if (posted_first)
                MPI_Send(NULL, 0, MPI_BYTE, 0, OTHER_TAG, MPI_COMM_WORLD);
            MPI_Waitall(BATCH, requests, statuses);
            for (int i = 0; i < BATCH; i++)
                check_message(buffers + (size_t)i * MIXED_MAX, &statuses[i], i);
        }
    }
    free(buffers);
}

// Receives match in the order in which they were posted, whatever wildcards they have.
static void s3_5_receives_match_in_posting_order(void)
{
    enum { POSTED = 6 };
    static const struct {
        int source, tag;
    } posted[POSTED] = {{0, TAG},
                        {MPI_ANY_SOURCE, TAG},
                        {0, MPI_ANY_TAG},
                        {MPI_ANY_SOURCE, MPI_ANY_TAG},
                        {0, TAG},
                        {MPI_ANY_SOURCE, TAG}};
    int values[POSTED];
    if (rank == 1) {
        MPI_Request requests[POSTED];
        MPI_Status statuses[POSTED];
        for (int i = 0; i < POSTED; i++)
            MPI_Irecv(&values[i], 1, MPI_INT, posted[i].source, posted[i].tag, MPI_COMM_WORLD,
                      &requests[i]);
        MPI_Send(NULL, 0, MPI_BYTE, 0, OTHER_TAG, MPI_COMM_WORLD);
        MPI_Waitall(POSTED, requests, statuses);
        for (int i = 0; i < POSTED; i++)
            EQUAL(values[i], i);
    }
    if (rank == 0 && size > 1) {
        MPI_Recv(NULL, 0, MPI_BYTE, 1, OTHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < POSTED; i++)
            MPI_Send(&i, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
    }
}

// A later message with another tag may match earlier; messages of one tag keep their order.
static void s3_5_tags_are_independent_lines(void)
{
    enum { EACH = 50 };
    int value;
    if (rank == 0 && size > 1)
        for (int i = 0; i < EACH; i++) {
            MPI_Send(&i, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
            value = -i;
            MPI_Send(&value, 1, MPI_INT, 1, OTHER_TAG, MPI_COMM_WORLD);
        }
    if (rank == 1) {
        for (int i = 0; i < EACH; i++) {
            MPI_Recv(&value, 1, MPI_INT, 0, OTHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            EQUAL(value, -i);
        }
        for (int i = 0; i < EACH; i++) {
            MPI_Recv(&value, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            EQUAL(value, i);
        }
    }
}

// "If one sends a message to itself or two to one another, progress is guaranteed": both send first.
static void s3_5_head_on_exchange_makes_progress(void)
{
    enum { EACH = 8, BYTES = 300000 };
    char *out = allocate((size_t)EACH * BYTES), *in = allocate((size_t)EACH * BYTES);
    MPI_Request requests[EACH];
    int peer = rank ^ 1;
    if (peer < size) {
        for (int i = 0; i < EACH; i++) {
            fill(out + (size_t)i * BYTES, BYTES, (unsigned)(rank * EACH + i));
            MPI_Isend(out + (size_t)i * BYTES, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[i]);
        }
        for (int i = 0; i < EACH; i++)
            MPI_Recv(in + (size_t)i * BYTES, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Waitall(EACH, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < EACH; i++)
            PAYLOAD(in + (size_t)i * BYTES, BYTES, (unsigned)(peer * EACH + i));
    }
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_5_same_source_same_tag_keeps_order);
    RUN(s3_7_4_nonblocking_keeps_order);
    RUN(s3_5_receives_match_in_posting_order);
    RUN(s3_5_tags_are_independent_lines);
    RUN(s3_5_head_on_exchange_makes_progress);
    return finish();
}
