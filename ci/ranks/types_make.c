// SPDX-License-Identifier: MIT OR Apache-2.0
// The constructors of datatypes: their size and extent, and that data arrive at the places of the type map. MPI 5.0
// sections 5.1.2 to 5.1.4 and 5.1.6 to 5.1.11.
#include "check.h"
#include <stddef.h>

enum { TAG = 5 };

static void bounds_are(MPI_Datatype type, int bytes, MPI_Aint lower, MPI_Aint extent,
                       MPI_Aint true_lower, MPI_Aint true_extent)
{
    int got = -1;
    MPI_Aint l = -99, e = -99;
    GOOD(MPI_Type_size(type, &got));
    EQUAL(got, bytes);
    GOOD(MPI_Type_get_extent(type, &l, &e));
    EQUAL(l, lower);
    EQUAL(e, extent);
    GOOD(MPI_Type_get_true_extent(type, &l, &e));
    EQUAL(l, true_lower);
    EQUAL(e, true_extent);
    MPI_Count large = -1, large_lower, large_extent;
    GOOD(MPI_Type_size_c(type, &large));
    EQUAL(large, bytes);
    GOOD(MPI_Type_get_true_extent_c(type, &large_lower, &large_extent));
    EQUAL(large_lower, true_lower);
    EQUAL(large_extent, true_extent);
}

// Sends one item around and checks that exactly the numbers with `chosen[i]` arrived, both where the
// receive has the same type and where it has plain numbers.
static void moves(MPI_Datatype type, const int *chosen, int n)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, count = -1, numbers = 0;
    int *out = allocate(sizeof(int) * n), *in = allocate(sizeof(int) * n);
    int *dense = allocate(sizeof(int) * n);
    MPI_Status status;
    GOOD(MPI_Type_commit(&type));
    for (int i = 0; i < n; i++) {
        out[i] = 1000 * rank + i;
        in[i] = dense[i] = -1;
        numbers += chosen[i];
    }
    GOOD(MPI_Sendrecv(out, 1, type, right, TAG, in, 1, type, left, TAG, MPI_COMM_WORLD, &status));
    for (int i = 0; i < n; i++)
        CHECK(in[i] == (chosen[i] ? 1000 * left + i : -1), "number %d is %d", i, in[i]);
    GOOD(MPI_Get_count(&status, type, &count));
    EQUAL(count, 1);
    GOOD(MPI_Get_elements(&status, type, &count));
    EQUAL(count, numbers);
    GOOD(MPI_Sendrecv(out, 1, type, right, TAG, dense, n, MPI_INT, left, TAG, MPI_COMM_WORLD, &status));
    GOOD(MPI_Get_count(&status, MPI_INT, &count));
    EQUAL(count, numbers);
    free(out);
    free(in);
    free(dense);
}

static void s5_1_2_indexed(void)
{
    MPI_Datatype type, large;
    int lengths[] = {2, 0, 1, 3}, places[] = {1, 100, 5, 8};
    MPI_Count lengths_c[] = {2, 0, 1, 3}, places_c[] = {1, 100, 5, 8};
    int chosen[12] = {0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0};
    GOOD(MPI_Type_indexed(4, lengths, places, MPI_INT, &type));
    bounds_are(type, 24, 4, 40, 4, 40);
    moves(type, chosen, 12);
    GOOD(MPI_Type_indexed_c(4, lengths_c, places_c, MPI_INT, &large));
    bounds_are(large, 24, 4, 40, 4, 40);
    moves(large, chosen, 12);
    MPI_Type_free(&type);
    MPI_Type_free(&large);
    GOOD(MPI_Type_indexed(0, NULL, NULL, MPI_INT, &type));
    bounds_are(type, 0, 0, 0, 0, 0);
    MPI_Type_free(&type);
}

static void s5_1_2_hindexed(void)
{
    MPI_Datatype type, large;
    int lengths[] = {1, 2, 1};
    MPI_Aint places[] = {36, 0, 16};
    MPI_Count lengths_c[] = {1, 2, 1}, places_c[] = {36, 0, 16};
    int chosen[10] = {1, 1, 0, 0, 1, 0, 0, 0, 0, 1};
    GOOD(MPI_Type_create_hindexed(3, lengths, places, MPI_INT, &type));
    bounds_are(type, 16, 0, 40, 0, 40);
    moves(type, chosen, 10);
    GOOD(MPI_Type_create_hindexed_c(3, lengths_c, places_c, MPI_INT, &large));
    bounds_are(large, 16, 0, 40, 0, 40);
    moves(large, chosen, 10);
    MPI_Type_free(&type);
    MPI_Type_free(&large);
}

