// SPDX-License-Identifier: MIT OR Apache-2.0
// Random traffic that keeps a journal, with which journal.rs compares the queues of a stopped rank.
//
// traffic THREADS KEEP: one thread or two; KEEP is 1 for a rank that was started under a debugger. It runs until it is killed. All
// properties of a message follow from its number, so that a reader of another rank's journal can compute them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, EACH = 6, ENTRIES = 2 * RANKS * EACH, ROOM = 200000 };
enum { IDLE, STARTING, PENDING, COLLECTING };
enum { SEND, RECEIVE, PROBE };

struct entry {
    int32_t phase, kind, comm, peer, tag, source, synchronous, structured, claimed, order;
    int64_t bytes;
    uint64_t buffer;
};

struct thread {
    int32_t round, id, begun[2], ended[2];
    char function[32];
    unsigned char sent[RANKS][8], received[RANKS][8];
    struct entry entries[ENTRIES];
};

struct journal {
    int32_t rank, size, threads, keep;
    struct thread thread[2];
};

struct journal journal;

// Stores need only program order: the reader stops this process first.
#define NOTE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))
#define HERE __asm__ volatile("" ::: "memory")

struct message {
    int bytes, comm, how, way, tag;
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static struct message message(int round, int source, int dest, int thread, int number)
{
    uint64_t key = (((round * 4ull + source) * 4 + dest) * 2 + thread) * 8 + number;
    uint64_t h = mix(mix(key + 1));
    static const int most[8] = {0, 0, 64, 64, 4096, 20000, 60000, ROOM};
    struct message m;
    m.bytes = most[h % 8] ? 8 * (int)((h >> 8) % (most[h % 8] / 8)) + 8 : 8;
    m.comm = h >> 40 & 1;
    m.way = (int)((h >> 44 & 15) % 6);
    m.how = (int)(h >> 50 & 3);
    m.tag = (((round & 0x3fff) * 4 + source) * 2 + thread) * 8 + number;
    return m;
}

struct work {
    struct thread *me;
    int number, count, order, left;
    uint64_t random;
    MPI_Comm comm[2], own;
    MPI_Datatype gaps;
    char *memory;
    MPI_Request requests[ENTRIES];
    int of[ENTRIES], done[ENTRIES], persistent[ENTRIES];
};

static unsigned draw(struct work *w, unsigned limit)
{
    w->random = mix(w->random + 0x9e3779b97f4a7c15u);
    return (unsigned)(w->random >> 33) % limit;
}

static void enter(struct work *w, const char *function)
{
    strncpy(w->me->function, function, sizeof w->me->function - 1);
    HERE;
}

static void leave(struct work *w)
{
    HERE;
    w->me->function[0] = 0;
    HERE;
}

// A new entry, which is being started.
static int begin(struct work *w, int kind, struct message m, int peer, int source)
{
    int at = w->count++;
    struct entry *e = &w->me->entries[at];
    e->kind = kind, e->comm = m.comm, e->peer = peer, e->source = source, e->tag = m.tag;
    e->bytes = kind == PROBE ? 0 : m.bytes;
    e->buffer = kind == PROBE ? 0 : (uint64_t)(w->memory + (size_t)at * (ROOM * 2));
    e->synchronous = e->structured = e->claimed = 0;
    e->order = w->order++;
    w->requests[at] = MPI_REQUEST_NULL, w->persistent[at] = 0;
    HERE;
    NOTE(e->phase, STARTING);
    HERE;
    return at;
}

static void phase(struct work *w, int at, int phase)
{
    HERE;
    NOTE(w->me->entries[at].phase, phase);
    HERE;
}

static void *place(struct work *w, int at)
{
    return w->memory + (size_t)at * (ROOM * 2);
}

static void receive(struct work *w, int source, struct message m, int number)
{
    int any = m.way == 1;
    int at = begin(w, RECEIVE, m, any ? -1 : source, source);
    int from = any ? MPI_ANY_SOURCE : source;
    w->of[at] = number;
    if (m.way == 2) {
        MPI_Recv_init(place(w, at), m.bytes, MPI_BYTE, from, m.tag, w->comm[m.comm], &w->requests[at]);
        w->persistent[at] = 1;
        MPI_Start(&w->requests[at]);
    } else {
        MPI_Irecv(place(w, at), m.bytes, MPI_BYTE, from, m.tag, w->comm[m.comm], &w->requests[at]);
    }
    phase(w, at, PENDING);
}

static void probed(struct work *w, int source, struct message m, int number)
{
    MPI_Message message;
    int probe = begin(w, PROBE, m, source, source);
    if (m.way == 4) {
        enter(w, "MPI_Probe");
        MPI_Probe(source, m.tag, w->comm[m.comm], MPI_STATUS_IGNORE);
    } else {
        enter(w, "MPI_Mprobe");
        MPI_Mprobe(source, m.tag, w->comm[m.comm], &message, MPI_STATUS_IGNORE);
    }
    leave(w);
    phase(w, probe, IDLE);
    int at = begin(w, RECEIVE, m, source, source);
    w->of[at] = number;
    if (m.way == 4) {
        enter(w, "MPI_Recv");
        MPI_Recv(place(w, at), m.bytes, MPI_BYTE, source, m.tag, w->comm[m.comm], MPI_STATUS_IGNORE);
        leave(w);
        NOTE(w->me->received[source][number], 1);
        phase(w, at, IDLE);
    } else {
        w->me->entries[at].claimed = 1;
        HERE;
        MPI_Imrecv(place(w, at), m.bytes, MPI_BYTE, &message, &w->requests[at]);
        phase(w, at, PENDING);
    }
}

static void send(struct work *w, int dest, struct message m, int number)
{
    int at = begin(w, SEND, m, dest, dest);
    struct entry *e = &w->me->entries[at];
    w->of[at] = number;
    e->synchronous = m.how == 1, e->structured = m.how == 3;
    NOTE(w->me->sent[dest][number], 1);
    HERE;
    if (m.how == 1) {
        MPI_Issend(place(w, at), m.bytes, MPI_BYTE, dest, m.tag, w->comm[m.comm], &w->requests[at]);
    } else if (m.how == 2) {
        MPI_Send_init(place(w, at), m.bytes, MPI_BYTE, dest, m.tag, w->comm[m.comm], &w->requests[at]);
        w->persistent[at] = 1;
        MPI_Start(&w->requests[at]);
    } else if (m.how == 3) {
        MPI_Isend(place(w, at), m.bytes / 8, w->gaps, dest, m.tag, w->comm[m.comm], &w->requests[at]);
    } else {
        MPI_Isend(place(w, at), m.bytes, MPI_BYTE, dest, m.tag, w->comm[m.comm], &w->requests[at]);
    }
    phase(w, at, PENDING);
}

static void collected(struct work *w, int at)
{
    struct entry *e = &w->me->entries[at];
    if (e->kind == RECEIVE)
        NOTE(w->me->received[e->source][w->of[at]], 1);
    phase(w, at, IDLE);
    if (w->persistent[at])
        MPI_Request_free(&w->requests[at]);
    w->persistent[at] = 0;
    w->requests[at] = MPI_REQUEST_NULL;
    w->left--;
}

static void phases(struct work *w, int from, int to)
{
    for (int at = 0; at < w->count; at++)
        if (w->me->entries[at].phase == from)
            phase(w, at, to);
}

static void one_by_one(struct work *w)
{
    for (int at = w->count - 1; at >= 0; at--) {
        if (w->me->entries[at].phase != PENDING)
            continue;
        phase(w, at, COLLECTING);
        enter(w, "MPI_Wait");
        MPI_Wait(&w->requests[at], MPI_STATUS_IGNORE);
        leave(w);
        collected(w, at);
    }
}

static void several(struct work *w, int how)
{
    while (w->left > 0) {
        int count = 0;
        phases(w, PENDING, COLLECTING);
        if (how == 1) {
            enter(w, "MPI_Waitany");
            MPI_Waitany(w->count, w->requests, &w->done[0], MPI_STATUS_IGNORE);
            count = 1;
        } else if (how == 2) {
            enter(w, "MPI_Waitsome");
            MPI_Waitsome(w->count, w->requests, &count, w->done, MPI_STATUSES_IGNORE);
        } else {
            enter(w, "MPI_Testsome");
            MPI_Testsome(w->count, w->requests, &count, w->done, MPI_STATUSES_IGNORE);
        }
        leave(w);
        for (int at = 0; at < count; at++)
            collected(w, w->done[at]);
        phases(w, COLLECTING, PENDING);
    }
}

static void all(struct work *w)
{
    phases(w, PENDING, COLLECTING);
    enter(w, "MPI_Waitall");
    MPI_Waitall(w->count, w->requests, MPI_STATUSES_IGNORE);
    leave(w);
    for (int at = 0; at < w->count; at++)
        if (w->me->entries[at].phase == COLLECTING)
            collected(w, at);
}

static void together(struct work *w)
{
    int one = 1, sum, which = (int)draw(w, 2);
    // All ranks draw the same numbers: their generators are in the same state.
    NOTE(w->me->begun[which], w->me->begun[which] + 1);
    enter(w, which ? "MPI_Allreduce" : "MPI_Barrier");
    if (which)
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, w->own);
    else
        MPI_Barrier(w->own);
    leave(w);
    NOTE(w->me->ended[which], w->me->ended[which] + 1);
}

