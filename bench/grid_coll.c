// SPDX-License-Identifier: MIT OR Apache-2.0
/* Collectives in many sizes, all in one start. A time is the average over the ranks. The size is that of a block: the
 * data from one rank to another, or the whole vector in operations without blocks. */
#include "grid.h"

static int apart, roots;

/* A cell while it is measured. */
struct call {
    const struct operation *operation;
    char *out, *in;
    int count, root, rank, ranks;
    int *counts, *displacements;
    long turn;
};

#define ALL MPI_COMM_WORLD
#define GIVE c->out, c->count
#define TAKE c->in, c->count
#define GIVE_V c->out, c->counts, c->displacements
#define TAKE_V c->in, c->counts, c->displacements
#define SUM MPI_FLOAT, MPI_SUM

static void barrier(struct call *c) {
    (void)c;
    MPI_Barrier(ALL);
}
static void bcast(struct call *c) { MPI_Bcast(TAKE, MPI_CHAR, c->root, ALL); }
static void gather(struct call *c) { MPI_Gather(GIVE, MPI_CHAR, TAKE, MPI_CHAR, c->root, ALL); }
static void gatherv(struct call *c) { MPI_Gatherv(GIVE, MPI_CHAR, TAKE_V, MPI_CHAR, c->root, ALL); }
static void scatter(struct call *c) { MPI_Scatter(GIVE, MPI_CHAR, TAKE, MPI_CHAR, c->root, ALL); }
static void scatterv(struct call *c) { MPI_Scatterv(GIVE_V, MPI_CHAR, TAKE, MPI_CHAR, c->root, ALL); }
static void reduce(struct call *c) { MPI_Reduce(c->out, TAKE, SUM, c->root, ALL); }
static void allreduce(struct call *c) { MPI_Allreduce(c->out, TAKE, SUM, ALL); }
static void allgather(struct call *c) { MPI_Allgather(GIVE, MPI_CHAR, TAKE, MPI_CHAR, ALL); }
static void allgatherv(struct call *c) { MPI_Allgatherv(GIVE, MPI_CHAR, TAKE_V, MPI_CHAR, ALL); }
static void alltoall(struct call *c) { MPI_Alltoall(GIVE, MPI_CHAR, TAKE, MPI_CHAR, ALL); }
static void alltoallv(struct call *c) { MPI_Alltoallv(GIVE_V, MPI_CHAR, TAKE_V, MPI_CHAR, ALL); }
static void reduce_scatter(struct call *c) { MPI_Reduce_scatter_block(c->out, TAKE, SUM, ALL); }
static void scan(struct call *c) { MPI_Scan(c->out, TAKE, SUM, ALL); }
static void exscan(struct call *c) { MPI_Exscan(c->out, TAKE, SUM, ALL); }

static void wait_for(MPI_Request request) { MPI_Wait(&request, MPI_STATUS_IGNORE); }

static void ibarrier(struct call *c) {
    MPI_Request request;
    (void)c;
    MPI_Ibarrier(ALL, &request);
    wait_for(request);
}
static void ibcast(struct call *c) {
    MPI_Request request;
    MPI_Ibcast(TAKE, MPI_CHAR, c->root, ALL, &request);
    wait_for(request);
}
static void igather(struct call *c) {
    MPI_Request request;
    MPI_Igather(GIVE, MPI_CHAR, TAKE, MPI_CHAR, c->root, ALL, &request);
    wait_for(request);
}
static void iscatter(struct call *c) {
    MPI_Request request;
    MPI_Iscatter(GIVE, MPI_CHAR, TAKE, MPI_CHAR, c->root, ALL, &request);
    wait_for(request);
}
static void ireduce(struct call *c) {
    MPI_Request request;
    MPI_Ireduce(c->out, TAKE, SUM, c->root, ALL, &request);
    wait_for(request);
}
static void iallreduce(struct call *c) {
    MPI_Request request;
    MPI_Iallreduce(c->out, TAKE, SUM, ALL, &request);
    wait_for(request);
}
static void iallgather(struct call *c) {
    MPI_Request request;
    MPI_Iallgather(GIVE, MPI_CHAR, TAKE, MPI_CHAR, ALL, &request);
    wait_for(request);
}
static void ialltoall(struct call *c) {
    MPI_Request request;
    MPI_Ialltoall(GIVE, MPI_CHAR, TAKE, MPI_CHAR, ALL, &request);
    wait_for(request);
}

/* The contents of block k of a rank after the operation: block 0 of one rank, or the block of one rank for this rank,
 * or the sum of such blocks over some ranks. */
