// SPDX-License-Identifier: MIT OR Apache-2.0
/* Point-to-point messages in many forms and sizes, all in one start: rank i of the first half of n ranks with rank i +
 * n/2. With more than two ranks all pairs run at the same time; times are then averages over the ranks, and rates are
 * sums over the pairs. */
#include "grid.h"
#include "windows.h"

enum { WINDOW = 64, POSTED = 1000, SHIFT = 3, COLD_BYTES = 65 << 20, LINE = 64, STRIP = 8, FACES = 8 };

static int threads;

/* The pattern of messages, and the kind of buffers, receives or sends. The order is that of `names`. */
struct form {
    enum { PING_PONG, ONE_WAY, BOTH_WAYS, SENDRECV, PERSISTENT, HALO } pattern;
    enum { PLAIN, UNALIGNED, COLD, ANY_SOURCE, MANY_POSTED, STRIPS, SYNCHRONOUS } kind;
};

static const struct named names[] = {
    {"latency", "ping-pong with MPI_Send and MPI_Recv, half of the round trip"},
    {"oneway", "windows of 64 MPI_Isend and MPI_Irecv, then a short answer"},
    {"bothways", "such windows both ways at once"},
    {"latency-unaligned", "ping-pong, buffers 3 bytes behind what malloc gives"},
    {"oneway-unaligned", "one way with such buffers"},
    {"bothways-unaligned", "both ways with such buffers"},
    {"latency-cold", "ping-pong, buffers rotate over more than 64 MiB"},
    {"oneway-cold", "one way with such buffers"},
    {"latency-anysource", "ping-pong, receives from MPI_ANY_SOURCE"},
    {"latency-posted", "ping-pong behind 1000 receives that do not match"},
    {"latency-strided", "ping-pong of an MPI_Type_vector: 8 of every 16 bytes"},
    {"latency-ssend", "ping-pong with MPI_Ssend"},
    {"sendrecv", "MPI_Sendrecv of both ranks with each other"},
    {"persistent", "MPI_Startall and MPI_Waitall of a send and a receive, both ranks"},
    {"halo", "the same of 8 sends and 8 receives"},
    {NULL, NULL},
};

static const struct form forms[] = {
    {PING_PONG, PLAIN},      {ONE_WAY, PLAIN},      {BOTH_WAYS, PLAIN},       {PING_PONG, UNALIGNED},
    {ONE_WAY, UNALIGNED},    {BOTH_WAYS, UNALIGNED}, {PING_PONG, COLD},       {ONE_WAY, COLD},
    {PING_PONG, ANY_SOURCE}, {PING_PONG, MANY_POSTED}, {PING_PONG, STRIPS},   {PING_PONG, SYNCHRONOUS},
    {SENDRECV, PLAIN},       {PERSISTENT, PLAIN},   {HALO, PLAIN},
};

/* The state of the cell that is measured; `w` has the buffers for all patterns. */
struct pair {
    struct windows w;
    int first, source, count;
    MPI_Datatype type;
    int (*send)(const void *, int, MPI_Datatype, int, int, MPI_Comm);
    MPI_Request persistent[2 * FACES], posted[POSTED];
    int requests;
    char nothing[POSTED];
};

static void ping_pong(void *state, long count) {
    struct pair *p = state;
    struct windows *w = &p->w;
    MPI_Status status;
    for (long i = 0; i < count; i++, w->turn++) {
        void *out = buffer(&w->out, w->turn), *in = buffer(&w->in, w->turn);
        if (p->first)
            p->send(out, p->count, p->type, w->peer, 1, MPI_COMM_WORLD);
        MPI_Recv(in, p->count, p->type, p->source, 1, MPI_COMM_WORLD, &status);
        if (!p->first)
            p->send(out, p->count, p->type, w->peer, 1, MPI_COMM_WORLD);
    }
}

static void windows(void *state, long count) {
    struct pair *p = state;
    run_windows(&p->w, count);
}

static void sendrecv(void *state, long count) {
    struct pair *p = state;
    MPI_Status status;
    for (long i = 0; i < count; i++)
        MPI_Sendrecv(p->w.out.base, p->count, p->type, p->w.peer, 1, p->w.in.base, p->count, p->type, p->source, 1,
                     MPI_COMM_WORLD, &status);
}

static void persistent(void *state, long count) {
    struct pair *p = state;
    MPI_Status statuses[2 * FACES];
    for (long i = 0; i < count; i++) {
        MPI_Startall(p->requests, p->persistent);
        MPI_Waitall(p->requests, p->persistent, statuses);
    }
}

static run_fn *const patterns[] = {ping_pong, windows, windows, sendrecv, persistent, persistent};

static int is_window(const struct form *form) { return form->pattern == ONE_WAY || form->pattern == BOTH_WAYS; }

/* The bytes of a buffer that messages of this form and size span. */
static size_t extent(const struct form *form, size_t bytes) {
    return form->kind == STRIPS ? 2 * bytes : form->pattern == HALO ? FACES * bytes : bytes;
}

static struct buffers buffers_for(const struct form *form, size_t bytes) {
    size_t room = extent(form, bytes), lines = (room / LINE + 1) * LINE;
    if (form->kind != COLD)
        return plain_buffers(room, 1, form->kind == UNALIGNED ? SHIFT : 0);
    struct buffers buffers = plain_buffers(lines, (int)(COLD_BYTES / lines) + 1, 0);
    buffers.bytes = bytes;
    return buffers;
}

