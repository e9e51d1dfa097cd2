// SPDX-License-Identifier: MIT OR Apache-2.0
// Collectives with a length, a place and a datatype for each rank: MPI 5.0 sections 6.5 to 6.8.
#include "check.h"

// Lengths of the blocks in items: some are empty, some are large. `scale` makes them so.
static const int scales[] = {1, 7, 700};

enum { ITEMS_MAX = 200000, GUARD = -77 };

static int *out, *in, *counts, *places, *other_counts, *other_places;

static int length_of(int from, int to, int scale)
{
    return (from * 3 + to * 5) % 4 * scale;
}

static int item(int from, int to, int i)
{
    return from * 7919 + to * 104729 + i;
}

static void guard(int *where)
{
    for (int i = 0; i < ITEMS_MAX; i++)
        where[i] = GUARD;
}

// The lengths of the blocks that this rank sends to each rank (or receives from each), with gaps between them, the last
// rank's first.
static int layout(int *lengths, int *at, int outgoing, int scale)
{
    int next = 1;
    for (int r = size - 1; r >= 0; r--) {
        lengths[r] = outgoing ? length_of(rank, r, scale) : length_of(r, rank, scale);
        at[r] = next;
        next += lengths[r] + r % 3;
    }
    return next;
}

static int steps(void)
{
    return size > 16 ? 2 : COUNT_OF(scales);
}

static int root_step(void)
{
    return size > 16 ? size / 3 : 1;
}

// Everything between the blocks is as it was.
static void check_gaps(const int *lengths, const int *at, int end)
{
    int wrong = 0;
    for (int i = 0; i < end + 5; i++) {
        int inside = 0;
        for (int r = 0; r < size; r++)
            inside |= i >= at[r] && i < at[r] + lengths[r];
        wrong += !inside && in[i] != GUARD;
    }
    EQUAL(wrong, 0);
}

static void check_block(int from, int to, int at, int length)
{
    int wrong = 0;
    for (int i = 0; i < length; i++)
        wrong += in[at + i] != item(from, to, i);
    CHECK(wrong == 0, "%d wrong items of %d from %d", wrong, length, from);
}

static void s6_5_gatherv(void)
{
    for (int root = 0; root < size; root += root_step())
        for (int s = 0; s < steps(); s++) {
            int mine = length_of(rank, root, scales[s]), end = 0;
            guard(in);
            if (rank == root)
                end = layout(counts, places, 0, scales[s]);
            int in_place = rank == root && s % 2;
            int *from = in_place ? in + places[rank] : out;
            for (int i = 0; i < mine; i++)
                from[i] = item(rank, root, i);
            GOOD(MPI_Gatherv(in_place ? MPI_IN_PLACE : out, mine, MPI_INT, in, counts, places, MPI_INT, root,
                             MPI_COMM_WORLD));
            if (rank != root)
                continue;
            for (int r = 0; r < size; r++)
                check_block(r, root, places[r], counts[r]);
            check_gaps(counts, places, end);
        }
}

static void s6_6_scatterv(void)
{
    for (int root = 0; root < size; root += root_step())
        for (int s = 0; s < steps(); s++) {
            int mine = length_of(root, rank, scales[s]);
            guard(in);
            if (rank == root)
                layout(counts, places, 1, scales[s]);
            for (int r = 0; rank == root && r < size; r++)
                for (int i = 0; i < counts[r]; i++)
                    out[places[r] + i] = item(root, r, i);
            int in_place = rank == root && s % 2;
            GOOD(MPI_Scatterv(out, counts, places, MPI_INT, in_place ? MPI_IN_PLACE : in, mine, MPI_INT, root,
                              MPI_COMM_WORLD));
            if (in_place)
                continue;
            check_block(root, rank, 0, mine);
            EQUAL(in[mine], GUARD);
        }
}

static void s6_7_allgatherv(void)
{
    for (int s = 0; s < steps(); s++) {
        int next = 2, mine = length_of(rank, 0, scales[s]);
        guard(in);
        for (int r = 0; r < size; r++) {
            counts[r] = length_of(r, 0, scales[s]);
            places[r] = next;
            next += counts[r] + r % 2;
        }
        int in_place = s & 1;
        int *from = in_place ? in + places[rank] : out;
        for (int i = 0; i < mine; i++)
            from[i] = item(rank, 0, i);
        GOOD(MPI_Allgatherv(in_place ? MPI_IN_PLACE : out, mine, MPI_INT, in, counts, places, MPI_INT, MPI_COMM_WORLD));
        for (int r = 0; r < size; r++)
            check_block(r, 0, places[r], counts[r]);
        check_gaps(counts, places, next);
    }
}

