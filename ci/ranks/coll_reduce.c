// SPDX-License-Identifier: MIT OR Apache-2.0
// Reductions: every predefined operation on every predefined type that it takes.
// MPI 5.0 sections 6.9.1 to 6.9.4 and 6.9.6.
#include "check.h"

#include <complex.h>

enum { ITEMS_MAX = 3000 };

static const int counts[] = {1, 2, 7, 64, 1025, ITEMS_MAX};
static int count_steps;
static _Alignas(16) char out[ITEMS_MAX * 32], in[ITEMS_MAX * 32], expected[ITEMS_MAX * 32];

// The values of a rank: small, so that products and sums are exact in every type.
static int value_of(int from, int i)
{
    return (from * 3 + i) % 3 + (i % 5 == 0);
}

// For one type and operation: sets a rank's numbers, and combines two of them.
#define SET(c, i, from) (((c *)buffer)[i] = (c)value_of(from, i))

typedef void (*set_function)(void *buffer, int from, int n);
typedef void (*fold_function)(void *into, const void *with, int n);

#define SETTER(name, c)                                                                            \
    static void set_##name(void *buffer, int from, int n)                                          \
    {                                                                                              \
        for (int i = 0; i < n; i++)                                                                \
            SET(c, i, from);                                                                       \
    }
#define FOLDER(name, op, c, expression)                                                            \
    static void fold_##name##_##op(void *into, const void *with, int n)                            \
    {                                                                                              \
        for (int i = 0; i < n; i++) {                                                              \
            c a = ((c *)into)[i], b = ((const c *)with)[i];                                        \
            ((c *)into)[i] = (c)(expression);                                                      \
        }                                                                                          \
    }
#define ARITHMETIC(name, c)                                                                        \
    SETTER(name, c)                                                                                \
    FOLDER(name, sum, c, a + b)                                                                    \
    FOLDER(name, prod, c, a *b)                                                                    \
    FOLDER(name, max, c, a > b ? a : b)                                                            \
    FOLDER(name, min, c, a < b ? a : b)
#define INTEGER(name, c)                                                                           \
    ARITHMETIC(name, c)                                                                            \
    FOLDER(name, land, c, a &&b)                                                                   \
    FOLDER(name, lor, c, a || b)                                                                   \
    FOLDER(name, lxor, c, !a != !b)                                                                \
    FOLDER(name, band, c, a &b)                                                                    \
    FOLDER(name, bor, c, a | b)                                                                    \
    FOLDER(name, bxor, c, a ^ b)

INTEGER(schar, signed char)
INTEGER(uchar, unsigned char)
INTEGER(short, short)
INTEGER(ushort, unsigned short)
INTEGER(int, int)
INTEGER(uint, unsigned)
INTEGER(long, long)
INTEGER(ulong, unsigned long)
INTEGER(llong, long long)
INTEGER(ullong, unsigned long long)
ARITHMETIC(float, float)
ARITHMETIC(double, double)
ARITHMETIC(ldouble, long double)
SETTER(bool, _Bool)
FOLDER(bool, land, _Bool, a &&b)
FOLDER(bool, lor, _Bool, a || b)
FOLDER(bool, lxor, _Bool, a != b)
SETTER(cfloat, float _Complex)
FOLDER(cfloat, sum, float _Complex, a + b)
FOLDER(cfloat, prod, float _Complex, a *b)
SETTER(cdouble, double _Complex)
FOLDER(cdouble, sum, double _Complex, a + b)
FOLDER(cdouble, prod, double _Complex, a *b)
SETTER(cldouble, long double _Complex)
FOLDER(cldouble, sum, long double _Complex, a + b)
FOLDER(cldouble, prod, long double _Complex, a *b)

struct pair_case {
    const char *name;
    MPI_Datatype type;
    size_t bytes;
    set_function set;
    MPI_Op op;
    fold_function fold;
};

#define ROW(handle, name, c, OP, op) {#handle " " #OP, handle, sizeof(c), set_##name, OP, fold_##name##_##op}
#define ARITHMETIC_ROWS(handle, name, c)                                                           \
    ROW(handle, name, c, MPI_SUM, sum), ROW(handle, name, c, MPI_PROD, prod),                      \
        ROW(handle, name, c, MPI_MAX, max), ROW(handle, name, c, MPI_MIN, min)
