// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations of the program on datatypes of all kinds: MPI 5.0 section 6.9.5.
#include "check.h"
#include <wchar.h>

#include <sys/resource.h>

enum { ITEMS = 3 };

// The operation: adds the ints of each item, at the places that the datatype gives.
static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    int bytes = 0;
    EQUAL(MPI_Type_size(*type, &bytes), MPI_SUCCESS);
    EQUAL(bytes, 2 * (int)sizeof(int));
    MPI_Type_get_extent(*type, &lb, &extent);
    MPI_Type_get_true_extent(*type, &true_lb, &true_extent);
    for (int i = 0; i < *count; i++) {
        int *from = (int *)((uintptr_t)in + (uintptr_t)(true_lb + i * extent));
        int *to = (int *)((uintptr_t)inout + (uintptr_t)(true_lb + i * extent));
        size_t last = (size_t)true_extent / sizeof(int) - 1;
        to[0] += from[0];
        to[last] += from[last];
    }
}

static MPI_Op op;

// Reduces three items of two ints with a gap of one int, which must not be modified.
static void reduced(MPI_Datatype type, void *place, int *ints, int step)
{
    for (int i = 0; i < ITEMS; i++) {
        ints[i * step] = rank + i;
        ints[i * step + 1] = -7;
        ints[i * step + 2] = 10 * rank + i;
    }
    GOOD(MPI_Allreduce(MPI_IN_PLACE, place, ITEMS, type, op, MPI_COMM_WORLD));
    int sum = size * (size - 1) / 2;
    for (int i = 0; i < ITEMS; i++) {
        EQUAL(ints[i * step], sum + size * i);
        EQUAL(ints[i * step + 1], -7);
        EQUAL(ints[i * step + 2], 10 * sum + size * i);
    }
}