// The order of the type map is the order of the message, whatever the addresses.
static void s5_1_2_blocks_out_of_order(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int out[4] = {10, 11, 12, 13}, in[4] = {0};
    int places[] = {3, 0, 2, 1};
    MPI_Datatype type;
    GOOD(MPI_Type_create_indexed_block(4, 1, places, MPI_INT, &type));
    GOOD(MPI_Type_commit(&type));
    GOOD(MPI_Sendrecv(out, 1, type, right, TAG, in, 4, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 4; i++)
        EQUAL(in[i], 10 + places[i]);
    MPI_Type_free(&type);
}

static void s5_1_2_indexed_blocks(void)
{
    MPI_Datatype type, bytes, large, large_bytes;
    int places[] = {6, 1, 3};
    MPI_Aint addresses[] = {24, 4, 12};
    MPI_Count places_c[] = {6, 1, 3}, addresses_c[] = {24, 4, 12};
    int chosen[9] = {0, 1, 1, 1, 1, 0, 1, 1, 0};
    GOOD(MPI_Type_create_indexed_block(3, 2, places, MPI_INT, &type));
    GOOD(MPI_Type_create_hindexed_block(3, 2, addresses, MPI_INT, &bytes));
    GOOD(MPI_Type_create_indexed_block_c(3, 2, places_c, MPI_INT, &large));
    GOOD(MPI_Type_create_hindexed_block_c(3, 2, addresses_c, MPI_INT, &large_bytes));
    MPI_Datatype all[] = {type, bytes, large, large_bytes};
    for (int i = 0; i < 4; i++) {
        bounds_are(all[i], 24, 4, 28, 4, 28);
        moves(all[i], chosen, 9);
        MPI_Type_free(&all[i]);
    }
}

struct particle {
    char kind;
    double place[3];
    int id;
    short charge;
};

static MPI_Datatype particle_type(void)
{
    MPI_Datatype type, made;
    int lengths[] = {1, 3, 1, 1};
    MPI_Aint places[] = {offsetof(struct particle, kind), offsetof(struct particle, place),
                         offsetof(struct particle, id), offsetof(struct particle, charge)};
    MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT, MPI_SHORT};
    GOOD(MPI_Type_create_struct(4, lengths, places, types, &made));
    GOOD(MPI_Type_dup(made, &type));
    GOOD(MPI_Type_commit(&type));
    MPI_Type_free(&made);
    return type;
}

// A structure is padded as C pads it, so arrays of it need no resizing.
static void s5_1_2_structures(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, count;
    MPI_Datatype type = particle_type();
    MPI_Status status;
    bounds_are(type, 31, 0, sizeof(struct particle), 0, offsetof(struct particle, charge) + 2);
    static const int amounts[] = {1, 2, 7, 100, 3000};
    for (int k = 0; k < COUNT_OF(amounts); k++) {
        int n = amounts[k];
        struct particle *out = allocate(n * sizeof *out), *in = allocate(n * sizeof *in);
        memset(in, 0x5a, n * sizeof *in);
        for (int i = 0; i < n; i++)
            out[i] = (struct particle){(char)i, {rank, i, 0.5 * i}, rank + 7 * i, (short)-i};
        GOOD(MPI_Sendrecv(out, n, type, right, TAG, in, n, type, left, TAG, MPI_COMM_WORLD, &status));
        GOOD(MPI_Get_count(&status, type, &count));
        EQUAL(count, n);
        GOOD(MPI_Get_elements(&status, type, &count));
        EQUAL(count, 6 * n);
        int wrong = 0;
        for (int i = 0; i < n; i++) {
            const struct particle *p = &in[i];
            wrong += p->kind != (char)i || p->place[0] != left || p->place[1] != i || p->place[2] != 0.5 * i;
            wrong += p->id != left + 7 * i || p->charge != (short)-i;
            wrong += ((const unsigned char *)p)[1] != 0x5a;
        }
        EQUAL(wrong, 0);
        free(out);
        free(in);
    }
    MPI_Type_free(&type);
    MPI_Count lengths_c[] = {1, 2}, places_c[] = {0, 8};
    MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE};
    GOOD(MPI_Type_create_struct_c(2, lengths_c, places_c, types, &type));
    bounds_are(type, 20, 0, 24, 0, 24);
    MPI_Type_free(&type);
}