#define LOGICAL_ROWS(handle, name, c)                                                              \
    ROW(handle, name, c, MPI_LAND, land), ROW(handle, name, c, MPI_LOR, lor),                      \
        ROW(handle, name, c, MPI_LXOR, lxor)
#define BIT_ROWS(handle, name, c)                                                                  \
    ROW(handle, name, c, MPI_BAND, band), ROW(handle, name, c, MPI_BOR, bor),                      \
        ROW(handle, name, c, MPI_BXOR, bxor)
#define INTEGER_ROWS(handle, name, c)                                                              \
    ARITHMETIC_ROWS(handle, name, c), LOGICAL_ROWS(handle, name, c), BIT_ROWS(handle, name, c)
#define COMPLEX_ROWS(handle, name, c)                                                              \
    ROW(handle, name, c, MPI_SUM, sum), ROW(handle, name, c, MPI_PROD, prod)

static const struct pair_case cases[] = {
    INTEGER_ROWS(MPI_SIGNED_CHAR, schar, signed char),
    INTEGER_ROWS(MPI_UNSIGNED_CHAR, uchar, unsigned char),
    INTEGER_ROWS(MPI_SHORT, short, short),
    INTEGER_ROWS(MPI_UNSIGNED_SHORT, ushort, unsigned short),
    INTEGER_ROWS(MPI_INT, int, int),
    INTEGER_ROWS(MPI_UNSIGNED, uint, unsigned),
    INTEGER_ROWS(MPI_LONG, long, long),
    INTEGER_ROWS(MPI_UNSIGNED_LONG, ulong, unsigned long),
    INTEGER_ROWS(MPI_LONG_LONG, llong, long long),
    INTEGER_ROWS(MPI_UNSIGNED_LONG_LONG, ullong, unsigned long long),
    INTEGER_ROWS(MPI_INT8_T, schar, signed char),
    INTEGER_ROWS(MPI_INT16_T, short, short),
    INTEGER_ROWS(MPI_INT32_T, int, int),
    INTEGER_ROWS(MPI_INT64_T, long, long),
    INTEGER_ROWS(MPI_UINT8_T, uchar, unsigned char),
    INTEGER_ROWS(MPI_UINT16_T, ushort, unsigned short),
    INTEGER_ROWS(MPI_UINT32_T, uint, unsigned),
    INTEGER_ROWS(MPI_UINT64_T, ulong, unsigned long),
    // Multi-language types (section 6.9.2): integers, and no logical values.
    ARITHMETIC_ROWS(MPI_AINT, long, long),
    BIT_ROWS(MPI_AINT, long, long),
    ARITHMETIC_ROWS(MPI_OFFSET, long, long),
    BIT_ROWS(MPI_OFFSET, long, long),
    ARITHMETIC_ROWS(MPI_COUNT, long, long),
    BIT_ROWS(MPI_COUNT, long, long),
    ARITHMETIC_ROWS(MPI_FLOAT, float, float),
    ARITHMETIC_ROWS(MPI_DOUBLE, double, double),
    ARITHMETIC_ROWS(MPI_LONG_DOUBLE, ldouble, long double),
    LOGICAL_ROWS(MPI_C_BOOL, bool, _Bool),
    BIT_ROWS(MPI_BYTE, uchar, unsigned char),
    COMPLEX_ROWS(MPI_C_COMPLEX, cfloat, float _Complex),
    COMPLEX_ROWS(MPI_C_FLOAT_COMPLEX, cfloat, float _Complex),
    COMPLEX_ROWS(MPI_C_DOUBLE_COMPLEX, cdouble, double _Complex),
    COMPLEX_ROWS(MPI_C_LONG_DOUBLE_COMPLEX, cldouble, long double _Complex),
};

// Item by item: a long double has bytes that carry no value.
static int items_differ(const struct pair_case *c, int n)
{
    size_t step = c->bytes;
    int is_long_double = c->set == set_ldouble || c->set == set_cldouble;
    size_t carried = is_long_double ? 10 : step, parts = c->set == set_cldouble ? 2 : 1;
    size_t part = is_long_double ? sizeof(long double) : step;
    for (int i = 0; i < n; i++)
        for (size_t p = 0; p < parts; p++)
            if (memcmp(in + (size_t)i * step + p * part, expected + (size_t)i * step + p * part, carried))
                return i;
    return -1;
}

