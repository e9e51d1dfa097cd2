// SPDX-License-Identifier: MIT OR Apache-2.0
// The nonblocking and the persistent form of every collective: MPI 5.0 sections 6.12 and 6.13. All of them are active
// on one communicator at the same time, and ranks wait for them in different orders.
#include "check.h"

enum { FORMS = 17, BLOCK_MAX = 3000 };

static const char *const names[FORMS] = {
    "barrier",   "bcast",     "gather", "gatherv",   "scatter",        "scatterv",             "allgather", "allgatherv", "alltoall",
    "alltoallv", "alltoallw", "reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan",      "exscan",
};
static const int blocks[] = {1, 60, 3000};

static int *out[FORMS], *in[FORMS], *counts, *places, *byte_places;
static MPI_Datatype *types;

static int value(int form, int from, int to, int i)
{
    return form * 1000003 + from * 7919 + to * 104729 + i;
}

static void prepare(int block, int times)
{
    for (int r = 0; r < size; r++) {
        counts[r] = block;
        places[r] = r * block;
        byte_places[r] = r * block * (int)sizeof(int);
        types[r] = MPI_INT;
    }
    for (int f = 0; f < FORMS; f++)
        for (int i = 0; i < size * block; i++) {
            out[f][i] = value(f, rank, i / block, i % block) + times;
            in[f][i] = -1;
        }
}

// Starts form `f` now, or makes its persistent request.
static int begin(int f, int block, int persistent, MPI_Request *request)
{
    MPI_Comm c = MPI_COMM_WORLD;
    int *o = out[f], *to = in[f], b = block, root = f % size;
    MPI_Info no = MPI_INFO_NULL;
#define EITHER(later, again) (persistent ? (again) : (later))
    switch (f) {
    case 0: return EITHER(MPI_Ibarrier(c, request), MPI_Barrier_init(c, no, request));
    case 1: return EITHER(MPI_Ibcast(o, b, MPI_INT, root, c, request), MPI_Bcast_init(o, b, MPI_INT, root, c, no, request));
    case 2: return EITHER(MPI_Igather(o, b, MPI_INT, to, b, MPI_INT, root, c, request),
                          MPI_Gather_init(o, b, MPI_INT, to, b, MPI_INT, root, c, no, request));
    case 3: return EITHER(MPI_Igatherv(o, b, MPI_INT, to, counts, places, MPI_INT, root, c, request),
                          MPI_Gatherv_init(o, b, MPI_INT, to, counts, places, MPI_INT, root, c, no, request));
    case 4: return EITHER(MPI_Iscatter(o, b, MPI_INT, to, b, MPI_INT, root, c, request),
                          MPI_Scatter_init(o, b, MPI_INT, to, b, MPI_INT, root, c, no, request));
    case 5: return EITHER(MPI_Iscatterv(o, counts, places, MPI_INT, to, b, MPI_INT, root, c, request),
                          MPI_Scatterv_init(o, counts, places, MPI_INT, to, b, MPI_INT, root, c, no, request));
    case 6: return EITHER(MPI_Iallgather(o, b, MPI_INT, to, b, MPI_INT, c, request),
                          MPI_Allgather_init(o, b, MPI_INT, to, b, MPI_INT, c, no, request));
    case 7: return EITHER(MPI_Iallgatherv(o, b, MPI_INT, to, counts, places, MPI_INT, c, request),
                          MPI_Allgatherv_init(o, b, MPI_INT, to, counts, places, MPI_INT, c, no, request));
    case 8: return EITHER(MPI_Ialltoall(o, b, MPI_INT, to, b, MPI_INT, c, request),
                          MPI_Alltoall_init(o, b, MPI_INT, to, b, MPI_INT, c, no, request));
    case 9: return EITHER(MPI_Ialltoallv(o, counts, places, MPI_INT, to, counts, places, MPI_INT, c, request),
                          MPI_Alltoallv_init(o, counts, places, MPI_INT, to, counts, places, MPI_INT, c, no, request));
    case 10: return EITHER(MPI_Ialltoallw(o, counts, byte_places, types, to, counts, byte_places, types, c, request),
                           MPI_Alltoallw_init(o, counts, byte_places, types, to, counts, byte_places, types, c, no, request));
    case 11: return EITHER(MPI_Ireduce(o, to, b, MPI_INT, MPI_SUM, root, c, request),
                           MPI_Reduce_init(o, to, b, MPI_INT, MPI_SUM, root, c, no, request));
    case 12: return EITHER(MPI_Iallreduce(o, to, b, MPI_INT, MPI_SUM, c, request),
                           MPI_Allreduce_init(o, to, b, MPI_INT, MPI_SUM, c, no, request));
    case 13: return EITHER(MPI_Ireduce_scatter(o, to, counts, MPI_INT, MPI_SUM, c, request),
                           MPI_Reduce_scatter_init(o, to, counts, MPI_INT, MPI_SUM, c, no, request));
    case 14: return EITHER(MPI_Ireduce_scatter_block(o, to, b, MPI_INT, MPI_SUM, c, request),
                           MPI_Reduce_scatter_block_init(o, to, b, MPI_INT, MPI_SUM, c, no, request));
    case 15: return EITHER(MPI_Iscan(o, to, b, MPI_INT, MPI_SUM, c, request),
                           MPI_Scan_init(o, to, b, MPI_INT, MPI_SUM, c, no, request));
    default: return EITHER(MPI_Iexscan(o, to, b, MPI_INT, MPI_SUM, c, request),
                           MPI_Exscan_init(o, to, b, MPI_INT, MPI_SUM, c, no, request));
    }
}

