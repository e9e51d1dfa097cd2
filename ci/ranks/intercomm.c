// SPDX-License-Identifier: MIT OR Apache-2.0
// Intercommunicators: MPI 5.0 section 7.6. The two groups are the low and the high ranks.
#include "check.h"

enum { TAG = 6 };

static int low, half, local_rank, local_size, remote_size;
static MPI_Comm side;

// Between the low half and the rest; MPI_COMM_NULL where there is only one rank.
static MPI_Comm make(void)
{
    MPI_Comm inter = MPI_COMM_NULL;
    GOOD(MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, low ? half : 0, TAG, &inter));
    return inter;
}

// The world rank of a rank of the other side.
static int world_of(int remote)
{
    return low ? half + remote : remote;
}

// Each rank sends to all ranks of the remote group; sources and ranks are those of the remote group.
static void talk(MPI_Comm inter, int others, int (*world)(int))
{
    int out[2] = {rank, 0}, in[2];
    MPI_Request *requests = allocate(sizeof *requests * (size_t)others);
    for (int i = 0; i < others; i++)
        MPI_Isend(out, 2, MPI_INT, i, TAG, inter, &requests[i]);
    for (int i = 0; i < others; i++) {
        MPI_Status status;
        MPI_Recv(in, 2, MPI_INT, MPI_ANY_SOURCE, TAG, inter, &status);
        CHECK(status.MPI_SOURCE >= 0 && status.MPI_SOURCE < others, "source %d", status.MPI_SOURCE);
        EQUAL(in[0], world(status.MPI_SOURCE));
    }
    MPI_Waitall(others, requests, MPI_STATUSES_IGNORE);
    free(requests);
}

static void s7_6_1_both_groups(void)
{
    MPI_Comm inter = make();
    int flag = -1, n = -1, me = -1, result = -1;
    MPI_Group mine, theirs, got;
    GOOD(MPI_Comm_test_inter(inter, &flag));
    EQUAL(flag, 1);
    MPI_Comm_test_inter(MPI_COMM_WORLD, &flag);
    EQUAL(flag, 0);
    MPI_Comm_size(inter, &n);
    EQUAL(n, local_size);
    MPI_Comm_rank(inter, &me);
    EQUAL(me, local_rank);
    GOOD(MPI_Comm_remote_size(inter, &n));
    EQUAL(n, remote_size);
    MPI_Comm_group(side, &mine);
    MPI_Comm_group(inter, &got);
    MPI_Group_compare(mine, got, &result);
    EQUAL(result, MPI_IDENT);
    MPI_Group_free(&got);
    GOOD(MPI_Comm_remote_group(inter, &theirs));
    MPI_Group_intersection(mine, theirs, &got);
    CHECK(got == MPI_GROUP_EMPTY, "the groups have a process in common");
    MPI_Group_free(&mine);
    MPI_Group_free(&theirs);
    MPI_Comm_free(&inter);
}

static void s7_6_messages_go_to_the_other_side(void)
{
    MPI_Comm inter = make();
    talk(inter, remote_size, world_of);
    // The leaders with a large message, a probe and a matched probe.
    if (local_rank == 0) {
        static char out[300000], in[300000];
        MPI_Request request;
        MPI_Status status;
        MPI_Message message;
        fill(out, sizeof out, (unsigned)rank);
        MPI_Isend(out, sizeof out, MPI_BYTE, 0, TAG + 1, inter, &request);
        MPI_Probe(MPI_ANY_SOURCE, TAG + 1, inter, &status);
        STATUS(&status, 0, TAG + 1, (int)sizeof in);
        MPI_Mprobe(0, TAG + 1, inter, &message, &status);
        MPI_Mrecv(in, sizeof in, MPI_BYTE, &message, &status);
        STATUS(&status, 0, TAG + 1, (int)sizeof in);
        PAYLOAD(in, sizeof in, (unsigned)world_of(0));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&inter);
}

static void s7_6_ranks_of_the_other_side_are_checked(void)
{
    MPI_Comm inter = make();
    int value = 0, n;
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    FAILS(MPI_Send(&value, 1, MPI_INT, remote_size, TAG, inter), MPI_ERR_RANK);
    MPI_Comm_set_errhandler(side, MPI_ERRORS_RETURN);
    FAILS(MPI_Comm_remote_size(side, &n), MPI_ERR_COMM);
    MPI_Comm_set_errhandler(side, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&inter);
}

// Three contexts: messages of the original, of the copy and of the local communicator must not be confused.
static void s7_4_2_dup(void)
{
    MPI_Comm inter = make(), copy;
    int result = -1, first = 1, second = 2, in = -1, value = 0, key, flag = 0, *got = NULL;
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(inter, key, &value);
    GOOD(MPI_Comm_dup(inter, &copy));
    MPI_Comm_get_attr(copy, key, &got, &flag);
    CHECK(flag && got == &value, "the attribute was not copied");
    MPI_Comm_compare(inter, copy, &result);
    EQUAL(result, MPI_CONGRUENT);
    MPI_Comm_compare(inter, inter, &result);
    EQUAL(result, MPI_IDENT);
    MPI_Comm_compare(inter, side, &result);
    EQUAL(result, MPI_UNEQUAL);
    if (local_rank == 0) {
        MPI_Request requests[2];
        MPI_Isend(&first, 1, MPI_INT, 0, TAG, inter, &requests[0]);
        MPI_Isend(&second, 1, MPI_INT, 0, TAG, copy, &requests[1]);
        MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, copy, MPI_STATUS_IGNORE);
        EQUAL(in, 2);
        MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, inter, MPI_STATUS_IGNORE);
        EQUAL(in, 1);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Comm_free(&inter);
    // The receive above would match any message of the copy, so no rank sends before it is complete.
    MPI_Barrier(copy);
    talk(copy, remote_size, world_of);
    MPI_Comm_free(&copy);
    MPI_Comm_free_keyval(&key);
}