static void expect(const struct pair_case *c, int n)
{
    c->set(expected, 0, n);
    for (int from = 1; from < size; from++) {
        c->set(out, from, n);
        c->fold(expected, out, n);
    }
}

static void check_case(const struct pair_case *c, int index)
{
    for (int s = 0; s < count_steps; s++) {
        int n = counts[s], root = (index + s) % size, wrong;
        expect(c, n);
        c->set(out, rank, n);
        memset(in, 0x33, (size_t)n * c->bytes);
        GOOD(MPI_Allreduce(out, in, n, c->type, c->op, MPI_COMM_WORLD));
        wrong = items_differ(c, n);
        CHECK(wrong < 0, "MPI_Allreduce %s of %d: item %d is wrong", c->name, n, wrong);

        c->set(in, rank, n);
        GOOD(MPI_Allreduce(MPI_IN_PLACE, in, n, c->type, c->op, MPI_COMM_WORLD));
        wrong = items_differ(c, n);
        CHECK(wrong < 0, "MPI_Allreduce in place %s of %d: item %d is wrong", c->name, n, wrong);

        memset(in, 0x33, (size_t)n * c->bytes);
        GOOD(MPI_Reduce(out, in, n, c->type, c->op, root, MPI_COMM_WORLD));
        wrong = rank == root ? items_differ(c, n) : -1;
        CHECK(wrong < 0, "MPI_Reduce %s of %d: item %d is wrong", c->name, n, wrong);

        if (rank == root)
            c->set(in, rank, n);
        GOOD(MPI_Reduce(rank == root ? MPI_IN_PLACE : out, in, n, c->type, c->op, root, MPI_COMM_WORLD));
        wrong = rank == root ? items_differ(c, n) : -1;
        CHECK(wrong < 0, "MPI_Reduce in place %s of %d: item %d is wrong", c->name, n, wrong);
    }
}

static void s6_9_2_every_operation_on_every_type(void)
{
    for (int i = 0; i < COUNT_OF(cases); i++)
        check_case(&cases[i], i);
}

// Section 6.9.4: the largest (or smallest) value, and of equal ones the lowest index.
#define LOCATIONS(name, handle, c)                                                                 \
    static void s6_9_4_locations_of_##name(void)                                                   \
    {                                                                                              \
        enum { N = 40 };                                                                           \
        struct {                                                                                   \
            c value;                                                                               \
            int index;                                                                             \
        } mine[N], most[N], least[N];                                                              \
        memset(mine, 0, sizeof mine);                                                              \
        for (int i = 0; i < N; i++) {                                                              \
            mine[i].value = (c)((rank * 5 + i) % 4);                                               \
            mine[i].index = rank + 100 * i;                                                        \
        }                                                                                          \
        GOOD(MPI_Allreduce(mine, most, N, handle, MPI_MAXLOC, MPI_COMM_WORLD));                    \
        GOOD(MPI_Reduce(mine, least, N, handle, MPI_MINLOC, 0, MPI_COMM_WORLD));                   \
        for (int i = 0; i < N; i++) {                                                              \
            int high = 0, low = 0;                                                                 \
            for (int r = 1; r < size; r++) {                                                       \
                high = (r * 5 + i) % 4 > (high * 5 + i) % 4 ? r : high;                            \
                low = (r * 5 + i) % 4 < (low * 5 + i) % 4 ? r : low;                               \
            }                                                                                      \
            CHECK(most[i].value == (c)((high * 5 + i) % 4), "value %d of MPI_MAXLOC", i);          \
            EQUAL(most[i].index, high + 100 * i);                                                  \
            if (rank == 0) {                                                                       \
                CHECK(least[i].value == (c)((low * 5 + i) % 4), "value %d of MPI_MINLOC", i);      \
                EQUAL(least[i].index, low + 100 * i);                                              \
            }                                                                                      \
        }                                                                                          \
    }
LOCATIONS(int, MPI_2INT, int)
LOCATIONS(short, MPI_SHORT_INT, short)
LOCATIONS(long, MPI_LONG_INT, long)
LOCATIONS(float, MPI_FLOAT_INT, float)
LOCATIONS(double, MPI_DOUBLE_INT, double)
LOCATIONS(long_double, MPI_LONG_DOUBLE_INT, long double)