static void open_type(struct pair *p, const struct form *form, size_t bytes) {
    p->type = MPI_CHAR;
    p->count = (int)bytes;
    if (form->kind != STRIPS)
        return;
    if (bytes % STRIP != 0)
        die(BAD_OPTION, "latency-strided: the size must be a multiple of 8");
    MPI_Type_vector((int)(bytes / STRIP), STRIP, 2 * STRIP, MPI_CHAR, &p->type);
    MPI_Type_commit(&p->type);
    p->count = 1;
}

static void open_requests(struct pair *p, const struct form *form) {
    int peer = p->w.peer;
    for (int i = 0; i < POSTED && form->kind == MANY_POSTED; i++)
        MPI_Irecv(&p->nothing[i], 1, MPI_CHAR, peer, 1000 + i, MPI_COMM_WORLD, &p->posted[i]);
    int faces = form->pattern == HALO ? FACES : form->pattern == PERSISTENT;
    p->requests = 2 * faces;
    for (int i = 0; i < faces; i++) {
        size_t at = (size_t)i * (size_t)p->count;
        MPI_Send_init(p->w.out.base + at, p->count, p->type, peer, 1 + i, MPI_COMM_WORLD, &p->persistent[i]);
        MPI_Recv_init(p->w.in.base + at, p->count, p->type, peer, 1 + i, MPI_COMM_WORLD, &p->persistent[faces + i]);
    }
}

static void open_pair(struct pair *p, const struct form *form, size_t bytes) {
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int half = ranks / 2, peer = rank < half ? rank + half : rank - half;
    p->first = rank < half;
    p->source = form->kind == ANY_SOURCE ? MPI_ANY_SOURCE : peer;
    p->send = form->kind == SYNCHRONOUS ? MPI_Ssend : MPI_Send;
    p->w = windows_over(buffers_for(form, bytes), buffers_for(form, bytes), WINDOW, rank, peer);
    p->w.sender = p->first || form->pattern == BOTH_WAYS;
    p->w.receiver = !p->first || form->pattern == BOTH_WAYS;
    p->w.statuses = malloc(WINDOW * sizeof *p->w.statuses);
    if (p->w.statuses == NULL)
        die(FAILED, "no memory for the statuses");
    open_type(p, form, bytes);
    open_requests(p, form);
}

static void close_pair(struct pair *p, const struct form *form) {
    for (int i = 0; i < POSTED && form->kind == MANY_POSTED; i++) {
        MPI_Cancel(&p->posted[i]);
        MPI_Wait(&p->posted[i], MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < p->requests; i++)
        MPI_Request_free(&p->persistent[i]);
    if (form->kind == STRIPS)
        MPI_Type_free(&p->type);
    free(p->w.statuses);
    close_windows(&p->w);
}

/* Sends one message (or window) with the sender's pattern, into buffers with other contents, and checks it. */
static void validate(struct pair *p, const struct form *form, size_t bytes) {
    size_t room = extent(form, bytes);
    fill(p->w.out.base, room, (unsigned)p->w.rank);
    memset(p->w.in.base, 0, room);
    patterns[form->pattern](p, 1);
    int receives = p->w.receiver || form->pattern != ONE_WAY;
    for (size_t i = 0; i < room && receives; i++) {
        int gap = form->kind == STRIPS && i % (2 * STRIP) >= STRIP;
        unsigned char expected = gap ? 0 : pattern(i, (unsigned)p->w.peer);
        if (p->w.in.base[i] != expected)
            die(BAD_PAYLOAD, "grid_pair: payload is wrong");
    }
    p->w.turn = 0;
}

static struct timing one_cell(const struct options *options, const struct cell *cell, struct column *column) {
    static const struct pace alone = {BATCH_SECONDS, SLOW_SECONDS}, many = {10 * BATCH_SECONDS, SLOW_SECONDS};
    static struct pair p;
    const struct form *form = &forms[cell->operation];
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    open_pair(&p, form, cell->bytes);
    if (options->validate)
        validate(&p, form, cell->bytes);
    struct timing timing = measure_at(options, ranks > 2 ? &many : &alone, patterns[form->pattern], &p,
                                      ranks > 2 ? CLOCK_OF_ALL : CLOCK_OF_RANK_0);
    close_pair(&p, form);
    column->per_iteration = form->pattern == PING_PONG ? 2 : 1;
    if (is_window(form)) {
        int messages = WINDOW * (ranks / 2) * (form->pattern == BOTH_WAYS ? 2 : 1);
        *column = (struct column){"", "MB/s", MEGABYTES_PER_SECOND, messages};
    }
    return timing;
}

/* The thread level is needed for MPI_Init_thread, before the options are parsed. */
static void init(int *argc, char ***argv) {
    int wanted = MPI_THREAD_SINGLE, provided;
    for (int i = 1; i < *argc; i++)
        if (strcmp((*argv)[i], "--threads") == 0)
            wanted = MPI_THREAD_MULTIPLE;
    MPI_Init_thread(argc, argv, wanted, &provided);
    if (provided < wanted)
        die(FAILED, "grid_pair: this MPI does not provide MPI_THREAD_MULTIPLE");
}

int main(int argc, char **argv) {
    static const struct flag flags[] = {
        {"--threads", &threads, "start with MPI_THREAD_MULTIPLE (there is one thread all the same)"},
        {NULL, NULL, NULL},
    };
    static const struct grid grid = {
        "grid_pair", "point to point in many forms and sizes, a JSON line for each", names, flags,
        "latency:0:8:1K:64K:1M,oneway:8:1K:64K:1M,bothways:8:1K:64K:1M", 2, 1,
    };
    init(&argc, &argv);
    return grid_main(argc, argv, &grid, (struct options){.warm_up = 20, .seconds = 0.05}, one_cell);
}
