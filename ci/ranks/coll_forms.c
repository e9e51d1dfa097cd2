// SPDX-License-Identifier: MIT OR Apache-2.0
// Each collective in its six forms gives the same result: blocking, nonblocking and persistent (MPI 5.0 sections 6.12
// and 6.13), each with counts of type int and of type MPI_Count (section 2.5.8). Persistent requests start twice.
#include "check.h"

// SLOTS: room for the blocks of all ranks; BLOCK: elements of a block of fixed length.
enum { MOST_RANKS = 8, BLOCK = 3, SLOTS = MOST_RANKS * (MOST_RANKS + 4), GUARD = -7 };

static int out[SLOTS], in[SLOTS], wanted[SLOTS];
static MPI_Comm comm;
static int root;
// Counts and displacements of what is sent (s) and received (r): as int (_i), and as MPI_Count and MPI_Aint (_c).
static int scounts_i[MOST_RANKS], sdispls_i[MOST_RANKS], rcounts_i[MOST_RANKS], rdispls_i[MOST_RANKS];
static MPI_Count scounts_c[MOST_RANKS], rcounts_c[MOST_RANKS];
static MPI_Aint sdispls_c[MOST_RANKS], rdispls_c[MOST_RANKS];
// The same displacements in bytes, for alltoallw.
static int sbytes_i[MOST_RANKS], rbytes_i[MOST_RANKS];
static MPI_Aint sbytes_c[MOST_RANKS], rbytes_c[MOST_RANKS];
static MPI_Datatype types[MOST_RANKS];

// Element `i` of the block that rank `from` sends to `to`.
static int value(int from, int to, int i)
{
    return 10000 * from + 100 * to + i;
}

static void send_block(int at, int count, int displ)
{
    scounts_i[at] = count, scounts_c[at] = count;
    sdispls_i[at] = displ, sdispls_c[at] = displ;
    sbytes_i[at] = displ * (int)sizeof(int), sbytes_c[at] = sbytes_i[at];
}

static void receive_block(int at, int count, int displ)
{
    rcounts_i[at] = count, rcounts_c[at] = count;
    rdispls_i[at] = displ, rdispls_c[at] = displ;
    rbytes_i[at] = displ * (int)sizeof(int), rbytes_c[at] = rbytes_i[at];
}

static void clear(void)
{
    for (int i = 0; i < SLOTS; i++)
        out[i] = wanted[i] = GUARD;
}

static void verify(const char *call)
{
    int at = 0;
    while (at < SLOTS && in[at] == wanted[at])
        at++;
    CHECK(at == SLOTS, "%s: element %d is %d, expected %d", call, at, in[at], wanted[at]);
}

// What `in` holds before a call; for Bcast the root's data.
static int before[SLOTS];

static void prepare(void)
{
    memcpy(in, before, sizeof in);
}

#define BLOCKING(call)                                                                                                 \
    do {                                                                                                               \
        prepare();                                                                                                     \
        GOOD(call);                                                                                                    \
        verify(#call);                                                                                                 \
    } while (0)

#define NONBLOCKING(call)                                                                                              \
    do {                                                                                                               \
        prepare();                                                                                                     \
        GOOD(call);                                                                                                    \
        GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));                                                                   \
        EQUAL(request, MPI_REQUEST_NULL);                                                                              \
        verify(#call);                                                                                                 \
    } while (0)

#define PERSISTENT(call)                                                                                               \
    do {                                                                                                               \
        GOOD(call);                                                                                                    \
        for (int times = 0; times < 2; times++) {                                                                      \
            prepare();                                                                                                 \
            GOOD(MPI_Start(&request));                                                                                 \
            GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));                                                               \
            verify(#call);                                                                                             \
        }                                                                                                              \
        GOOD(MPI_Request_free(&request));                                                                              \
    } while (0)

