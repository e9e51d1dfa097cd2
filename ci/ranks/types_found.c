// SPDX-License-Identifier: MIT OR Apache-2.0
// Datatypes by precision and range, pairs by their parts, and the errors of wrong arguments of constructors: MPI 5.0
// sections 5.1.14, 19.1.5 and 9.4.
#include "check.h"

static MPI_Datatype type;

static void made_of(int combiner, int ni, int first, int second)
{
    int i = -1, a = -1, d = -1, c = -1, integers[2] = {-1, -1};
    GOOD(MPI_Type_get_envelope(type, &i, &a, &d, &c));
    EQUAL(c, combiner);
    EQUAL(i, ni);
    EQUAL(a + d, 0);
    GOOD(MPI_Type_get_contents(type, ni, 0, 0, integers, NULL, NULL));
    EQUAL(integers[0], first);
    if (ni == 2)
        EQUAL(integers[1], second);
}

static void s19_1_5_numbers_of_a_precision(void)
{
    MPI_Datatype again, contiguous;
    int bytes = -1, numbers[2] = {5, 6}, got[2] = {0, 0}, i, a, d, c;
    static const int ranges[][2] = {{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 4}, {9, 4}, {10, 8}, {18, 8}};
    for (int k = 0; k < COUNT_OF(ranges); k++) {
        GOOD(MPI_Type_create_f90_integer(ranges[k][0], &type));
        GOOD(MPI_Type_size(type, &bytes));
        EQUAL(bytes, ranges[k][1]);
        made_of(MPI_COMBINER_F90_INTEGER, 1, ranges[k][0], 0);
    }
    GOOD(MPI_Type_create_f90_real(6, 30, &type));
    GOOD(MPI_Type_size(type, &bytes));
    EQUAL(bytes, 4);
    made_of(MPI_COMBINER_F90_REAL, 2, 6, 30);
    GOOD(MPI_Type_create_f90_real(6, 30, &again));
    CHECK(type == again, "the same precision and range give the same datatype");
    GOOD(MPI_Type_create_f90_complex(15, MPI_UNDEFINED, &type));
    GOOD(MPI_Type_size(type, &bytes));
    EQUAL(bytes, 16);
    made_of(MPI_COMBINER_F90_COMPLEX, 2, 15, MPI_UNDEFINED);
    // No commit is needed, and it counts as a predefined part of types that are made from it.
    GOOD(MPI_Type_create_f90_integer(9, &type));
    GOOD(MPI_Sendrecv(numbers, 2, type, rank, 0, got, 2, type, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    EQUAL(got[0] * 10 + got[1], 56);
    GOOD(MPI_Type_contiguous(2, type, &contiguous));
    GOOD(MPI_Type_get_contents(contiguous, 1, 0, 1, &i, NULL, &again));
    CHECK(again == type, "it counts as predefined");
    GOOD(MPI_Type_get_envelope(contiguous, &i, &a, &d, &c));
    MPI_Type_free(&contiguous);
    int one = 1, sum = 0;
    GOOD(MPI_Allreduce(&one, &sum, 1, type, MPI_SUM, MPI_COMM_WORLD));
    EQUAL(sum, size);
    FAILS(MPI_Type_free(&type), MPI_ERR_TYPE);
    FAILS(MPI_Type_create_f90_integer(39, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_f90_real(40, 10, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_f90_real(MPI_UNDEFINED, MPI_UNDEFINED, &type), MPI_ERR_ARG);
}

static void s5_1_14_pairs(void)
{
    GOOD(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &type));
    CHECK(type == MPI_DOUBLE_INT, "double and int");
    GOOD(MPI_Type_get_value_index(MPI_INT, MPI_INT, &type));
    CHECK(type == MPI_2INT, "int and int");
    GOOD(MPI_Type_get_value_index(MPI_CHAR, MPI_CHAR, &type));
    CHECK(type == MPI_DATATYPE_NULL, "no such pair");
}

static void s9_4_wrong_lengths(void)
{
    int minus[] = {1, -1}, plus[] = {1, 1}, places[] = {0, 4};
    MPI_Aint bytes[] = {0, 16};
    MPI_Datatype parts[] = {MPI_INT, MPI_INT}, broken[] = {MPI_INT, MPI_DATATYPE_NULL};
    FAILS(MPI_Type_contiguous(-1, MPI_INT, &type), MPI_ERR_COUNT);
    FAILS(MPI_Type_vector(-1, 1, 1, MPI_INT, &type), MPI_ERR_COUNT);
    FAILS(MPI_Type_vector(1, -1, 1, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_hvector(1, -1, 1, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_indexed(-1, plus, places, MPI_INT, &type), MPI_ERR_COUNT);
    FAILS(MPI_Type_indexed(2, minus, places, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_indexed(2, NULL, places, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_hindexed(2, minus, bytes, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_indexed_block(2, -1, places, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_hindexed_block(2, -1, bytes, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_struct(2, minus, bytes, parts, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_struct(2, plus, bytes, broken, &type), MPI_ERR_TYPE);
    FAILS(MPI_Type_contiguous(2, MPI_DATATYPE_NULL, &type), MPI_ERR_TYPE);
    FAILS(MPI_Type_vector_c(1LL << 40, 1, 1LL << 40, MPI_INT, &type), MPI_ERR_COUNT);
    FAILS(MPI_Type_create_struct(2, plus, bytes, parts, NULL), MPI_ERR_ARG);
}

static void s9_4_wrong_arrays(void)
{
    int sizes[] = {4, 6}, parts[] = {2, 3}, starts[] = {1, 2}, late[] = {3, 2}, none[] = {0, 6}, wide[] = {5, 3};
    int grid[] = {2, 1}, blocks[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK};
    int usual[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, thin[] = {1, 6}, undealt[] = {MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_NONE};
    FAILS(MPI_Type_create_subarray(2, none, parts, starts, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_subarray(2, sizes, none, starts, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_subarray(2, sizes, wide, starts, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_subarray(2, sizes, parts, late, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_subarray(2, sizes, parts, starts, 77, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_subarray(0, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_darray(3, 0, 2, sizes, blocks, usual, grid, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_darray(2, 2, 2, sizes, blocks, usual, grid, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_darray(2, 0, 2, sizes, blocks, thin, grid, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_darray(2, 0, 2, sizes, undealt, usual, grid, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_darray(2, 0, 2, sizes, sizes, usual, grid, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
}

// Datatypes inside each other, until no more fit; the deepest of them still works.
static void s9_4_too_deep(void)
{
    int lengths[] = {1, 1}, code = MPI_SUCCESS, depth = 0, position = 0;
    MPI_Aint places[] = {4, 0};
    MPI_Datatype deepest, parts[] = {MPI_INT, MPI_CHAR};
    unsigned char *room = allocate(1 << 20), *data = calloc(1 << 20, 1);
    GOOD(MPI_Type_create_struct(2, lengths, places, parts, &deepest));
    for (; depth < 100000; depth++) {
        parts[0] = deepest;
        code = MPI_Type_create_struct(2, lengths, places, parts, &type);
        if (code != MPI_SUCCESS)
            break;
        MPI_Type_free(&deepest);
        deepest = type;
    }
    FAILS(code, MPI_ERR_TYPE);
    CHECK(depth >= 100, "only %d inside each other", depth);
    GOOD(MPI_Type_commit(&deepest));
    GOOD(MPI_Pack(data, 1, deepest, room, 1 << 20, &position, MPI_COMM_SELF));
    CHECK(position > depth, "%d bytes", position);
    MPI_Type_free(&deepest);
    free(room);
    free(data);
}

// Error messages that state what was given, and which of several arguments it was.
static void s9_4_words(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int minus[] = {1, -7}, plus[] = {1, 1}, length;
    MPI_Aint bytes[] = {0, 16};
    MPI_Datatype broken[] = {MPI_INT, MPI_DATATYPE_NULL};
    MPI_Error_string(MPI_Type_create_hindexed(2, minus, bytes, MPI_INT, &type), text, &length);
    CHECK(strstr(text, "block length -7 at index 1 is negative"), "%s", text);
    MPI_Error_string(MPI_Type_create_struct(2, plus, bytes, broken, &type), text, &length);
    CHECK(strstr(text, "array_of_types[1]: MPI_DATATYPE_NULL is not a datatype"), "%s", text);
}

// A type that was not committed, and a buffer that was forgotten.
static void s5_1_9_not_ready_for_communication(void)
{
    int numbers[8] = {0};
    MPI_Type_vector(2, 1, 3, MPI_INT, &type);
    FAILS(MPI_Send(numbers, 1, type, rank, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
    FAILS(MPI_Recv(numbers, 1, type, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
    FAILS(MPI_Bcast(numbers, 1, type, 0, MPI_COMM_SELF), MPI_ERR_TYPE);
    MPI_Type_commit(&type);
    FAILS(MPI_Send(NULL, 1, type, rank, 0, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    GOOD(MPI_Send(NULL, 0, type, rank, 0, MPI_COMM_WORLD));
    GOOD(MPI_Recv(NULL, 0, type, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    RUN(s19_1_5_numbers_of_a_precision);
    RUN(s5_1_14_pairs);
    RUN(s9_4_wrong_lengths);
    RUN(s9_4_wrong_arrays);
    RUN(s9_4_too_deep);
    RUN(s9_4_words);
    RUN(s5_1_9_not_ready_for_communication);
    return finish();
}
