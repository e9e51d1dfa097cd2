// SPDX-License-Identifier: MIT OR Apache-2.0
// Matched probe and matched receive: MPI 5.0 sections 3.8.2 to 3.8.4.
#include "check.h"

enum { TAG = 3 };

static void s3_8_2_matched_receive_gets_the_probed_message(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    char *out = allocate((size_t)check_size_max()), *in = allocate((size_t)check_size_max());
    for (int i = 0; i < check_size_count(); i++) {
        int bytes = check_sizes[i], flag = 0;
        MPI_Request request;
        MPI_Message message;
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)i);
        MPI_Isend(out, bytes, MPI_BYTE, right, TAG, MPI_COMM_WORLD, &request);
        if (i % 2)
            MPI_Mprobe(left, TAG, MPI_COMM_WORLD, &message, &status);
        while (i % 2 == 0 && !flag)
            MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status);
        STATUS(&status, left, TAG, bytes);
        CHECK(message != MPI_MESSAGE_NULL, "the message handle is null");
        if (i % 3) {
            MPI_Mrecv(in, bytes, MPI_BYTE, &message, &status);
        } else {
            MPI_Request receive;
            MPI_Imrecv(in, bytes, MPI_BYTE, &message, &receive);
            MPI_Wait(&receive, &status);
        }
        CHECK(message == MPI_MESSAGE_NULL, "the message handle is still set");
        STATUS(&status, left, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)i);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    free(out);
    free(in);
}

// A matched message is out of the queue: an ordinary receive gets the next one.
static void s3_8_2_matched_messages_can_be_received_in_any_order(void)
{
    enum { MESSAGES = 5, BYTES = 20000 };
    int peer = rank ^ 1;
    if (peer >= size)
        return;
    char *out = allocate(MESSAGES * BYTES), *in = allocate(BYTES);
    MPI_Request requests[MESSAGES];
    MPI_Message messages[MESSAGES];
    for (int i = 0; i < MESSAGES; i++) {
        int bytes = i % 2 ? BYTES : 8;
        fill(out + i * BYTES, (size_t)bytes, (unsigned)i);
        MPI_Isend(out + i * BYTES, bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < MESSAGES - 1; i++)
        MPI_Mprobe(peer, TAG, MPI_COMM_WORLD, &messages[i], MPI_STATUS_IGNORE);
    MPI_Status status;
    MPI_Recv(in, BYTES, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &status);
    STATUS(&status, peer, TAG, 8);
    PAYLOAD(in, 8, MESSAGES - 1);
    for (int i = MESSAGES - 2; i >= 0; i--) {
        int bytes = i % 2 ? BYTES : 8;
        MPI_Mrecv(in, BYTES, MPI_BYTE, &messages[i], &status);
        STATUS(&status, peer, TAG, bytes);
        PAYLOAD(in, (size_t)bytes, (unsigned)i);
    }
    MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    free(out);
    free(in);
}

static void s3_8_2_improbe_of_nothing(void)
{
    int flag = 9;
    MPI_Message message = MPI_MESSAGE_NO_PROC;
    GOOD(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE));
    EQUAL(flag, 0);
}

// Section 3.10: MPI_PROC_NULL gives MPI_MESSAGE_NO_PROC, whose receive is empty.
static void s3_10_message_no_proc(void)
{
    MPI_Message message;
    MPI_Status status;
    int flag = 0;
    char untouched = 'u';
    GOOD(MPI_Mprobe(MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC, "not MPI_MESSAGE_NO_PROC");
    STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    GOOD(MPI_Mrecv(&untouched, 1, MPI_CHAR, &message, &status));
    STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    CHECK(message == MPI_MESSAGE_NULL, "the message handle is still set");
    GOOD(MPI_Improbe(MPI_PROC_NULL, TAG, MPI_COMM_WORLD, &flag, &message, &status));
    EQUAL(flag, 1);
    MPI_Request request;
    GOOD(MPI_Imrecv(&untouched, 1, MPI_CHAR, &message, &request));
    GOOD(MPI_Wait(&request, &status));
    STATUS(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    EQUAL(untouched, 'u');
}

// A buffer smaller than the matched message is an error of truncation.
static void s3_8_3_mrecv_can_truncate(void)
{
    static const int sizes[] = {64, 200000};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    // The standard does not clearly define the communicator whose handler a matched receive calls: set all of them to
    // return.
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        char *out = calloc((size_t)sizes[i], 1), small[16];
        MPI_Request request;
        MPI_Message message;
        MPI_Isend(out, sizes[i], MPI_BYTE, right, TAG, comm, &request);
        GOOD(MPI_Mprobe(left, TAG, comm, &message, MPI_STATUS_IGNORE));
        FAILS(MPI_Mrecv(small, sizeof small, MPI_BYTE, &message, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
        GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
        free(out);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_8_2_matched_receive_gets_the_probed_message);
    RUN(s3_8_2_matched_messages_can_be_received_in_any_order);
    RUN(s3_8_2_improbe_of_nothing);
    RUN(s3_10_message_no_proc);
    RUN(s3_8_3_mrecv_can_truncate);
    return finish();
}
