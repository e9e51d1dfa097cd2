// SPDX-License-Identifier: MIT OR Apache-2.0
// The contents and the names of datatypes, and predefined datatypes that are looked up: MPI 5.0 sections 5.1.13,
// 5.1.14, 7.8 and 19.1.5.
#include "check.h"

static int integers[32];
static MPI_Aint addresses[32];
static MPI_Count counts[32];
static MPI_Datatype types[32];

// The combiner and the arguments of a type that a function without _c made; frees the type.
static void made_of(MPI_Datatype type, int combiner, int ni, int na, int nd)
{
    int i = -1, a = -1, d = -1, c = -1;
    MPI_Count li = -1, la = -1, lc = -1, ld = -1;
    GOOD(MPI_Type_get_envelope(type, &i, &a, &d, &c));
    EQUAL(c, combiner);
    EQUAL(i, ni);
    EQUAL(a, na);
    EQUAL(d, nd);
    c = -1;
    GOOD(MPI_Type_get_envelope_c(type, &li, &la, &lc, &ld, &c));
    EQUAL(c, combiner);
    EQUAL(li * 1000000 + la * 10000 + lc * 100 + ld, ni * 1000000 + na * 10000 + nd);
    GOOD(MPI_Type_get_contents(type, ni, na, nd, integers, addresses, types));
    MPI_Type_free(&type);
}

// The same of a type that a _c function made.
static void made_of_c(MPI_Datatype type, int combiner, int ni, int nc, int nd)
{
    MPI_Count i = -1, a = -1, l = -1, d = -1;
    int c = -1;
    GOOD(MPI_Type_get_envelope_c(type, &i, &a, &l, &d, &c));
    EQUAL(c, combiner);
    EQUAL(i, ni);
    EQUAL(a, 0);
    EQUAL(l, nc);
    EQUAL(d, nd);
    GOOD(MPI_Type_get_contents_c(type, ni, 0, nc, nd, integers, addresses, counts, types));
    MPI_Type_free(&type);
}

#define INTS(...)                                                                                  \
    do {                                                                                           \
        int wanted_[] = {__VA_ARGS__};                                                             \
        for (int i_ = 0; i_ < COUNT_OF(wanted_); i_++)                                             \
            CHECK(integers[i_] == wanted_[i_], "integer %d is %d, expected %d", i_, integers[i_], wanted_[i_]); \
    } while (0)

#define LARGE(...)                                                                                 \
    do {                                                                                           \
        long wanted_[] = {__VA_ARGS__};                                                            \
        for (int i_ = 0; i_ < COUNT_OF(wanted_); i_++)                                             \
            CHECK(counts[i_] == wanted_[i_], "count %d is %lld, expected %ld", i_, (long long)counts[i_], wanted_[i_]); \
    } while (0)

static void s5_1_13_predefined_types_have_a_name(void)
{
    int i, a, d, c = -1;
    GOOD(MPI_Type_get_envelope(MPI_DOUBLE_INT, &i, &a, &d, &c));
    EQUAL(c, MPI_COMBINER_NAMED);
    EQUAL(i + a + d, 0);
}

static void s5_1_13_regular_types(void)
{
    MPI_Datatype type;
    MPI_Type_contiguous(7, MPI_INT, &type);
    made_of(type, MPI_COMBINER_CONTIGUOUS, 1, 0, 1);
    INTS(7);
    CHECK(types[0] == MPI_INT, "a predefined type comes back as it is");
    MPI_Type_vector(2, 3, 5, MPI_DOUBLE, &type);
    made_of(type, MPI_COMBINER_VECTOR, 3, 0, 1);
    INTS(2, 3, 5);
    MPI_Type_create_hvector(2, 3, 100, MPI_DOUBLE, &type);
    made_of(type, MPI_COMBINER_HVECTOR, 2, 1, 1);
    INTS(2, 3);
    EQUAL(addresses[0], 100);
    MPI_Type_create_resized(MPI_INT, -4, 20, &type);
    made_of(type, MPI_COMBINER_RESIZED, 0, 2, 1);
    EQUAL(addresses[0], -4);
    EQUAL(addresses[1], 20);
    MPI_Type_dup(MPI_CHAR, &type);
    made_of(type, MPI_COMBINER_DUP, 0, 0, 1);
    CHECK(types[0] == MPI_CHAR, "a copy is of the old type");
}

