// SPDX-License-Identifier: MIT OR Apache-2.0
// Process topologies: MPI 5.0 chapter 8.
#include "check.h"

enum { TAG = 8, MOST = 64 };

static int status_of(MPI_Comm comm)
{
    int status = -1;
    GOOD(MPI_Topo_test(comm, &status));
    return status;
}

static void s8_5_1_a_grid_of_all_ranks(void)
{
    int dims[2] = {0, 0}, periods[2] = {0, 1}, got_dims[2], got_periods[2], coords[2], n, at = -1;
    MPI_Comm grid;
    GOOD(MPI_Dims_create(size, 2, dims));
    EQUAL(dims[0] * dims[1], size);
    CHECK(dims[0] >= dims[1], "%d x %d", dims[0], dims[1]);
    GOOD(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid));
    EQUAL(status_of(grid), MPI_CART);
    GOOD(MPI_Cartdim_get(grid, &n));
    EQUAL(n, 2);
    GOOD(MPI_Cart_get(grid, 2, got_dims, got_periods, coords));
    EQUAL(got_dims[0], dims[0]);
    EQUAL(got_dims[1], dims[1]);
    EQUAL(got_periods[0], 0);
    CHECK(got_periods[1], "the ring is gone");
    // Row-major.
    int me;
    MPI_Comm_rank(grid, &me);
    EQUAL(coords[0] * dims[1] + coords[1], me);
    for (int i = 0; i < size; i++) {
        int where[2], rank_of = -1;
        GOOD(MPI_Cart_coords(grid, i, 2, where));
        where[1] += 3 * dims[1];
        GOOD(MPI_Cart_rank(grid, where, &rank_of));
        EQUAL(rank_of, i);
    }
    MPI_Cart_map(MPI_COMM_WORLD, 2, dims, periods, &at);
    CHECK(at >= 0 && at < size, "new rank %d", at);
    MPI_Comm_free(&grid);
}

static void s8_5_1_a_smaller_grid_and_a_point(void)
{
    int dims[1] = {size > 1 ? size - 1 : 1}, periods[1] = {0}, n = -1, where = -1;
    MPI_Comm line, point;
    GOOD(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &line));
    CHECK((line == MPI_COMM_NULL) == (rank >= dims[0]), "who got a communicator");
    if (line != MPI_COMM_NULL) {
        MPI_Comm_size(line, &n);
        EQUAL(n, dims[0]);
        MPI_Comm_free(&line);
    }
    MPI_Cart_map(MPI_COMM_WORLD, 1, dims, periods, &where);
    EQUAL(where, rank < dims[0] ? rank : MPI_UNDEFINED);
    GOOD(MPI_Cart_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &point));
    CHECK((point == MPI_COMM_NULL) == (rank > 0), "who got the point");
    if (point != MPI_COMM_NULL) {
        GOOD(MPI_Cartdim_get(point, &n));
        EQUAL(n, 0);
        GOOD(MPI_Cart_rank(point, NULL, &n));
        EQUAL(n, 0);
        MPI_Comm_free(&point);
    }
}

static void s8_5_6_shifts(void)
{
    int dims[1] = {size}, ring = 1, no_ring = 0, source = -9, dest = -9, in = -1;
    MPI_Comm circle, line;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, &ring, 0, &circle);
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, &no_ring, 0, &line);
    GOOD(MPI_Cart_shift(circle, 0, 1, &source, &dest));
    EQUAL(dest, (rank + 1) % size);
    EQUAL(source, (rank + size - 1) % size);
    MPI_Sendrecv(&rank, 1, MPI_INT, dest, TAG, &in, 1, MPI_INT, source, TAG, circle, MPI_STATUS_IGNORE);
    EQUAL(in, source);
    GOOD(MPI_Cart_shift(circle, 0, -2 - size, &source, &dest));
    EQUAL(source, (rank + 2) % size);
    GOOD(MPI_Cart_shift(line, 0, 1, &source, &dest));
    EQUAL(source, rank ? rank - 1 : MPI_PROC_NULL);
    EQUAL(dest, rank + 1 < size ? rank + 1 : MPI_PROC_NULL);
    GOOD(MPI_Cart_shift(line, 0, 0, &source, &dest));
    CHECK(source == rank && dest == rank, "%d %d", source, dest);
    MPI_Comm_free(&circle);
    MPI_Comm_free(&line);
}

