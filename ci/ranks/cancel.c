// SPDX-License-Identifier: MIT OR Apache-2.0
// MPI_Cancel: MPI 5.0 section 3.8.5.
#include "check.h"

enum { TAG = 3, GO = 4 };

static void s3_8_5_an_unmatched_receive_is_cancelled(void)
{
    int value = 5, cancelled = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &request);
    GOOD(MPI_Cancel(&request));
    GOOD(MPI_Wait(&request, &status));
    GOOD(MPI_Test_cancelled(&status, &cancelled));
    EQUAL(cancelled, 1);
    EQUAL(value, 5);
    CHECK(request == MPI_REQUEST_NULL, "the request is still set");
    MPI_Barrier(MPI_COMM_WORLD);
    // The next message goes to the next receive, not to the cancelled one.
    int right = (rank + 1) % size, left = (rank + size - 1) % size, out = rank, in = -1;
    MPI_Sendrecv(&out, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &status);
    MPI_Test_cancelled(&status, &cancelled);
    EQUAL(cancelled, 0);
    EQUAL(in, left);
    EQUAL(value, 5);
}

// Cancelling one of several posted receives does not disturb the others.
static void s3_8_5_cancel_in_the_middle(void)
{
    enum { MANY = 5 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in[MANY], cancelled;
    MPI_Request requests[MANY];
    MPI_Status statuses[MANY];
    for (int i = 0; i < MANY; i++) {
        in[i] = -1;
        MPI_Irecv(&in[i], 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Cancel(&requests[2]);
    MPI_Cancel(&requests[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MANY - 2; i++)
        MPI_Send(&i, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    MPI_Waitall(MANY, requests, statuses);
    int next = 0;
    for (int i = 0; i < MANY; i++) {
        MPI_Test_cancelled(&statuses[i], &cancelled);
        EQUAL(cancelled, i == 0 || i == 2);
        EQUAL(in[i], cancelled ? -1 : next++);
    }
}

// A receive that has matched cannot be cancelled: it completes as if nothing had happened.
static void s3_8_5_a_matched_receive_completes(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, out = rank, in = -1, cancelled = 1, flag;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request);
    MPI_Send(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    do
        MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    while (!flag);
    GOOD(MPI_Cancel(&request));
    GOOD(MPI_Wait(&request, &status));
    MPI_Test_cancelled(&status, &cancelled);
    EQUAL(cancelled, 0);
    STATUS(&status, left, TAG, 4);
    EQUAL(in, left);
}

// A persistent receive is cancelled for this round and may be started again.
static void s3_8_5_a_persistent_receive_can_start_again(void)
{
    int value = -1, cancelled = 0, nine = 9;
    MPI_Request request;
    MPI_Status status;
    MPI_Recv_init(&value, 1, MPI_INT, 0, TAG, MPI_COMM_SELF, &request);
    MPI_Start(&request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    EQUAL(cancelled, 1);
    MPI_Start(&request);
    MPI_Send(&nine, 1, MPI_INT, 0, TAG, MPI_COMM_SELF);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    EQUAL(cancelled, 0);
    EQUAL(value, 9);
    MPI_Request_free(&request);
}

// Cancelling a send (deprecated): either it is cancelled and the message never arrives, or all of it arrives.
static void s3_8_5_a_send_is_cancelled_or_arrives(void)
{
    static const int sizes[] = {8, 5000, 300000};
    if (size < 2 || rank > 1)
        return;
    char *buffer = allocate(300000);
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        if (rank == 0) {
            MPI_Request request;
            MPI_Status status;
            int cancelled = -1;
            fill(buffer, (size_t)sizes[i], 5);
            MPI_Isend(buffer, sizes[i], MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
            GOOD(MPI_Cancel(&request));
            GOOD(MPI_Wait(&request, &status));
            MPI_Test_cancelled(&status, &cancelled);
            CHECK(cancelled == 0 || cancelled == 1, "cancelled is %d", cancelled);
            MPI_Send(&cancelled, 1, MPI_INT, 1, GO, MPI_COMM_WORLD);
            // The next message must not have arrived when the other rank looks for this one.
            MPI_Recv(NULL, 0, MPI_INT, 1, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            int cancelled, flag = 9;
            MPI_Recv(&cancelled, 1, MPI_INT, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (cancelled) {
                MPI_Iprobe(0, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
                EQUAL(flag, 0);
            } else {
                MPI_Recv(buffer, sizes[i], MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                PAYLOAD(buffer, (size_t)sizes[i], 5);
            }
            MPI_Send(NULL, 0, MPI_INT, 0, GO, MPI_COMM_WORLD);
        }
    }
    free(buffer);
}

// A send to the rank itself: no other process is involved, so the first test shows whether it was cancelled, and a
// message that was not cancelled can be received.
static void s3_8_4_a_send_to_oneself_is_decided_at_once(void)
{
    static const int sizes[] = {0, 8, 300000};
    char *out = allocate(300000);
    for (int i = 0; i < 2 * COUNT_OF(sizes); i++) {
        int bytes = sizes[i / 2], seen_first = i % 2, flag = -1, cancelled = -1;
        MPI_Request request;
        MPI_Status status;
        fill(out, (size_t)bytes, i);
        MPI_Issend(out, bytes, MPI_BYTE, rank, TAG, MPI_COMM_WORLD, &request);
        if (seen_first)
            MPI_Probe(rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        GOOD(MPI_Cancel(&request));
        GOOD(MPI_Request_get_status(request, &flag, &status));
        EQUAL(flag, 1);
        GOOD(MPI_Wait(&request, &status));
        MPI_Test_cancelled(&status, &cancelled);
        EQUAL(cancelled, 1);
        MPI_Iprobe(rank, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        EQUAL(flag, 0);
    }
    free(out);
}

// A message that a matched probe has matched can no longer be cancelled.
static void s3_8_4_a_probed_send_to_oneself_is_not_cancelled(void)
{
    int out = 7, in = -1, flag = -1, cancelled = -1;
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    MPI_Issend(&out, 1, MPI_INT, rank, TAG, MPI_COMM_WORLD, &request);
    MPI_Mprobe(rank, TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    GOOD(MPI_Cancel(&request));
    GOOD(MPI_Cancel(&request));
    GOOD(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
    EQUAL(flag, 0);
    GOOD(MPI_Mrecv(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    EQUAL(in, 7);
    GOOD(MPI_Wait(&request, &status));
    MPI_Test_cancelled(&status, &cancelled);
    EQUAL(cancelled, 0);
}

// A synchronous send to a rank that receives nothing is cancelled while that rank is inside MPI.
static void s3_8_4_a_synchronous_send_is_taken_back(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, out = rank, flag, cancelled = -1;
    MPI_Request request;
    MPI_Status status;
    MPI_Issend(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &request);
    GOOD(MPI_Cancel(&request));
    GOOD(MPI_Wait(&request, &status));
    MPI_Test_cancelled(&status, &cancelled);
    EQUAL(cancelled, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iprobe(left, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    EQUAL(flag, 0);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_8_5_an_unmatched_receive_is_cancelled);
    RUN(s3_8_5_cancel_in_the_middle);
    RUN(s3_8_5_a_matched_receive_completes);
    RUN(s3_8_5_a_persistent_receive_can_start_again);
    RUN(s3_8_5_a_send_is_cancelled_or_arrives);
    RUN(s3_8_4_a_send_to_oneself_is_decided_at_once);
    RUN(s3_8_4_a_probed_send_to_oneself_is_not_cancelled);
    RUN(s3_8_4_a_synchronous_send_is_taken_back);
    return finish();
}
