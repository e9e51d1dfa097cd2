// SPDX-License-Identifier: MIT OR Apache-2.0
// QMP: global operations. With `repeat` reductions must be in node order.
#include "qmp_check.h"
#include <float.h>
#include <math.h>

static int in_order;

static void qmp_089_qmpl_045_sums_of_ints(void)
{
    int value = rank + 1, wanted = size * (size + 1) / 2;
    WORKS(QMP_sum_int(&value));
    EQUAL(value, wanted);
    // More bits than a float has.
    value = rank == 0 ? 16777217 : 0;
    WORKS(QMP_comm_sum_int(QMP_comm_get_job(), &value));
    EQUAL(value, 16777217);
    REFUSED(QMP_sum_int(NULL), QMP_INVALID_ARG);
}

enum { INTS = 5000 };
static void add_ints(void *inout, void *in)
{
    int *a = inout;
    const int *b = in;
    for (int i = 0; i < INTS; i++)
        a[i] += b[i];
}

// QMP has no function for it: a binary reduction.
static void qmp_123_arrays_of_ints(void)
{
    int values[INTS];
    for (int i = 0; i < INTS; i++)
        values[i] = i * rank;
    WORKS(QMP_binary_reduction(values, sizeof values, add_ints));
    for (int i = 0; i < INTS; i++)
        EQUAL(values[i], i * (size * (size - 1) / 2));
}

static void qmpl_046_qmpl_047_sums_of_uint64(void)
{
    uint64_t value = rank == 0 ? UINT64_MAX - 1000 : 1;
    WORKS(QMP_sum_uint64_t(&value));
    CHECK(value == UINT64_MAX - 1000 + (uint64_t)(size - 1), "%llu", (unsigned long long)value);
    value = 3;
    WORKS(QMP_comm_sum_uint64_t(QMP_comm_get_default(), &value));
    EQUAL(value, 3 * size);
}

static void qmp_090_qmpl_048_sums_of_floats(void)
{
    float value = 0.5f * (float)rank;
    WORKS(QMP_sum_float(&value));
    CHECK(value == 0.25f * (float)(size * (size - 1)), "%g", value);
    value = 1.0f;
    WORKS(QMP_comm_sum_float(QMP_comm_get_default(), &value));
    EQUAL(value, size);
}

static void qmp_091_qmpl_049_sums_of_doubles(void)
{
    double value = 0.5 * rank;
    WORKS(QMP_sum_double(&value));
    CHECK(value == 0.25 * size * (size - 1), "%g", value);
    value = 1.0;
    WORKS(QMP_comm_sum_double(QMP_comm_get_default(), &value));
    EQUAL(value, size);
}

static void qmp_092_qmpl_052_extended_sums_keep_what_doubles_lose(void)
{
    double value = rank == 0 ? 1e17 : rank == size - 1 ? -1e17 : 1.0;
    double wanted = size == 1 ? 1e17 : size - 2;
    WORKS(QMP_sum_double_extended(&value));
    CHECK(value == wanted, "%.17g, expected %.17g", value, wanted);
    value = rank == 0 ? 1.0 : DBL_EPSILON / 4;
    WORKS(QMP_comm_sum_double_extended(QMP_comm_get_default(), &value));
    CHECK(value == (double)(1.0L + (long double)(size - 1) * (DBL_EPSILON / 4)), "%.17g", value);
    value = rank == 0 ? INFINITY : 1.0;
    WORKS(QMP_sum_double_extended(&value));
    CHECK(isinf(value), "%g", value);
}

static void qmpl_050_qmpl_051_sums_of_long_doubles_have_all_their_bits(void)
{
    long double value = rank == 0 ? 1.0L : LDBL_EPSILON;
    WORKS(QMP_sum_long_double(&value));
    CHECK(value == 1.0L + (size - 1) * LDBL_EPSILON, "%.20Lg", value);
    value = 2.0L;
    WORKS(QMP_comm_sum_long_double(QMP_comm_get_default(), &value));
    CHECK(value == 2.0L * size, "%Lg", value);
}

enum { LONG = 70000 };

static void qmp_093_qmpl_053_arrays_of_floats(void)
{
    float *values = allocate(LONG * sizeof *values);
    for (int i = 0; i < LONG; i++)
        values[i] = (float)(i % 1000 + rank);
    WORKS(QMP_sum_float_array(values, LONG));
    for (int i = 0; i < LONG; i += 777)
        CHECK(values[i] == (float)(size * (i % 1000) + size * (size - 1) / 2), "[%d] %g", i, values[i]);
    values[0] = 1;
    WORKS(QMP_comm_sum_float_array(QMP_comm_get_default(), values, 1));
    EQUAL(values[0], size);
    WORKS(QMP_sum_float_array(NULL, 0));
    REFUSED(QMP_sum_float_array(values, -1), QMP_INVALID_ARG);
    free(values);
}

