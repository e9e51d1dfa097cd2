// SPDX-License-Identifier: MIT OR Apache-2.0
// Exchanges with the neighbours of a topology: MPI 5.0 sections 8.6 to 8.8.
#include "check.h"

enum { MANY = 64, GUARD = -9 };

static int value(int from, int block)
{
    return from * 1000 + block;
}

// The expected result of an exchange on a grid, by the definition with MPI_Sendrecv in section 8.6.
static void by_shifts(MPI_Comm grid, int dims, const int *out, int *in, int block)
{
    for (int d = 0; d < dims; d++) {
        int before, behind, n = block * (int)sizeof(int);
        MPI_Cart_shift(grid, d, 1, &before, &behind);
        MPI_Sendrecv(out + 2 * d * block, n, MPI_BYTE, before, 0, in + (2 * d + 1) * block, n, MPI_BYTE, behind, 0,
                     grid, MPI_STATUS_IGNORE);
        MPI_Sendrecv(out + (2 * d + 1) * block, n, MPI_BYTE, behind, 1, in + 2 * d * block, n, MPI_BYTE, before, 1,
                     grid, MPI_STATUS_IGNORE);
    }
}

static void one_grid(const int *extents, const int *rings, int dims, int block)
{
    MPI_Comm grid;
    int out[6 * MANY], in[6 * MANY], wanted[6 * MANY], all = 2 * dims * block;
    GOOD(MPI_Cart_create(MPI_COMM_WORLD, dims, extents, rings, 0, &grid));
    if (grid == MPI_COMM_NULL)
        return;
    int me;
    MPI_Comm_rank(grid, &me);
    for (int i = 0; i < all; i++) {
        out[i] = value(me, i);
        in[i] = wanted[i] = GUARD;
    }
    by_shifts(grid, dims, out, wanted, block);
    GOOD(MPI_Neighbor_alltoall(out, block, MPI_INT, in, block, MPI_INT, grid));
    EQUAL(memcmp(in, wanted, sizeof(int) * (size_t)all), 0);

    // The exchange with counts, with types, nonblocking and persistent.
    int counts[6], places[6];
    MPI_Aint bytes[6];
    MPI_Datatype types[6];
    MPI_Request requests[3];
    int again[6 * MANY], later[6 * MANY], typed[6 * MANY];
    for (int i = 0; i < 2 * dims; i++) {
        counts[i] = block;
        places[i] = i * block;
        bytes[i] = (MPI_Aint)sizeof(int) * i * block;
        types[i] = MPI_INT;
    }
    GOOD(MPI_Neighbor_alltoallv_init(out, counts, places, MPI_INT, again, counts, places, MPI_INT, grid, MPI_INFO_NULL,
                                     &requests[0]));
    for (int times = 0; times < 3; times++) {
        for (int i = 0; i < all; i++)
            again[i] = later[i] = typed[i] = GUARD;
        GOOD(MPI_Start(&requests[0]));
        GOOD(MPI_Ineighbor_alltoall(out, block, MPI_INT, later, block, MPI_INT, grid, &requests[1]));
        GOOD(MPI_Ineighbor_alltoallw(out, counts, bytes, types, typed, counts, bytes, types, grid, &requests[2]));
        GOOD(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
        EQUAL(memcmp(again, wanted, sizeof(int) * (size_t)all), 0);
        EQUAL(memcmp(later, wanted, sizeof(int) * (size_t)all), 0);
        EQUAL(memcmp(typed, wanted, sizeof(int) * (size_t)all), 0);
    }
    GOOD(MPI_Request_free(&requests[0]));

    // Neighbor_allgather: one block from each neighbour; nothing is written if there is no neighbour.
    int mine = value(me, 7), theirs[6], before, behind;
    for (int i = 0; i < 6; i++)
        theirs[i] = GUARD;
    GOOD(MPI_Neighbor_allgather(&mine, 1, MPI_INT, theirs, 1, MPI_INT, grid));
    for (int d = 0; d < dims; d++) {
        MPI_Cart_shift(grid, d, 1, &before, &behind);
        EQUAL(theirs[2 * d], before == MPI_PROC_NULL ? GUARD : value(before, 7));
        EQUAL(theirs[2 * d + 1], behind == MPI_PROC_NULL ? GUARD : value(behind, 7));
    }
    MPI_Comm_free(&grid);
}

static void s8_6_grids(void)
{
    int rings[3] = {1, 1, 1}, open[3] = {0, 0, 0}, mixed[3] = {1, 0, 1}, all[1] = {size}, one[1] = {1};
    one_grid(all, rings, 1, 1);
    one_grid(all, open, 1, MANY);
    one_grid(one, rings, 1, 2);
    if (size >= 2)
        one_grid((int[]){2}, rings, 1, 3);
    if (size >= 4)
        one_grid((int[]){2, 2}, mixed, 2, 5);
    if (size >= 8) {
        one_grid((int[]){2, 2, 2}, rings, 3, 1);
        one_grid((int[]){4, 1, 2}, mixed, 3, 9);
    }
}

static void s8_6_graph_with_an_edge_twice(void)
{
    // A ring in which every edge to the right is there twice, the second time the other way round.
    MPI_Comm graph;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int sources[3] = {left, right, left}, destinations[3] = {right, left, right};
    int out[3] = {value(rank, 0), value(rank, 1), value(rank, 2)}, in[3] = {GUARD, GUARD, GUARD};
    GOOD(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 3, sources, MPI_UNWEIGHTED, 3, destinations, MPI_UNWEIGHTED,
                                        MPI_INFO_NULL, 0, &graph));
    GOOD(MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, graph));
    if (size > 2) {
        EQUAL(in[0], value(left, 0));
        EQUAL(in[1], value(right, 1));
        EQUAL(in[2], value(left, 2));
    }
    int one = value(rank, 5), all[4] = {GUARD, GUARD, GUARD, GUARD};
    GOOD(MPI_Neighbor_allgatherv(&one, 1, MPI_INT, all, (int[]){1, 1, 1}, (int[]){3, 1, 0}, MPI_INT, graph));
    EQUAL(all[3], value(left, 5));
    EQUAL(all[1], value(right, 5));
    EQUAL(all[0], value(left, 5));
    EQUAL(all[2], GUARD);
    MPI_Comm_free(&graph);
}