static void play(struct work *w)
{
    int rank = journal.rank, round = w->me->round;
    w->count = 0;
    for (int after = 0; after < 2; after++) {
        for (int source = 0; source < journal.size; source++)
            for (int number = 0; source != rank && number < EACH; number++) {
                struct message m = message(round, source, rank, w->number, number);
                if (m.way >= 4 && after)
                    probed(w, source, m, number);
                if (m.way < 4 && after == (m.way == 3))
                    receive(w, source, m, number);
            }
        for (int dest = 0; dest < journal.size; dest++)
            for (int number = 0; !after && dest != rank && number < EACH; number++)
                send(w, dest, message(round, rank, dest, w->number, number), number);
    }
    w->left = 0;
    for (int at = 0; at < w->count; at++)
        w->left += w->me->entries[at].phase == PENDING;
    // Each rank uses its own kind of wait.
    int how = (int)(mix(w->random + (unsigned)rank) % 5);
    if (how == 0)
        one_by_one(w);
    else if (how == 4)
        all(w);
    else
        several(w, how);
    if (draw(w, 3) == 0)
        together(w);
}

static void *work(void *argument)
{
    struct work *w = argument;
    w->me->id = gettid();
    for (;;) {
        play(w);
        memset(w->me->received, 0, sizeof w->me->received);
        HERE;
        NOTE(w->me->round, w->me->round + 1);
        HERE;
        memset(w->me->sent, 0, sizeof w->me->sent);
        HERE;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static struct work works[2];
    int level, threads = argc > 1 ? atoi(argv[1]) : 2;
    journal.keep = argc > 2 && atoi(argv[2]);
    if (journal.keep)
        *(volatile int *)dlsym(RTLD_DEFAULT, "MPIR_being_debugged") = 1;
    MPI_Init_thread(NULL, NULL, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &journal.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &journal.size);
    MPI_Comm halo;
    MPI_Comm_dup(MPI_COMM_WORLD, &halo);
    MPI_Comm_set_name(halo, "halo");
    for (int number = 0; number < threads; number++) {
        struct work *w = &works[number];
        w->me = &journal.thread[number];
        w->number = number, w->random = (unsigned)number + 1;
        w->comm[0] = MPI_COMM_WORLD, w->comm[1] = halo;
        w->memory = malloc((size_t)ENTRIES * ROOM * 2);
        MPI_Comm_dup(MPI_COMM_WORLD, &w->own);
        MPI_Comm_set_name(w->own, number ? "own 1" : "own 0");
        MPI_Type_vector(2, 1, 2, MPI_INT, &w->gaps);
        MPI_Type_commit(&w->gaps);
        if (!w->memory)
            return 1;
    }
    MPI_Barrier(halo);
    HERE;
    NOTE(journal.threads, threads);
    if (journal.rank == 0) {
        puts("under way");
        fflush(stdout);
    }
    pthread_t other;
    if (threads > 1)
        pthread_create(&other, NULL, work, &works[1]);
    work(&works[0]);
    return 0;
}