// Section 2.5.6: a type with absolute addresses goes with MPI_BOTTOM.
static void s5_1_5_absolute_addresses(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    static int number;
    double *pair = allocate(2 * sizeof *pair);
    int got = -1;
    double got_pair[2] = {-1, -1};
    MPI_Datatype out, in, types[] = {MPI_INT, MPI_DOUBLE};
    int lengths[] = {1, 2};
    MPI_Aint places[2];
    number = 40 + rank;
    pair[0] = rank + 0.5;
    pair[1] = rank + 0.25;
    MPI_Get_address(&number, &places[0]);
    MPI_Get_address(pair, &places[1]);
    GOOD(MPI_Type_create_struct(2, lengths, places, types, &out));
    GOOD(MPI_Type_commit(&out));
    MPI_Get_address(&got, &places[0]);
    MPI_Get_address(got_pair, &places[1]);
    GOOD(MPI_Type_create_struct(2, lengths, places, types, &in));
    GOOD(MPI_Type_commit(&in));
    GOOD(MPI_Sendrecv(MPI_BOTTOM, 1, out, right, TAG, MPI_BOTTOM, 1, in, left, TAG, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    EQUAL(got, 40 + left);
    CHECK(got_pair[0] == left + 0.5 && got_pair[1] == left + 0.25, "%g %g", got_pair[0], got_pair[1]);
    MPI_Type_free(&out);
    MPI_Type_free(&in);
    free(pair);
}

static void s5_1_3_subarrays(void)
{
    int sizes[] = {4, 6}, parts[] = {2, 3}, starts[] = {1, 2};
    MPI_Count sizes_c[] = {4, 6}, parts_c[] = {2, 3}, starts_c[] = {1, 2};
    int rows[24], columns[24];
    MPI_Datatype type;
    for (int i = 0; i < 24; i++) {
        rows[i] = i / 6 >= 1 && i / 6 < 3 && i % 6 >= 2 && i % 6 < 5;
        columns[i] = i % 4 >= 1 && i % 4 < 3 && i / 4 >= 2 && i / 4 < 5;
    }
    GOOD(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type));
    bounds_are(type, 24, 0, 96, 32, 36);
    moves(type, rows, 24);
    MPI_Type_free(&type);
    GOOD(MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &type));
    bounds_are(type, 24, 0, 96, 36, 40);
    moves(type, columns, 24);
    MPI_Type_free(&type);
    GOOD(MPI_Type_create_subarray_c(2, sizes_c, parts_c, starts_c, MPI_ORDER_C, MPI_INT, &type));
    moves(type, rows, 24);
    MPI_Type_free(&type);
    // The whole is a plain array.
    int none[] = {0, 0};
    GOOD(MPI_Type_create_subarray(2, sizes, sizes, none, MPI_ORDER_C, MPI_INT, &type));
    bounds_are(type, 96, 0, 96, 0, 96);
    MPI_Type_free(&type);
}

// The owner of an index of a dimension, by the standard's definition.
static int owner(int index, int whole, int way, int length, int processes)
{
    if (way == MPI_DISTRIBUTE_NONE)
        return 0;
    if (length == MPI_DISTRIBUTE_DFLT_DARG)
        length = way == MPI_DISTRIBUTE_BLOCK ? (whole + processes - 1) / processes : 1;
    return index / length % processes;
}

