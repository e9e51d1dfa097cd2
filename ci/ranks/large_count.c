// SPDX-License-Identifier: MIT OR Apache-2.0
// The forms with MPI_Count: MPI 5.0 section 2.5.8 ("_c"). They have the same results as the forms with int.
#include "check.h"

enum { TAG = 3, N = 5000 };

static int right, left;
static int out[N], in[N];

static void fresh(void)
{
    for (int i = 0; i < N; i++) {
        out[i] = rank * N + i;
        in[i] = -1;
    }
}

static void check_in(int from)
{
    int wrong = 0;
    for (int i = 0; i < N; i++)
        wrong += in[i] != from * N + i;
    EQUAL(wrong, 0);
}

static void s2_5_8_blocking(void)
{
    MPI_Status status;
    MPI_Count count = -1;
    fresh();
    GOOD(MPI_Sendrecv_c(out, N, MPI_INT, right, TAG, in, N, MPI_INT, left, TAG, MPI_COMM_WORLD, &status));
    GOOD(MPI_Get_count_c(&status, MPI_INT, &count));
    EQUAL(count, N);
    check_in(left);
    GOOD(MPI_Sendrecv_replace_c(in, N, MPI_INT, left, TAG, right, TAG, MPI_COMM_WORLD, &status));
    check_in(rank);
    if (rank == 0 && size > 1) {
        GOOD(MPI_Send_c(out, N, MPI_INT, 1, TAG, MPI_COMM_WORLD));
        GOOD(MPI_Ssend_c(out, N, MPI_INT, 1, TAG, MPI_COMM_WORLD));
    }
    if (rank == 1)
        for (int i = 0; i < 2; i++) {
            fresh();
            GOOD(MPI_Recv_c(in, N, MPI_INT, 0, TAG, MPI_COMM_WORLD, &status));
            check_in(0);
        }
}

static void s2_5_8_nonblocking_and_persistent(void)
{
    MPI_Request requests[2];
    fresh();
    GOOD(MPI_Irecv_c(in, N, MPI_INT, left, TAG, MPI_COMM_WORLD, &requests[0]));
    GOOD(MPI_Isend_c(out, N, MPI_INT, right, TAG, MPI_COMM_WORLD, &requests[1]));
    GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    check_in(left);
    fresh();
    GOOD(MPI_Irecv_c(in, N, MPI_INT, left, TAG, MPI_COMM_WORLD, &requests[0]));
    GOOD(MPI_Issend_c(out, N, MPI_INT, right, TAG, MPI_COMM_WORLD, &requests[1]));
    GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    check_in(left);
    fresh();
    GOOD(MPI_Recv_init_c(in, N, MPI_INT, left, TAG, MPI_COMM_WORLD, &requests[0]));
    GOOD(MPI_Send_init_c(out, N, MPI_INT, right, TAG, MPI_COMM_WORLD, &requests[1]));
    for (int round = 0; round < 3; round++) {
        GOOD(MPI_Startall(2, requests));
        GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        check_in(left);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void s2_5_8_matched_and_buffered(void)
{
    MPI_Message message;
    MPI_Status status;
    MPI_Request request;
    MPI_Count bytes = 2 * (N * sizeof(int) + MPI_BSEND_OVERHEAD), got = -1;
    void *buffer = allocate((size_t)bytes), *back;
    GOOD(MPI_Buffer_attach_c(buffer, bytes));
    fresh();
    GOOD(MPI_Bsend_c(out, N, MPI_INT, right, TAG, MPI_COMM_WORLD));
    MPI_Mprobe(left, TAG, MPI_COMM_WORLD, &message, &status);
    GOOD(MPI_Mrecv_c(in, N, MPI_INT, &message, &status));
    check_in(left);
    fresh();
    GOOD(MPI_Ibsend_c(out, N, MPI_INT, right, TAG, MPI_COMM_WORLD, &request));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Mprobe(left, TAG, MPI_COMM_WORLD, &message, &status);
    GOOD(MPI_Imrecv_c(in, N, MPI_INT, &message, &request));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_in(left);
    GOOD(MPI_Buffer_detach_c(&back, &got));
    EQUAL(got, bytes);
    free(buffer);
}

static void s2_5_8_datatypes(void)
{
    MPI_Datatype row, grid;
    MPI_Count bytes = -1, lower = -1, extent = -1;
    GOOD(MPI_Type_contiguous_c(3000000000LL, MPI_INT, &row));
    GOOD(MPI_Type_size_c(row, &bytes));
    EQUAL(bytes, 12000000000LL);
    GOOD(MPI_Type_get_extent_c(row, &lower, &extent));
    EQUAL(lower, 0);
    EQUAL(extent, 12000000000LL);
    int small = 0;
    // The size does not fit an int: MPI_UNDEFINED (section 4.1.5).
    GOOD(MPI_Type_size(row, &small));
    EQUAL(small, MPI_UNDEFINED);
    GOOD(MPI_Type_vector_c(2, 1, 5000000000LL, MPI_BYTE, &grid));
    GOOD(MPI_Type_get_extent_c(grid, &lower, &extent));
    EQUAL(extent, 5000000001LL);
    GOOD(MPI_Type_get_true_extent_c(grid, &lower, &extent));
    EQUAL(extent, 5000000001LL);
    MPI_Type_free(&row);
    MPI_Type_free(&grid);
}

static void s2_5_8_collectives(void)
{
    enum { PER = 20 };
    int *all = allocate((size_t)size * PER * sizeof(int)), *parts = allocate((size_t)size * PER * sizeof(int));
    int wrong = 0, sum = -1;
    for (int i = 0; i < size * PER; i++)
        parts[i] = rank * 1000 + i;
    GOOD(MPI_Allgather_c(parts, PER, MPI_INT, all, PER, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < size * PER; i++)
        wrong += all[i] != i / PER * 1000 + i % PER;
    GOOD(MPI_Alltoall_c(parts, PER, MPI_INT, all, PER, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < size * PER; i++)
        wrong += all[i] != i / PER * 1000 + rank * PER + i % PER;
    EQUAL(wrong, 0);
    GOOD(MPI_Allreduce_c(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    EQUAL(sum, size * (size - 1) / 2);
    GOOD(MPI_Bcast_c(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD));
    GOOD(MPI_Reduce_c(&rank, &sum, 1, MPI_INT, MPI_MAX, 0, MPI_COMM_WORLD));
    if (rank == 0)
        EQUAL(sum, size - 1);
    GOOD(MPI_Gather_c(parts, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD));
    GOOD(MPI_Scatter_c(all, 1, MPI_INT, &sum, 1, MPI_INT, 0, MPI_COMM_WORLD));
    EQUAL(sum, rank * 1000);
    free(all);
    free(parts);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    right = (rank + 1) % size;
    left = (rank + size - 1) % size;
    RUN(s2_5_8_blocking);
    RUN(s2_5_8_nonblocking_and_persistent);
    RUN(s2_5_8_matched_and_buffered);
    RUN(s2_5_8_datatypes);
    RUN(s2_5_8_collectives);
    return finish();
}
