// SPDX-License-Identifier: MIT OR Apache-2.0
// Handles that were freed, forged or of another kind are errors, never crashes.
#include "check.h"

#define FORGED(type, number) ((type)(intptr_t)(number))

static int value;

static void s9_4_freed_communicator(void)
{
    MPI_Comm comm, copy;
    int n;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    copy = comm;
    MPI_Comm_free(&comm);
    FAILS(MPI_Comm_size(copy, &n), MPI_ERR_COMM);
    FAILS(MPI_Send(&value, 1, MPI_INT, 0, 0, copy), MPI_ERR_COMM);
    FAILS(MPI_Comm_free(&copy), MPI_ERR_COMM);
    // A new object may use its slot; the old handle remains invalid.
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    CHECK(comm != copy, "a freed handle came back at once");
    FAILS(MPI_Comm_size(copy, &n), MPI_ERR_COMM);
    MPI_Comm_free(&comm);
}

static void s9_4_freed_datatype(void)
{
    MPI_Datatype type, copy;
    int bytes;
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_commit(&type);
    copy = type;
    MPI_Type_free(&type);
    FAILS(MPI_Type_size(copy, &bytes), MPI_ERR_TYPE);
    FAILS(MPI_Send(&value, 1, copy, 0, 0, MPI_COMM_SELF), MPI_ERR_TYPE);
}

static void s9_4_freed_request(void)
{
    MPI_Request request, copy;
    int flag, other = 1;
    MPI_Recv_init(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
    copy = request;
    MPI_Request_free(&request);
    FAILS(MPI_Test(&copy, &flag, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
    FAILS(MPI_Start(&copy), MPI_ERR_REQUEST);
    // A completed ordinary request is freed too.
    MPI_Irecv(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
    copy = request;
    MPI_Send(&other, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    FAILS(MPI_Wait(&copy, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
}

// A list that contains one request twice: the second entry is stale, and the request's slot is not released twice.
static void s3_7_5_one_request_twice(void)
{
    enum { LISTS = 3, MANY = 8 };
    for (int list = 0; list < LISTS; list++) {
        MPI_Request twice[2], many[MANY];
        MPI_Status statuses[2];
        int one = 1, count, indices[2], received[MANY];
        MPI_Irecv(&value, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &twice[0]);
        twice[1] = twice[0];
        MPI_Send(&one, 1, MPI_INT, 0, 5, MPI_COMM_SELF);
        if (list == 0) {
            FAILS(MPI_Waitall(2, twice, MPI_STATUSES_IGNORE), MPI_ERR_REQUEST);
        } else if (list == 1) {
            FAILS(MPI_Waitall(2, twice, statuses), MPI_ERR_IN_STATUS);
            CHECK(statuses[0].MPI_ERROR == MPI_SUCCESS, "the first entry was not received");
            CHECK(statuses[1].MPI_ERROR == MPI_ERR_REQUEST, "the second entry was not refused");
        } else {
            FAILS(MPI_Waitsome(2, twice, &count, indices, statuses), MPI_ERR_IN_STATUS);
        }
        // The slot is not given to two later requests.
        for (int i = 0; i < MANY; i++)
            MPI_Irecv(&received[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &many[i]);
        for (int i = 0; i < MANY; i++)
            for (int k = 0; k < i; k++)
                CHECK(many[i] != many[k], "receives %d and %d have one handle", k, i);
        for (int i = 0; i < MANY; i++)
            MPI_Send(&i, 1, MPI_INT, 0, i, MPI_COMM_SELF);
        MPI_Waitall(MANY, many, MPI_STATUSES_IGNORE);
        for (int i = 0; i < MANY; i++)
            CHECK(received[i] == i, "receive %d got %d", i, received[i]);
    }
}

// A request that is freed while it is active still completes; a copy of its handle is stale at once.
static void s3_7_3_freed_while_under_way(void)
{
    MPI_Datatype pairs;
    int one[3] = {1, 2, 3}, got[3] = {0}, flag;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pairs);
    MPI_Type_commit(&pairs);
    for (int structured = 0; structured < 2; structured++) {
        MPI_Datatype type = structured ? pairs : MPI_INT;
        MPI_Request request, copy;
        got[0] = 0;
        MPI_Irecv(got, 1, type, 0, 6, MPI_COMM_SELF, &request);
        copy = request;
        MPI_Request_free(&request);
        FAILS(MPI_Test(&copy, &flag, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
        FAILS(MPI_Wait(&copy, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
        FAILS(MPI_Cancel(&copy), MPI_ERR_REQUEST);
        FAILS(MPI_Request_free(&copy), MPI_ERR_REQUEST);
        MPI_Send(one, 1, type, 0, 6, MPI_COMM_SELF);
        // Another message comes after it.
        MPI_Sendrecv(one, 1, MPI_INT, 0, 7, &value, 1, MPI_INT, 0, 7, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        CHECK(got[0] == 1, "the freed receive got %d", got[0]);
    }
    MPI_Type_free(&pairs);
}

static void s9_4_handles_of_another_kind(void)
{
    int n;
    FAILS(MPI_Comm_size(FORGED(MPI_Comm, (intptr_t)MPI_INT), &n), MPI_ERR_COMM);
    FAILS(MPI_Type_size(FORGED(MPI_Datatype, (intptr_t)MPI_COMM_WORLD), &n), MPI_ERR_TYPE);
    FAILS(MPI_Allreduce(&value, &n, 1, MPI_INT, FORGED(MPI_Op, (intptr_t)MPI_COMM_WORLD), MPI_COMM_SELF),
          MPI_ERR_OP);
    FAILS(MPI_Comm_set_errhandler(MPI_COMM_SELF, FORGED(MPI_Errhandler, (intptr_t)MPI_INT)),
          MPI_ERR_ERRHANDLER);
}

static void s9_4_forged_handles(void)
{
    static const long numbers[] = {1, 77, 4095, 4096, 0x7fffffff, 0x12345678, -1, -4096};
    for (int i = 0; i < COUNT_OF(numbers); i++) {
        int n, flag;
        FAILS(MPI_Comm_size(FORGED(MPI_Comm, numbers[i]), &n), MPI_ERR_COMM);
        FAILS(MPI_Type_size(FORGED(MPI_Datatype, numbers[i]), &n), MPI_ERR_TYPE);
        MPI_Request request = FORGED(MPI_Request, numbers[i]);
        FAILS(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
        MPI_Message message = FORGED(MPI_Message, numbers[i]);
        FAILS(MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    RUN(s9_4_freed_communicator);
    RUN(s9_4_freed_datatype);
    RUN(s9_4_freed_request);
    RUN(s3_7_5_one_request_twice);
    RUN(s3_7_3_freed_while_under_way);
    RUN(s9_4_handles_of_another_kind);
    RUN(s9_4_forged_handles);
    return finish();
}
