// SPDX-License-Identifier: MIT OR Apache-2.0
// Gather, scatter, allgather and all-to-all with blocks of sizes around every limit, with and without gaps, in place
// and not; and the errors of ranks if a block has another length than the others expect. MPI 5.0 sections 6.5 to 6.8
// and 6.14.
#include "check.h"

enum { LARGEST = 600000, STRIDE = 24, PART = 8 };

static unsigned char *out, *in;
static MPI_Datatype column; // parts of 8 bytes, one every 24

static const int sizes[] = {0, 8, 120, 128, 8184, 8192, 8200, 16384, 65528, 65536, 65544, 131080, LARGEST};

static int steps(void)
{
    return size <= 8 ? COUNT_OF(sizes) : COUNT_OF(sizes) - (size <= 17 ? 1 : 6);
}

// Writes a block of `bytes` bytes at place `at`, with or without gaps.
static void put(unsigned char *where, size_t at, int bytes, int gaps, unsigned seed)
{
    if (!gaps) {
        fill(where + at, (size_t)bytes, seed);
        return;
    }
    for (int i = 0; i < bytes; i++)
        where[at * (STRIDE / PART) + (size_t)(i / PART * STRIDE + i % PART)] = payload_byte((size_t)i, seed);
}

static int wrong_at(const unsigned char *where, size_t at, int bytes, int gaps, unsigned seed)
{
    int wrong = 0;
    for (int i = 0; i < bytes; i++) {
        size_t place = gaps ? at * (STRIDE / PART) + (size_t)(i / PART * STRIDE + i % PART) : at + (size_t)i;
        wrong += where[place] != payload_byte((size_t)i, seed);
    }
    return wrong;
}

static unsigned seed_of(int turn, int of)
{
    return (unsigned)(turn * 100 + of);
}

#define TYPE(gaps) ((gaps) ? column : MPI_BYTE)
#define COUNT(bytes, gaps) ((gaps) ? (bytes) / PART : (bytes))

static void clear(int bytes)
{
    memset(in, 0xee, (size_t)bytes * (size_t)size * (STRIDE / PART) + 64);
}

static void check_all(const char *what, int bytes, int gaps, int turn)
{
    for (int r = 0; r < size; r++) {
        int wrong = wrong_at(in, (size_t)bytes * (size_t)r, bytes, gaps, seed_of(turn, r));
        CHECK(wrong == 0, "%s: %d of %d bytes from %d", what, wrong, bytes, r);
    }
}

static void fill_counts(int *counts, int *places, int count)
{
    for (int r = 0; r < size; r++) {
        counts[r] = count;
        places[r] = r * count;
    }
}

// Tests all of the calls with one size: `turn` selects the root, where there are gaps, and what is in place.
static void blocks_of(int bytes, int turn)
{
    int root = turn % size, from_gaps = turn / 2 % 2, to_gaps = turn / 4 % 2, in_place = turn / 3 % 2;
    int counts[64], places[64], to = COUNT(bytes, to_gaps), from = COUNT(bytes, from_gaps);
    MPI_Datatype to_type = TYPE(to_gaps), from_type = TYPE(from_gaps);
    MPI_Comm c = MPI_COMM_WORLD;
    size_t own = (size_t)bytes * (size_t)rank;
    fill_counts(counts, places, to);
    for (int various = 0; various < 2; various++) {
        const void *given = in_place && rank == root ? MPI_IN_PLACE : out;
        clear(bytes);
        put(out, 0, bytes, from_gaps, seed_of(turn, rank));
        put(in, own, bytes, to_gaps, seed_of(turn, rank));
        GOOD(various ? MPI_Gatherv(given, from, from_type, in, counts, places, to_type, root, c)
                     : MPI_Gather(given, from, from_type, in, to, to_type, root, c));
        if (rank == root)
            check_all(various ? "gatherv" : "gather", bytes, to_gaps, turn);
        given = in_place ? MPI_IN_PLACE : out;
        clear(bytes);
        put(in, own, bytes, to_gaps, seed_of(turn, rank));
        GOOD(various ? MPI_Allgatherv(given, from, from_type, in, counts, places, to_type, c)
                     : MPI_Allgather(given, from, from_type, in, to, to_type, c));
        check_all(various ? "allgatherv" : "allgather", bytes, to_gaps, turn);
        // The root scatters what it has gathered.
        GOOD(various ? MPI_Scatterv(in, counts, places, to_type, out, from, from_type, root, c)
                     : MPI_Scatter(in, to, to_type, out, from, from_type, root, c));
        EQUAL(wrong_at(out, 0, bytes, from_gaps, seed_of(turn, rank)), 0);
    }
}

