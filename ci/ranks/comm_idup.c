// SPDX-License-Identifier: MIT OR Apache-2.0
// Communicators duplicated in the background: MPI 5.0 section 7.4.2.
#include "check.h"

enum { TAG = 4, MANY = 20 };

static int sum_of_ones(MPI_Comm comm)
{
    int one = 1, sum = -1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

static void s7_4_2_idup(void)
{
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Request request;
    int result = -1;
    GOOD(MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request));
    GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_Comm_compare(MPI_COMM_WORLD, copy, &result);
    EQUAL(result, MPI_CONGRUENT);
    EQUAL(sum_of_ones(copy), size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, copy, MPI_STATUS_IGNORE);
    EQUAL(in, left);
    MPI_Comm_free(&copy);
}

// Many at once, of two communicators in another order at each rank, with a barrier and messages beside them.
static void s7_4_2_many_at_once(void)
{
    MPI_Comm copies[2][MANY], parents[2] = {MPI_COMM_WORLD, MPI_COMM_NULL};
    MPI_Request requests[2 * MANY + 1];
    int right = (rank + 1) % size, left = (rank + size - 1) % size, n = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &parents[1]);
    for (int i = 0; i < 2 * MANY; i++) {
        // Even ranks: first all of the one, then all of the other; odd ranks by turns.
        int which = rank % 2 ? i % 2 : i / MANY, number = rank % 2 ? i / 2 : i % MANY;
        GOOD(MPI_Comm_idup(parents[which], &copies[which][number], &requests[n++]));
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[n++]);
    GOOD(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
    // Messages in one communicator must not match in another.
    MPI_Request sends[2 * MANY];
    int out[2 * MANY], in = -1;
    for (int i = 0; i < 2 * MANY; i++) {
        out[i] = rank * 1000 + i;
        MPI_Isend(&out[i], 1, MPI_INT, right, TAG, copies[i / MANY][i % MANY], &sends[i]);
    }
    for (int i = 2 * MANY - 1; i >= 0; i--) {
        MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, TAG, copies[i / MANY][i % MANY], MPI_STATUS_IGNORE);
        EQUAL(in, left * 1000 + i);
    }
    MPI_Waitall(2 * MANY, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2 * MANY; i++)
        MPI_Comm_free(&copies[i / MANY][i % MANY]);
    MPI_Comm_free(&parents[1]);
}

// The parent's attributes, hints and topology are copied; the parent may be freed before the duplicate is complete.
static void s7_4_2_what_comes_along(void)
{
    int key, value = 1, flag = 0, *got = NULL, dims[1] = {size}, periods[1] = {1}, status = -1, length = 8;
    char text[8] = "";
    MPI_Comm ring, copy, plain;
    MPI_Request requests[2];
    MPI_Info info, used;
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
    MPI_Comm_set_attr(ring, key, &value);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_exact_length", "true");
    GOOD(MPI_Comm_idup(ring, &copy, &requests[0]));
    GOOD(MPI_Comm_idup_with_info(ring, info, &plain, &requests[1]));
    MPI_Comm_free(&ring);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Topo_test(copy, &status);
    EQUAL(status, MPI_CART);
    MPI_Comm_get_attr(plain, key, &got, &flag);
    CHECK(flag && got == &value, "the attribute was not copied");
    MPI_Comm_get_info(plain, &used);
    MPI_Info_get_string(used, "mpi_assert_exact_length", &length, text, &flag);
    CHECK(flag && !strcmp(text, "true"), "the hint is %s", text);
    EQUAL(sum_of_ones(copy), size);
    MPI_Info_free(&used);
    MPI_Info_free(&info);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&plain);
    MPI_Comm_free_keyval(&key);
}

static void s7_4_2_idup_of_an_intercommunicator(void)
{
    if (size == 1)
        return;
    int half = size / 2, low = rank < half, n = -1, in = -1;
    MPI_Comm side, inter, copies[3];
    MPI_Request requests[3];
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &side);
    MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, low ? half : 0, TAG, &inter);
    for (int i = 0; i < 3; i++)
        GOOD(MPI_Comm_idup(inter, &copies[i], &requests[i]));
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 3; i++) {
        MPI_Comm_remote_size(copies[i], &n);
        EQUAL(n, low ? size - half : half);
        if (rank == 0 || rank == half) {
            MPI_Sendrecv(&rank, 1, MPI_INT, 0, TAG, &in, 1, MPI_INT, 0, TAG, copies[i], MPI_STATUS_IGNORE);
            EQUAL(in, low ? half : 0);
        }
        MPI_Comm_free(&copies[i]);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&side);
}

static int copy_fails(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)state, (void)in, (void)out, (void)flag;
    return MPI_ERR_OTHER;
}

static void s7_7_2_a_copy_function_fails(void)
{
    int key, value = 0;
    MPI_Comm comm, copy;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_create_keyval(copy_fails, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(comm, key, &value);
    FAILS(MPI_Comm_idup(comm, &copy, &request), MPI_ERR_OTHER);
    CHECK(copy == MPI_COMM_NULL, "a failed call gave a handle");
    MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s7_4_2_idup);
    RUN(s7_4_2_many_at_once);
    RUN(s7_4_2_what_comes_along);
    RUN(s7_4_2_idup_of_an_intercommunicator);
    RUN(s7_7_2_a_copy_function_fails);
    return finish();
}
