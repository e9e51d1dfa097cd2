// SPDX-License-Identifier: MIT OR Apache-2.0
// Random collectives, most with few bytes: among others those with a length per rank, scans and reduce_scatter, with
// ranks that enter late. All ranks draw the same calls from one seed and so know the data of every rank. MPI 5.0
// chapter 6.
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { MOST = 6000, GAP = 3, RANKS = 64, THREADS = 3 };
static const unsigned char GUARD = 0xa5;

// A sequence of calls on one communicator.
struct draw {
    MPI_Comm comm;
    MPI_Op compose;
    MPI_Datatype map;
    int me, ranks, turn;
    uint64_t state;
    unsigned char *out, *in, *wanted;
    size_t room;
};

static unsigned drawn(struct draw *d, unsigned below)
{
    d->state ^= d->state << 13;
    d->state ^= d->state >> 7;
    d->state ^= d->state << 17;
    return (unsigned)(d->state >> 33) % below;
}

// A random number of items: mostly few, often none, sometimes many.
static int some_items(struct draw *d)
{
    switch (drawn(d, 16)) {
    case 0: return (int)drawn(d, MOST);
    case 1: case 2: return (int)drawn(d, 300);
    case 3: case 4: case 5: return 0;
    default: return (int)drawn(d, 14);
    }
}

static unsigned seed_of(const struct draw *d, int from, int to)
{
    return (unsigned)(d->turn * 1000003 + from * 1009 + to * 7 + 1);
}

// Places a block for each rank, in any order and with gaps; returns the end of the last one, in items.
static int place_blocks(struct draw *d, const int *counts, int *places)
{
    int next = (int)drawn(d, GAP), first = (int)drawn(d, (unsigned)d->ranks);
    for (int i = 0; i < d->ranks; i++) {
        int r = (first + i) % d->ranks;
        places[r] = next;
        next += counts[r] + (int)drawn(d, GAP);
    }
    return next;
}

static void guard(struct draw *d, size_t bytes)
{
    CHECK(bytes + 64 <= d->room, "%zu bytes of %zu", bytes, d->room);
    memset(d->in, GUARD, bytes + 64);
    memset(d->wanted, GUARD, bytes + 64);
}

static void compare(struct draw *d, const char *what, size_t bytes)
{
    if (memcmp(d->in, d->wanted, bytes + 64) == 0)
        return;
    size_t at = 0;
    while (d->in[at] == d->wanted[at])
        at++;
    CHECK(0, "%s, turn %d, %d of %d: byte %zu of %zu is %d, expected %d", what, d->turn, d->me, d->ranks, at, bytes,
          d->in[at], d->wanted[at]);
}

static MPI_Datatype some_type(struct draw *d, int *item)
{
    static const MPI_Datatype types[] = {MPI_BYTE, MPI_SHORT, MPI_INT, MPI_DOUBLE};
    int which = (int)drawn(d, 4);
    *item = 1 << which;
    return types[which];
}

static void gather_blocks(struct draw *d, int everywhere)
{
    int item, counts[RANKS], places[RANKS], root = (int)drawn(d, (unsigned)d->ranks);
    MPI_Datatype type = some_type(d, &item);
    for (int r = 0; r < d->ranks; r++)
        counts[r] = some_items(d);
    size_t bytes = (size_t)(place_blocks(d, counts, places) * item);
    int in_place = drawn(d, 3) == 0 && (everywhere || d->me == root), mine = counts[d->me];
    guard(d, bytes);
    for (int r = 0; r < d->ranks; r++)
        fill(d->wanted + places[r] * item, (size_t)(counts[r] * item), seed_of(d, r, 0));
    unsigned char *own = in_place ? d->in + places[d->me] * item : d->out;
    fill(own, (size_t)(mine * item), seed_of(d, d->me, 0));
    const void *given = in_place ? MPI_IN_PLACE : d->out;
    if (everywhere)
        GOOD(MPI_Allgatherv(given, mine, type, d->in, counts, places, type, d->comm));
    else if (d->me == root)
        GOOD(MPI_Gatherv(given, mine, type, d->in, counts, places, type, root, d->comm));
    else
        GOOD(MPI_Gatherv(given, mine, type, NULL, NULL, NULL, MPI_DATATYPE_NULL, root, d->comm));
    if (everywhere || d->me == root)
        compare(d, everywhere ? "allgatherv" : "gatherv", bytes);
}