static void s8_5_7_rows_and_columns(void)
{
    int dims[3] = {0, 2, 0}, periods[3] = {1, 0, 1}, remain[3] = {1, 0, 1};
    if (size % 2)
        dims[1] = 1;
    MPI_Comm grid, part;
    MPI_Dims_create(size, 3, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periods, 0, &grid);
    GOOD(MPI_Cart_sub(grid, remain, &part));
    int part_dims[2], part_periods[2], part_coords[2], coords[3], n, me, sum = -1;
    EQUAL(status_of(part), MPI_CART);
    GOOD(MPI_Cartdim_get(part, &n));
    EQUAL(n, 2);
    GOOD(MPI_Cart_get(part, 2, part_dims, part_periods, part_coords));
    MPI_Comm_rank(grid, &me);
    MPI_Cart_coords(grid, me, 3, coords);
    EQUAL(part_dims[0], dims[0]);
    EQUAL(part_dims[1], dims[2]);
    EQUAL(part_coords[0], coords[0]);
    EQUAL(part_coords[1], coords[2]);
    CHECK(part_periods[0] && part_periods[1], "rings are gone");
    MPI_Allreduce(&coords[1], &sum, 1, MPI_INT, MPI_SUM, part);
    EQUAL(sum, coords[1] * dims[0] * dims[2]);
    MPI_Comm_free(&part);
    int none[3] = {0, 0, 0};
    GOOD(MPI_Cart_sub(grid, none, &part));
    MPI_Comm_size(part, &n);
    EQUAL(n, 1);
    EQUAL(status_of(part), MPI_CART);
    MPI_Comm_free(&part);
    MPI_Comm_free(&grid);
}

static void s8_5_2_dims(void)
{
    static const struct {
        int nodes, count, given[4], wanted[4];
    } cases[] = {
        // The standard's own examples first.
        {6, 2, {0, 0}, {3, 2}},
        {7, 2, {0, 0}, {7, 1}},
        {6, 3, {0, 3, 0}, {2, 3, 1}},
        {64, 3, {0, 0, 0}, {4, 4, 4}},
        {72, 3, {0, 0, 0}, {6, 4, 3}},
        {16, 3, {0, 0, 0}, {4, 2, 2}},
        {60, 3, {0, 0, 0}, {5, 4, 3}},
        {1, 4, {0, 0, 0, 0}, {1, 1, 1, 1}},
        {36, 4, {0, 2, 0, 0}, {3, 2, 3, 2}},
        {12, 2, {3, 4}, {3, 4}},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        int dims[4];
        memcpy(dims, cases[i].given, sizeof dims);
        GOOD(MPI_Dims_create(cases[i].nodes, cases[i].count, dims));
        for (int k = 0; k < cases[i].count; k++)
            CHECK(dims[k] == cases[i].wanted[k], "%d nodes: dimension %d is %d, expected %d",
                  cases[i].nodes, k, dims[k], cases[i].wanted[k]);
    }
    int dims[3] = {0, 3, 0}, negative[1] = {-1};
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    FAILS(MPI_Dims_create(7, 3, dims), MPI_ERR_DIMS);
    FAILS(MPI_Dims_create(7, 1, negative), MPI_ERR_DIMS);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

// A ring with chords: every rank passes the whole graph.
static void s8_5_3_graph(void)
{
    int index[MOST], edges[2 * MOST], n = size < MOST ? size : MOST, nodes = -1, count = -1;
    for (int i = 0; i < n; i++) {
        edges[2 * i] = (i + 1) % n;
        edges[2 * i + 1] = (i + n - 1) % n;
        index[i] = 2 * (i + 1);
    }
    MPI_Comm graph, copy;
    GOOD(MPI_Graph_create(MPI_COMM_WORLD, n, index, edges, 1, &graph));
    if (graph == MPI_COMM_NULL)
        return;
    EQUAL(status_of(graph), MPI_GRAPH);
    // A duplicate keeps the topology.
    MPI_Comm_dup(graph, &copy);
    EQUAL(status_of(copy), MPI_GRAPH);
    GOOD(MPI_Graphdims_get(copy, &nodes, &count));
    EQUAL(nodes, n);
    EQUAL(count, 2 * n);
    int got_index[MOST], got_edges[2 * MOST], around[2];
    GOOD(MPI_Graph_get(copy, n, 2 * n, got_index, got_edges));
    CHECK(!memcmp(index, got_index, sizeof *index * (size_t)n), "another index");
    CHECK(!memcmp(edges, got_edges, sizeof *edges * 2 * (size_t)n), "other edges");
    for (int i = 0; i < n; i++) {
        GOOD(MPI_Graph_neighbors_count(graph, i, &count));
        EQUAL(count, 2);
        GOOD(MPI_Graph_neighbors(graph, i, 2, around));
        CHECK(around[0] == (i + 1) % n && around[1] == (i + n - 1) % n, "%d %d", around[0], around[1]);
    }
    MPI_Comm_free(&copy);
    MPI_Comm_free(&graph);
    MPI_Graph_map(MPI_COMM_WORLD, n, index, edges, &count);
    CHECK(count >= 0 && count < n, "new rank %d", count);
    GOOD(MPI_Graph_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &graph));
    CHECK(graph == MPI_COMM_NULL, "a graph of nobody");
}