static void s5_1_4_shares_of_an_array(void)
{
    static const struct {
        int whole[3], way[3], length[3], grid[3];
    } cases[] = {
        {{5, 7, 4}, {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE},
         {MPI_DISTRIBUTE_DFLT_DARG, 2, MPI_DISTRIBUTE_DFLT_DARG}, {2, 3, 1}},
        {{6, 3, 8}, {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK},
         {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG, 5}, {3, 1, 2}},
        {{4, 4, 9}, {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
         {4, 3, 3}, {1, 2, 3}},
    };
    for (int k = 0; k < COUNT_OF(cases); k++) {
        const int *n = cases[k].whole, *p = cases[k].grid;
        int all = n[0] * n[1] * n[2], *seen = calloc(all, sizeof(int));
        MPI_Count large[] = {n[0], n[1], n[2]};
        for (int which = 0; which < 6; which++) {
            int place[] = {which / (p[1] * p[2]), which / p[2] % p[1], which % p[2]};
            int bytes = -1, *chosen = calloc(all, sizeof(int)), numbers = 0;
            MPI_Aint lower, extent;
            MPI_Datatype c, fortran, c_large;
            for (int i = 0; i < all; i++) {
                int at[] = {i / (n[1] * n[2]), i / n[2] % n[1], i % n[2]}, mine = 1;
                for (int d = 0; d < 3; d++)
                    mine &= owner(at[d], n[d], cases[k].way[d], cases[k].length[d], p[d]) == place[d];
                chosen[i] = mine;
                seen[i] += mine;
                numbers += mine;
            }
            GOOD(MPI_Type_create_darray(6, which, 3, n, cases[k].way, cases[k].length, p, MPI_ORDER_C, MPI_INT, &c));
            GOOD(MPI_Type_get_extent(c, &lower, &extent));
            EQUAL(lower, 0);
            EQUAL(extent, 4 * all);
            moves(c, chosen, all);
            GOOD(MPI_Type_create_darray_c(6, which, 3, large, cases[k].way, cases[k].length, p, MPI_ORDER_C,
                                          MPI_INT, &c_large));
            moves(c_large, chosen, all);
            GOOD(MPI_Type_create_darray(6, which, 3, n, cases[k].way, cases[k].length, p, MPI_ORDER_FORTRAN,
                                        MPI_INT, &fortran));
            GOOD(MPI_Type_size(fortran, &bytes));
            EQUAL(bytes, 4 * numbers);
            for (int i = 0; i < all; i++) {
                int at[] = {i % n[0], i / n[0] % n[1], i / (n[0] * n[1])}, mine = 1;
                for (int d = 0; d < 3; d++)
                    mine &= owner(at[d], n[d], cases[k].way[d], cases[k].length[d], p[d]) == place[d];
                chosen[i] = mine;
            }
            moves(fortran, chosen, all);
            MPI_Type_free(&c);
            MPI_Type_free(&c_large);
            MPI_Type_free(&fortran);
            free(chosen);
        }
        for (int i = 0; i < all; i++)
            EQUAL(seen[i], 1);
        free(seen);
    }
}

// Section 5.1.7: chosen bounds determine where the next item begins, also in types that are made from it.
static void s5_1_7_resized(void)
{
    MPI_Datatype type, row, pair, large;
    GOOD(MPI_Type_create_resized(MPI_INT, -4, 12, &type));
    bounds_are(type, 4, -4, 12, 0, 4);
    GOOD(MPI_Type_contiguous(3, type, &row));
    bounds_are(row, 12, -4, 36, 0, 28);
    int chosen[8] = {1, 0, 0, 1, 0, 0, 1, 0};
    moves(row, chosen, 8);
    int lengths[] = {1, 1};
    MPI_Aint places[] = {0, 100};
    MPI_Datatype types[] = {type, MPI_CHAR};
    GOOD(MPI_Type_create_struct(2, lengths, places, types, &pair));
    bounds_are(pair, 5, -4, 12, 0, 101);
    GOOD(MPI_Type_create_resized_c(MPI_INT, -4, 12, &large));
    bounds_are(large, 4, -4, 12, 0, 4);
    MPI_Type_free(&type);
    MPI_Type_free(&row);
    MPI_Type_free(&pair);
    MPI_Type_free(&large);
}

// Columns of a matrix side by side by an extent of one number: the transpose, in one message.
static void s5_1_7_transpose(void)
{
    enum { SIDE = 300 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int *out = allocate(SIDE * SIDE * sizeof(int)), *in = allocate(SIDE * SIDE * sizeof(int));
    MPI_Datatype column, narrow;
    for (int i = 0; i < SIDE * SIDE; i++)
        out[i] = rank * 1000000 + i;
    MPI_Type_vector(SIDE, 1, SIDE, MPI_INT, &column);
    GOOD(MPI_Type_create_resized(column, 0, sizeof(int), &narrow));
    MPI_Type_free(&column);
    GOOD(MPI_Type_commit(&narrow));
    GOOD(MPI_Sendrecv(out, SIDE, narrow, right, TAG, in, SIDE * SIDE, MPI_INT, left, TAG, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    int wrong = 0;
    for (int i = 0; i < SIDE * SIDE; i++)
        wrong += in[i] != left * 1000000 + i % SIDE * SIDE + i / SIDE;
    EQUAL(wrong, 0);
    MPI_Type_free(&narrow);
    free(out);
    free(in);
}

// Section 5.1.9: parts may be freed before what is made of them, and that before its message ends.
static void s5_1_9_parts_freed_first(void)
{
    enum { N = 60000 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int *out = allocate(3 * N * sizeof(int)), *in = allocate(3 * N * sizeof(int));
    MPI_Datatype one, three, all;
    MPI_Request requests[2];
    for (int i = 0; i < 3 * N; i++) {
        out[i] = rank + i;
        in[i] = -1;
    }
    MPI_Type_dup(MPI_INT, &one);
    MPI_Type_create_resized(one, 0, 3 * sizeof(int), &three);
    MPI_Type_free(&one);
    MPI_Type_contiguous(N, three, &all);
    MPI_Type_free(&three);
    MPI_Type_commit(&all);
    GOOD(MPI_Irecv(in, 1, all, left, TAG, MPI_COMM_WORLD, &requests[0]));
    GOOD(MPI_Isend(out, 1, all, right, TAG, MPI_COMM_WORLD, &requests[1]));
    MPI_Type_free(&all);
    GOOD(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    int wrong = 0;
    for (int i = 0; i < 3 * N; i++)
        wrong += in[i] != (i % 3 ? -1 : left + i);
    EQUAL(wrong, 0);
    free(out);
    free(in);
}

// Section 5.1.10: a copy is independent, and is committed if the original was.
static void s5_1_10_copies(void)
{
    MPI_Datatype type, copy, fresh;
    int numbers[4] = {1, 2, 3, 4}, got[4] = {0};
    MPI_Type_vector(2, 1, 2, MPI_INT, &type);
    GOOD(MPI_Type_dup(type, &fresh));
    MPI_Type_commit(&type);
    GOOD(MPI_Type_dup(type, &copy));
    MPI_Type_free(&type);
    GOOD(MPI_Sendrecv(numbers, 1, copy, rank, TAG, got, 1, copy, rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    EQUAL(got[0] * 1000 + got[1] * 100 + got[2] * 10 + got[3], 1030);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    FAILS(MPI_Send(numbers, 1, fresh, rank, TAG, MPI_COMM_WORLD), MPI_ERR_TYPE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&copy);
    MPI_Type_free(&fresh);
}

// Section 5.1.11: elements of a message that ends inside an item of several types.
static void s5_1_11_elements_of_structures(void)
{
    MPI_Datatype type;
    int lengths[] = {2, 1, 3}, count = -1;
    MPI_Aint places[] = {0, 8, 16};
    MPI_Datatype types[] = {MPI_SHORT, MPI_DOUBLE, MPI_CHAR};
    GOOD(MPI_Type_create_struct(3, lengths, places, types, &type));
    static const struct {
        int bytes, elements;
    } known[] = {{0, 0}, {2, 1}, {4, 2}, {12, 3}, {13, 4}, {15, 6}, {17, 7}, {19, 8},
                 {30, 12}, {3, MPI_UNDEFINED}, {8, MPI_UNDEFINED}, {16, MPI_UNDEFINED}};
    for (int i = 0; i < COUNT_OF(known); i++) {
        MPI_Status status;
        memset(&status, 0, sizeof status);
        GOOD(MPI_Status_set_elements(&status, MPI_BYTE, known[i].bytes));
        GOOD(MPI_Get_elements(&status, type, &count));
        CHECK(count == known[i].elements, "%d bytes are %d elements, expected %d", known[i].bytes, count,
              known[i].elements);
        GOOD(MPI_Get_count(&status, type, &count));
        EQUAL(count, known[i].bytes % 15 ? MPI_UNDEFINED : known[i].bytes / 15);
        if (known[i].elements != MPI_UNDEFINED) {
            GOOD(MPI_Status_set_elements(&status, type, known[i].elements));
            GOOD(MPI_Get_count(&status, MPI_BYTE, &count));
            EQUAL(count, known[i].bytes);
        }
    }
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s5_1_2_indexed);
    RUN(s5_1_2_hindexed);
    RUN(s5_1_2_blocks_out_of_order);
    RUN(s5_1_2_indexed_blocks);
    RUN(s5_1_2_structures);
    RUN(s5_1_5_absolute_addresses);
    RUN(s5_1_3_subarrays);
    RUN(s5_1_4_shares_of_an_array);
    RUN(s5_1_7_resized);
    RUN(s5_1_7_transpose);
    RUN(s5_1_9_parts_freed_first);
    RUN(s5_1_10_copies);
    RUN(s5_1_11_elements_of_structures);
    return finish();
}