static int sum(int f, int ranks, int to, int i, int times)
{
    unsigned all = 0;
    for (int r = 0; r < ranks; r++)
        all += (unsigned)(value(f, r, to, i) + times);
    return (int)all;
}

// Stores in `want` the number `i` that form `f` must leave at this rank; returns 0 if it leaves nothing.
static int expected(int f, int block, int i, int times, int *want)
{
    int root = f % size, from = i / block, at = i % block, first = i < block;
    switch (f) {
    case 0: return 0;
    case 1: *want = value(f, root, 0, at) + times; return first;
    case 2: case 3: *want = value(f, from, 0, at) + times; return rank == root;
    case 4: case 5: *want = value(f, root, rank, at) + times; return first;
    case 6: case 7: *want = value(f, from, 0, at) + times; return 1;
    case 8: case 9: case 10: *want = value(f, from, rank, at) + times; return 1;
    case 11: *want = sum(f, size, 0, at, times); return first && rank == root;
    case 12: *want = sum(f, size, 0, at, times); return first;
    case 13: case 14: *want = sum(f, size, rank, at, times); return first;
    case 15: *want = sum(f, rank + 1, 0, at, times); return first;
    default: *want = sum(f, rank, 0, at, times); return first && rank > 0;
    }
}

static void check_all(int block, int times)
{
    for (int f = 0; f < FORMS; f++) {
        int wrong = 0, want = 0;
        const int *got = f == 1 ? out[f] : in[f];
        for (int i = 0; i < size * block; i++)
            wrong += expected(f, block, i, times, &want) && got[i] != want;
        CHECK(wrong == 0, "%s: %d wrong of blocks of %d", names[f], wrong, block);
    }
}

static int steps(void)
{
    return size > 16 ? 2 : COUNT_OF(blocks);
}

