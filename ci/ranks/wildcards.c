// SPDX-License-Identifier: MIT OR Apache-2.0
// MPI_ANY_SOURCE and MPI_ANY_TAG: MPI 5.0 section 3.2.4.
#include "check.h"

enum { EACH = 20, DONE = 30000 };

// All ranks send to rank 0, which receives any message and checks that each arrives once and in order.
static void s3_2_4_any_source_any_tag_takes_everything_once(void)
{
    if (rank != 0) {
        for (int i = 0; i < EACH; i++) {
            int value = rank * 1000 + i;
            MPI_Send(&value, 1, MPI_INT, 0, i, MPI_COMM_WORLD);
        }
        return;
    }
    int *next = calloc((size_t)size, sizeof(int));
    for (int i = 0; i < EACH * (size - 1); i++) {
        int value;
        MPI_Status status;
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        int from = status.MPI_SOURCE;
        CHECK(from > 0 && from < size, "source %d", from);
        if (from > 0 && from < size) {
            STATUS(&status, from, next[from], 4);
            EQUAL(value, from * 1000 + next[from]);
            next[from]++;
        }
    }
    for (int from = 1; from < size; from++)
        EQUAL(next[from], EACH);
    free(next);
}

// A given source among many: the others' messages wait.
static void s3_2_4_given_source_any_tag(void)
{
    if (rank != 0) {
        int value = rank;
        MPI_Send(&value, 1, MPI_INT, 0, rank % 7, MPI_COMM_WORLD);
        return;
    }
    for (int from = size - 1; from > 0; from--) {
        int value;
        MPI_Status status;
        MPI_Recv(&value, 1, MPI_INT, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        STATUS(&status, from, from % 7, 4);
        EQUAL(value, from);
    }
}

static void s3_2_4_any_source_given_tag(void)
{
    if (rank != 0) {
        for (int tag = 0; tag < 3; tag++) {
            int value = rank * 10 + tag;
            MPI_Send(&value, 1, MPI_INT, 0, tag, MPI_COMM_WORLD);
        }
        return;
    }
    for (int tag = 2; tag >= 0; tag--) {
        long seen = 0;
        for (int i = 1; i < size; i++) {
            int value;
            MPI_Status status;
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status);
            EQUAL(value, status.MPI_SOURCE * 10 + tag);
            seen += status.MPI_SOURCE;
        }
        EQUAL(seen, (long)size * (size - 1) / 2);
    }
}

// Wildcard receives posted before anything arrives, large messages too.
static void s3_7_2_posted_wildcards_match_large_messages(void)
{
    enum { BYTES = 100000 };
    char *buffers = allocate((size_t)size * BYTES);
    if (rank == 0) {
        MPI_Request *requests = allocate((size_t)size * sizeof *requests);
        MPI_Status *statuses = allocate((size_t)size * sizeof *statuses);
        for (int i = 0; i < size - 1; i++)
            MPI_Irecv(buffers + (size_t)i * BYTES, BYTES, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                      MPI_COMM_WORLD, &requests[i]);
        for (int to = 1; to < size; to++)
            MPI_Send(NULL, 0, MPI_BYTE, to, 0, MPI_COMM_WORLD);
        MPI_Waitall(size - 1, requests, statuses);
        long seen = 0;
        for (int i = 0; i < size - 1; i++) {
            int from = statuses[i].MPI_SOURCE;
            STATUS(&statuses[i], from, from, BYTES - from);
            PAYLOAD(buffers + (size_t)i * BYTES, (size_t)(BYTES - from), (unsigned)from);
            seen += from;
        }
        EQUAL(seen, (long)size * (size - 1) / 2);
        free(requests);
        free(statuses);
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        fill(buffers, BYTES, (unsigned)rank);
        MPI_Send(buffers, BYTES - rank, MPI_BYTE, 0, rank, MPI_COMM_WORLD);
    }
    free(buffers);
}

// No source may starve behind one that sends without end (a matter of quality, which the standard does not require).
static void s3_5_a_quiet_source_is_heard_beside_a_loud_one(void)
{
    if (size < 3)
        return;
    int value = rank, flag = 0;
    if (rank == 1) {
        MPI_Request stop;
        MPI_Irecv(NULL, 0, MPI_BYTE, 0, DONE, MPI_COMM_WORLD, &stop);
        while (!flag) {
            MPI_Ssend(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
            MPI_Test(&stop, &flag, MPI_STATUS_IGNORE);
        }
        MPI_Send(&value, 1, MPI_INT, 0, DONE, MPI_COMM_WORLD);
    }
    if (rank == 2)
        MPI_Send(&value, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
    if (rank == 0) {
        int heard = 0;
        MPI_Status status;
        do {
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            EQUAL(value, status.MPI_SOURCE);
            if (status.MPI_SOURCE == 2) {
                heard = 1;
                MPI_Send(NULL, 0, MPI_BYTE, 1, DONE, MPI_COMM_WORLD);
            }
        } while (status.MPI_TAG != DONE);
        EQUAL(heard, 1);
    }
}

// The largest tag that the standard promises (section 9.1.2).
static void s9_1_2_tag_32767_is_usable(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, value = rank, got = -1;
    MPI_Status status;
    MPI_Sendrecv(&value, 1, MPI_INT, right, 32767, &got, 1, MPI_INT, left, MPI_ANY_TAG,
                 MPI_COMM_WORLD, &status);
    STATUS(&status, left, 32767, 4);
    EQUAL(got, left);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_2_4_any_source_any_tag_takes_everything_once);
    RUN(s3_2_4_given_source_any_tag);
    RUN(s3_2_4_any_source_given_tag);
    RUN(s3_7_2_posted_wildcards_match_large_messages);
    RUN(s3_5_a_quiet_source_is_heard_beside_a_loud_one);
    RUN(s9_1_2_tag_32767_is_usable);
    return finish();
}
