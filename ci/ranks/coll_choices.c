// SPDX-License-Identifier: MIT OR Apache-2.0
// Every algorithm of every collective: `coll_choices N` sets each variable that chooses an algorithm to its Nth value.
// The results must be right with each, and the number of messages must show that the algorithm was used. `coll_choices
// limits` tests the limits of sizes, `ring` one limit that is used only without boards.
#include "check.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

enum { VARIABLES = 11, MOST = 64 };
enum { BARRIER, BCAST, REDUCE, ALLREDUCE, REDUCE_SCATTER, SCAN, GATHER, SCATTER, ALLGATHER, ALLGATHERV, ALLTOALL };

static const char *const names[VARIABLES] = {
    "RMPI_BARRIER", "RMPI_BCAST",   "RMPI_REDUCE",    "RMPI_ALLREDUCE",  "RMPI_REDUCE_SCATTER", "RMPI_SCAN",
    "RMPI_GATHER",  "RMPI_SCATTER", "RMPI_ALLGATHER", "RMPI_ALLGATHERV", "RMPI_ALLTOALL",
};
static char words[VARIABLES][32];
static const int counts[] = {0, 1, 7, 1000, 20011};

static MPI_T_cvar_handle variable(const char *name, MPI_T_enum *words_of)
{
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    int index = -1, count, scope;
    GOOD(MPI_T_cvar_get_index(name, &index));
    GOOD(MPI_T_cvar_get_info(index, 0, 0, 0, 0, words_of, 0, 0, 0, &scope));
    EQUAL(scope, MPI_T_SCOPE_ALL_EQ);
    GOOD(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    return handle;
}

static void choose(int v, int number)
{
    MPI_T_enum all = MPI_T_ENUM_NULL;
    MPI_T_cvar_handle handle = variable(names[v], &all);
    int count = 0, length = sizeof words[v], value, name_length = 0;
    GOOD(MPI_T_enum_get_info(all, &count, NULL, &name_length));
    GOOD(MPI_T_enum_get_item(all, number % count, &value, words[v], &length));
    // The ranks of these tests are on one node.
    if (!strcmp(words[v], "nodes"))
        strcpy(words[v], "auto");
    GOOD(MPI_T_cvar_write(handle, &value));
    GOOD(MPI_T_cvar_handle_free(&handle));
}

static void set(const char *name, unsigned long long value)
{
    MPI_T_enum none;
    MPI_T_cvar_handle handle = variable(name, &none);
    GOOD(MPI_T_cvar_write(handle, &value));
    GOOD(MPI_T_cvar_handle_free(&handle));
}

static int is(int v, const char *word)
{
    return !strcmp(words[v], word);
}

// The messages from each rank to each rank since `before`, counted by the library.
static MPI_T_pvar_session session;
static MPI_T_pvar_handle sent;

static void begin_counting(void)
{
    int index = -1, count = 0;
    GOOD(MPI_T_pvar_session_create(&session));
    GOOD(MPI_T_pvar_get_index("sent_messages_to", MPI_T_PVAR_CLASS_COUNTER, &index));
    GOOD(MPI_T_pvar_handle_alloc(session, index, NULL, &sent, &count));
    GOOD(MPI_T_pvar_start(session, sent));
    EQUAL(count, size);
}

static unsigned long long before[MOST];

static void count_from_here(void)
{
    GOOD(MPI_T_pvar_read(session, sent, before));
}

// The number of messages of all ranks, of ranks to which rank 0 sent, and of ranks that sent to rank 0. Valid at rank
// 0.
struct travelled {
    long all, from_first, to_first;
};

static struct travelled counted(void)
{
    unsigned long long now[MOST], row[MOST];
    struct travelled it = {0, 0, 0};
    GOOD(MPI_T_pvar_read(session, sent, now));
    for (int to = 0; to < size; to++)
        now[to] -= before[to];
    if (rank > 0) {
        GOOD(MPI_Send(now, size, MPI_UNSIGNED_LONG_LONG, 0, 99, MPI_COMM_WORLD));
        return it;
    }
    for (int from = 0; from < size; from++) {
        if (from > 0)
            GOOD(MPI_Recv(row, size, MPI_UNSIGNED_LONG_LONG, from, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int to = 0; to < size; to++) {
            unsigned long long count = from ? row[to] : now[to];
            it.all += (long)count;
            it.from_first += from == 0 && count;
            it.to_first += to == 0 && count;
        }
    }
    return it;
}

// Compares the messages with those that the chosen algorithm sends; -1: any number.
static void expect(int v, long all, long from_first, long to_first)
{
    struct travelled it = counted();
    if (rank > 0 || size == 1)
        return;
    CHECK(all < 0 || it.all == all, "%s=%s: %ld messages, expected %ld", names[v], words[v], it.all, all);
    CHECK(from_first < 0 || it.from_first == from_first, "%s=%s: rank 0 sent to %ld ranks, expected %ld", names[v], words[v],
          it.from_first, from_first);
    CHECK(to_first < 0 || it.to_first == to_first, "%s=%s: %ld ranks sent to rank 0, expected %ld", names[v], words[v],
          it.to_first, to_first);
}

static long rounds(void)
{
    long steps = 0;
    for (int span = 1; span < size; span <<= 1)
        steps++;
    return steps;
}

// The number of messages of recursive doubling among a power of two ranks, before and after which the other ranks
// exchange with a partner.
static long in_pairs(int passes)
{
    long power = 1, steps = 0;
    for (; 2 * power <= size; power <<= 1)
        steps++;
    return passes * power * steps + 2 * (size - power);
}

static void barriers(void)
{
    for (int turn = 0; turn < 5; turn++) {
        struct timespec now;
        double entered, left, last;
        if (rank == turn % size)
            usleep(5000);
        clock_gettime(CLOCK_MONOTONIC, &now);
        entered = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        GOOD(MPI_Barrier(MPI_COMM_WORLD));
        clock_gettime(CLOCK_MONOTONIC, &now);
        left = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        GOOD(MPI_Allreduce(&entered, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
        CHECK(left >= last, "left %g s before the last has entered", last - left);
    }
    count_from_here();
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    long f = size - 1;
    if (is(BARRIER, "board"))
        expect(BARRIER, 0, 0, 0);
    else if (is(BARRIER, "flat"))
        expect(BARRIER, 2 * f, f, f);
    else if (is(BARRIER, "rounds"))
        expect(BARRIER, size * rounds(), rounds(), rounds());
    else if (is(BARRIER, "tree"))
        expect(BARRIER, 2 * f, rounds(), rounds());
}

static int value(int from, int to, int i)
{
    return from * 7919 + to * 104729 + i;
}

static int *out, *in, *wanted;

static void put(int *data, int from, int to, int count)
{
    for (int i = 0; i < count; i++)
        data[i] = value(from, to, i);
}

static void same(const char *what, const int *got, const int *want, int count)
{
    int wrong = 0;
    for (int i = 0; i < count; i++)
        wrong += got[i] != want[i];
    CHECK(wrong == 0, "%s: %d of %d are wrong", what, wrong, count);
}

static long bcast_messages(const char *word, long segments)
{
    long f = size - 1;
    if (!strcmp(word, "chain"))
        return f * segments;
    return !strcmp(word, "slices") ? f * f : f;
}

static void broadcasts(void)
{
    for (int s = 0; s < COUNT_OF(counts); s++)
        for (int root = 0; root < size; root += size > 2 ? size - 1 : 1) {
            put(wanted, root, 0, counts[s]);
            memset(in, 0x55, (size_t)counts[s] * sizeof *in);
            if (rank == root)
                put(in, root, 0, counts[s]);
            GOOD(MPI_Bcast(in, counts[s], MPI_INT, root, MPI_COMM_WORLD));
            same("MPI_Bcast", in, wanted, counts[s]);
        }
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Bcast(in, 10000, MPI_INT, 0, MPI_COMM_WORLD));
    long f = size - 1, all = bcast_messages(words[BCAST], 40);
    if (is(BCAST, "board"))
        expect(BCAST, 0, 0, 0);
    else if (!is(BCAST, "auto"))
        expect(BCAST, all, is(BCAST, "tree") ? rounds() : is(BCAST, "chain") ? 1 : f, 0);
}

// An item is a pair of numbers that represents a map; the operation composes maps and does not commute.
static long applied;

static void after(void *lower, void *higher, int *count, MPI_Datatype *type)
{
    unsigned *a = lower, *b = higher;
    (void)type;
    applied += *count;
    for (int i = 0; i < *count; i++) {
        b[2 * i + 1] += a[2 * i + 1] * b[2 * i];
        b[2 * i] *= a[2 * i];
    }
}

static MPI_Op in_order;
static MPI_Datatype pair;

// The result of the reduction of `count` numbers over `ranks` ranks (`count` is even if the order matters).
static void combined(int *into, int ranks, int count, MPI_Op op)
{
    static int next[2 * 20011 * 8];
    int pairs = count / 2;
    put(into, 0, 0, count);
    for (int from = 1; from < ranks; from++) {
        put(next, from, 0, count);
        for (int i = 0; i < count; i++)
            next[i] = op == MPI_SUM ? into[i] + next[i] : next[i];
        if (op == in_order)
            after(into, next, &pairs, NULL);
        memcpy(into, next, (size_t)count * sizeof *into);
    }
}

static long reduce_messages(int root)
{
    long f = size - 1;
    return is(REDUCE, "slices") ? size * f + f : is(REDUCE, "flat") ? f : f + (root != 0);
}

static void reductions(void)
{
    for (int s = 0; s < COUNT_OF(counts); s++)
        for (int ordered = 0; ordered < 2; ordered++) {
            int items = counts[s], count = ordered ? 2 * items : items, root = s % size;
            MPI_Op op = ordered ? in_order : MPI_SUM;
            MPI_Datatype type = ordered ? pair : MPI_INT;
            combined(wanted, size, count, op);
            put(out, rank, 0, count);
            GOOD(MPI_Reduce(out, in, items, type, op, root, MPI_COMM_WORLD));
            if (rank == root)
                same("MPI_Reduce", in, wanted, count);
            put(in, rank, 0, count);
            GOOD(MPI_Reduce(rank == root ? MPI_IN_PLACE : out, in, items, type, op, root, MPI_COMM_WORLD));
            if (rank == root)
                same("MPI_Reduce in place", in, wanted, count);
            GOOD(MPI_Allreduce(out, in, items, type, op, MPI_COMM_WORLD));
            same("MPI_Allreduce", in, wanted, count);
            put(in, rank, 0, count);
            GOOD(MPI_Allreduce(MPI_IN_PLACE, in, items, type, op, MPI_COMM_WORLD));
            same("MPI_Allreduce in place", in, wanted, count);
        }
}

static void reductions_take_their_way(void)
{
    long f = size - 1;
    count_from_here();
    GOOD(MPI_Reduce(out, in, 10000, MPI_INT, MPI_SUM, size - 1, MPI_COMM_WORLD));
    if (is(REDUCE, "board"))
        expect(REDUCE, 0, 0, 0);
    else if (!is(REDUCE, "auto"))
        expect(REDUCE, reduce_messages(size - 1), -1, -1);
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Allreduce(out, in, 10000, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    if (is(ALLREDUCE, "board"))
        expect(ALLREDUCE, 0, 0, 0);
    else if (is(ALLREDUCE, "rooted"))
        expect(ALLREDUCE, reduce_messages(0) + bcast_messages(words[BCAST], 40), -1, -1);
    else if (is(ALLREDUCE, "rounds"))
        expect(ALLREDUCE, in_pairs(1), -1, -1);
    else if (is(ALLREDUCE, "halves"))
        expect(ALLREDUCE, in_pairs(2), -1, -1);
    else if (is(ALLREDUCE, "slices"))
        expect(ALLREDUCE, 2 * size * f, f, f);
    else if (is(ALLREDUCE, "ring"))
        expect(ALLREDUCE, 2 * size * f, 1, 1);
}

static void scattered_reductions(void)
{
    int lengths[MOST], start = 0, all = 0;
    for (int s = 0; s < COUNT_OF(counts) - 1; s++)
        for (int ordered = 0; ordered < 2; ordered++) {
            MPI_Op op = ordered ? in_order : MPI_SUM;
            MPI_Datatype type = ordered ? pair : MPI_INT;
            int width = ordered ? 2 : 1;
            start = all = 0;
            for (int to = 0; to < size; to++) {
                lengths[to] = counts[s] * (to % 3);
                start += to < rank ? lengths[to] : 0;
                all += lengths[to];
            }
            combined(wanted, size, width * all, op);
            put(out, rank, 0, width * all);
            GOOD(MPI_Reduce_scatter(out, in, lengths, type, op, MPI_COMM_WORLD));
            same("MPI_Reduce_scatter", in, wanted + width * start, width * lengths[rank]);
            combined(wanted, size, width * counts[s] * size, op);
            put(in, rank, 0, width * counts[s] * size);
            GOOD(MPI_Reduce_scatter_block(MPI_IN_PLACE, in, counts[s], type, op, MPI_COMM_WORLD));
            same("MPI_Reduce_scatter_block", in, wanted + width * counts[s] * rank, width * counts[s]);
        }
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Reduce_scatter_block(out, in, 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    long f = size - 1;
    if (is(REDUCE_SCATTER, "board"))
        expect(REDUCE_SCATTER, 0, 0, 0);
    else if (is(REDUCE_SCATTER, "rooted"))
        expect(REDUCE_SCATTER, reduce_messages(0) + f, -1, -1);
    else if (is(REDUCE_SCATTER, "slices"))
        expect(REDUCE_SCATTER, size * f, f, f);
    else if (is(REDUCE_SCATTER, "ring"))
        expect(REDUCE_SCATTER, size * f, 1, 1);
}

static void scans(void)
{
    for (int s = 0; s < COUNT_OF(counts); s++)
        for (int ordered = 0; ordered < 2; ordered++) {
            MPI_Op op = ordered ? in_order : MPI_SUM;
            MPI_Datatype type = ordered ? pair : MPI_INT;
            int count = ordered ? 2 * counts[s] : counts[s];
            combined(wanted, rank + 1, count, op);
            put(in, rank, 0, count);
            GOOD(MPI_Scan(MPI_IN_PLACE, in, counts[s], type, op, MPI_COMM_WORLD));
            same("MPI_Scan", in, wanted, count);
            put(out, rank, 0, count);
            GOOD(MPI_Exscan(out, in, counts[s], type, op, MPI_COMM_WORLD));
            combined(wanted, rank, count, op);
            if (rank > 0)
                same("MPI_Exscan", in, wanted, count);
        }
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Scan(out, in, 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    long all = 0;
    for (int span = 1; span < size; span <<= 1)
        all += size - span;
    if (is(SCAN, "board"))
        expect(SCAN, 0, 0, 0);
    else if (is(SCAN, "rounds"))
        expect(SCAN, all, rounds(), 0);
    else if (is(SCAN, "chain"))
        expect(SCAN, size - 1, 1, 0);
}

// The blocks of all ranks for rank `to`, in the order of ranks.
static void column(int *into, int to, int block)
{
    for (int from = 0; from < size; from++)
        put(into + (size_t)from * block, from, to, block);
}

static int is_one_node(void)
{
    MPI_Comm near;
    int count;
    GOOD(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near));
    GOOD(MPI_Comm_size(near, &count));
    GOOD(MPI_Comm_free(&near));
    return count == size;
}

static void gathers(void)
{
    MPI_Datatype spread;
    int one_node = is_one_node();
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
    MPI_Type_commit(&spread);
    for (int s = 0; s < COUNT_OF(counts) - 1; s++)
        for (int root = 0; root < size; root++) {
            int n = counts[s];
            column(wanted, 0, n);
            put(out, rank, 0, n);
            GOOD(MPI_Gather(out, n, MPI_INT, in, n, MPI_INT, root, MPI_COMM_WORLD));
            if (rank == root)
                same("MPI_Gather", in, wanted, n * size);
            memset(in, 0, (size_t)2 * n * size * sizeof *in);
            for (int i = 0; i < n; i++)
                in[2 * (n * root + i)] = value(root, 0, i);
            GOOD(MPI_Gather(rank == root ? MPI_IN_PLACE : out, n, MPI_INT, in, n, spread, root, MPI_COMM_WORLD));
            for (int i = 0; rank == root && i < n * size; i++)
                in[i] = in[2 * i];
            if (rank == root)
                same("MPI_Gather in place, with gaps", in, wanted, n * size);
            for (int to = 0; to < size; to++)
                put(out + (size_t)to * n, root, to, n);
            put(wanted, root, rank, n);
            GOOD(MPI_Scatter(out, n, MPI_INT, in, n, MPI_INT, root, MPI_COMM_WORLD));
            same("MPI_Scatter", in, wanted, n);
            GOOD(MPI_Scatter(out, n, MPI_INT, rank == root ? MPI_IN_PLACE : in, n, MPI_INT, root, MPI_COMM_WORLD));
            same("MPI_Scatter in place", rank == root ? out + (size_t)root * n : in, wanted, n);
        }
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Gather(out, 300, MPI_INT, in, 300, MPI_INT, 0, MPI_COMM_WORLD));
    // With auto the algorithm depends on where the ranks are.
    if (!is(GATHER, "auto") || one_node)
        expect(GATHER, size - 1, 0, is(GATHER, "tree") ? rounds() : size - 1);
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Scatter(out, 100, MPI_INT, in, 100, MPI_INT, 0, MPI_COMM_WORLD));
    if (!is(SCATTER, "auto"))
        expect(SCATTER, size - 1, is(SCATTER, "tree") ? rounds() : size - 1, 0);
    else if (one_node)
        expect(SCATTER, 0, 0, 0);
    MPI_Type_free(&spread);
}

static void allgathers(void)
{
    int lengths[MOST], places[MOST];
    for (int s = 0; s < COUNT_OF(counts) - 1; s++) {
        int n = counts[s], end = 0;
        column(wanted, 0, n);
        put(out, rank, 0, n);
        GOOD(MPI_Allgather(out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD));
        same("MPI_Allgather", in, wanted, n * size);
        memset(in, 0, (size_t)n * size * sizeof *in);
        put(in + (size_t)rank * n, rank, 0, n);
        GOOD(MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD));
        same("MPI_Allgather in place", in, wanted, n * size);
        for (int from = 0; from < size; from++) {
            lengths[from] = from % 2 ? n / 2 : n;
            places[from] = end;
            put(wanted + end, from, 0, lengths[from]);
            end += lengths[from];
        }
        memset(in, 0, (size_t)end * sizeof *in);
        GOOD(MPI_Allgatherv(out, lengths[rank], MPI_INT, in, lengths, places, MPI_INT, MPI_COMM_WORLD));
        same("MPI_Allgatherv", in, wanted, end);
    }
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Allgather(out, 100, MPI_INT, in, 100, MPI_INT, MPI_COMM_WORLD));
    long f = size - 1;
    if (is(ALLGATHER, "board"))
        expect(ALLGATHER, 0, 0, 0);
    else if (is(ALLGATHER, "flat"))
        expect(ALLGATHER, 2 * f, f, f);
    else if (is(ALLGATHER, "rounds"))
        expect(ALLGATHER, size * rounds(), rounds(), rounds());
    else if (!is(ALLGATHER, "auto"))
        expect(ALLGATHER, size * f, is(ALLGATHER, "ring") ? 1 : f, is(ALLGATHER, "ring") ? 1 : f);
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Allgatherv(out, lengths[rank], MPI_INT, in, lengths, places, MPI_INT, MPI_COMM_WORLD));
    if (!is(ALLGATHERV, "auto"))
        expect(ALLGATHERV, size * f, is(ALLGATHERV, "ring") ? 1 : f, is(ALLGATHERV, "ring") ? 1 : f);
}

