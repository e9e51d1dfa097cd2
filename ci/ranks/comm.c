// SPDX-License-Identifier: MIT OR Apache-2.0
// Communicators: MPI 5.0 section 7.4.
#include "check.h"

enum { TAG = 3 };

static int compare(MPI_Comm a, MPI_Comm b)
{
    int result = -1;
    MPI_Comm_compare(a, b, &result);
    return result;
}

static void s7_4_1_world_and_self(void)
{
    int n = -1, me = -1;
    MPI_Comm_size(MPI_COMM_SELF, &n);
    MPI_Comm_rank(MPI_COMM_SELF, &me);
    EQUAL(n, 1);
    EQUAL(me, 0);
    EQUAL(compare(MPI_COMM_WORLD, MPI_COMM_WORLD), MPI_IDENT);
    EQUAL(compare(MPI_COMM_WORLD, MPI_COMM_SELF), size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL);
}

// The same message on two communicators: each receive gets the message of its communicator.
static void s7_4_2_a_duplicate_is_another_world(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, n = -1, me = -1;
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    EQUAL(compare(MPI_COMM_WORLD, copy), MPI_CONGRUENT);
    MPI_Comm_size(copy, &n);
    MPI_Comm_rank(copy, &me);
    EQUAL(n, size);
    EQUAL(me, rank);
    int first = 1, second = 2, in = -1;
    MPI_Request requests[2];
    MPI_Isend(&first, 1, MPI_INT, right, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&second, 1, MPI_INT, right, TAG, copy, &requests[1]);
    MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, copy, MPI_STATUS_IGNORE);
    EQUAL(in, 2);
    MPI_Recv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(in, 1);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Comm_free(&copy);
    CHECK(copy == MPI_COMM_NULL, "the freed handle is still set");
}

static void s7_4_2_split_by_colour(void)
{
    MPI_Comm half;
    int colour = rank % 2, n = -1, me = -1;
    MPI_Comm_split(MPI_COMM_WORLD, colour, rank, &half);
    MPI_Comm_size(half, &n);
    MPI_Comm_rank(half, &me);
    EQUAL(n, (size + 1 - colour) / 2);
    EQUAL(me, rank / 2);
    // The ranks of the half are the right processes.
    int right = (me + 1) % n, left = (me + n - 1) % n, in = -1;
    MPI_Status status;
    MPI_Sendrecv(&rank, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, half, &status);
    EQUAL(in, 2 * left + colour);
    EQUAL(status.MPI_SOURCE, left);
    MPI_Comm_free(&half);
}

// Keys order the new ranks, equal keys keep the old order.
static void s7_4_2_split_orders_by_key(void)
{
    MPI_Comm turned, stable;
    int me = -1;
    MPI_Comm_split(MPI_COMM_WORLD, 7, -rank, &turned);
    MPI_Comm_rank(turned, &me);
    EQUAL(me, size - 1 - rank);
    EQUAL(compare(turned, MPI_COMM_WORLD), size == 1 ? MPI_CONGRUENT : MPI_SIMILAR);
    MPI_Comm_split(turned, 0, 5, &stable);
    MPI_Comm_rank(stable, &me);
    EQUAL(me, size - 1 - rank);
    MPI_Comm_free(&turned);
    MPI_Comm_free(&stable);
}

static void s7_4_2_split_may_leave_somebody_out(void)
{
    MPI_Comm most;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 3, 0, &most);
    if (rank == 0) {
        CHECK(most == MPI_COMM_NULL, "whoever has no colour gets a communicator");
        return;
    }
    int n = -1, sum = -1, one = 1;
    MPI_Comm_size(most, &n);
    EQUAL(n, size - 1);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, most);
    EQUAL(sum, size - 1);
    MPI_Comm_free(&most);
}

// Split of a split of a split, down to single ranks, all in use at once.
static void s7_4_2_splits_of_splits(void)
{
    MPI_Comm levels[16];
    int depth = 0, n = size;
    MPI_Comm_dup(MPI_COMM_WORLD, &levels[0]);
    while (n > 1) {
        int me, sum = -1;
        MPI_Comm_rank(levels[depth], &me);
        MPI_Comm_split(levels[depth], me < n / 2, me, &levels[depth + 1]);
        depth++;
        MPI_Comm_size(levels[depth], &n);
        int one = 1;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, levels[depth]);
        EQUAL(sum, n);
    }
    for (; depth >= 0; depth--)
        MPI_Comm_free(&levels[depth]);
}

// Made and freed thousands of times: context ids come back.
static void s7_4_3_made_and_freed_again(void)
{
    int rounds = size > 16 ? 100 : 3000;
    for (int i = 0; i < rounds; i++) {
        MPI_Comm copy;
        MPI_Comm_dup(i % 2 ? MPI_COMM_WORLD : MPI_COMM_SELF, &copy);
        MPI_Comm_free(&copy);
    }
}

// Many alive at once, freed in another order.
static void s7_4_3_many_at_once(void)
{
    enum { MANY = 200 };
    static MPI_Comm comms[MANY];
    int many = size > 16 ? 20 : MANY;
    for (int i = 0; i < many; i++)
        MPI_Comm_dup(i ? comms[i - 1] : MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < many; i += 7) {
        int right = (rank + 1) % size, left = (rank + size - 1) % size, in = -1, out = rank + i;
        MPI_Sendrecv(&out, 1, MPI_INT, right, TAG, &in, 1, MPI_INT, left, TAG, comms[i], MPI_STATUS_IGNORE);
        EQUAL(in, left + i);
    }
    for (int i = 0; i < many; i += 2)
        MPI_Comm_free(&comms[i]);
    for (int i = 1; i < many; i += 2)
        MPI_Comm_free(&comms[i]);
}

// Section 7.4.3: freed while a message is under way; it arrives.
static void s7_4_3_freed_while_a_message_is_under_way(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    static char out[200000], in[200000];
    MPI_Request requests[2];
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    fill(out, sizeof out, (unsigned)rank);
    MPI_Irecv(in, sizeof in, MPI_BYTE, left, TAG, copy, &requests[0]);
    MPI_Isend(out, sizeof out, MPI_BYTE, right, TAG, copy, &requests[1]);
    MPI_Comm_free(&copy);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    PAYLOAD(in, sizeof in, (unsigned)left);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s7_4_1_world_and_self);
    RUN(s7_4_2_a_duplicate_is_another_world);
    RUN(s7_4_2_split_by_colour);
    RUN(s7_4_2_split_orders_by_key);
    RUN(s7_4_2_split_may_leave_somebody_out);
    RUN(s7_4_2_splits_of_splits);
    RUN(s7_4_3_made_and_freed_again);
    RUN(s7_4_3_many_at_once);
    RUN(s7_4_3_freed_while_a_message_is_under_way);
    return finish();
}