static void check_ring(MPI_Comm graph, int weighted)
{
    int in = -1, out = -1, flag = -1, sources[2] = {-1, -1}, dests[2] = {-1, -1}, sw[2] = {-1, -1}, dw[2] = {-1, -1};
    EQUAL(status_of(graph), MPI_DIST_GRAPH);
    GOOD(MPI_Dist_graph_neighbors_count(graph, &in, &out, &flag));
    EQUAL(in, 1);
    EQUAL(out, 1);
    EQUAL(!!flag, weighted);
    GOOD(MPI_Dist_graph_neighbors(graph, 1, sources, weighted ? sw : MPI_UNWEIGHTED, 1, dests,
                                  weighted ? dw : MPI_UNWEIGHTED));
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    EQUAL(sources[0], left);
    EQUAL(dests[0], right);
    if (weighted) {
        EQUAL(sw[0], 100 + left);
        EQUAL(dw[0], 100 + rank);
    }
    CHECK(sources[1] == -1 && dests[1] == -1, "more was written than there is room for");
}

static void s8_5_4_dist_graph_adjacent(void)
{
    int left = (rank + size - 1) % size, right = (rank + 1) % size, lw = 100 + left, rw = 100 + rank;
    MPI_Comm graph, copy;
    GOOD(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, &lw, 1, &right, &rw, MPI_INFO_NULL, 0, &graph));
    check_ring(graph, 1);
    MPI_Comm_dup(graph, &copy);
    MPI_Comm_free(&graph);
    check_ring(copy, 1);
    MPI_Comm_free(&copy);
    GOOD(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED,
                                        MPI_INFO_NULL, 1, &graph));
    check_ring(graph, 0);
    MPI_Comm_free(&graph);
    // Nobody has a neighbour.
    int in = -1, out = -1, flag = -1;
    GOOD(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_WEIGHTS_EMPTY, 0, NULL, MPI_WEIGHTS_EMPTY,
                                        MPI_INFO_NULL, 0, &graph));
    GOOD(MPI_Dist_graph_neighbors_count(graph, &in, &out, &flag));
    CHECK(in == 0 && out == 0 && flag, "%d %d %d", in, out, flag);
    MPI_Comm_free(&graph);
}