static void scatter_blocks(struct draw *d)
{
    int item, counts[RANKS], places[RANKS], root = (int)drawn(d, (unsigned)d->ranks);
    MPI_Datatype type = some_type(d, &item);
    for (int r = 0; r < d->ranks; r++)
        counts[r] = some_items(d);
    place_blocks(d, counts, places);
    int in_place = drawn(d, 3) == 0;
    size_t bytes = (size_t)(counts[d->me] * item);
    guard(d, bytes);
    if (d->me != root || !in_place)
        fill(d->wanted, bytes, seed_of(d, root, d->me));
    for (int r = 0; r < d->ranks && d->me == root; r++)
        fill(d->out + places[r] * item, (size_t)(counts[r] * item), seed_of(d, root, r));
    if (d->me == root)
        GOOD(MPI_Scatterv(d->out, counts, places, type, in_place ? MPI_IN_PLACE : d->in, counts[root], type, root, d->comm));
    else
        GOOD(MPI_Scatterv(NULL, NULL, NULL, MPI_DATATYPE_NULL, d->in, counts[d->me], type, root, d->comm));
    compare(d, "scatterv", bytes);
}

static void exchange_blocks(struct draw *d)
{
    int item, all[RANKS][RANKS], out_places[RANKS], counts[RANKS], places[RANKS];
    MPI_Datatype type = some_type(d, &item);
    int in_place = drawn(d, 4) == 0;
    for (int r = 0; r < d->ranks; r++)
        for (int to = 0; to < d->ranks; to++)
            all[r][to] = in_place && to < r ? all[to][r] : some_items(d);
    for (int r = 0; r < d->ranks; r++)
        counts[r] = all[r][d->me];
    place_blocks(d, all[d->me], out_places);
    size_t bytes = (size_t)(place_blocks(d, counts, places) * item);
    guard(d, bytes);
    for (int r = 0; r < d->ranks; r++) {
        unsigned char *own = in_place ? d->in + places[r] * item : d->out + out_places[r] * item;
        fill(own, (size_t)(all[d->me][r] * item), seed_of(d, d->me, r));
        fill(d->wanted + places[r] * item, (size_t)(counts[r] * item), seed_of(d, r, d->me));
    }
    GOOD(MPI_Alltoallv(in_place ? MPI_IN_PLACE : d->out, all[d->me], out_places, type, d->in, counts, places, type, d->comm));
    compare(d, "alltoallv", bytes);
}

// The map x -> a x + b; the operation composes maps, so the order matters.
struct map {
    uint32_t a, b;
};
struct found {
    double value;
    int where;
};
enum kind { SUM, MOST_OF_ALL, BITS, FIRST_LEAST, AFTER, KINDS };

static void compose(void *invec, void *inoutvec, int *length, MPI_Datatype *datatype)
{
    const struct map *first = invec;
    struct map *then = inoutvec;
    (void)datatype;
    for (int i = 0; i < *length; i++)
        then[i] = (struct map){first[i].a * then[i].a, first[i].b * then[i].a + then[i].b};
}

// Item `i` of a rank's data.
static void put_item(const struct draw *d, enum kind kind, int from, int i, unsigned char *at)
{
    unsigned x = seed_of(d, from, i) * 2654435761u >> 20;
    double real = (double)(x % 17);
    uint16_t bits = (uint16_t)(x * 31);
    float small = (float)(x % 8);
    struct map map = {2 * (x % 50) + 3, x};
    struct found found;
    memset(&found, 0, sizeof found);
    found.value = x % 5;
    found.where = from;
    switch (kind) {
    case SUM: memcpy(at, &small, sizeof small); break;
    case MOST_OF_ALL: memcpy(at, &real, sizeof real); break;
    case BITS: memcpy(at, &bits, sizeof bits); break;
    case FIRST_LEAST: memcpy(at, &found, sizeof found); break;
    default: memcpy(at, &map, sizeof map); break;
    }
}

static void add_item(enum kind kind, unsigned char *sum, const unsigned char *next)
{
    union {
        float small;
        double real;
        uint16_t bits;
        struct found found;
        struct map map;
    } a, b;
    memcpy(&a, sum, sizeof(struct found));
    memcpy(&b, next, sizeof(struct found));
    int one = 1;
    switch (kind) {
    case SUM: a.small += b.small; break;
    case MOST_OF_ALL: a.real = a.real > b.real ? a.real : b.real; break;
    case BITS: a.bits ^= b.bits; break;
    case FIRST_LEAST: a.found = b.found.value < a.found.value ? b.found : a.found; break;
    default:
        compose(&a.map, &b.map, &one, NULL);
        a.map = b.map;
    }
    memcpy(sum, &a, kind == SUM ? 4 : kind == BITS ? 2 : kind == FIRST_LEAST ? 12 : 8);
}