static void s5_1_13_irregular_types(void)
{
    MPI_Datatype type, parts[] = {MPI_CHAR, MPI_INT};
    int lengths[] = {1, 2}, places[] = {3, 9};
    MPI_Aint bytes[] = {8, 40};
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type);
    made_of(type, MPI_COMBINER_INDEXED, 5, 0, 1);
    INTS(2, 1, 2, 3, 9);
    MPI_Type_create_hindexed(2, lengths, bytes, MPI_INT, &type);
    made_of(type, MPI_COMBINER_HINDEXED, 3, 2, 1);
    INTS(2, 1, 2);
    EQUAL(addresses[0] * 1000 + addresses[1], 8040);
    MPI_Type_create_indexed_block(2, 4, places, MPI_INT, &type);
    made_of(type, MPI_COMBINER_INDEXED_BLOCK, 4, 0, 1);
    INTS(2, 4, 3, 9);
    MPI_Type_create_hindexed_block(2, 4, bytes, MPI_INT, &type);
    made_of(type, MPI_COMBINER_HINDEXED_BLOCK, 2, 2, 1);
    INTS(2, 4);
    EQUAL(addresses[0] * 1000 + addresses[1], 8040);
    MPI_Type_create_struct(2, lengths, bytes, parts, &type);
    made_of(type, MPI_COMBINER_STRUCT, 3, 2, 2);
    INTS(2, 1, 2);
    EQUAL(addresses[0] * 1000 + addresses[1], 8040);
    CHECK(types[0] == MPI_CHAR && types[1] == MPI_INT, "the parts come in order");
}

static void s5_1_13_parts_of_arrays(void)
{
    MPI_Datatype type;
    int sizes[] = {4, 6}, parts[] = {2, 3}, starts[] = {1, 2}, grid[] = {2, 1};
    int ways[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE}, lengths[] = {2, MPI_DISTRIBUTE_DFLT_DARG};
    MPI_Count sizes_c[] = {4, 6}, parts_c[] = {2, 3}, starts_c[] = {1, 2};
    MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &type);
    made_of(type, MPI_COMBINER_SUBARRAY, 8, 0, 1);
    INTS(2, 4, 6, 2, 3, 1, 2, MPI_ORDER_FORTRAN);
    MPI_Type_create_subarray_c(2, sizes_c, parts_c, starts_c, MPI_ORDER_C, MPI_INT, &type);
    made_of_c(type, MPI_COMBINER_SUBARRAY, 2, 6, 1);
    INTS(2, MPI_ORDER_C);
    LARGE(4, 6, 2, 3, 1, 2);
    MPI_Type_create_darray(2, 1, 2, sizes, ways, lengths, grid, MPI_ORDER_C, MPI_INT, &type);
    made_of(type, MPI_COMBINER_DARRAY, 12, 0, 1);
    INTS(2, 1, 2, 4, 6, ways[0], ways[1], lengths[0], lengths[1], 2, 1, MPI_ORDER_C);
    MPI_Type_create_darray_c(2, 1, 2, sizes_c, ways, lengths, grid, MPI_ORDER_C, MPI_INT, &type);
    made_of_c(type, MPI_COMBINER_DARRAY, 10, 2, 1);
    INTS(2, 1, 2, ways[0], ways[1], lengths[0], lengths[1], 2, 1, MPI_ORDER_C);
    LARGE(4, 6);
}

static void s5_1_13_types_of_large_counts(void)
{
    MPI_Datatype type, parts[] = {MPI_CHAR, MPI_INT};
    MPI_Count lengths[] = {1, 2}, places[] = {8, 40};
    MPI_Type_contiguous_c(3000000000LL, MPI_CHAR, &type);
    made_of_c(type, MPI_COMBINER_CONTIGUOUS, 0, 1, 1);
    LARGE(3000000000L);
    MPI_Type_vector_c(2, 3, 5, MPI_INT, &type);
    made_of_c(type, MPI_COMBINER_VECTOR, 0, 3, 1);
    LARGE(2, 3, 5);
    MPI_Type_create_hvector_c(2, 3, 100, MPI_INT, &type);
    made_of_c(type, MPI_COMBINER_HVECTOR, 0, 3, 1);
    LARGE(2, 3, 100);
    MPI_Type_indexed_c(2, lengths, places, MPI_INT, &type);
    made_of_c(type, MPI_COMBINER_INDEXED, 0, 5, 1);
    LARGE(2, 1, 2, 8, 40);
    MPI_Type_create_hindexed_c(2, lengths, places, MPI_INT, &type);
    made_of_c(type, MPI_COMBINER_HINDEXED, 0, 5, 1);
    LARGE(2, 1, 2, 8, 40);
    MPI_Type_create_indexed_block_c(2, 1, places, MPI_INT, &type);
    made_of_c(type, MPI_COMBINER_INDEXED_BLOCK, 0, 4, 1);
    LARGE(2, 1, 8, 40);
    MPI_Type_create_hindexed_block_c(2, 1, places, MPI_INT, &type);
    made_of_c(type, MPI_COMBINER_HINDEXED_BLOCK, 0, 4, 1);
    LARGE(2, 1, 8, 40);
    MPI_Type_create_struct_c(2, lengths, places, parts, &type);
    made_of_c(type, MPI_COMBINER_STRUCT, 0, 5, 2);
    LARGE(2, 1, 2, 8, 40);
    MPI_Type_create_resized_c(MPI_INT, -4, 20, &type);
    made_of_c(type, MPI_COMBINER_RESIZED, 0, 2, 1);
    LARGE(-4, 20);
}

