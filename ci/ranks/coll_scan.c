// SPDX-License-Identifier: MIT OR Apache-2.0
// Scans, reduce_scatter and operations of the program: MPI 5.0 sections 6.9.5, 6.10 and 6.11.
#include "check.h"

static const int counts[] = {0, 1, 3, 100, 1024, 5000, 8192, 80000};

enum { ITEMS_MAX = 80000 };

// The map x -> a x + b; the operation composes maps: it is associative, but the order matters.
struct map {
    uint32_t a, b;
};

static struct map *in, *out;
static long calls;

static struct map after(struct map first, struct map then)
{
    return (struct map){first.a * then.a, first.b * then.a + then.b};
}

static struct map value(int from, int i)
{
    return (struct map){(uint32_t)(2 * from + 3 + i % 5), (uint32_t)(from * 7 + i)};
}

static void compose(void *invec, void *inoutvec, int *length, MPI_Datatype *datatype)
{
    const struct map *first = invec;
    struct map *then = inoutvec;
    MPI_Count bytes;
    // Allowed: it does not communicate.
    MPI_Type_size_c(*datatype, &bytes);
    EQUAL(bytes, sizeof(struct map));
    for (int i = 0; i < *length; i++)
        then[i] = after(first[i], then[i]);
    calls++;
}

static void compose_large(void *invec, void *inoutvec, MPI_Count *length, MPI_Datatype *datatype)
{
    int n = (int)*length;
    compose(invec, inoutvec, &n, datatype);
}

// The combination of ranks `0 .. end`.
static struct map combined(int end, int i)
{
    struct map all = value(0, i);
    for (int r = 1; r < end; r++)
        all = after(all, value(r, i));
    return all;
}

static void fill_in(int n)
{
    for (int i = 0; i < n; i++)
        in[i] = value(rank, i);
    memset(out, 0xee, sizeof *out * (ITEMS_MAX + 1));
}

static void check_maps(const struct map *got, int end, int first, int n)
{
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        struct map want = combined(end, first + i);
        wrong += memcmp(&got[i], &want, sizeof want) != 0;
    }
    CHECK(wrong == 0, "%d of %d wrong", wrong, n);
    CHECK(got[n].a == 0xeeeeeeee, "written past the end");
}

static int steps(void)
{
    return size > 16 ? 4 : COUNT_OF(counts);
}

static MPI_Datatype pair;
static MPI_Op op;

static void s6_9_5_own_operation(void)
{
    for (int s = 0; s < steps(); s++)
        for (int root = 0; root < size; root += size > 16 ? 21 : 1) {
            fill_in(counts[s]);
            GOOD(MPI_Reduce(in, out, counts[s], pair, op, root, MPI_COMM_WORLD));
            if (rank == root)
                check_maps(out, size, 0, counts[s]);
            fill_in(counts[s]);
            memcpy(out, in, sizeof *in * counts[s]);
            GOOD(MPI_Allreduce(MPI_IN_PLACE, out, counts[s], pair, op, MPI_COMM_WORLD));
            check_maps(out, size, 0, counts[s]);
        }
    CHECK(size == 1 || rank != 0 || calls > 0, "never called");
}

static void s6_9_5_large_form(void)
{
    MPI_Op large;
    GOOD(MPI_Op_create_c(compose_large, 0, &large));
    fill_in(100);
    GOOD(MPI_Allreduce_c(in, out, 100, pair, large, MPI_COMM_WORLD));
    check_maps(out, size, 0, 100);
    GOOD(MPI_Op_free(&large));
    CHECK(large == MPI_OP_NULL, "the handle is not null");
}

static void sum_of_first(void *invec, void *inoutvec, int *length, MPI_Datatype *datatype)
{
    MPI_Aint lb, extent;
    MPI_Type_get_extent(*datatype, &lb, &extent);
    for (int i = 0; i < *length; i++) {
        *(int *)((char *)inoutvec + i * extent) += *(const int *)((const char *)invec + i * extent);
        *(int *)((char *)inoutvec + i * extent + 8) -= 1;
    }
}

static void s6_9_5_items_with_gaps(void)
{
    // Two numbers with a gap of one number.
    MPI_Datatype spread;
    MPI_Op sum;
    int mine[12], all[12];
    GOOD(MPI_Type_vector(2, 1, 2, MPI_INT, &spread));
    GOOD(MPI_Type_commit(&spread));
    GOOD(MPI_Op_create(sum_of_first, 1, &sum));
    for (int i = 0; i < 12; i++) {
        mine[i] = rank + i;
        all[i] = -9;
    }
    GOOD(MPI_Allreduce(mine, all, 4, spread, sum, MPI_COMM_WORLD));
    for (int item = 0; item < 4; item++) {
        EQUAL(all[item * 3], size * (size - 1) / 2 + size * item * 3);
        EQUAL(all[item * 3 + 1], -9);
        // Each combination subtracts one from the second number of the higher ranks' part.
        CHECK(all[item * 3 + 2] < size + item * 3 + 2, "%d", all[item * 3 + 2]);
    }
    MPI_Op_free(&sum);
    MPI_Type_free(&spread);
}

