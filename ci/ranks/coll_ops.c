// SPDX-License-Identifier: MIT OR Apache-2.0
// Operations of the program on datatypes of all kinds: MPI 5.0 section 6.9.5.
#include "check.h"

enum { ITEMS = 3 };

// The ints of each item, wherever the datatype has them.
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

// Two ints with one between them that is not touched, three times.
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

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Op_create(add, 1, &op);
    RUN(s6_9_5_datatypes_far_from_zero);
    MPI_Op_free(&op);
    return finish();
}