enum result {
    NOTHING,
    FROM_EACH,      /* rank k's only block */
    FROM_EACH_MINE, /* rank k's block for this rank */
    FROM_ROOT,
    FROM_ROOT_MINE,
    SUM_OF_ALL,
    SUM_OF_ALL_MINE,
    SUM_UP_TO_ME,
    SUM_BEFORE_ME,
};

/* The order is that of `names`. EACH: a block for each rank. */
enum { NONE = 0, ONE = 1, EACH = 2 };
struct operation {
    void (*run)(struct call *);
    enum result result;
    int give, take;
    int only_root; /* whether only the root has the result */
};
static const struct named names[] = {
    {"barrier", "MPI_Barrier"},
    {"bcast", "MPI_Bcast"},
    {"gather", "MPI_Gather"},
    {"gatherv", "MPI_Gatherv, all blocks of one size"},
    {"scatter", "MPI_Scatter"},
    {"scatterv", "MPI_Scatterv, all blocks of one size"},
    {"reduce", "MPI_Reduce, sum of floats"},
    {"allreduce", "MPI_Allreduce, sum of floats"},
    {"allgather", "MPI_Allgather"},
    {"allgatherv", "MPI_Allgatherv, all blocks of one size"},
    {"alltoall", "MPI_Alltoall"},
    {"alltoallv", "MPI_Alltoallv, all blocks of one size"},
    {"reduce_scatter", "MPI_Reduce_scatter_block, sum of floats"},
    {"scan", "MPI_Scan, sum of floats"},
    {"exscan", "MPI_Exscan, sum of floats"},
    {"ibarrier", "MPI_Ibarrier and MPI_Wait"},
    {"ibcast", "MPI_Ibcast and MPI_Wait"},
    {"igather", "MPI_Igather and MPI_Wait"},
    {"iscatter", "MPI_Iscatter and MPI_Wait"},
    {"ireduce", "MPI_Ireduce and MPI_Wait"},
    {"iallreduce", "MPI_Iallreduce and MPI_Wait"},
    {"iallgather", "MPI_Iallgather and MPI_Wait"},
    {"ialltoall", "MPI_Ialltoall and MPI_Wait"},
    {NULL, NULL},
};
static const struct operation operations[] = {
    {barrier, NOTHING, NONE, NONE, 0},
    {bcast, FROM_ROOT, NONE, ONE, 0},
    {gather, FROM_EACH, ONE, EACH, 1},
    {gatherv, FROM_EACH, ONE, EACH, 1},
    {scatter, FROM_ROOT_MINE, EACH, ONE, 0},
    {scatterv, FROM_ROOT_MINE, EACH, ONE, 0},
    {reduce, SUM_OF_ALL, ONE, ONE, 1},
    {allreduce, SUM_OF_ALL, ONE, ONE, 0},
    {allgather, FROM_EACH, ONE, EACH, 0},
    {allgatherv, FROM_EACH, ONE, EACH, 0},
    {alltoall, FROM_EACH_MINE, EACH, EACH, 0},
    {alltoallv, FROM_EACH_MINE, EACH, EACH, 0},
    {reduce_scatter, SUM_OF_ALL_MINE, EACH, ONE, 0},
    {scan, SUM_UP_TO_ME, ONE, ONE, 0},
    {exscan, SUM_BEFORE_ME, ONE, ONE, 0},
    {ibarrier, NOTHING, NONE, NONE, 0},
    {ibcast, FROM_ROOT, NONE, ONE, 0},
    {igather, FROM_EACH, ONE, EACH, 1},
    {iscatter, FROM_ROOT_MINE, EACH, ONE, 0},
    {ireduce, SUM_OF_ALL, ONE, ONE, 1},
    {iallreduce, SUM_OF_ALL, ONE, ONE, 0},
    {iallgather, FROM_EACH, ONE, EACH, 0},
    {ialltoall, FROM_EACH_MINE, EACH, EACH, 0},
};

static int sums(const struct operation *operation) { return operation->result >= SUM_OF_ALL; }

static void one_call(struct call *c) {
    c->root = roots ? (int)(c->turn++ % c->ranks) : 0;
    c->operation->run(c);
}

static void calls(void *state, long count) {
    for (long i = 0; i < count; i++)
        one_call(state);
}

/* Runs a barrier after each call, whose time does not count. */
static void calls_apart(void *state, long count) {
    for (long i = 0; i < count; i++) {
        one_call(state);
        double end = now();
        MPI_Barrier(MPI_COMM_WORLD);
        uncounted += now() - end;
    }
}

/* Element i of a rank's block, so small that sums of floats and of chars are exact. */
static int element(int rank, int block, int i) { return (rank + 3 * block + i) % 5; }