static void s6_9_5_datatypes_far_from_zero(void)
{
    enum { STEP = 3 };
    int ints[STEP * ITEMS], one[2] = {1, 1};
    MPI_Aint places[2];
    MPI_Datatype absolute, far, type;
    // Addresses, from MPI_BOTTOM.
    MPI_Get_address(&ints[0], &places[0]);
    MPI_Get_address(&ints[2], &places[1]);
    MPI_Type_create_hindexed(2, one, places, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    reduced(absolute, MPI_BOTTOM, ints, STEP);
    MPI_Type_free(&absolute);
    // Far behind and far before the buffer's address, and backwards.
    const MPI_Aint distances[] = {1 << 30, -(1 << 30), (MPI_Aint)1 << 40, -((MPI_Aint)1 << 40), 4, -4};
    for (int i = 0; i < COUNT_OF(distances); i++) {
        places[0] = distances[i];
        places[1] = distances[i] + 2 * (int)sizeof(int);
        MPI_Type_create_hindexed(2, one, places, MPI_INT, &far);
        MPI_Type_create_resized(far, 0, STEP * sizeof(int), &type);
        MPI_Type_commit(&type);
        reduced(type, (void *)((uintptr_t)ints - (uintptr_t)distances[i]), ints, STEP);
        MPI_Type_free(&type);
        MPI_Type_create_resized(far, 0, -(MPI_Aint)(STEP * sizeof(int)), &type);
        MPI_Type_commit(&type);
        uintptr_t last = (uintptr_t)&ints[STEP * (ITEMS - 1)];
        for (int k = 0; k < STEP * ITEMS; k++)
            ints[k] = rank;
        GOOD(MPI_Allreduce(MPI_IN_PLACE, (void *)(last - (uintptr_t)distances[i]), ITEMS, type, op, MPI_COMM_WORLD));
        for (int k = 0; k < STEP * ITEMS; k++)
            EQUAL(ints[k], k % STEP == 1 ? rank : size * (size - 1) / 2);
        MPI_Type_free(&type);
        MPI_Type_free(&far);
    }
}

// The datatype and the operation may be freed as soon as the call is made (MPI 5.0 sections 5.1.9 and 6.9.7).
static void s6_12_freed_while_under_way(void)
{
    int one[3] = {rank, -7, 2 * rank}, sum[3] = {0, -7, 0}, again[3] = {0, -7, 0};
    MPI_Datatype type;
    MPI_Op mine;
    MPI_Request requests[2];
    MPI_Type_vector(2, 1, 2, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(add, 0, &mine);
    // No rank can combine anything before all have freed their handles.
    if (rank == size - 1 && size > 1)
        MPI_Recv(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Iallreduce(one, sum, 1, type, mine, MPI_COMM_WORLD, &requests[0]);
    MPI_Allreduce_init(one, again, 1, type, mine, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Type_free(&type);
    MPI_Op_free(&mine);
    if (rank == 0 && size > 1)
        MPI_Send(NULL, 0, MPI_INT, size - 1, 1, MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        MPI_Start(&requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < 3; k++) {
            EQUAL(sum[k], k == 1 ? -7 : (k / 2 + 1) * (size * (size - 1) / 2));
            EQUAL(again[k], sum[k]);
        }
    }
    MPI_Request_free(&requests[1]);
}

// The standard defines no arithmetic on characters, but other MPIs do, and programs (OSU's) sum MPI_CHAR.
static void characters_are_computed_with(void)
{
    char mine[4] = {1, (char)rank, -2, 3}, got[4];
    wchar_t wide[2] = {1000000 + rank, rank}, most[2];
    const MPI_Datatype narrow[] = {MPI_CHAR, MPI_SIGNED_CHAR};
    for (int i = 0; i < COUNT_OF(narrow); i++) {
        memset(got, 77, sizeof got);
        GOOD(MPI_Allreduce(mine, got, 4, narrow[i], MPI_SUM, MPI_COMM_WORLD));
        EQUAL(got[0], (char)size);
        EQUAL(got[1], (char)(size * (size - 1) / 2));
        EQUAL(got[2], (char)(-2 * size));
    }
    GOOD(MPI_Allreduce(mine, got, 4, MPI_CHAR, MPI_MIN, MPI_COMM_WORLD));
    EQUAL(got[2], -2);
    GOOD(MPI_Allreduce(mine, got, 4, MPI_CHAR, MPI_BXOR, MPI_COMM_WORLD));
    EQUAL(got[3], size % 2 ? 3 : 0);
    GOOD(MPI_Allreduce(wide, most, 2, MPI_WCHAR, MPI_MAX, MPI_COMM_WORLD));
    EQUAL(most[0], 1000000 + size - 1);
    EQUAL(most[1], size - 1);
}

// MPI_REPLACE and MPI_NO_OP are operations of windows (MPI 5.0 section 12.3.4).
static void s6_9_2_operations_of_windows_alone(void)
{
    int one = 1, two = 2;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    FAILS(MPI_Allreduce(&one, &two, 1, MPI_INT, MPI_REPLACE, MPI_COMM_SELF), MPI_ERR_OP);
    FAILS(MPI_Reduce_local(&one, &two, 1, MPI_INT, MPI_NO_OP), MPI_ERR_OP);
    EQUAL(two, 2);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

// All data are for one rank, which must not need that much memory for every rank.
static void s6_10_2_very_unequal_lengths(void)
{
    enum { MANY = 2 << 20, MIB_MORE = 8 * 5 };
    int *out = allocate(MANY * sizeof(int)), *in = allocate(MANY * sizeof(int));
    int *counts = calloc((size_t)size, sizeof(int));
    struct rusage before, after;
    counts[size - 1] = MANY;
    for (int i = 0; i < MANY; i++) {
        out[i] = rank + i;
        in[i] = -1;
    }
    getrusage(RUSAGE_SELF, &before);
    MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    getrusage(RUSAGE_SELF, &after);
    long more = (after.ru_maxrss - before.ru_maxrss) >> 10;
    CHECK(more < MIB_MORE, "%ld MiB were needed for 8 MiB of data", more);
    for (int i = 0; rank == size - 1 && i < MANY; i += 777)
        EQUAL(in[i], size * (size - 1) / 2 + size * i);
    free(counts);
    free(in);
    free(out);
}

#ifdef __SIZEOF_FLOAT128__
typedef _Complex float __attribute__((mode(TC))) complex32;

static __float128 fraction(int i, int j)
{
    __float128 x = (__float128)(i * 7 + j * 31 + 1) / (__float128)(3 + j);
    return j % 3 == 1 ? -x : j % 5 == 4 ? x * 1e30Q : x;
}

// Fortran's REAL*16 and COMPLEX*32 (MPI 5.0 sections 3.2.2 and 6.9.2), against what the compiler computes, bit by bit.
static void s6_9_2_quadruple_precision(void)
{
    enum { MANY = 40 };
    __float128 mine[MANY], got[MANY], sum, product, least, most;
    complex32 pairs[MANY], many[MANY];
    for (int j = 0; j < MANY; j++) {
        mine[j] = fraction(0, j);
        got[j] = fraction(1, j);
        pairs[j] = fraction(0, j) + fraction(2, j) * 1.0iF;
        many[j] = fraction(1, j) + fraction(3, j) * 1.0iF;
    }
    const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX};
    for (int o = 0; o < COUNT_OF(ops); o++) {
        for (int j = 0; j < MANY; j++)
            got[j] = fraction(1, j);
        GOOD(MPI_Reduce_local(mine, got, MANY, MPI_REAL16, ops[o]));
        for (int j = 0; j < MANY; j++) {
            __float128 a = mine[j], b = fraction(1, j);
            sum = a + b, product = a * b, least = a < b ? a : b, most = a > b ? a : b;
            const __float128 wanted[] = {sum, product, least, most};
            CHECK(memcmp(&got[j], &wanted[o], sizeof got[j]) == 0, "operation %d, number %d: %g", o, j, (double)got[j]);
        }
    }
    GOOD(MPI_Reduce_local(pairs, many, MANY, MPI_COMPLEX32, MPI_SUM));
    for (int j = 0; j < MANY; j++) {
        complex32 wanted = pairs[j] + (fraction(1, j) + fraction(3, j) * 1.0iF);
        CHECK(many[j] == wanted, "pair %d", j);
    }
}
#endif

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Op_create(add, 1, &op);
    RUN(s6_9_5_datatypes_far_from_zero);
    RUN(s6_12_freed_while_under_way);
    RUN(characters_are_computed_with);
    RUN(s6_9_2_operations_of_windows_alone);
    RUN(s6_10_2_very_unequal_lengths);
#ifdef __SIZEOF_FLOAT128__
    RUN(s6_9_2_quadruple_precision);
#endif
    MPI_Op_free(&op);
    return finish();
}