// Each rank specifies the edge of the rank after next; then the last rank specifies all edges.
static void s8_5_4_dist_graph_from_anywhere(void)
{
    int source = (rank + 2) % size, dest = (rank + 3) % size, degree = 1, weight = 100 + source;
    MPI_Comm graph;
    GOOD(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &source, &degree, &dest, &weight, MPI_INFO_NULL, 0, &graph));
    check_ring(graph, 1);
    MPI_Comm_free(&graph);
    int all[MOST], degrees[MOST], dests[MOST], n = rank == size - 1 && size <= MOST ? size : 0;
    if (size > MOST)
        return;
    for (int i = 0; i < n; i++) {
        all[i] = i;
        degrees[i] = 1;
        dests[i] = (i + 1) % size;
    }
    GOOD(MPI_Dist_graph_create(MPI_COMM_WORLD, n, all, degrees, dests, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph));
    check_ring(graph, 0);
    MPI_Comm_free(&graph);
}

// Several edges between the same two, loops, and nodes without edges: none is lost.
static void s8_5_4_dist_graph_with_many_edges(void)
{
    int source = 0, degree = 3, dests[3] = {0, size - 1, size - 1}, weights[3] = {1, 2, 3};
    int in = -1, out = -1, flag, sources[4], sw[4], got[4], dw[4], sum = 0;
    MPI_Comm graph;
    GOOD(MPI_Dist_graph_create(MPI_COMM_WORLD, rank == 0, &source, &degree, dests, weights, MPI_INFO_NULL, 0, &graph));
    GOOD(MPI_Dist_graph_neighbors_count(graph, &in, &out, &flag));
    EQUAL(out, rank == 0 ? 3 : 0);
    EQUAL(in, size == 1 ? 3 : rank == 0 ? 1 : rank == size - 1 ? 2 : 0);
    GOOD(MPI_Dist_graph_neighbors(graph, in, sources, sw, out, got, dw));
    for (int i = 0; i < in; i++) {
        EQUAL(sources[i], 0);
        sum += sw[i];
    }
    EQUAL(sum, size == 1 ? 6 : rank == 0 ? 1 : rank == size - 1 ? 5 : 0);
    MPI_Comm_free(&graph);
}

static void s8_5_wrong_arguments(void)
{
    int dims[2] = {size, 2}, periods[2] = {0, 0}, zero[1] = {0}, n, index[1] = {2}, edges[2] = {0, 7}, bad = size;
    MPI_Comm comm, grid;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    EQUAL(status_of(comm), MPI_UNDEFINED);
    FAILS(MPI_Cart_create(comm, 2, dims, periods, 0, &grid), MPI_ERR_DIMS);
    FAILS(MPI_Cart_create(comm, 1, zero, periods, 0, &grid), MPI_ERR_DIMS);
    FAILS(MPI_Cartdim_get(comm, &n), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Graph_neighbors_count(comm, 0, &n), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Dist_graph_neighbors_count(comm, &n, &n, &n), MPI_ERR_TOPOLOGY);
    FAILS(MPI_Graph_create(comm, 1, index, edges, 0, &grid), MPI_ERR_ARG);
    FAILS(MPI_Dist_graph_create_adjacent(comm, 1, &bad, MPI_UNWEIGHTED, 0, NULL, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &grid),
          MPI_ERR_RANK);
    GOOD(MPI_Cart_create(comm, 1, dims, periods, 0, &grid));
    int outside[1] = {size};
    FAILS(MPI_Cart_rank(grid, outside, &n), MPI_ERR_ARG);
    FAILS(MPI_Cart_coords(grid, size, 1, outside), MPI_ERR_RANK);
    FAILS(MPI_Cart_shift(grid, 1, 1, &n, &n), MPI_ERR_DIMS);
    MPI_Comm_free(&grid);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s8_5_1_a_grid_of_all_ranks);
    RUN(s8_5_1_a_smaller_grid_and_a_point);
    RUN(s8_5_6_shifts);
    RUN(s8_5_7_rows_and_columns);
    RUN(s8_5_2_dims);
    RUN(s8_5_3_graph);
    RUN(s8_5_4_dist_graph_adjacent);
    RUN(s8_5_4_dist_graph_from_anywhere);
    RUN(s8_5_4_dist_graph_with_many_edges);
    RUN(s8_5_wrong_arguments);
    return finish();
}