static void s7_6_2_merge(void)
{
    MPI_Comm inter = make(), all;
    int me = -1, n = -1, sum = -1;
    for (int way = 0; way < 4; way++) {
        // Low first, high first, both the same.
        int high = way == 0 ? !low : way == 1 ? low : way == 2;
        GOOD(MPI_Intercomm_merge(inter, high, &all));
        MPI_Comm_rank(all, &me);
        MPI_Comm_size(all, &n);
        EQUAL(n, size);
        if (way == 0)
            EQUAL(me, rank);
        if (way == 1)
            EQUAL(me, low ? size - half + local_rank : local_rank);
        MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, all);
        EQUAL(sum, size * (size - 1) / 2);
        MPI_Comm_free(&all);
    }
    MPI_Comm_free(&inter);
}

static int world_of_even(int remote)
{
    return world_of(2 * remote);
}

static void s7_4_2_split(void)
{
    MPI_Comm inter = make(), part;
    int n = -1, me = -1;
    // The even ranks of both groups, and the odd ranks of the low group, whose remote group is empty.
    int color = local_rank % 2 == 0 ? 0 : low ? 1 : MPI_UNDEFINED;
    GOOD(MPI_Comm_split(inter, color, local_rank, &part));
    if (color != 0) {
        CHECK(part == MPI_COMM_NULL, "one side alone got a communicator");
    } else {
        MPI_Comm_remote_size(part, &n);
        EQUAL(n, (remote_size + 1) / 2);
        MPI_Comm_rank(part, &me);
        EQUAL(me, local_rank / 2);
        talk(part, n, world_of_even);
        MPI_Comm_free(&part);
    }
    MPI_Comm_free(&inter);
}

static int world_of_last(int remote)
{
    (void)remote;
    return world_of(remote_size - 1);
}

static void s7_4_2_create(void)
{
    MPI_Comm inter = make(), part;
    MPI_Group all, last;
    int which = local_size - 1, n = -1;
    MPI_Comm_group(inter, &all);
    MPI_Group_incl(all, 1, &which, &last);
    GOOD(MPI_Comm_create(inter, last, &part));
    CHECK((part != MPI_COMM_NULL) == (local_rank == which), "who got a communicator");
    if (part != MPI_COMM_NULL) {
        MPI_Comm_remote_size(part, &n);
        EQUAL(n, 1);
        talk(part, 1, world_of_last);
        MPI_Comm_free(&part);
    }
    // If one group is empty, the other gets MPI_COMM_NULL.
    GOOD(MPI_Comm_create(inter, low ? all : MPI_GROUP_EMPTY, &part));
    CHECK(part == MPI_COMM_NULL, "a communicator with nobody on the other side");
    MPI_Group_free(&last);
    MPI_Group_free(&all);
    MPI_Comm_free(&inter);
}

// The leaders' bridge may be an intercommunicator, and the sides' leaders any ranks.
static void s7_6_2_other_leaders(void)
{
    MPI_Comm inter = make(), again;
    int leader = local_size - 1, remote_leader = remote_size - 1;
    GOOD(MPI_Intercomm_create(side, leader, inter, remote_leader, 0, &again));
    talk(again, remote_size, world_of);
    MPI_Comm_free(&again);
    MPI_Comm_free(&inter);
}

static void s7_6_2_wrong_arguments(void)
{
    MPI_Comm inter = MPI_COMM_NULL;
    MPI_Comm_set_errhandler(side, MPI_ERRORS_RETURN);
    FAILS(MPI_Intercomm_create(side, local_size, MPI_COMM_WORLD, 0, TAG, &inter), MPI_ERR_RANK);
    int code = MPI_Intercomm_create(side, 0, MPI_COMM_WORLD, size, TAG, &inter), class = -1;
    MPI_Error_class(code, &class);
    EQUAL(class, local_rank == 0 ? MPI_ERR_RANK : MPI_ERR_OTHER);
    MPI_Comm_set_errhandler(side, MPI_ERRORS_ARE_FATAL);
}

// At MPI_PROC_NULL, beside the root, only the communicator and the root count: an operation that does not fit the
// datatype is no error.
static void s6_9_1_beside_the_root_nothing_else_counts(void)
{
    MPI_Comm inter = make();
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    int sum = -1, root = 0;
    if (!low)
        root = local_rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    if (root == MPI_PROC_NULL)
        GOOD(MPI_Reduce(NULL, NULL, 0, MPI_BYTE, MPI_SUM, root, inter));
    else
        GOOD(MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, root, inter));
    if (root == MPI_ROOT)
        EQUAL(sum, half * (half - 1) / 2);
    MPI_Comm_free(&inter);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (size == 1)
        return finish();
    half = size / 2;
    low = rank < half;
    local_rank = low ? rank : rank - half;
    local_size = low ? half : size - half;
    remote_size = size - local_size;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &side);
    RUN(s7_6_1_both_groups);
    RUN(s7_6_messages_go_to_the_other_side);
    RUN(s7_6_ranks_of_the_other_side_are_checked);
    RUN(s7_4_2_dup);
    RUN(s7_6_2_merge);
    RUN(s7_4_2_split);
    RUN(s7_4_2_create);
    RUN(s7_6_2_other_leaders);
    RUN(s6_9_1_beside_the_root_nothing_else_counts);
    RUN(s7_6_2_wrong_arguments);
    MPI_Comm_free(&side);
    return finish();
}
