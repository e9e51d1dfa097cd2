// SPDX-License-Identifier: MIT OR Apache-2.0
// Collectives with an error on some ranks, and what comes after them: MPI 5.0 chapters 6 and 9.
#include "check.h"

// Where one rank's call fails before it has done anything and the others' calls need nothing from it, the calls after it
// must still find each other.
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

// A buffer that is none, and displacements from it: only where no rank's block has anything.
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
    // A type with displacements of its own that are no addresses.
    MPI_Datatype shifted;
    MPI_Type_create_hindexed_block(1, 1, (MPI_Aint[]){8}, MPI_INT, &shifted);
    MPI_Type_commit(&shifted);
    FAILS(MPI_Bcast(NULL, 1, shifted, 0, MPI_COMM_SELF), MPI_ERR_BUFFER);
    MPI_Type_free(&shifted);
    free(counts);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    RUN(s6_14_after_a_bad_argument_of_one_rank);
    RUN(s7_4_2_after_a_communicator_that_one_rank_could_not_make);
    RUN(s6_5_displacements_from_no_memory);
    return finish();
}