static void s6_12_all_at_once_and_waited_for_in_any_order(void)
{
    for (int s = 0; s < steps(); s++) {
        MPI_Request requests[FORMS];
        prepare(blocks[s], 0);
        for (int f = 0; f < FORMS; f++)
            GOOD(begin(f, blocks[s], 0, &requests[f]));
        // Messages of the program travel meanwhile.
        int token = rank, other = -1;
        GOOD(MPI_Sendrecv(&token, 1, MPI_INT, (rank + 1) % size, 0, &other, 1, MPI_INT, (rank + size - 1) % size, 0,
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        EQUAL(other, (rank + size - 1) % size);
        for (int f = 0; f < FORMS; f++)
            GOOD(MPI_Wait(&requests[(f * 5 + rank * 3) % FORMS], MPI_STATUS_IGNORE));
        for (int f = 0; f < FORMS; f++)
            CHECK(requests[f] == MPI_REQUEST_NULL, "%s: the request is not null", names[f]);
        check_all(blocks[s], 0);
    }
}

static void s6_12_by_test_and_waitall(void)
{
    MPI_Request requests[FORMS];
    int done = 0, count = 0;
    prepare(60, 1);
    for (int f = 0; f < FORMS; f++)
        GOOD(begin(f, 60, 0, &requests[f]));
    while (!done)
        GOOD(MPI_Testall(FORMS, requests, &done, MPI_STATUSES_IGNORE));
    check_all(60, 1);
    prepare(60, 2);
    for (int f = 0; f < FORMS; f++)
        GOOD(begin(f, 60, 0, &requests[f]));
    for (int left = FORMS; left > 0; left -= count) {
        int indices[FORMS];
        GOOD(MPI_Waitsome(FORMS, requests, &count, indices, MPI_STATUSES_IGNORE));
    }
    check_all(60, 2);
}

static void s6_12_a_blocking_one_between(void)
{
    MPI_Request barrier, reduction;
    int one = 1, ranks = 0, all = 0;
    GOOD(MPI_Iallreduce(&one, &ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &reduction));
    GOOD(MPI_Ibarrier(MPI_COMM_WORLD, &barrier));
    GOOD(MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    GOOD(MPI_Wait(&barrier, MPI_STATUS_IGNORE));
    GOOD(MPI_Wait(&reduction, MPI_STATUS_IGNORE));
    EQUAL(all, size * (size - 1) / 2);
    EQUAL(ranks, size);
}

static void s6_12_a_barrier_waits_for_the_last(void)
{
    // The last rank enters after all others have reported that their barrier is not complete.
    MPI_Request barrier;
    int done = 1, last = size - 1;
    if (size == 1)
        return;
    if (rank != last) {
        GOOD(MPI_Ibarrier(MPI_COMM_WORLD, &barrier));
        GOOD(MPI_Test(&barrier, &done, MPI_STATUS_IGNORE));
        EQUAL(done, 0);
        GOOD(MPI_Send(&done, 1, MPI_INT, last, 3, MPI_COMM_WORLD));
    } else {
        for (int r = 0; r < last; r++)
            GOOD(MPI_Recv(&done, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        GOOD(MPI_Ibarrier(MPI_COMM_WORLD, &barrier));
    }
    GOOD(MPI_Wait(&barrier, MPI_STATUS_IGNORE));
}

static void s6_13_started_again_and_again(void)
{
    for (int s = 0; s < steps(); s++) {
        MPI_Request requests[FORMS];
        prepare(blocks[s], 0);
        for (int f = 0; f < FORMS; f++)
            GOOD(begin(f, blocks[s], 1, &requests[f]));
        for (int times = 0; times < 4; times++) {
            prepare(blocks[s], times);
            if (times % 2)
                GOOD(MPI_Startall(FORMS, requests));
            else
                for (int f = 0; f < FORMS; f++)
                    GOOD(MPI_Start(&requests[f]));
            GOOD(MPI_Waitall(FORMS, requests, MPI_STATUSES_IGNORE));
            check_all(blocks[s], times);
        }
        for (int f = 0; f < FORMS; f++) {
            CHECK(requests[f] != MPI_REQUEST_NULL, "%s: the persistent request is null", names[f]);
            GOOD(MPI_Request_free(&requests[f]));
        }
    }
}

static void s6_13_some_started_by_one_rank_first(void)
{
    // Two persistent ones, which the ranks start in different orders.
    MPI_Request two[2];
    int mine = rank, sums[2] = {-1, -1}, first = rank % 2;
    GOOD(MPI_Allreduce_init(&mine, &sums[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &two[0]));
    GOOD(MPI_Allreduce_init(&mine, &sums[1], 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &two[1]));
    GOOD(MPI_Start(&two[first]));
    GOOD(MPI_Start(&two[!first]));
    GOOD(MPI_Waitall(2, two, MPI_STATUSES_IGNORE));
    EQUAL(sums[0], size * (size - 1) / 2);
    EQUAL(sums[1], size - 1);
    GOOD(MPI_Request_free(&two[0]));
    GOOD(MPI_Request_free(&two[1]));
}

static void s6_12_a_request_cannot_be_freed_or_cancelled(void)
{
    MPI_Request request;
    if (size == 1)
        return;
    if (rank != 0) {
        GOOD(MPI_Ibarrier(MPI_COMM_WORLD, &request));
        FAILS(MPI_Request_free(&request), MPI_ERR_REQUEST);
        FAILS(MPI_Cancel(&request), MPI_ERR_REQUEST);
    }
    for (int r = 1; r < size; r++)
        if (rank == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, r, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (rank == r)
            MPI_Send(NULL, 0, MPI_BYTE, 0, 9, MPI_COMM_WORLD);
    if (rank == 0)
        GOOD(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int f = 0; f < FORMS; f++) {
        out[f] = malloc(sizeof(int) * size * BLOCK_MAX);
        in[f] = malloc(sizeof(int) * size * BLOCK_MAX);
    }
    counts = malloc(sizeof(int) * size);
    places = malloc(sizeof(int) * size);
    byte_places = malloc(sizeof(int) * size);
    types = malloc(sizeof(MPI_Datatype) * size);
    RUN(s6_12_all_at_once_and_waited_for_in_any_order);
    RUN(s6_12_by_test_and_waitall);
    RUN(s6_12_a_blocking_one_between);
    RUN(s6_12_a_barrier_waits_for_the_last);
    RUN(s6_12_a_request_cannot_be_freed_or_cancelled);
    RUN(s6_13_started_again_and_again);
    RUN(s6_13_some_started_by_one_rank_first);
    return finish();
}