static void s6_9_7_commutative(void)
{
    MPI_Op sum;
    int commutes = -1;
    GOOD(MPI_Op_commutative(op, &commutes));
    EQUAL(commutes, 0);
    GOOD(MPI_Op_create(sum_of_first, 1, &sum));
    GOOD(MPI_Op_commutative(sum, &commutes));
    EQUAL(commutes, 1);
    GOOD(MPI_Op_free(&sum));
    GOOD(MPI_Op_commutative(MPI_SUM, &commutes));
    EQUAL(commutes, 1);
    fill_in(10);
    for (int i = 0; i < 10; i++)
        out[i] = value(rank + 1, i);
    GOOD(MPI_Reduce_local(in, out, 10, pair, op));
    for (int i = 0; i < 10; i++) {
        struct map want = after(value(rank, i), value(rank + 1, i));
        EQUAL(out[i].a, want.a);
        EQUAL(out[i].b, want.b);
    }
}

static void s6_10_1_reduce_scatter_block(void)
{
    for (int s = 0; s < steps(); s++) {
        int n = counts[s] / size;
        fill_in(n * size);
        GOOD(MPI_Reduce_scatter_block(in, out, n, pair, op, MPI_COMM_WORLD));
        check_maps(out, size, rank * n, n);
    }
}

static void s6_10_2_reduce_scatter(void)
{
    int *lengths = malloc(sizeof *lengths * size);
    for (int s = 0; s < steps(); s++) {
        int all = counts[s], first = 0;
        for (int r = 0; r < size; r++) {
            lengths[r] = (int)((long)all * (r + 1) * (r + 1) / size / size - (long)all * r * r / size / size);
            first += r < rank ? lengths[r] : 0;
        }
        fill_in(all);
        GOOD(MPI_Reduce_scatter(in, out, lengths, pair, op, MPI_COMM_WORLD));
        check_maps(out, size, first, lengths[rank]);
        memset(out, 0xee, sizeof *out * (ITEMS_MAX + 1));
        memcpy(out, in, sizeof *in * all);
        GOOD(MPI_Reduce_scatter(MPI_IN_PLACE, out, lengths, pair, op, MPI_COMM_WORLD));
        int wrong = 0;
        for (int i = 0; i < lengths[rank]; i++)
            wrong += out[i].b != combined(size, first + i).b;
        EQUAL(wrong, 0);
    }
    free(lengths);
}

static void s6_11_1_scan(void)
{
    for (int s = 0; s < steps(); s++) {
        fill_in(counts[s]);
        GOOD(MPI_Scan(in, out, counts[s], pair, op, MPI_COMM_WORLD));
        check_maps(out, rank + 1, 0, counts[s]);
        memset(out, 0xee, sizeof *out * (ITEMS_MAX + 1));
        memcpy(out, in, sizeof *in * counts[s]);
        GOOD(MPI_Scan(MPI_IN_PLACE, out, counts[s], pair, op, MPI_COMM_WORLD));
        check_maps(out, rank + 1, 0, counts[s]);
    }
    int sum = -1, one = rank + 1;
    GOOD(MPI_Scan(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    EQUAL(sum, (rank + 1) * (rank + 2) / 2);
}

static void s6_11_2_exscan(void)
{
    for (int s = 0; s < steps(); s++) {
        fill_in(counts[s]);
        GOOD(MPI_Exscan(in, out, counts[s], pair, op, MPI_COMM_WORLD));
        if (rank > 0)
            check_maps(out, rank, 0, counts[s]);
        else
            CHECK(out[0].a == 0xeeeeeeee, "rank 0's result was written");
    }
}

static void bad_operations(void)
{
    MPI_Op null = MPI_OP_NULL, predefined = MPI_SUM, gone;
    int a = 0, b = 0;
    FAILS(MPI_Allreduce(&a, &b, 1, MPI_INT, null, MPI_COMM_WORLD), MPI_ERR_OP);
    FAILS(MPI_Op_free(&predefined), MPI_ERR_OP);
    GOOD(MPI_Op_create(compose, 0, &gone));
    MPI_Op copy = gone;
    GOOD(MPI_Op_free(&gone));
    FAILS(MPI_Allreduce(&a, &b, 1, MPI_INT, copy, MPI_COMM_WORLD), MPI_ERR_OP);
    FAILS(MPI_Scan(&a, &b, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD), MPI_ERR_OP);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    in = malloc(sizeof *in * (ITEMS_MAX + 1));
    out = malloc(sizeof *out * (ITEMS_MAX + 1));
    MPI_Type_contiguous(2, MPI_UINT32_T, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(compose, 0, &op);
    RUN(s6_9_5_own_operation);
    RUN(s6_9_5_large_form);
    RUN(s6_9_5_items_with_gaps);
    RUN(s6_9_7_commutative);
    RUN(s6_10_1_reduce_scatter_block);
    RUN(s6_10_2_reduce_scatter);
    RUN(s6_11_1_scan);
    RUN(s6_11_2_exscan);
    RUN(bad_operations);
    MPI_Op_free(&op);
    MPI_Type_free(&pair);
    return finish();
}