static void qmp_094_qmpl_054_arrays_of_doubles(void)
{
    double *values = allocate(LONG * sizeof *values);
    for (int i = 0; i < LONG; i++)
        values[i] = i + rank;
    WORKS(QMP_sum_double_array(values, LONG));
    for (int i = 0; i < LONG; i += 777)
        CHECK(values[i] == (double)size * i + size * (size - 1) / 2, "[%d] %g", i, values[i]);
    values[0] = 1;
    WORKS(QMP_comm_sum_double_array(QMP_comm_get_default(), values, 1));
    EQUAL(values[0], size);
    free(values);
}

static void qmpl_055_qmpl_056_arrays_of_long_doubles_are_no_doubles(void)
{
    long double values[3] = {1.0L, rank ? LDBL_EPSILON : 1.0L, rank};
    WORKS(QMP_sum_long_double_array(values, 3));
    CHECK(values[0] == size && values[2] == size * (size - 1) / 2, "%Lg %Lg", values[0], values[2]);
    CHECK(values[1] == 1.0L + (size - 1) * LDBL_EPSILON, "%.20Lg", values[1]);
    WORKS(QMP_comm_sum_long_double_array(QMP_comm_get_default(), values, 1));
    EQUAL(values[0], size * size);
}

static void qmp_095_qmp_096_qmp_097_qmp_098_qmpl_057_qmpl_058_qmpl_059_qmpl_060_extremes(void)
{
    QMP_comm_t comm = QMP_comm_get_default();
    float f = (float)rank, g = -(float)rank;
    double d = rank + 0.1, e = rank - 0.1;
    WORKS(QMP_max_float(&f));
    WORKS(QMP_min_float(&g));
    WORKS(QMP_max_double(&d));
    WORKS(QMP_min_double(&e));
    CHECK(f == (float)(size - 1) && g == -f, "%g %g", f, g);
    CHECK(d == size - 1 + 0.1 && e == -0.1, "%g %g", d, e);
    f = g = (float)rank;
    d = e = rank;
    WORKS(QMP_comm_max_float(comm, &f));
    WORKS(QMP_comm_min_float(comm, &g));
    WORKS(QMP_comm_max_double(comm, &d));
    WORKS(QMP_comm_min_double(comm, &e));
    CHECK(f == (float)(size - 1) && g == 0 && d == size - 1 && e == 0, "%g %g %g %g", f, g, d, e);
}

static void qmp_099_qmp_124_qmpl_061_exclusive_or(void)
{
    unsigned long value = 1ul << (rank % 60) | 1ul << 63, wanted = size % 2 ? 1ul << 63 : 0;
    for (int i = 0; i < size; i++)
        wanted ^= 1ul << (i % 60);
    WORKS(QMP_xor_ulong(&value));
    CHECK(value == wanted, "%lx, expected %lx", value, wanted);
    value = 5;
    WORKS(QMP_comm_xor_ulong(QMP_comm_get_default(), &value));
    EQUAL(value, size % 2 ? 5 : 0);
}

// The buffer is one value: a number, and at its end the number of combinations.
enum { WIDE = 300001 };
static void combine(void *inout, void *in)
{
    unsigned char *a = inout;
    const unsigned char *b = in;
    for (int i = 0; i < WIDE; i++)
        a[i] = (unsigned char)(a[i] + b[i]);
}

static void keep_larger(void *inout, void *in)
{
    double *a = inout, *b = in;
    if (b[0] > a[0])
        memcpy(a, b, 2 * sizeof *a);
}

// Associative but not commutative: composition of affine maps.
static void compose(void *inout, void *in)
{
    long *a = inout, *b = in;
    long scale = a[0] * b[0] % 10007, shift = (a[0] * b[1] + a[1]) % 10007;
    a[0] = scale;
    a[1] = shift;
}