static void s6_8_alltoallv(void)
{
    for (int s = 0; s < steps(); s++) {
        layout(counts, places, 1, scales[s]);
        int end = layout(other_counts, other_places, 0, scales[s]);
        guard(in);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < counts[r]; i++)
                out[places[r] + i] = item(rank, r, i);
        GOOD(MPI_Alltoallv(out, counts, places, MPI_INT, in, other_counts, other_places, MPI_INT, MPI_COMM_WORLD));
        for (int r = 0; r < size; r++)
            check_block(r, rank, other_places[r], other_counts[r]);
        check_gaps(other_counts, other_places, end);
    }
}

static void s6_8_alltoallv_in_place(void)
{
    // In place, the block to a rank is as long as the block from it.
    int next = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = (rank + r) % 5;
        places[r] = next;
        next += counts[r] + 1;
    }
    guard(in);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < counts[r]; i++)
            in[places[r] + i] = item(rank, r, i);
    GOOD(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in, counts, places, MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        check_block(r, rank, places[r], counts[r]);
    check_gaps(counts, places, next);
}

static void s6_8_alltoallw(void)
{
    // To and from even ranks plain numbers, to and from odd ones every second number: displacements are in bytes.
    MPI_Datatype second, *out_types = malloc(sizeof *out_types * size), *in_types = malloc(sizeof *in_types * size);
    enum { PER_RANK = 6 };
    GOOD(MPI_Type_vector(PER_RANK / 2, 1, 2, MPI_INT, &second));
    GOOD(MPI_Type_commit(&second));
    guard(in);
    for (int r = 0; r < size; r++) {
        out_types[r] = r % 2 ? second : MPI_INT;
        in_types[r] = rank % 2 ? MPI_INT : second;
        counts[r] = r % 2 ? 1 : PER_RANK / 2;
        other_counts[r] = rank % 2 ? PER_RANK / 2 : 1;
        places[r] = other_places[r] = r * PER_RANK * (int)sizeof(int);
        for (int i = 0; i < PER_RANK; i++)
            out[r * PER_RANK + i] = item(rank, r, i);
    }
    GOOD(MPI_Alltoallw(out, counts, places, out_types, in, other_counts, other_places, in_types, MPI_COMM_WORLD));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < PER_RANK; i++) {
            int got = in[r * PER_RANK + i], step = rank % 2 ? 1 : 2, sent = rank % 2 ? 2 : 1;
            if (i % step || i / step >= PER_RANK / 2)
                EQUAL(got, GUARD);
            else
                EQUAL(got, item(r, rank, i / step * sent));
        }
    MPI_Type_free(&second);
    free(out_types);
    free(in_types);
}

static void s6_7_gaps_in_the_datatype(void)
{
    // Each rank's block is every third number, and a block ends where its last number does.
    MPI_Datatype third;
    enum { NUMBERS = 5 };
    int extent = 3 * (NUMBERS - 1) + 1, wrong = 0;
    GOOD(MPI_Type_vector(NUMBERS, 1, 3, MPI_INT, &third));
    GOOD(MPI_Type_commit(&third));
    guard(in);
    for (int i = 0; i < NUMBERS; i++)
        out[i] = item(rank, 0, i);
    GOOD(MPI_Allgather(out, NUMBERS, MPI_INT, in, 1, third, MPI_COMM_WORLD));
    for (int i = 0; i < size * extent; i++) {
        int at = i % extent;
        wrong += in[i] != (at % 3 ? GUARD : item(i / extent, 0, at / 3));
    }
    EQUAL(wrong, 0);
    EQUAL(in[size * extent], GUARD);
    MPI_Type_free(&third);
}

static void bad_blocks_are_told_with_their_rank(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, code;
    for (int r = 0; r < size; r++)
        counts[r] = places[r] = 0;
    counts[size - 1] = -1;
    code = MPI_Allgatherv(out, 0, MPI_INT, in, counts, places, MPI_INT, MPI_COMM_WORLD);
    FAILS(code, MPI_ERR_COUNT);
    MPI_Error_string(code, text, &length);
    snprintf((char *)out, 100, "the block of rank %d", size - 1);
    CHECK(strstr(text, (char *)out), "%s", text);
    FAILS(MPI_Gatherv(out, 0, MPI_INT, in, counts, places, MPI_INT, size, MPI_COMM_WORLD), MPI_ERR_ROOT);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    out = malloc(sizeof(int) * ITEMS_MAX);
    in = malloc(sizeof(int) * ITEMS_MAX);
    counts = malloc(sizeof(int) * size);
    places = calloc(size, sizeof(int));
    other_counts = malloc(sizeof(int) * size);
    other_places = malloc(sizeof(int) * size);
    RUN(s6_5_gatherv);
    RUN(s6_6_scatterv);
    RUN(s6_7_allgatherv);
    RUN(s6_8_alltoallv);
    RUN(s6_8_alltoallv_in_place);
    RUN(s6_8_alltoallw);
    RUN(s6_7_gaps_in_the_datatype);
    RUN(bad_blocks_are_told_with_their_rank);
    return finish();
}
