// SPDX-License-Identifier: MIT OR Apache-2.0
// Collectives that move data: MPI 5.0 sections 6.3 to 6.8. Every root, many sizes, MPI_IN_PLACE.
#include "check.h"

// Items of four bytes per rank.
static const int counts[] = {0, 1, 2, 3, 11, 12, 13, 100, 1000, 2048, 2049, 20000};

static int *out, *in;

static int count_steps(void)
{
    return size > 16 ? 8 : COUNT_OF(counts);
}

// With many ranks not every root is tried with every size.
static int root_step(void)
{
    return size > 16 ? size / 4 + 1 : 1;
}

static int item(int from, int to, int i)
{
    return from * 7919 + to * 104729 + i;
}

static void s6_3_barrier_holds_everybody(void)
{
    // Rank `last` sends a message to all others before it enters; a rank that leaves too early has not received it.
    for (int last = 0; last < size; last += root_step()) {
        int flag = 0;
        MPI_Request request;
        if (rank != last)
            MPI_Irecv(NULL, 0, MPI_BYTE, last, 1, MPI_COMM_WORLD, &request);
        else
            for (int to = 0; to < size; to++)
                if (to != rank)
                    MPI_Ssend(NULL, 0, MPI_BYTE, to, 1, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank != last) {
            MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
            CHECK(flag, "left the barrier before rank %d had entered", last);
            if (!flag)
                MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    }
}

static void s6_4_bcast(void)
{
    for (int root = 0; root < size; root += root_step())
        for (int c = 0; c < count_steps(); c++) {
            int wrong = 0;
            for (int i = 0; i < counts[c]; i++)
                out[i] = rank == root ? item(root, 0, i) : -1;
            out[counts[c]] = -5;
            GOOD(MPI_Bcast(out, counts[c], MPI_INT, root, MPI_COMM_WORLD));
            for (int i = 0; i < counts[c]; i++)
                wrong += out[i] != item(root, 0, i);
            EQUAL(wrong, 0);
            EQUAL(out[counts[c]], -5);
        }
}

static void s6_5_gather(void)
{
    for (int root = 0; root < size; root += root_step())
        for (int c = 0; c < count_steps(); c++) {
            int n = counts[c], wrong = 0, in_place = rank == root && c % 2;
            int *mine = in_place ? in + rank * n : out;
            for (int i = 0; i < n; i++)
                mine[i] = item(rank, root, i);
            in[size * n] = -5;
            GOOD(MPI_Gather(in_place ? MPI_IN_PLACE : out, n, MPI_INT, in, n, MPI_INT, root, MPI_COMM_WORLD));
            for (int i = 0; rank == root && i < size * n; i++)
                wrong += in[i] != item(i / n, root, i % n);
            EQUAL(wrong, 0);
            EQUAL(in[size * n], -5);
        }
}

static void s6_6_scatter(void)
{
    for (int root = 0; root < size; root += root_step())
        for (int c = 0; c < count_steps(); c++) {
            int n = counts[c], wrong = 0, in_place = rank == root && c % 2;
            for (int i = 0; rank == root && i < size * n; i++)
                out[i] = item(root, i / n, i % n);
            in[n] = -5;
            GOOD(MPI_Scatter(out, n, MPI_INT, in_place ? MPI_IN_PLACE : in, n, MPI_INT, root, MPI_COMM_WORLD));
            const int *mine = in_place ? out + rank * n : in;
            for (int i = 0; i < n; i++)
                wrong += mine[i] != item(root, rank, i);
            EQUAL(wrong, 0);
            if (!in_place)
                EQUAL(in[n], -5);
        }
}

static void s6_7_allgather(void)
{
    for (int c = 0; c < count_steps(); c++) {
        int n = counts[c], wrong = 0, in_place = c % 2;
        int *mine = in_place ? in + rank * n : out;
        for (int i = 0; i < n; i++)
            mine[i] = item(rank, 0, i);
        in[size * n] = -5;
        GOOD(MPI_Allgather(in_place ? MPI_IN_PLACE : out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD));
        for (int i = 0; i < size * n; i++)
            wrong += in[i] != item(i / n, 0, i % n);
        EQUAL(wrong, 0);
        EQUAL(in[size * n], -5);
    }
}

static void s6_8_alltoall(void)
{
    for (int c = 0; c < count_steps(); c++) {
        int n = counts[c], wrong = 0, in_place = c % 2;
        int *mine = in_place ? in : out;
        for (int i = 0; i < size * n; i++)
            mine[i] = item(rank, i / n, i % n);
        in[size * n] = -5;
        GOOD(MPI_Alltoall(in_place ? MPI_IN_PLACE : out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD));
        for (int i = 0; i < size * n; i++)
            wrong += in[i] != item(i / n, rank, i % n);
        EQUAL(wrong, 0);
        EQUAL(in[size * n], -5);
    }
}

// Layouts may differ between the ranks as long as the signatures match (section 6.1).
static void s6_1_derived_types_in_collectives(void)
{
    enum { N = 300 };
    MPI_Datatype stride;
    MPI_Type_vector(N, 1, 2, MPI_INT, &stride);
    MPI_Type_commit(&stride);
    for (int i = 0; i < 2 * N; i++)
        out[i] = rank == 0 ? i : -1;
    if (rank % 2 == 0)
        MPI_Bcast(out, 1, stride, 0, MPI_COMM_WORLD);
    else
        MPI_Bcast(out, N, MPI_INT, 0, MPI_COMM_WORLD);
    int wrong = 0;
    for (int i = 0; i < N; i++)
        wrong += (rank % 2 == 0 ? out[2 * i] : out[i]) != 2 * i;
    EQUAL(wrong, 0);
    // Gathered with gaps: the extent is one number short of two rows.
    for (int i = 0; i < 2 * N; i++)
        out[i] = item(rank, 0, i);
    MPI_Gather(out, 1, stride, in, N, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < size * N; i++)
        wrong += in[i] != item(i / N, 0, 2 * (i % N));
    EQUAL(wrong, 0);
    MPI_Type_free(&stride);
}

// Section 6.12: point-to-point wildcards never see collectives, however they overlap.
static void s6_12_collectives_do_not_meet_receives(void)
{
    int value = -1, sum = 0, flag = 9;
    MPI_Request request;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(sum, size * (size - 1) / 2);
    MPI_Bcast(&sum, 1, MPI_INT, size - 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    EQUAL(flag, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % size, 5, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(value, (rank + size - 1) % size);
}

// One after the other without a barrier between: rounds must not mix.
static void s6_12_many_rounds_do_not_mix(void)
{
    int rounds = size > 16 ? 50 : 500;
    for (int round = 0; round < rounds; round++) {
        int root = round % size, value = rank == root ? round : -1, sum = -1;
        MPI_Bcast(&value, 1, MPI_INT, root, MPI_COMM_WORLD);
        EQUAL(value, round);
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        EQUAL(sum, round * size);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    int most = counts[count_steps() - 1] > 300 ? counts[count_steps() - 1] : 300;
    size_t bytes = ((size_t)size * (size_t)most + 1000) * sizeof(int);
    out = allocate(bytes);
    in = allocate(bytes);
    RUN(s6_3_barrier_holds_everybody);
    RUN(s6_4_bcast);
    RUN(s6_5_gather);
    RUN(s6_6_scatter);
    RUN(s6_7_allgather);
    RUN(s6_8_alltoall);
    RUN(s6_1_derived_types_in_collectives);
    RUN(s6_12_collectives_do_not_meet_receives);
    RUN(s6_12_many_rounds_do_not_mix);
    free(out);
    free(in);
    return finish();
}