// The blocks of one rank are longer or shorter than the others', so that ranks might choose different algorithms.
static void exchange_of(int bytes, int turn, int odd_bytes)
{
    int counts[64], places[64], odd = turn % size, longest = bytes > odd_bytes ? bytes : odd_bytes;
    int mine = rank == odd ? odd_bytes : bytes, gaps = turn % 3 == 1, in_place = turn % 3 == 2 && bytes == odd_bytes;
    fill_counts(counts, places, COUNT(mine, gaps));
    clear(longest);
    for (int r = 0; r < size; r++)
        put(in_place ? in : out, (size_t)(mine * r), mine, gaps, seed_of(turn + rank, r));
    const void *given = in_place ? MPI_IN_PLACE : out;
    int into[64], into_places[64];
    fill_counts(into, into_places, COUNT(longest, gaps));
    for (int r = 0; r < size; r++)
        into[r] = COUNT(r == odd ? odd_bytes : bytes, gaps);
    if (in_place || turn % 2 == 0)
        GOOD(MPI_Alltoallv(given, counts, places, TYPE(gaps), in, into, into_places, TYPE(gaps), MPI_COMM_WORLD));
    else if (bytes == odd_bytes)
        GOOD(MPI_Alltoall(given, counts[0], TYPE(gaps), in, into[0], TYPE(gaps), MPI_COMM_WORLD));
    else
        return;
    for (int r = 0; r < size; r++) {
        int theirs = r == odd ? odd_bytes : bytes;
        int wrong = wrong_at(in, (size_t)(longest * r), theirs, gaps, seed_of(turn + r, rank));
        CHECK(wrong == 0, "all-to-all: %d of %d bytes from %d", wrong, theirs, r);
    }
}

static void s6_8_sizes_around_limits(void)
{
    for (int s = 0; s < steps(); s++)
        for (int turn = 0; turn < (sizes[s] > 100000 ? 3 : 12); turn++) {
            exchange_of(sizes[s], turn, sizes[s]);
            exchange_of(sizes[s], turn, sizes[(s + turn) % steps()]);
        }
}

static void s6_5_to_6_7_sizes_around_limits(void)
{
    for (int s = 0; s < steps(); s++)
        for (int turn = 0; turn < (sizes[s] > 100000 ? 3 : 12); turn++)
            blocks_of(sizes[s], turn + s);
}

// A root that only sends or only receives is not delayed, and does not overwrite data that others still read.
static void s6_14_roots_that_change_at_once(void)
{
    for (int turn = 0; turn < 60; turn++) {
        int root = turn * 7 % size, bytes = turn % 2 ? 16384 : 40000, mine = turn % 3;
        for (int r = 0; r < size && rank == root; r++)
            put(in, (size_t)(bytes * r), bytes, 0, seed_of(turn, r));
        GOOD(MPI_Scatter(in, bytes, MPI_BYTE, mine && rank == root ? MPI_IN_PLACE : out, bytes, MPI_BYTE, root, MPI_COMM_WORLD));
        if (!mine || rank != root)
            EQUAL(wrong_at(out, 0, bytes, 0, seed_of(turn, rank)), 0);
        put(out, 0, bytes, 0, seed_of(turn, rank));
        root = (root + mine) % size;
        GOOD(MPI_Gather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, root, MPI_COMM_WORLD));
        if (rank == root)
            check_all("gather", bytes, 0, turn);
    }
}

// The blocks of one rank have another length than the others expect: some rank gets an error, no rank hangs, and the
// next call is right.
static void s6_14_lengths_that_differ(void)
{
    static const int lengths[][2] = {{16384, 20000}, {20000, 16384}, {65536, 70000}, {70000, 65536}, {100000, 140000}};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < COUNT_OF(lengths) && size > 1; i++) {
        int counts[64], places[64], odd = i % size, bytes = lengths[i][rank == odd], all = 0;
        int heard[6];
        fill_counts(counts, places, bytes);
        heard[0] = MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS;
        heard[1] = MPI_Allgatherv(out, bytes, MPI_BYTE, in, counts, places, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS;
        heard[2] = MPI_Scatterv(in, counts, places, MPI_BYTE, out, bytes, MPI_BYTE, (odd + 1) % size, MPI_COMM_WORLD) != MPI_SUCCESS;
        heard[3] = MPI_Alltoallv(in, counts, places, MPI_BYTE, out, counts, places, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS;
        heard[4] = MPI_Gather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, (odd + 1) % size, MPI_COMM_WORLD) != MPI_SUCCESS;
        int items = rank == odd ? 3 << 14 : 1 << 15;
        heard[5] = MPI_Scan(in, out, items, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
        for (int call = 0; call < 6; call++) {
            GOOD(MPI_Allreduce(&heard[call], &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            CHECK(all > 0, "call %d with %d and %d bytes: nobody has heard of it", call, lengths[i][0], lengths[i][1]);
        }
        blocks_of(16384, i);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    size_t room = (size_t)(size <= 8 ? LARGEST : 140000) * (size_t)size * (STRIDE / PART) + 64;
    out = calloc(room, 1);
    in = calloc(room, 1);
    GOOD(MPI_Type_create_resized(MPI_LONG, 0, STRIDE, &column));
    GOOD(MPI_Type_commit(&column));
    RUN(s6_5_to_6_7_sizes_around_limits);
    RUN(s6_8_sizes_around_limits);
    RUN(s6_14_roots_that_change_at_once);
    if (argc > 1 && !strcmp(argv[1], "differ"))
        RUN(s6_14_lengths_that_differ);
    MPI_Type_free(&column);
    free(out);
    free(in);
    return finish();
}