// The parts are returned as new types, equal to the original ones, which may have been freed.
static void s5_1_13_parts_are_new_handles(void)
{
    MPI_Datatype inner, outer, again;
    int i, a, d, c = -1, bytes = -1;
    MPI_Type_vector(2, 1, 3, MPI_INT, &inner);
    MPI_Type_contiguous(5, inner, &outer);
    MPI_Type_free(&inner);
    for (int round = 0; round < 2; round++) {
        GOOD(MPI_Type_get_contents(outer, 1, 0, 1, integers, addresses, &again));
        GOOD(MPI_Type_get_envelope(again, &i, &a, &d, &c));
        EQUAL(c, MPI_COMBINER_VECTOR);
        GOOD(MPI_Type_size(again, &bytes));
        EQUAL(bytes, 8);
        GOOD(MPI_Type_free(&again));
    }
    GOOD(MPI_Type_size(outer, &bytes));
    EQUAL(bytes, 40);
    MPI_Type_free(&outer);
}

static void s5_1_13_wrong_questions(void)
{
    MPI_Datatype type;
    int lengths[] = {1, 2}, places[] = {3, 9};
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Type_get_contents(MPI_INT, 0, 0, 0, integers, addresses, types) != MPI_SUCCESS, "of nothing");
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type);
    CHECK(MPI_Type_get_contents(type, 4, 0, 1, integers, addresses, types) != MPI_SUCCESS, "no room");
    CHECK(MPI_Type_get_contents(type, 5, 0, 0, integers, addresses, types) != MPI_SUCCESS, "no room");
    MPI_Type_free(&type);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void s7_8_names(void)
{
    char name[MPI_MAX_OBJECT_NAME] = "?", longer[2 * MPI_MAX_OBJECT_NAME];
    int length = -1;
    MPI_Datatype type, copy;
    GOOD(MPI_Type_get_name(MPI_INT, name, &length));
    CHECK(!strcmp(name, "MPI_INT") && length == 7, "%s, %d", name, length);
    GOOD(MPI_Type_get_name(MPI_2INT, name, &length));
    CHECK(!strcmp(name, "MPI_2INT"), "%s", name);
    GOOD(MPI_Type_get_name(MPI_LONG_LONG, name, &length));
    CHECK(!strncmp(name, "MPI_LONG_LONG", 13), "%s", name);
    GOOD(MPI_Type_set_name(MPI_SHORT, "shorty"));
    GOOD(MPI_Type_get_name(MPI_SHORT, name, &length));
    CHECK(!strcmp(name, "shorty") && length == 6, "%s, %d", name, length);
    MPI_Type_contiguous(2, MPI_INT, &type);
    GOOD(MPI_Type_get_name(type, name, &length));
    CHECK(name[0] == 0 && length == 0, "%s, %d", name, length);
    GOOD(MPI_Type_set_name(type, "a pair"));
    GOOD(MPI_Type_dup(type, &copy));
    GOOD(MPI_Type_get_name(type, name, &length));
    CHECK(!strcmp(name, "a pair") && length == 6, "%s, %d", name, length);
    GOOD(MPI_Type_get_name(copy, name, &length));
    EQUAL(length, 0);
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    GOOD(MPI_Type_set_name(copy, longer));
    GOOD(MPI_Type_get_name(copy, name, &length));
    EQUAL(length, MPI_MAX_OBJECT_NAME - 1);
    MPI_Type_free(&type);
    MPI_Type_free(&copy);
}

static void s19_1_5_types_of_a_size(void)
{
    static const struct {
        int class, bytes;
    } known[] = {{MPI_TYPECLASS_INTEGER, 1}, {MPI_TYPECLASS_INTEGER, 2}, {MPI_TYPECLASS_INTEGER, 4},
                 {MPI_TYPECLASS_INTEGER, 8}, {MPI_TYPECLASS_REAL, 4},    {MPI_TYPECLASS_REAL, 8},
                 {MPI_TYPECLASS_COMPLEX, 8}, {MPI_TYPECLASS_COMPLEX, 16}};
    MPI_Datatype type;
    int bytes, i, a, d, c;
    for (int k = 0; k < COUNT_OF(known); k++) {
        GOOD(MPI_Type_match_size(known[k].class, known[k].bytes, &type));
        GOOD(MPI_Type_size(type, &bytes));
        EQUAL(bytes, known[k].bytes);
        GOOD(MPI_Type_get_envelope(type, &i, &a, &d, &c));
        EQUAL(c, MPI_COMBINER_NAMED);
    }
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 3, &type) != MPI_SUCCESS, "a real of 3 bytes");
    CHECK(MPI_Type_match_size(12345, 4, &type) != MPI_SUCCESS, "no class");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s5_1_13_predefined_types_have_a_name);
    RUN(s5_1_13_regular_types);
    RUN(s5_1_13_irregular_types);
    RUN(s5_1_13_parts_of_arrays);
    RUN(s5_1_13_types_of_large_counts);
    RUN(s5_1_13_parts_are_new_handles);
    RUN(s5_1_13_wrong_questions);
    RUN(s7_8_names);
    RUN(s19_1_5_types_of_a_size);
    return finish();
}
