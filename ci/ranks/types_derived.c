// SPDX-License-Identifier: MIT OR Apache-2.0
// Contiguous and vector types: MPI 5.0 sections 4.1.2, 4.1.5 and 4.1.9 to 4.1.11.
#include "check.h"

enum { TAG = 3 };

static void extent_is(MPI_Datatype type, int bytes, MPI_Aint lower, MPI_Aint extent)
{
    int got = -1;
    MPI_Aint got_lower = -99, got_extent = -99;
    MPI_Type_size(type, &got);
    MPI_Type_get_extent(type, &got_lower, &got_extent);
    EQUAL(got, bytes);
    EQUAL(got_lower, lower);
    EQUAL(got_extent, extent);
}

static void s4_1_2_sizes_and_extents(void)
{
    MPI_Datatype five, grid, backwards, nested, none;
    MPI_Type_contiguous(5, MPI_INT, &five);
    extent_is(five, 20, 0, 20);
    MPI_Type_vector(3, 2, 4, MPI_INT, &grid);
    extent_is(grid, 24, 0, 40);
    MPI_Type_vector(3, 1, -2, MPI_DOUBLE, &backwards);
    extent_is(backwards, 24, -32, 40);
    MPI_Type_contiguous(2, grid, &nested);
    extent_is(nested, 48, 0, 80);
    MPI_Type_contiguous(0, MPI_INT, &none);
    extent_is(none, 0, 0, 0);
    MPI_Aint lower, extent;
    GOOD(MPI_Type_get_true_extent(grid, &lower, &extent));
    EQUAL(lower, 0);
    EQUAL(extent, 40);
    MPI_Type_free(&five);
    MPI_Type_free(&grid);
    MPI_Type_free(&backwards);
    MPI_Type_free(&nested);
    MPI_Type_free(&none);
    CHECK(none == MPI_DATATYPE_NULL, "the freed handle is still set");
}

// A column of a matrix, at sizes below and above each protocol change.
static void s4_1_2_columns_of_a_matrix(void)
{
    static const int rows[] = {1, 2, 3, 13, 700, 9000, 40000};
    enum { COLUMNS = 5 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < COUNT_OF(rows); i++) {
        int n = rows[i];
        int *out = allocate((size_t)n * COLUMNS * sizeof(int)), *in = allocate((size_t)n * COLUMNS * sizeof(int));
        MPI_Datatype column;
        MPI_Status status;
        int count, elements;
        for (int j = 0; j < n * COLUMNS; j++) {
            out[j] = rank * 1000003 + j;
            in[j] = -1;
        }
        MPI_Type_vector(n, 1, COLUMNS, MPI_INT, &column);
        GOOD(MPI_Type_commit(&column));
        MPI_Sendrecv(out + 1, 1, column, right, TAG, in + 3, 1, column, left, TAG, MPI_COMM_WORLD, &status);
        GOOD(MPI_Get_count(&status, column, &count));
        EQUAL(count, 1);
        GOOD(MPI_Get_elements(&status, column, &elements));
        EQUAL(elements, n);
        int wrong = 0;
        for (int j = 0; j < n * COLUMNS; j++)
            wrong += in[j] != (j % COLUMNS == 3 ? left * 1000003 + j - 2 : -1);
        EQUAL(wrong, 0);
        MPI_Type_free(&column);
        free(out);
        free(in);
    }
}