// SIX_FORMS(Gather, gather, ARGUMENTS): ARGUMENTS(i) and ARGUMENTS(c) are all arguments before the communicator.
#define SIX_FORMS(Name, name, ARGUMENTS)                                                                               \
    do {                                                                                                               \
        MPI_Request request = MPI_REQUEST_NULL;                                                                        \
        BLOCKING(MPI_##Name(ARGUMENTS(i), comm));                                                                      \
        BLOCKING(MPI_##Name##_c(ARGUMENTS(c), comm));                                                                  \
        NONBLOCKING(MPI_I##name(ARGUMENTS(i), comm, &request));                                                        \
        NONBLOCKING(MPI_I##name##_c(ARGUMENTS(c), comm, &request));                                                    \
        PERSISTENT(MPI_##Name##_init(ARGUMENTS(i), comm, MPI_INFO_NULL, &request));                                    \
        PERSISTENT(MPI_##Name##_init_c(ARGUMENTS(c), comm, MPI_INFO_NULL, &request));                                  \
    } while (0)

#define BCAST(w) in, BLOCK, MPI_INT, root
#define GATHER(w) out, BLOCK, MPI_INT, in, BLOCK, MPI_INT, root
#define GATHERV(w) out, rank + 1, MPI_INT, in, rcounts_##w, rdispls_##w, MPI_INT, root
#define SCATTERV(w) out, scounts_##w, sdispls_##w, MPI_INT, in, rank + 1, MPI_INT, root
#define ALLGATHER(w) out, BLOCK, MPI_INT, in, BLOCK, MPI_INT
#define ALLGATHERV(w) out, rank + 1, MPI_INT, in, rcounts_##w, rdispls_##w, MPI_INT
#define ALLTOALLV(w) out, scounts_##w, sdispls_##w, MPI_INT, in, rcounts_##w, rdispls_##w, MPI_INT
#define ALLTOALLW(w) out, scounts_##w, sbytes_##w, types, in, rcounts_##w, rbytes_##w, types
// Neighborhood collectives have displacements of type MPI_Aint in both widths.
#define NEIGHBOR_ALLTOALLW(w) out, scounts_##w, sbytes_c, types, in, rcounts_##w, rbytes_c, types
#define REDUCE(w) out, in, BLOCK, MPI_INT, MPI_SUM, root
#define ALLREDUCE(w) out, in, BLOCK, MPI_INT, MPI_SUM
#define REDUCE_SCATTER(w) out, in, rcounts_##w, MPI_INT, MPI_SUM

static void s6_4_bcast(void)
{
    clear();
    memcpy(before, out, sizeof before);
    for (int i = 0; i < BLOCK; i++) {
        wanted[i] = value(root, 0, i);
        if (rank == root)
            before[i] = wanted[i];
    }
    SIX_FORMS(Bcast, bcast, BCAST);
    for (int i = 0; i < SLOTS; i++)
        before[i] = GUARD;
}

static void s6_5_gather(void)
{
    clear();
    for (int i = 0; i < BLOCK; i++)
        out[i] = value(rank, 0, i);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < BLOCK; i++)
            if (rank == root)
                wanted[BLOCK * from + i] = value(from, 0, i);
    SIX_FORMS(Gather, gather, GATHER);
}

// Rank r has r + 1 elements, and a gap stands behind each block.
static int gapped(int r)
{
    return r * (r + 1) / 2 + r;
}

static void s6_5_gatherv(void)
{
    clear();
    for (int i = 0; i <= rank; i++)
        out[i] = value(rank, 0, i);
    for (int from = 0; from < size; from++) {
        receive_block(from, from + 1, gapped(from));
        for (int i = 0; i <= from; i++)
            if (rank == root)
                wanted[gapped(from) + i] = value(from, 0, i);
    }
    SIX_FORMS(Gatherv, gatherv, GATHERV);
}

static void s6_6_scatter(void)
{
    clear();
    for (int to = 0; to < size; to++)
        for (int i = 0; i < BLOCK; i++)
            out[BLOCK * to + i] = value(rank, to, i);
    for (int i = 0; i < BLOCK; i++)
        wanted[i] = value(root, rank, i);
    SIX_FORMS(Scatter, scatter, GATHER);
}

static void s6_6_scatterv(void)
{
    clear();
    for (int to = 0; to < size; to++) {
        send_block(to, to + 1, gapped(to));
        for (int i = 0; i <= to; i++)
            out[gapped(to) + i] = value(rank, to, i);
    }
    for (int i = 0; i <= rank; i++)
        wanted[i] = value(root, rank, i);
    SIX_FORMS(Scatterv, scatterv, SCATTERV);
}

static void s6_7_allgather(void)
{
    clear();
    for (int i = 0; i < BLOCK; i++)
        out[i] = value(rank, 0, i);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < BLOCK; i++)
            wanted[BLOCK * from + i] = value(from, 0, i);
    SIX_FORMS(Allgather, allgather, ALLGATHER);
}

static void s6_7_allgatherv(void)
{
    clear();
    for (int i = 0; i <= rank; i++)
        out[i] = value(rank, 0, i);
    for (int from = 0; from < size; from++) {
        receive_block(from, from + 1, gapped(from));
        for (int i = 0; i <= from; i++)
            wanted[gapped(from) + i] = value(from, 0, i);
    }
    SIX_FORMS(Allgatherv, allgatherv, ALLGATHERV);
}

static void s6_8_alltoall(void)
{
    clear();
    for (int peer = 0; peer < size; peer++)
        for (int i = 0; i < BLOCK; i++) {
            out[BLOCK * peer + i] = value(rank, peer, i);
            wanted[BLOCK * peer + i] = value(peer, rank, i);
        }
    SIX_FORMS(Alltoall, alltoall, ALLGATHER);
}

// From a to b go 1 + (a + 2 b) modulo 4 elements; blocks begin 5 elements apart, those received in reverse order.
static void s6_8_alltoallv_and_alltoallw(void)
{
    clear();
    for (int peer = 0; peer < size; peer++) {
        int sent = 1 + (rank + 2 * peer) % 4, received = 1 + (peer + 2 * rank) % 4, at = 5 * (size - 1 - peer);
        send_block(peer, sent, 5 * peer);
        receive_block(peer, received, at);
        types[peer] = MPI_INT;
        for (int i = 0; i < sent; i++)
            out[5 * peer + i] = value(rank, peer, i);
        for (int i = 0; i < received; i++)
            wanted[at + i] = value(peer, rank, i);
    }
    SIX_FORMS(Alltoallv, alltoallv, ALLTOALLV);
    SIX_FORMS(Alltoallw, alltoallw, ALLTOALLW);
}

// The sum over ranks 0 to last of value(r, to, i).
static int sum(int last, int to, int i)
{
    int all = 0;
    for (int r = 0; r <= last; r++)
        all += value(r, to, i);
    return all;
}

static void s6_9_reductions(void)
{
    clear();
    for (int i = 0; i < BLOCK; i++) {
        out[i] = value(rank, 0, i);
        wanted[i] = sum(size - 1, 0, i);
    }
    SIX_FORMS(Allreduce, allreduce, ALLREDUCE);
    for (int i = 0; i < BLOCK; i++)
        wanted[i] = sum(rank, 0, i);
    SIX_FORMS(Scan, scan, ALLREDUCE);
    // The result of rank 0 is undefined, and ours leaves its buffer alone.
    for (int i = 0; i < BLOCK; i++)
        wanted[i] = rank == 0 ? GUARD : sum(rank - 1, 0, i);
    SIX_FORMS(Exscan, exscan, ALLREDUCE);
    for (int i = 0; i < BLOCK; i++)
        wanted[i] = rank == root ? sum(size - 1, 0, i) : GUARD;
    SIX_FORMS(Reduce, reduce, REDUCE);
}

static void s6_10_reduce_scatter(void)
{
    clear();
    for (int to = 0; to < size; to++)
        for (int i = 0; i < BLOCK; i++)
            out[BLOCK * to + i] = value(rank, to, i);
    for (int i = 0; i < BLOCK; i++)
        wanted[i] = sum(size - 1, rank, i);
    SIX_FORMS(Reduce_scatter_block, reduce_scatter_block, ALLREDUCE);
    clear();
    for (int to = 0, at = 0; to < size; at += to + 1, to++) {
        receive_block(to, to + 1, 0);
        for (int i = 0; i <= to; i++)
            out[at + i] = value(rank, to, i);
    }
    for (int i = 0; i <= rank; i++)
        wanted[i] = sum(size - 1, rank, i);
    SIX_FORMS(Reduce_scatter, reduce_scatter, REDUCE_SCATTER);
}

// A ring in one direction, with an edge from each rank to itself: block 0 goes to the right, block 1 stays.
static void s8_6_neighborhoods(void)
{
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    int sources[2] = {left, rank}, destinations[2] = {right, rank};
    GOOD(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, MPI_UNWEIGHTED, 2, destinations, MPI_UNWEIGHTED,
                                        MPI_INFO_NULL, 0, &comm));
    clear();
    for (int i = 0; i < BLOCK; i++) {
        out[i] = value(rank, 0, i);
        wanted[i] = value(left, 0, i);
        wanted[BLOCK + i] = value(rank, 0, i);
    }
    SIX_FORMS(Neighbor_allgather, neighbor_allgather, ALLGATHER);
    for (int i = 0; i < BLOCK; i++) {
        out[BLOCK + i] = value(rank, 1, i);
        wanted[BLOCK + i] = value(rank, 1, i);
    }
    SIX_FORMS(Neighbor_alltoall, neighbor_alltoall, ALLGATHER);

    clear();
    receive_block(0, left + 1, 1);
    receive_block(1, rank + 1, MOST_RANKS + 2);
    for (int i = 0; i <= rank; i++) {
        out[i] = value(rank, 0, i);
        wanted[MOST_RANKS + 2 + i] = value(rank, 0, i);
    }
    for (int i = 0; i <= left; i++)
        wanted[1 + i] = value(left, 0, i);
    SIX_FORMS(Neighbor_allgatherv, neighbor_allgatherv, ALLGATHERV);

    // Block k of rank r has r + 1 + k elements.
    clear();
    send_block(0, rank + 1, MOST_RANKS + 4);
    send_block(1, rank + 2, 1);
    receive_block(0, left + 1, 2);
    receive_block(1, rank + 2, MOST_RANKS + 3);
    types[0] = types[1] = MPI_INT;
    for (int i = 0; i < rank + 1; i++)
        out[MOST_RANKS + 4 + i] = value(rank, 0, i);
    for (int i = 0; i < left + 1; i++)
        wanted[2 + i] = value(left, 0, i);
    for (int i = 0; i < rank + 2; i++) {
        out[1 + i] = value(rank, 1, i);
        wanted[MOST_RANKS + 3 + i] = value(rank, 1, i);
    }
    SIX_FORMS(Neighbor_alltoallv, neighbor_alltoallv, ALLTOALLV);
    SIX_FORMS(Neighbor_alltoallw, neighbor_alltoallw, NEIGHBOR_ALLTOALLW);
    GOOD(MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    if (size > MOST_RANKS) {
        fprintf(stderr, "coll_forms: %d ranks, expected at most %d\n", size, MOST_RANKS);
        MPI_Abort(MPI_COMM_WORLD, 98);
    }
    comm = MPI_COMM_WORLD;
    root = size - 1;
    for (int i = 0; i < SLOTS; i++)
        before[i] = GUARD;
    RUN(s6_4_bcast);
    RUN(s6_5_gather);
    RUN(s6_5_gatherv);
    RUN(s6_6_scatter);
    RUN(s6_6_scatterv);
    RUN(s6_7_allgather);
    RUN(s6_7_allgatherv);
    RUN(s6_8_alltoall);
    RUN(s6_8_alltoallv_and_alltoallw);
    RUN(s6_9_reductions);
    RUN(s6_10_reduce_scatter);
    RUN(s8_6_neighborhoods);
    return finish();
}
