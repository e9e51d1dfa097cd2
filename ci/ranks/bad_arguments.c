// SPDX-License-Identifier: MIT OR Apache-2.0
// Wrong arguments return an error of the right class and have no other effect: MPI 5.0 section 9.4.
#include "check.h"

static int value;
static MPI_Comm comm;
static MPI_Request request;
static MPI_Status status;

static void s9_4_ranks_out_of_range(void)
{
    FAILS(MPI_Send(&value, 1, MPI_INT, size, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(&value, 1, MPI_INT, -77, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Ssend(&value, 1, MPI_INT, size, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Isend(&value, 1, MPI_INT, size, 0, comm, &request), MPI_ERR_RANK);
    FAILS(MPI_Recv(&value, 1, MPI_INT, size, 0, comm, &status), MPI_ERR_RANK);
    FAILS(MPI_Irecv(&value, 1, MPI_INT, -77, 0, comm, &request), MPI_ERR_RANK);
    FAILS(MPI_Probe(size, 0, comm, &status), MPI_ERR_RANK);
    FAILS(MPI_Send_init(&value, 1, MPI_INT, size, 0, comm, &request), MPI_ERR_RANK);
    FAILS(MPI_Sendrecv(&value, 1, MPI_INT, size, 0, &value, 1, MPI_INT, 0, 0, comm, &status), MPI_ERR_RANK);
}

static void s9_4_roots_out_of_range(void)
{
    FAILS(MPI_Bcast(&value, 1, MPI_INT, size, comm), MPI_ERR_ROOT);
    FAILS(MPI_Bcast(&value, 1, MPI_INT, -1, comm), MPI_ERR_ROOT);
    FAILS(MPI_Reduce(&value, &request, 1, MPI_INT, MPI_SUM, size, comm), MPI_ERR_ROOT);
}

static void s9_4_tags_out_of_range(void)
{
    FAILS(MPI_Send(&value, 1, MPI_INT, rank, -1, comm), MPI_ERR_TAG);
    FAILS(MPI_Send(&value, 1, MPI_INT, rank, MPI_ANY_TAG, comm), MPI_ERR_TAG);
    FAILS(MPI_Isend(&value, 1, MPI_INT, rank, -5, comm, &request), MPI_ERR_TAG);
    FAILS(MPI_Recv(&value, 1, MPI_INT, rank, -5, comm, &status), MPI_ERR_TAG);
    FAILS(MPI_Irecv(&value, 1, MPI_INT, rank, -5, comm, &request), MPI_ERR_TAG);
}

static void s9_4_counts_below_zero(void)
{
    FAILS(MPI_Send(&value, -1, MPI_INT, rank, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Irecv(&value, -1, MPI_INT, rank, 0, comm, &request), MPI_ERR_COUNT);
    FAILS(MPI_Bcast(&value, -1, MPI_INT, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Send_c(&value, -1, MPI_INT, rank, 0, comm), MPI_ERR_COUNT);
}

static void s9_4_datatypes_that_cannot_be_sent(void)
{
    MPI_Datatype type;
    FAILS(MPI_Send(&value, 1, MPI_DATATYPE_NULL, rank, 0, comm), MPI_ERR_TYPE);
    FAILS(MPI_Recv(&value, 1, MPI_DATATYPE_NULL, rank, 0, comm, &status), MPI_ERR_TYPE);
    MPI_Type_contiguous(2, MPI_INT, &type);
    FAILS(MPI_Send(&value, 1, type, rank, 0, comm), MPI_ERR_TYPE);
    MPI_Type_free(&type);
}

static void s9_4_no_communicator(void)
{
    int size_of_null;
    FAILS(MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_NULL), MPI_ERR_COMM);
    FAILS(MPI_Comm_size(MPI_COMM_NULL, &size_of_null), MPI_ERR_COMM);
    FAILS(MPI_Barrier(MPI_COMM_NULL), MPI_ERR_COMM);
    MPI_Comm null = MPI_COMM_NULL;
    FAILS(MPI_Comm_free(&null), MPI_ERR_COMM);
}

static void s9_4_null_buffers_and_pointers(void)
{
    FAILS(MPI_Send(NULL, 1, MPI_INT, rank, 0, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Recv(NULL, 1, MPI_INT, rank, 0, comm, &status), MPI_ERR_BUFFER);
}

static void s9_4_requests_that_are_none(void)
{
    MPI_Request null = MPI_REQUEST_NULL;
    FAILS(MPI_Start(&null), MPI_ERR_REQUEST);
    FAILS(MPI_Request_free(&null), MPI_ERR_REQUEST);
    FAILS(MPI_Cancel(&null), MPI_ERR_REQUEST);
}

static void s9_4_operations_that_do_not_fit(void)
{
    int in = 1, out;
    float real = 1;
    FAILS(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_OP_NULL, comm), MPI_ERR_OP);
    FAILS(MPI_Allreduce(&real, &real + 1, 1, MPI_FLOAT, MPI_BAND, comm), MPI_ERR_OP);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    RUN(s9_4_ranks_out_of_range);
    RUN(s9_4_roots_out_of_range);
    RUN(s9_4_tags_out_of_range);
    RUN(s9_4_counts_below_zero);
    RUN(s9_4_datatypes_that_cannot_be_sent);
    RUN(s9_4_no_communicator);
    RUN(s9_4_null_buffers_and_pointers);
    RUN(s9_4_requests_that_are_none);
    RUN(s9_4_operations_that_do_not_fit);
    // The wrong calls have left nothing behind that could disturb a message.
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1;
    GOOD(MPI_Sendrecv(&rank, 1, MPI_INT, right, 0, &in, 1, MPI_INT, left, 0, comm, MPI_STATUS_IGNORE));
    EQUAL(in, left);
    MPI_Comm_free(&comm);
    return finish();
}