static int expected(const struct call *c, int block, int i) {
    int sum = 0, last = c->operation->result == SUM_UP_TO_ME    ? c->rank + 1
                        : c->operation->result == SUM_BEFORE_ME ? c->rank
                                                                : c->ranks;
    switch (c->operation->result) {
    case FROM_EACH:
        return element(block, 0, i);
    case FROM_EACH_MINE:
        return element(block, c->rank, i);
    case FROM_ROOT:
        return element(c->root, 0, i);
    case FROM_ROOT_MINE:
        return element(c->root, c->rank, i);
    default:
        for (int rank = 0; rank < last; rank++)
            sum += element(rank, c->operation->result == SUM_OF_ALL_MINE ? c->rank : 0, i);
        return sum;
    }
}

static void put(const struct call *c, char *buffer, int at, int value) {
    if (sums(c->operation))
        ((float *)(void *)buffer)[at] = (float)value;
    else
        buffer[at] = (char)value;
}

static int get(const struct call *c, const char *buffer, int at) {
    return sums(c->operation) ? (int)((const float *)(const void *)buffer)[at] : buffer[at];
}

static int blocks(const struct call *c, int how) { return how == EACH ? c->ranks : how; }

static void validate(struct call *c) {
    const struct operation *operation = c->operation;
    int has_result = !operation->only_root || c->rank == 0;
    for (int block = 0; block < blocks(c, operation->give); block++)
        for (int i = 0; i < c->count; i++)
            put(c, c->out, block * c->count + i, element(c->rank, block, i));
    for (int at = 0; at < blocks(c, operation->take) * c->count; at++)
        put(c, c->in, at, operation->give == NONE && c->rank == 0 ? element(0, 0, at) : 100);
    c->root = 0;
    operation->run(c);
    if (operation->result == SUM_BEFORE_ME && c->rank == 0)
        return; /* the result of rank 0 is undefined */
    for (int block = 0; block < blocks(c, operation->take) && has_result; block++)
        for (int i = 0; i < c->count; i++)
            if (get(c, c->in, block * c->count + i) != expected(c, block, i))
                die(BAD_PAYLOAD, "grid_coll: the result is wrong");
}

static int *new_counts(const struct call *c, int step) {
    int *counts = malloc((size_t)c->ranks * sizeof *counts);
    if (counts == NULL)
        die(FAILED, "no memory for the counts");
    for (int i = 0; i < c->ranks; i++)
        counts[i] = step ? i * step : c->count;
    return counts;
}

static struct timing one_cell(const struct options *options, const struct cell *cell, struct column *column) {
    static const struct pace pace = {10 * BATCH_SECONDS, SLOW_SECONDS};
    struct call c = {.operation = &operations[cell->operation]};
    (void)column; /* the default column is right: a time per call */
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.ranks);
    if (sums(c.operation) && cell->bytes % sizeof(float) != 0)
        die(BAD_OPTION, "grid_coll: the size of a sum must be a multiple of 4");
    c.count = (int)(sums(c.operation) ? cell->bytes / sizeof(float) : cell->bytes);
    struct buffers out = plain_buffers(cell->bytes, blocks(&c, c.operation->give), 0);
    struct buffers in = plain_buffers(cell->bytes, blocks(&c, c.operation->take), 0);
    c.out = (char *)out.base;
    c.in = (char *)in.base;
    c.counts = new_counts(&c, 0);
    c.displacements = new_counts(&c, c.count);
    if (options->validate)
        validate(&c);
    memset(c.out, 0, cell->bytes * (size_t)blocks(&c, c.operation->give));
    struct timing timing = measure_at(options, &pace, apart ? calls_apart : calls, &c, CLOCK_OF_ALL);
    free_buffers(&out);
    free_buffers(&in);
    free(c.counts);
    free(c.displacements);
    return timing;
}

int main(int argc, char **argv) {
    static const struct flag flags[] = {
        {"--apart", &apart, "a barrier between two calls, whose time does not count"},
        {"--roots", &roots, "the root changes from call to call"},
        {NULL, NULL, NULL},
    };
    static const struct grid grid = {
        "grid_coll", "collectives in many sizes, a JSON line for each", names, flags,
        "barrier:0,bcast:8:1K:64K,reduce:8:1K:64K,allreduce:8:1K:64K,allgather:8:1K:64K,alltoall:8:1K:64K", 1, 0,
    };
    MPI_Init(&argc, &argv);
    return grid_main(argc, argv, &grid, (struct options){.warm_up = 5, .seconds = 0.05}, one_cell);
}
