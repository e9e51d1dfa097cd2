// SPDX-License-Identifier: MIT OR Apache-2.0
// Every predefined datatype of C: its size and extent, and a trip through a message.
// MPI 5.0 sections 3.2.2 and 4.1.5.
#include "check.h"

#include <complex.h>
#include <stdbool.h>
#include <wchar.h>

struct float_int {
    float value;
    int index;
};
struct double_int {
    double value;
    int index;
};
struct long_int {
    long value;
    int index;
};
struct short_int {
    short value;
    int index;
};
struct two_int {
    int value, index;
};
struct long_double_int {
    long double value;
    int index;
};

// A pair's size is what its members hold, its extent what the struct occupies.
static const struct {
    const char *name;
    MPI_Datatype type;
    int size, extent;
} types[] = {
#define PLAIN(handle, c) {#handle, handle, sizeof(c), sizeof(c)}
#define PAIR(handle, c, first) {#handle, handle, sizeof(first) + sizeof(int), sizeof(c)}
    PLAIN(MPI_CHAR, char),
    PLAIN(MPI_SHORT, short),
    PLAIN(MPI_INT, int),
    PLAIN(MPI_LONG, long),
    PLAIN(MPI_LONG_LONG, long long),
    PLAIN(MPI_LONG_LONG_INT, long long),
    PLAIN(MPI_SIGNED_CHAR, signed char),
    PLAIN(MPI_UNSIGNED_CHAR, unsigned char),
    PLAIN(MPI_UNSIGNED_SHORT, unsigned short),
    PLAIN(MPI_UNSIGNED, unsigned),
    PLAIN(MPI_UNSIGNED_LONG, unsigned long),
    PLAIN(MPI_UNSIGNED_LONG_LONG, unsigned long long),
    PLAIN(MPI_FLOAT, float),
    PLAIN(MPI_DOUBLE, double),
    PLAIN(MPI_LONG_DOUBLE, long double),
    PLAIN(MPI_WCHAR, wchar_t),
    PLAIN(MPI_C_BOOL, _Bool),
    PLAIN(MPI_INT8_T, int8_t),
    PLAIN(MPI_INT16_T, int16_t),
    PLAIN(MPI_INT32_T, int32_t),
    PLAIN(MPI_INT64_T, int64_t),
    PLAIN(MPI_UINT8_T, uint8_t),
    PLAIN(MPI_UINT16_T, uint16_t),
    PLAIN(MPI_UINT32_T, uint32_t),
    PLAIN(MPI_UINT64_T, uint64_t),
    PLAIN(MPI_C_COMPLEX, float _Complex),
    PLAIN(MPI_C_FLOAT_COMPLEX, float _Complex),
    PLAIN(MPI_C_DOUBLE_COMPLEX, double _Complex),
    PLAIN(MPI_C_LONG_DOUBLE_COMPLEX, long double _Complex),
    PLAIN(MPI_BYTE, char),
    PLAIN(MPI_PACKED, char),
    PLAIN(MPI_AINT, MPI_Aint),
    PLAIN(MPI_OFFSET, MPI_Offset),
    PLAIN(MPI_COUNT, MPI_Count),
    PAIR(MPI_FLOAT_INT, struct float_int, float),
    PAIR(MPI_DOUBLE_INT, struct double_int, double),
    PAIR(MPI_LONG_INT, struct long_int, long),
    PAIR(MPI_2INT, struct two_int, int),
    PAIR(MPI_SHORT_INT, struct short_int, short),
    PAIR(MPI_LONG_DOUBLE_INT, struct long_double_int, long double),
};

static void s4_1_5_sizes_and_extents_are_those_of_c(void)
{
    for (int i = 0; i < COUNT_OF(types); i++) {
        int bytes = -1;
        MPI_Aint lower = -1, extent = -1;
        GOOD(MPI_Type_size(types[i].type, &bytes));
        CHECK(bytes == types[i].size, "%s: size %d, expected %d", types[i].name, bytes, types[i].size);
        GOOD(MPI_Type_get_extent(types[i].type, &lower, &extent));
        CHECK(lower == 0 && extent == types[i].extent, "%s: bounds %ld + %ld, expected 0 + %d",
              types[i].name, (long)lower, (long)extent, types[i].extent);
    }
}

static void s3_2_2_every_type_travels(void)
{
    enum { ITEMS = 9 };
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < COUNT_OF(types); i++) {
        _Alignas(16) char out[ITEMS * 32], in[ITEMS * 32];
        int count = -1;
        size_t bytes = (size_t)(ITEMS * types[i].extent);
        MPI_Status status;
        fill(out, bytes, (unsigned)i);
        memset(in, 0, sizeof in);
        MPI_Sendrecv(out, ITEMS, types[i].type, right, i, in, ITEMS, types[i].type, left, i,
                     MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, types[i].type, &count);
        CHECK(count == ITEMS, "%s: count %d", types[i].name, count);
        if (types[i].size == types[i].extent)
            CHECK(!memcmp(out, in, bytes), "%s: arrived changed", types[i].name);
    }
}

// The values of a pair with a gap inside arrive, whatever is in the gap.
static void s3_2_2_pairs_with_gaps_travel(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    struct double_int out[3], in[3];
    struct short_int small[2] = {{(short)rank, -1}, {7, rank}}, back[2];
    for (int i = 0; i < 3; i++)
        out[i] = (struct double_int){rank + 0.5 * i, 10 * rank + i};
    MPI_Sendrecv(out, 3, MPI_DOUBLE_INT, right, 0, in, 3, MPI_DOUBLE_INT, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++)
        CHECK(in[i].value == left + 0.5 * i && in[i].index == 10 * left + i, "pair %d", i);
    MPI_Sendrecv(small, 2, MPI_SHORT_INT, right, 0, back, 2, MPI_SHORT_INT, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    EQUAL(back[0].value, left);
    EQUAL(back[1].index, left);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s4_1_5_sizes_and_extents_are_those_of_c);
    RUN(s3_2_2_every_type_travels);
    RUN(s3_2_2_pairs_with_gaps_travel);
    return finish();
}
