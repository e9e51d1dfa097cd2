// SPDX-License-Identifier: MIT OR Apache-2.0
// Messages larger than the receive buffer: MPI 5.0 section 3.2.4.
#include "check.h"

enum { TAG = 3, ROOM = 24 };

static MPI_Comm comm;

static const int sizes[] = {25, 48, 49, 5000, 70000, 2000000};

// The error is returned, the memory behind the buffer is unchanged, and the next message is complete.
static void one(int bytes, int posted_first, int nonblocking)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, next = -1;
    char in[ROOM + 64];
    char *out = allocate((size_t)bytes);
    MPI_Request send, receive;
    MPI_Status status;
    memset(in, 0x5A, sizeof in);
    fill(out, (size_t)bytes, (unsigned)rank);
    if (posted_first)
        MPI_Irecv(in, ROOM, MPI_BYTE, left, TAG, comm, &receive);
    MPI_Barrier(comm);
    MPI_Isend(out, bytes, MPI_BYTE, right, TAG, comm, &send);
    MPI_Barrier(comm);
    if (posted_first) {
        FAILS(MPI_Wait(&receive, &status), MPI_ERR_TRUNCATE);
    } else if (nonblocking) {
        // The error may be returned when it is posted or when it completes.
        int code = MPI_Irecv(in, ROOM, MPI_BYTE, left, TAG, comm, &receive);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&receive, &status);
        FAILS(code, MPI_ERR_TRUNCATE);
    } else {
        FAILS(MPI_Recv(in, ROOM, MPI_BYTE, left, TAG, comm, &status), MPI_ERR_TRUNCATE);
    }
    for (int i = ROOM; i < (int)sizeof in; i++)
        CHECK(in[i] == 0x5A, "byte %d behind the buffer was written", i - ROOM);
    GOOD(MPI_Wait(&send, MPI_STATUS_IGNORE));
    MPI_Sendrecv(&rank, 1, MPI_INT, right, TAG, &next, 1, MPI_INT, left, TAG, comm, MPI_STATUS_IGNORE);
    EQUAL(next, left);
    free(out);
}

static void s3_2_4_truncation_is_an_error_and_no_more(void)
{
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        one(sizes[i], 0, 0);
        one(sizes[i], 0, 1);
        one(sizes[i], 1, 0);
    }
}

// Section 3.7.5: in a group of requests the code is MPI_ERR_IN_STATUS, and the statuses show which.
static void s3_7_5_waitall_says_which_was_truncated(void)
{
    enum { MANY = 4, BAD = 2 };
    char in[MANY][ROOM], out[MANY][64];
    MPI_Request requests[2 * MANY];
    MPI_Status statuses[2 * MANY];
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    memset(out, 1, sizeof out);
    for (int i = 0; i < MANY; i++)
        MPI_Irecv(in[i], ROOM, MPI_BYTE, left, TAG + i, comm, &requests[i]);
    MPI_Barrier(comm);
    for (int i = 0; i < MANY; i++)
        MPI_Isend(out[i], i == BAD ? 64 : ROOM, MPI_BYTE, right, TAG + i, comm, &requests[MANY + i]);
    FAILS(MPI_Waitall(2 * MANY, requests, statuses), MPI_ERR_IN_STATUS);
    for (int i = 0; i < MANY; i++) {
        int wanted = i == BAD ? MPI_ERR_TRUNCATE : MPI_SUCCESS, class = -1;
        if (statuses[i].MPI_ERROR == MPI_ERR_PENDING) {
            MPI_Wait(&requests[i], &statuses[i]);
            continue;
        }
        MPI_Error_class(statuses[i].MPI_ERROR, &class);
        EQUAL(class, wanted);
    }
    for (int i = 0; i < 2 * MANY; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    RUN(s3_2_4_truncation_is_an_error_and_no_more);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    RUN(s3_7_5_waitall_says_which_was_truncated);
    MPI_Comm_free(&comm);
    return finish();
}