static enum kind some_kind(struct draw *d, MPI_Datatype *type, MPI_Op *op, int *item)
{
    enum kind kind = (enum kind)drawn(d, KINDS);
    const MPI_Datatype types[] = {MPI_FLOAT, MPI_DOUBLE, MPI_UINT16_T, MPI_DOUBLE_INT, d->map};
    const MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_BXOR, MPI_MINLOC, d->compose};
    static const int items[] = {4, 8, 2, sizeof(struct found), 8};
    *type = types[kind];
    *op = ops[kind];
    *item = items[kind];
    return kind;
}

// Writes the items from `first` on of the combination of the ranks below `end` into the expected result.
static void combine(struct draw *d, enum kind kind, int item, int end, int first, int count)
{
    unsigned char next[32];
    for (int i = 0; i < count; i++)
        for (int r = 0; r < end; r++) {
            unsigned char *at = d->wanted + i * item;
            put_item(d, kind, r, first + i, r == 0 ? at : next);
            if (r > 0)
                add_item(kind, at, next);
        }
}

static void scan(struct draw *d, int exclusive)
{
    int item, count = some_items(d) % 1000, in_place = drawn(d, 3) == 0;
    MPI_Datatype type;
    MPI_Op op;
    enum kind kind = some_kind(d, &type, &op, &item);
    size_t bytes = (size_t)(count * item);
    guard(d, bytes);
    for (int i = 0; i < count; i++)
        put_item(d, kind, d->me, i, (in_place ? d->in : d->out) + i * item);
    if (exclusive && d->me == 0)
        memcpy(d->wanted, d->in, bytes);
    else
        combine(d, kind, item, d->me + !exclusive, 0, count);
    const void *given = in_place ? MPI_IN_PLACE : d->out;
    if (exclusive)
        GOOD(MPI_Exscan(given, d->in, count, type, op, d->comm));
    else
        GOOD(MPI_Scan(given, d->in, count, type, op, d->comm));
    // A gap within an item need not be copied.
    if (kind != FIRST_LEAST)
        compare(d, exclusive ? "exscan" : "scan", bytes);
    else
        for (int i = 0; i < count; i++)
            CHECK(memcmp(d->in + i * item, d->wanted + i * item, 12) == 0, "turn %d: item %d", d->turn, i);
}

static void reduce_parts(struct draw *d, int even)
{
    int item, counts[RANKS] = {0}, all = 0, before = 0, in_place = drawn(d, 3) == 0;
    MPI_Datatype type;
    MPI_Op op;
    enum kind kind = some_kind(d, &type, &op, &item);
    for (int r = 0; r < d->ranks; r++) {
        counts[r] = even && r > 0 ? counts[0] : some_items(d) % 1000;
        before += r < d->me ? counts[r] : 0;
        all += counts[r];
    }
    size_t bytes = (size_t)(counts[d->me] * item);
    guard(d, in_place ? (size_t)(all * item) : bytes);
    for (int i = 0; i < all; i++)
        put_item(d, kind, d->me, i, (in_place ? d->in : d->out) + i * item);
    combine(d, kind, item, d->ranks, before, counts[d->me]);
    const void *given = in_place ? MPI_IN_PLACE : d->out;
    if (even)
        GOOD(MPI_Reduce_scatter_block(given, d->in, counts[0], type, op, d->comm));
    else
        GOOD(MPI_Reduce_scatter(given, d->in, counts, type, op, d->comm));
    for (int i = 0; i < counts[d->me]; i++)
        CHECK(memcmp(d->in + i * item, d->wanted + i * item, kind == FIRST_LEAST ? 12 : (size_t)item) == 0,
              "reduce_scatter, turn %d: item %d", d->turn, i);
    if (!in_place)
        CHECK(memcmp(d->in + bytes, d->wanted + bytes, 64) == 0, "turn %d: written past the end", d->turn);
}