// Only the type signatures must match (section 3.3.1): one side has gaps, the other has none.
static void s3_3_1_signatures_match_layouts_may_differ(void)
{
    enum { N = 6000 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    short *out = allocate(3 * N * sizeof(short)), *in = allocate(3 * N * sizeof(short));
    MPI_Datatype thirds, pairs;
    for (int i = 0; i < 3 * N; i++)
        out[i] = (short)(rank + i);
    memset(in, 0x11, 3 * N * sizeof(short));
    MPI_Type_vector(N, 1, 3, MPI_SHORT, &thirds);
    MPI_Type_commit(&thirds);
    MPI_Sendrecv(out, 1, thirds, right, TAG, in, N, MPI_SHORT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int wrong = 0;
    for (int i = 0; i < N; i++)
        wrong += in[i] != (short)(left + 3 * i);
    EQUAL(wrong, 0);
    EQUAL(in[N], 0x1111);
    MPI_Type_contiguous(2, MPI_SHORT, &pairs);
    MPI_Type_commit(&pairs);
    memset(in, 0x11, 3 * N * sizeof(short));
    MPI_Sendrecv(out, N / 2, pairs, right, TAG, in, 1, thirds, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++)
        wrong += in[3 * i] != (short)(left + i) || in[3 * i + 1] != 0x1111;
    EQUAL(wrong, 0);
    MPI_Type_free(&thirds);
    MPI_Type_free(&pairs);
    free(out);
    free(in);
}

// Nested: vectors of vectors, several of them in one message, a negative stride.
static void s4_1_nested_types(void)
{
    enum { SIDE = 12 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    double cube[2][SIDE][SIDE], back[2][SIDE][SIDE];
    for (int i = 0; i < 2 * SIDE * SIDE; i++) {
        (&cube[0][0][0])[i] = rank + i;
        (&back[0][0][0])[i] = -1;
    }
    // Every second row, of it every third number; an extent that ends with the last number.
    MPI_Datatype row, plane;
    MPI_Type_vector(SIDE / 3, 1, 3, MPI_DOUBLE, &row);
    MPI_Type_vector(1, 1, 1, row, &plane);
    extent_is(plane, 8 * SIDE / 3, 0, 8 * (SIDE - 2));
    MPI_Type_commit(&plane);
    MPI_Sendrecv(cube, 2, plane, right, TAG, back, 2, plane, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2 * (SIDE - 2); i++)
        CHECK((&back[0][0][0])[i] == (i % (SIDE - 2) % 3 == 0 ? left + i : -1), "number %d is %g", i,
              (&back[0][0][0])[i]);
    MPI_Type_free(&row);
    MPI_Type_free(&plane);
    int line[8] = {0, 1, 2, 3, 4, 5, 6, 7}, turned[4] = {-1, -1, -1, -1};
    MPI_Datatype backwards;
    MPI_Type_vector(4, 1, -2, MPI_INT, &backwards);
    MPI_Type_commit(&backwards);
    MPI_Sendrecv(line + 7, 1, backwards, right, TAG, turned, 4, MPI_INT, left, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++)
        EQUAL(turned[i], 7 - 2 * i);
    MPI_Type_free(&backwards);
}

// Section 4.1.11: a message that is no whole number of items.
static void s4_1_11_counts_of_partial_messages(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, count, in[12];
    int out[12] = {0};
    MPI_Datatype pair;
    MPI_Status status;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    for (int numbers = 0; numbers <= 5; numbers++) {
        MPI_Sendrecv(out, numbers, MPI_INT, right, TAG, in, 6, pair, left, TAG, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, pair, &count);
        EQUAL(count, numbers % 2 ? MPI_UNDEFINED : numbers / 2);
        MPI_Get_elements(&status, pair, &count);
        EQUAL(count, numbers);
    }
    MPI_Type_free(&pair);
}

// Section 4.1.9: a type may be freed while a message that uses it is on its way.
static void s4_1_9_freed_while_in_use(void)
{
    enum { N = 50000 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int *out = calloc(2 * N, sizeof(int)), *in = calloc(2 * N, sizeof(int));
    MPI_Datatype evens, base;
    MPI_Request requests[2];
    for (int i = 0; i < 2 * N; i++)
        out[i] = rank + i;
    MPI_Type_contiguous(1, MPI_INT, &base);
    MPI_Type_vector(N, 1, 2, base, &evens);
    MPI_Type_free(&base);
    MPI_Type_commit(&evens);
    MPI_Irecv(in, 1, evens, left, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, 1, evens, right, TAG, MPI_COMM_WORLD, &requests[1]);
    MPI_Type_free(&evens);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    int wrong = 0;
    for (int i = 0; i < 2 * N; i++)
        wrong += in[i] != (i % 2 ? 0 : left + i);
    EQUAL(wrong, 0);
    free(out);
    free(in);
}

// Many types are made and freed: resources are not exhausted.
static void s4_1_9_made_and_freed_again(void)
{
    for (int i = 0; i < 20000; i++) {
        MPI_Datatype type;
        MPI_Type_vector(3, 1, 2, MPI_INT, &type);
        MPI_Type_commit(&type);
        MPI_Type_free(&type);
    }
}

// Section 4.1.1: addresses and their arithmetic.
static void s4_1_5_addresses(void)
{
    int numbers[4];
    MPI_Aint first, last;
    GOOD(MPI_Get_address(&numbers[0], &first));
    GOOD(MPI_Get_address(&numbers[3], &last));
    EQUAL(MPI_Aint_diff(last, first), 12);
    EQUAL(MPI_Aint_add(first, 12), last);
    // MPI_BOTTOM with an absolute address is a buffer of its own only through a type; the plain
    // address of the buffer is what MPI_Get_address gives.
    CHECK((void *)first == (void *)numbers, "address %ld", (long)first);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s4_1_2_sizes_and_extents);
    RUN(s4_1_2_columns_of_a_matrix);
    RUN(s3_3_1_signatures_match_layouts_may_differ);
    RUN(s4_1_nested_types);
    RUN(s4_1_11_counts_of_partial_messages);
    RUN(s4_1_9_freed_while_in_use);
    RUN(s4_1_9_made_and_freed_again);
    RUN(s4_1_5_addresses);
    return finish();
}