// Negative numbers and the ends of a type's range.
static void s6_9_2_extreme_values(void)
{
    long mine = rank == size - 1 ? INT64_MIN : rank, least, most;
    unsigned char byte = (unsigned char)(rank == 0 ? 0xF0 : 0x0F), both;
    double real = rank == 0 ? -1e300 : rank, smallest;
    GOOD(MPI_Allreduce(&mine, &least, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD));
    CHECK(least == INT64_MIN, "least is %ld", least);
    GOOD(MPI_Allreduce(&mine, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD));
    CHECK(size == 1 || most == size - 2, "most is %ld", most);
    GOOD(MPI_Allreduce(&byte, &both, 1, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD));
    EQUAL(both, size == 1 ? 0xF0 : 0xFF);
    GOOD(MPI_Allreduce(&real, &smallest, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD));
    CHECK(smallest == -1e300, "smallest is %g", smallest);
    unsigned char high = 200, got;
    GOOD(MPI_Allreduce(&high, &got, 1, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD));
    EQUAL(got, 200);
}

static void s6_9_1_nothing_to_reduce(void)
{
    int mine = 3, got = 7;
    GOOD(MPI_Allreduce(&mine, &got, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    GOOD(MPI_Reduce(&mine, &got, 0, MPI_INT, MPI_SUM, size - 1, MPI_COMM_WORLD));
    EQUAL(got, 7);
}

// Large sums, for pipelines and rendezvous.
static void s6_9_6_large_sums(void)
{
    int n = size > 16 ? 20000 : 700001;
    double *mine = allocate((size_t)n * sizeof *mine), *sum = allocate((size_t)n * sizeof *sum);
    for (int i = 0; i < n; i++)
        mine[i] = rank + i;
    GOOD(MPI_Allreduce(mine, sum, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    int wrong = 0;
    for (int i = 0; i < n; i++)
        wrong += sum[i] != 0.5 * size * (size - 1) + (double)size * i;
    EQUAL(wrong, 0);
    GOOD(MPI_Reduce(mine, sum, n, MPI_DOUBLE, MPI_MAX, size / 2, MPI_COMM_WORLD));
    for (int i = 0; rank == size / 2 && i < n; i++)
        wrong += sum[i] != size - 1 + i;
    EQUAL(wrong, 0);
    free(mine);
    free(sum);
}

// "It is strongly recommended that the same result is obtained whenever the function is applied on
// the same arguments": and every rank gets the same bits.
static void s6_9_1_all_ranks_get_the_same_bits(void)
{
    double mine[50], sum[50], first[50];
    for (int i = 0; i < 50; i++)
        mine[i] = 1.0 / (3 + rank * 50 + i);
    MPI_Allreduce(mine, sum, 50, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    memcpy(first, sum, sizeof first);
    MPI_Bcast(first, 50, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    CHECK(!memcmp(first, sum, sizeof first), "another result than rank 0");
    MPI_Allreduce(mine, first, 50, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(!memcmp(first, sum, sizeof first), "another result than before");
}

// On a communicator that is a part of the world, in another order.
static void s6_9_on_a_part_of_the_world(void)
{
    MPI_Comm part;
    int n, me, sum = -1;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 3, -rank, &part);
    MPI_Comm_size(part, &n);
    MPI_Comm_rank(part, &me);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, part);
    int wanted = 0;
    for (int r = rank % 3; r < size; r += 3)
        wanted += r;
    EQUAL(sum, wanted);
    for (int root = 0; root < n; root++) {
        int most = -1;
        MPI_Reduce(&rank, &most, 1, MPI_INT, MPI_MAX, root, part);
        if (me == root)
            EQUAL(most, (size - 1 - rank % 3) / 3 * 3 + rank % 3);
    }
    MPI_Comm_free(&part);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    count_steps = size > 16 ? 2 : size > 4 ? 4 : COUNT_OF(counts);
    RUN(s6_9_2_every_operation_on_every_type);
    RUN(s6_9_4_locations_of_int);
    RUN(s6_9_4_locations_of_short);
    RUN(s6_9_4_locations_of_long);
    RUN(s6_9_4_locations_of_float);
    RUN(s6_9_4_locations_of_double);
    RUN(s6_9_4_locations_of_long_double);
    RUN(s6_9_2_extreme_values);
    RUN(s6_9_1_nothing_to_reduce);
    RUN(s6_9_6_large_sums);
    RUN(s6_9_1_all_ranks_get_the_same_bits);
    RUN(s6_9_on_a_part_of_the_world);
    return finish();
}
