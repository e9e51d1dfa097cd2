// SPDX-License-Identifier: MIT OR Apache-2.0
// Collectives with an error on some ranks, and what comes after them: MPI 5.0 chapters 6 and 9.
#include "check.h"

// If one rank's call fails before it has sent anything, and the others' calls need nothing from it, the calls after it
// must still match each other.
static void next_ones_are_right(void)
{
    for (int i = 0; i < 3; i++) {
        int value = rank == 0 ? 100 + i : -1, sum = -1;
        MPI_Request request;
        MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
        EQUAL(value, 100 + i);
        MPI_Ibcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        value = rank == 0 ? 200 + i : -1;
        MPI_Bcast_init(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
        EQUAL(value, 200 + i);
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        EQUAL(sum, size * (200 + i));
    }
}

static void s6_14_after_a_bad_argument_of_one_rank(void)
{
    int value = -1, last = rank == size - 1, n = last ? -1 : 1;
    MPI_Request request;
    int code = MPI_Bcast(&value, n, MPI_INT, 0, MPI_COMM_WORLD);
    EQUAL(code, last ? MPI_ERR_COUNT : MPI_SUCCESS);
    next_ones_are_right();
    code = MPI_Ibcast(&value, n, MPI_INT, 0, MPI_COMM_WORLD, &request);
    EQUAL(code, last ? MPI_ERR_COUNT : MPI_SUCCESS);
    if (code == MPI_SUCCESS)
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    next_ones_are_right();
    code = MPI_Bcast_init(&value, n, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    EQUAL(code, last ? MPI_ERR_COUNT : MPI_SUCCESS);
    next_ones_are_right();
    if (code == MPI_SUCCESS)
        MPI_Request_free(&request);
}

// An error in the first call on a communicator, in which an implementation may set up connections.
static void s6_14_a_bad_argument_in_the_first_call(void)
{
    MPI_Comm comm;
    int last = rank == size - 1, value = rank == 0 ? 5 : -1;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    int code = MPI_Bcast(&value, last ? -1 : 1, MPI_INT, 0, comm);
    EQUAL(code, last ? MPI_ERR_COUNT : MPI_SUCCESS);
    EQUAL(value, last && size > 1 ? -1 : 5);
    for (int i = 0; i < 3; i++) {
        int one = 1, sum = -1;
        GOOD(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
        EQUAL(sum, size);
        GOOD(MPI_Barrier(comm));
    }
    GOOD(MPI_Comm_free(&comm));
}

static void s7_4_2_after_a_communicator_that_one_rank_could_not_make(void)
{
    int last = rank == size - 1, extent = last ? -1 : 1, period = 0;
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info gone = info;
    MPI_Info_free(&info);
    int code = MPI_Comm_dup_with_info(MPI_COMM_WORLD, last ? gone : MPI_INFO_NULL, &made);
    EQUAL(code, last ? MPI_ERR_INFO : MPI_SUCCESS);
    if (made != MPI_COMM_NULL)
        MPI_Comm_free(&made);
    next_ones_are_right();
    code = MPI_Cart_create(MPI_COMM_WORLD, 1, &extent, &period, 0, &made);
    EQUAL(code, last ? MPI_ERR_DIMS : MPI_SUCCESS);
    if (made != MPI_COMM_NULL)
        MPI_Comm_free(&made);
    next_ones_are_right();
}

// A NULL buffer with displacements is valid only if the blocks of all ranks are empty.
static void s6_5_displacements_from_no_memory(void)
{
    int one = 1, *counts = allocate(2 * (size_t)size * sizeof(int)), *places = counts + size;
    for (int r = 0; r < size; r++) {
        counts[r] = r > 0;
        places[r] = 1000 + r;
    }
    int wrong = rank == 0 && size > 1 ? MPI_ERR_BUFFER : MPI_SUCCESS;
    EQUAL(MPI_Gatherv(&one, rank > 0, MPI_INT, NULL, counts, places, MPI_INT, 0, MPI_COMM_WORLD), wrong);
    EQUAL(MPI_Gatherv(&one, rank > 0, MPI_INT, MPI_IN_PLACE, counts, places, MPI_INT, 0, MPI_COMM_WORLD), wrong);
    next_ones_are_right();
    int count = 1, place = 5000, none = 0;
    MPI_Datatype type = MPI_INT;
    FAILS(MPI_Allgatherv(&one, 1, MPI_INT, NULL, &count, &place, MPI_INT, MPI_COMM_SELF), MPI_ERR_BUFFER);
    FAILS(MPI_Alltoallw(&one, &count, &none, &type, MPI_IN_PLACE, &count, &place, &type, MPI_COMM_SELF), MPI_ERR_BUFFER);
    GOOD(MPI_Allgatherv(NULL, 0, MPI_INT, NULL, &none, &place, MPI_INT, MPI_COMM_SELF));
    // A type with displacements that are not addresses.
    MPI_Datatype shifted;
    MPI_Type_create_hindexed_block(1, 1, (MPI_Aint[]){8}, MPI_INT, &shifted);
    MPI_Type_commit(&shifted);
    FAILS(MPI_Bcast(NULL, 1, shifted, 0, MPI_COMM_SELF), MPI_ERR_BUFFER);
    MPI_Type_free(&shifted);
    free(counts);
}

// The root's own block has another length than those for which it has room: an error at the root, whatever algorithm
// moves the blocks. The error message names the ranks of the communicator and does not mention messages.
static void s6_5_the_root_has_room_for_other_blocks(void)
{
    enum { MOST = 300000 };
    static const int items[][3] = {{1, 1, 4}, {4, 4, 1}, {MOST, 2, 2}, {2, 2, MOST}}; // of the root, of others, and room
    int *mine = calloc(MOST, sizeof(int)), *all = calloc((size_t)MOST * (size_t)size, sizeof(int));
    for (int i = 0; i < 4; i++) {
        const int *it = items[i];
        int code = MPI_Gather(mine, it[rank > 0], MPI_INT, all, it[2], MPI_INT, 0, MPI_COMM_WORLD);
        CHECK(rank > 0 || code != MPI_SUCCESS, "room for %d", it[2]);
        MPI_Barrier(MPI_COMM_WORLD);
        next_ones_are_right();
    }
    free(mine);
    free(all);
}

static void s6_4_what_a_wrong_count_is_told_as(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int me, length = 0, many[4] = {0};
    MPI_Comm backwards;
    MPI_Request request;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &backwards);
    MPI_Comm_set_errhandler(backwards, MPI_ERRORS_RETURN);
    MPI_Comm_rank(backwards, &me);
    for (int more = 0; more < 2; more++) {
        int mine = me == 0 ? 1 + 3 * more : 4 - 3 * more;
        MPI_Ibcast(many, mine, MPI_INT, 0, backwards, &request);
        int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        // The rank after the root detects the error from the message; the others do because that rank forwards nothing.
        EQUAL(code, me == 0 ? MPI_SUCCESS : MPI_ERR_TRUNCATE);
        if (code == MPI_SUCCESS)
            continue;
        MPI_Error_string(code, text, &length);
        CHECK(strstr(text, " bytes in this call, of which ") && !strstr(text, "tag"), "%s", text);
        const char *who = strstr(text, "rank ");
        CHECK(who && atoi(who + 5) < me, "rank %d was told: %s", me, text);
    }
    MPI_Comm_free(&backwards);
}

// Errors of MPI_Start are raised on the communicator of the request (section 9.3).
static void s3_9_errors_of_a_start(void)
{
    int value = 0;
    MPI_Comm comm;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Recv_init(&value, 1, MPI_INT, 0, 0, comm, &request);
    MPI_Start(&request);
    FAILS(MPI_Start(&request), MPI_ERR_REQUEST);
    FAILS(MPI_Startall(1, &request), MPI_ERR_REQUEST);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    MPI_Comm_free(&comm);
}

// Further ranks of the root's group contribute nothing: their datatype and operation do not count (section 6.9.1).
static void s6_9_1_who_only_stands_by(void)
{
    if (size < 3)
        return;
    MPI_Comm half, both;
    int is_alone = rank == size - 1, sum = -1, me;
    MPI_Comm_split(MPI_COMM_WORLD, is_alone, rank, &half);
    MPI_Comm_rank(half, &me);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_alone ? 0 : size - 1, 3, &both);
    int value = 42;
    if (is_alone)
        MPI_Reduce(&value, NULL, 1, MPI_INT, MPI_SUM, 0, both);
    else if (me == 0)
        MPI_Reduce(NULL, &sum, 1, MPI_INT, MPI_SUM, MPI_ROOT, both);
    else
        GOOD(MPI_Reduce(NULL, NULL, 0, MPI_DATATYPE_NULL, MPI_OP_NULL, MPI_PROC_NULL, both));
    if (!is_alone && me == 0)
        EQUAL(sum, 42);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

static void s6_14_a_last_call_that_fails(void)
{
    int value = 0, n = rank == size - 1 ? -1 : 1;
    MPI_Barrier(MPI_COMM_WORLD);
    EQUAL(MPI_Bcast(&value, n, MPI_INT, 0, MPI_COMM_WORLD), n < 0 ? MPI_ERR_COUNT : MPI_SUCCESS);
    EQUAL(MPI_Bcast(&value, n, MPI_INT, 0, MPI_COMM_WORLD), n < 0 ? MPI_ERR_COUNT : MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    RUN(s6_14_after_a_bad_argument_of_one_rank);
    RUN(s6_14_a_bad_argument_in_the_first_call);
    RUN(s7_4_2_after_a_communicator_that_one_rank_could_not_make);
    RUN(s6_5_displacements_from_no_memory);
    RUN(s6_5_the_root_has_room_for_other_blocks);
    RUN(s6_4_what_a_wrong_count_is_told_as);
    RUN(s3_9_errors_of_a_start);
    RUN(s6_9_1_who_only_stands_by);
    // MPI_Finalize must work after it, too.
    s6_14_a_last_call_that_fails();
    return finish();
}