static void qmp_017_qmp_100_qmpl_063_binary_reductions_see_whole_buffers(void)
{
    unsigned char *wide = allocate(WIDE);
    for (int i = 0; i < WIDE; i++)
        wide[i] = (unsigned char)(i + rank);
    WORKS(QMP_binary_reduction(wide, WIDE, combine));
    for (int i = 0; i < WIDE; i++)
        if (wide[i] != (unsigned char)(size * i + size * (size - 1) / 2)) {
            CHECK(0, "byte %d", i);
            break;
        }
    free(wide);
    double pair[2] = {(rank * 7) % size, rank};
    WORKS(QMP_comm_binary_reduction(QMP_comm_get_default(), pair, sizeof pair, keep_larger));
    CHECK(((int)pair[1] * 7) % size == (int)pair[0], "%g %g", pair[0], pair[1]);
    long map[2] = {rank + 2, 3 * rank + 1}, first[2];
    WORKS(QMP_binary_reduction(map, sizeof map, compose));
    memcpy(first, map, sizeof map);
    WORKS(QMP_broadcast(first, sizeof first));
    CHECK(memcmp(first, map, sizeof map) == 0, "nodes have different results");
    REFUSED(QMP_binary_reduction(map, sizeof map, NULL), QMP_INVALID_ARG);
    REFUSED(QMP_binary_reduction(NULL, 8, compose), QMP_INVALID_ARG);
}

static void qmp_101_qmpl_044_broadcasts(void)
{
    for (size_t bytes = 0; bytes <= 3000000; bytes = bytes * 11 + 1) {
        unsigned char *data = allocate(bytes);
        fill(data, bytes, rank == 0 ? 77 : 5);
        WORKS(QMP_broadcast(data, bytes));
        PAYLOAD(data, bytes, 77);
        free(data);
    }
    int value = rank;
    WORKS(QMP_comm_broadcast(QMP_comm_get_default(), &value, sizeof value));
    EQUAL(value, 0);
    REFUSED(QMP_broadcast(NULL, 1), QMP_INVALID_ARG);
}

static void qmp_102_qmpl_043_barriers(void)
{
    WORKS(QMP_barrier());
    WORKS(QMP_comm_barrier(QMP_comm_get_default()));
}

static void qmpl_062_all_to_all(void)
{
    enum { EACH = 1000 };
    char *to = allocate((size_t)size * EACH), *from = allocate((size_t)size * EACH);
    for (int node = 0; node < size; node++)
        fill(from + node * EACH, EACH, (unsigned)(rank * size + node));
    WORKS(QMP_comm_alltoall(QMP_comm_get_default(), to, from, EACH));
    for (int node = 0; node < size; node++)
        PAYLOAD(to + node * EACH, EACH, (unsigned)(node * size + rank));
    REFUSED(QMP_comm_alltoall(QMP_comm_get_default(), to, from, -1), QMP_INVALID_ARG);
    free(to);
    free(from);
}

// Numbers whose sum depends on the order.
static double uneven(int node, int i)
{
    return ldexp(1.0 + 1.0 / (3 + node + i), (node * 13 + i * 7) % 40);
}

static void sums_in_the_order_of_the_nodes(void)
{
    enum { COUNT = 50000 };
    double *values = allocate(COUNT * sizeof *values);
    for (int i = 0; i < COUNT; i++)
        values[i] = uneven(rank, i);
    WORKS(QMP_sum_double_array(values, COUNT));
    for (int i = 0; i < COUNT && in_order; i++) {
        double wanted = uneven(0, i);
        for (int node = 1; node < size; node++)
            wanted += uneven(node, i);
        CHECK(values[i] == wanted, "[%d] %.17g, expected %.17g", i, values[i], wanted);
    }
    free(values);
}

int main(int argc, char **argv)
{
    in_order = argc > 1;
    begin(&argc, &argv);
    RUN(qmp_089_qmpl_045_sums_of_ints);
    RUN(qmp_123_arrays_of_ints);
    RUN(qmpl_046_qmpl_047_sums_of_uint64);
    RUN(qmp_090_qmpl_048_sums_of_floats);
    RUN(qmp_091_qmpl_049_sums_of_doubles);
    RUN(qmp_092_qmpl_052_extended_sums_keep_what_doubles_lose);
    RUN(qmpl_050_qmpl_051_sums_of_long_doubles_have_all_their_bits);
    RUN(qmp_093_qmpl_053_arrays_of_floats);
    RUN(qmp_094_qmpl_054_arrays_of_doubles);
    RUN(qmpl_055_qmpl_056_arrays_of_long_doubles_are_no_doubles);
    RUN(qmp_095_qmp_096_qmp_097_qmp_098_qmpl_057_qmpl_058_qmpl_059_qmpl_060_extremes);
    RUN(qmp_099_qmp_124_qmpl_061_exclusive_or);
    RUN(qmp_017_qmp_100_qmpl_063_binary_reductions_see_whole_buffers);
    RUN(qmp_101_qmpl_044_broadcasts);
    RUN(qmp_102_qmpl_043_barriers);
    RUN(qmpl_062_all_to_all);
    RUN(sums_in_the_order_of_the_nodes);
    return end();
}
