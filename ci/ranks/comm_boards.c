// SPDX-License-Identifier: MIT OR Apache-2.0
// Communicators that were made from an intercommunicator and freed, or could not be made, release their boards:
// collectives of a new communicator on one node still use shared memory, where a barrier sends no messages.
#include "check.h"

enum { SPLITS = 400, MOST = 64 };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle sent;

static void begin_counting(void)
{
    int index = -1, count = 0;
    GOOD(MPI_T_pvar_session_create(&session));
    GOOD(MPI_T_pvar_get_index("sent_messages_to", MPI_T_PVAR_CLASS_COUNTER, &index));
    GOOD(MPI_T_pvar_handle_alloc(session, index, NULL, &sent, &count));
    GOOD(MPI_T_pvar_start(session, sent));
    EQUAL(count, size);
}

// Messages of this rank so far.
static unsigned long long messages(void)
{
    unsigned long long row[MOST], sum = 0;
    GOOD(MPI_T_pvar_read(session, sent, row));
    for (int to = 0; to < size; to++)
        sum += row[to];
    return sum;
}

// Collectives of a new communicator send no messages.
static void new_communicator_has_a_board(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    unsigned long long before = messages();
    for (int i = 0; i < 10; i++)
        MPI_Barrier(comm);
    EQUAL(messages() - before, 0);
    MPI_Comm_free(&comm);
}

static void s7_4_2_splits_of_an_intercommunicator_leave_nothing_taken(void)
{
    MPI_Comm half, inter, part;
    int is_low = rank < size / 2;
    MPI_Comm_split(MPI_COMM_WORLD, is_low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_low ? size / 2 : 0, 5, &inter);
    for (int i = 0; i < SPLITS; i++) {
        // Alternately one color for all ranks, and a different one for each group.
        MPI_Comm_split(inter, i % 2 ? 0 : is_low, rank, &part);
        EQUAL(part != MPI_COMM_NULL, i % 2);
        if (part != MPI_COMM_NULL)
            MPI_Comm_free(&part);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    new_communicator_has_a_board();
}

// The groups are rank 0 and the last rank, and rank 1 and the last rank.
static void s7_6_2_groups_that_overlap_leave_nothing_taken(void)
{
    if (size < 3)
        return;
    MPI_Comm side[2], inter;
    for (int leader = 0; leader < 2; leader++) {
        int is_in = rank == leader || rank == size - 1;
        MPI_Comm_split(MPI_COMM_WORLD, is_in ? 0 : MPI_UNDEFINED, rank, &side[leader]);
        if (is_in)
            MPI_Comm_set_errhandler(side[leader], MPI_ERRORS_RETURN);
    }
    for (int i = 0; i < SPLITS; i++)
        for (int leader = 0; leader < 2; leader++)
            if (side[leader] != MPI_COMM_NULL)
                FAILS(MPI_Intercomm_create(side[leader], 0, MPI_COMM_WORLD, 1 - leader, 5, &inter), MPI_ERR_COMM);
    for (int leader = 0; leader < 2; leader++)
        if (side[leader] != MPI_COMM_NULL)
            MPI_Comm_free(&side[leader]);
    new_communicator_has_a_board();
}

int main(int argc, char **argv)
{
    int provided;
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    start(&argc, &argv);
    begin_counting();
    RUN(s7_4_2_splits_of_an_intercommunicator_leave_nothing_taken);
    RUN(s7_6_2_groups_that_overlap_leave_nothing_taken);
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
    return finish();
}