static void exchanges(void)
{
    for (int s = 0; s < COUNT_OF(counts) - 1; s++) {
        int n = counts[s];
        column(wanted, rank, n);
        for (int to = 0; to < size; to++)
            put(out + (size_t)to * n, rank, to, n);
        GOOD(MPI_Alltoall(out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD));
        same("MPI_Alltoall", in, wanted, n * size);
        GOOD(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, out, n, MPI_INT, MPI_COMM_WORLD));
        same("MPI_Alltoall in place", out, wanted, n * size);
    }
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Alltoall(out, 100, MPI_INT, in, 100, MPI_INT, MPI_COMM_WORLD));
    if (is(ALLTOALL, "board"))
        expect(ALLTOALL, 0, 0, 0);
    else if (is(ALLTOALL, "rounds"))
        expect(ALLTOALL, size * rounds(), rounds(), rounds());
    else if (is(ALLTOALL, "direct"))
        expect(ALLTOALL, size * (size - 1), size - 1, size - 1);
}

// With a window of one rank, rank 0 does not send to the last rank before that enters the call.
static void a_window_keeps_blocks_back(void)
{
    int go = 1, done, last = size - 1;
    MPI_Request request;
    if (size < 3)
        return;
    if (rank == last)
        GOOD(MPI_Recv(&go, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    count_from_here();
    GOOD(MPI_Ialltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD, &request));
    if (rank == 0) {
        unsigned long long now[MOST];
        for (int i = 0; i < 2000; i++)
            GOOD(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        EQUAL(done, 0);
        GOOD(MPI_T_pvar_read(session, sent, now));
        EQUAL(now[1] - before[1], 1);
        EQUAL(now[last] - before[last], 0);
        GOOD(MPI_Send(&go, 1, MPI_INT, last, 5, MPI_COMM_WORLD));
    }
    GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void broadcasts_of_that_size_go_in_slices(void)
{
    long f = size - 1;
    strcpy(words[BCAST], "auto");
    count_from_here();
    GOOD(MPI_Bcast(in, 24999, MPI_INT, 0, MPI_COMM_WORLD));
    expect(BCAST, f, rounds(), 0);
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Bcast(in, 25000, MPI_INT, 0, MPI_COMM_WORLD));
    expect(BCAST, size > 2 ? f * f : f, f, 0);
}

static void slices_of_that_size_go_round_a_ring(void)
{
    long f = size - 1;
    strcpy(words[ALLREDUCE], "auto");
    for (int fewer = 0; fewer < 2; fewer++) {
        int count = (10000 - fewer) * size;
        memset(out, 0, (size_t)count * sizeof *out);
        GOOD(MPI_Barrier(MPI_COMM_WORLD));
        count_from_here();
        GOOD(MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        expect(ALLREDUCE, 2 * size * f, fewer ? f : 1, fewer ? f : 1);
    }
}

static int cpus(void)
{
    cpu_set_t mine;
    return sched_getaffinity(0, sizeof mine, &mine) ? 1 : CPU_COUNT(&mine);
}

static void broadcasts_go_over_a_board_up_to_a_size(void)
{
    if (size > 2 || cpus() < 2)
        return;
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Bcast(in, 6000, MPI_INT, 0, MPI_COMM_WORLD));
    expect(BCAST, 0, 0, 0);
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    count_from_here();
    GOOD(MPI_Bcast(in, 6001, MPI_INT, 0, MPI_COMM_WORLD));
    expect(BCAST, 1, 1, 0);
}

// Whether each rank computed the reduction of `items` items itself: then it applied the operation to the data of all
// others.
static int is_combined_by_each(int items)
{
    applied = 0;
    GOOD(MPI_Allreduce(out, in, items, pair, in_order, MPI_COMM_WORLD));
    return applied == (long)items * (size - 1);
}

// Each rank computes the reduction itself up to a limit; if ranks share cores, the limit is four times the variable's
// value.
static void few_data_are_combined_by_each_rank(void)
{
    if (size == 1)
        return;
    strcpy(words[ALLREDUCE], "auto");
    int least = 1600 / (8 * size), most = 4 * 1600 / (8 * size);
    CHECK(is_combined_by_each(least), "%d items were not combined by each rank", least);
    if (is_combined_by_each(least + 1))
        CHECK(is_combined_by_each(most), "%d items were not combined by each rank", most);
    CHECK(!is_combined_by_each(most + 1), "%d items were combined by each rank", most + 1);
}

static void choices(int number)
{
    for (int v = 0; v < VARIABLES; v++)
        choose(v, number);
    set("RMPI_BCAST_SEGMENT", 1000);
}

static void limits(void)
{
    choose(ALLTOALL, 3);
    set("RMPI_ALLTOALL_WINDOW", 1);
    set("RMPI_BCAST_SLICE_LIMIT", 100000);
    set("RMPI_BOARD_BCAST_LIMIT", 24000);
    set("RMPI_BOARD_WHOLE_LIMIT", 1600);
}

// Without boards: with a board, reductions of any size are divided into pieces.
static void ring(void)
{
    set("RMPI_BOARD_LIMIT", 0);
    set("RMPI_RING_LIMIT", 40000);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "0";
    int provided;
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    if (!strcmp(what, "limits"))
        limits();
    else if (!strcmp(what, "ring"))
        ring();
    else
        choices(atoi(what));
    start(&argc, &argv);
    begin_counting();
    size_t bytes = (size_t)2 * 20011 * (size_t)size * sizeof(int);
    out = allocate(bytes);
    in = allocate(bytes);
    wanted = allocate(bytes);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(after, 0, &in_order);
    if (!strcmp(what, "limits")) {
        RUN(exchanges);
        RUN(a_window_keeps_blocks_back);
        RUN(broadcasts_of_that_size_go_in_slices);
        RUN(broadcasts_go_over_a_board_up_to_a_size);
        RUN(few_data_are_combined_by_each_rank);
    } else if (!strcmp(what, "ring")) {
        RUN(slices_of_that_size_go_round_a_ring);
    } else {
        RUN(barriers);
        RUN(broadcasts);
        RUN(reductions);
        RUN(reductions_take_their_way);
        RUN(scattered_reductions);
        RUN(scans);
        RUN(gathers);
        RUN(allgathers);
        RUN(exchanges);
    }
    MPI_Op_free(&in_order);
    MPI_Type_free(&pair);
    return finish();
}