// A call between those that are tested.
static void another(struct draw *d)
{
    int root = (int)drawn(d, (unsigned)d->ranks), value = d->me == root ? d->turn : -1, sum = -1;
    MPI_Request request;
    switch (drawn(d, 6)) {
    case 0: GOOD(MPI_Barrier(d->comm)); break;
    case 1:
        GOOD(MPI_Bcast(&value, 1, MPI_INT, root, d->comm));
        EQUAL(value, d->turn);
        break;
    case 2:
        GOOD(MPI_Allreduce(&d->me, &sum, 1, MPI_INT, MPI_SUM, d->comm));
        EQUAL(sum, d->ranks * (d->ranks - 1) / 2);
        break;
    case 3:
        GOOD(MPI_Reduce(&d->me, &sum, 1, MPI_INT, MPI_SUM, root, d->comm));
        EQUAL(sum, d->me == root ? d->ranks * (d->ranks - 1) / 2 : -1);
        break;
    case 4:
        GOOD(MPI_Iscan(&d->me, &sum, 1, MPI_INT, MPI_SUM, d->comm, &request));
        GOOD(MPI_Wait(&request, MPI_STATUS_IGNORE));
        EQUAL(sum, d->me * (d->me + 1) / 2);
        break;
    default: {
        int given[RANKS];
        GOOD(MPI_Gather(&d->turn, 1, MPI_INT, given, 1, MPI_INT, root, d->comm));
        for (int r = 0; r < d->ranks && d->me == root; r++)
            EQUAL(given[r], d->turn);
    }
    }
}

static void one_call(struct draw *d)
{
    int late = drawn(d, 40) == 0 ? (int)drawn(d, (unsigned)d->ranks) : -1;
    unsigned what = drawn(d, 10);
    if (d->me == late)
        usleep(300);
    switch (what) {
    case 0: gather_blocks(d, 0); break;
    case 1: gather_blocks(d, 1); break;
    case 2: scatter_blocks(d); break;
    case 3: exchange_blocks(d); break;
    case 4: case 5: scan(d, what == 5); break;
    case 6: case 7: reduce_parts(d, what == 7); break;
    default: another(d); break;
    }
}

static void begin(struct draw *d, MPI_Comm comm, unsigned seed, int turns)
{
    memset(d, 0, sizeof *d);
    MPI_Comm_rank(comm, &d->me);
    MPI_Comm_size(comm, &d->ranks);
    d->comm = comm;
    d->state = 88172645463325252u + seed * 1000003u;
    d->turn = turns; // counts down
    d->room = (size_t)d->ranks * (MOST + GAP) * 16 + 1024;
    d->out = malloc(d->room);
    d->in = malloc(d->room);
    d->wanted = malloc(d->room);
    MPI_Op_create(compose, 0, &d->compose);
    MPI_Type_contiguous(2, MPI_UINT32_T, &d->map);
    MPI_Type_commit(&d->map);
}

static void *run(void *state)
{
    struct draw *d = state;
    for (; d->turn > 0; d->turn--)
        one_call(d);
    MPI_Op_free(&d->compose);
    MPI_Type_free(&d->map);
    free(d->out);
    free(d->in);
    free(d->wanted);
    return NULL;
}

static unsigned seed = 1;
static int turns = 1000, threads;

static void s6_random_calls(void)
{
    struct draw d;
    begin(&d, MPI_COMM_WORLD, seed, turns);
    run(&d);
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
    begin(&d, part, seed + 1, turns / 4);
    run(&d);
    MPI_Comm_free(&part);
}

static void s11_6_random_calls_of_threads(void)
{
    struct draw d[THREADS];
    pthread_t all[THREADS];
    MPI_Comm comms[THREADS];
    for (int i = 0; i < THREADS; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, i % 2 ? -rank : rank, &comms[i]);
        begin(&d[i], comms[i], seed + 7 * (unsigned)i, turns / THREADS);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&all[i], NULL, run, &d[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(all[i], NULL);
        MPI_Comm_free(&comms[i]);
    }
}

int main(int argc, char **argv)
{
    threads = argc > 3 && !strcmp(argv[3], "threads");
    if (argc > 1)
        seed = (unsigned)strtoul(argv[1], NULL, 0);
    if (argc > 2)
        turns = atoi(argv[2]);
    if (threads) {
        start_threads(&argc, &argv);
        RUN(s11_6_random_calls_of_threads);
    } else {
        start(&argc, &argv);
        RUN(s6_random_calls);
    }
    return finish();
}