static void s8_6_unequal_numbers_of_neighbours(void)
{
    // All ranks send to rank 0, which sends to no rank.
    MPI_Comm star;
    int *everybody = malloc(sizeof(int) * (size_t)size), *in = malloc(sizeof(int) * (size_t)size), zero = 0;
    for (int i = 0; i < size; i++) {
        everybody[i] = size - 1 - i;
        in[i] = GUARD;
    }
    GOOD(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, rank == 0 ? size : 0, everybody, MPI_UNWEIGHTED, 1, &zero,
                                        MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &star));
    int mine = value(rank, 3);
    GOOD(MPI_Neighbor_allgather(&mine, 1, MPI_INT, in, 1, MPI_INT, star));
    for (int i = 0; i < size; i++)
        EQUAL(in[i], rank == 0 ? value(size - 1 - i, 3) : GUARD);
    MPI_Comm_free(&star);
    free(everybody);
    free(in);
}

static void bad_uses(void)
{
    int a = 0, b = 0;
    char text[MPI_MAX_ERROR_STRING];
    int length, code = MPI_Neighbor_alltoall(&a, 1, MPI_INT, &b, 1, MPI_INT, MPI_COMM_WORLD);
    FAILS(code, MPI_ERR_TOPOLOGY);
    MPI_Error_string(code, text, &length);
    CHECK(strstr(text, "has no topology"), "%s", text);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    RUN(s8_6_grids);
    RUN(s8_6_graph_with_an_edge_twice);
    RUN(s8_6_unequal_numbers_of_neighbours);
    RUN(bad_uses);
    return finish();
}
