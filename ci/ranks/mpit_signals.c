// SPDX-License-Identifier: MIT OR Apache-2.0
// A signal handler reads all performance variables in turn, ten thousand times per second, during messages of all
// kinds: nothing hangs, no sum decreases, and in the end all values are right.
// MPIT-122
#include "check.h"
#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { MOST = 512, RANKS = 64, WIDTH = 256 };

struct variable {
    MPI_T_pvar_handle handle;
    int count, width, is_sum;
    char name[64];
    unsigned long long last[RANKS];
};

static MPI_T_pvar_session session;
static struct variable variables[MOST];
static volatile int known, next_one;
static volatile unsigned long long reads;
static volatile int wrong = -1;
static timer_t timer;

static void read_one(int signal)
{
    (void)signal;
    static unsigned long long values[RANKS + 1];
    if (known == 0)
        return;
    struct variable *it = &variables[next_one];
    next_one = (next_one + 1) % known;
    reads++;
    if (MPI_T_pvar_read(session, it->handle, values) != MPI_SUCCESS) {
        wrong = (int)(it - variables);
        return;
    }
    for (int at = 0; at < it->count && it->is_sum; at++) {
        unsigned long long now = it->width == 4 ? ((unsigned *)values)[at] : values[at];
        if (now < it->last[at])
            wrong = (int)(it - variables);
        it->last[at] = now;
    }
}

// Timers are late on a busy machine, so some variables are read each time, which keeps the rate of ten thousand per
// second.
static void read_some(int signal)
{
    for (int i = 0; i < 8; i++)
        read_one(signal);
}

static void open_all(void)
{
    int num = 0;
    GOOD(MPI_T_pvar_get_num(&num));
    for (int i = 0; i < num && known < MOST; i++) {
        struct variable *it = &variables[known];
        int length = sizeof it->name, class, bind, continuous;
        MPI_Datatype type;
        MPI_Comm world = MPI_COMM_WORLD;
        GOOD(MPI_T_pvar_get_info(i, it->name, &length, NULL, &class, &type, NULL, NULL, NULL, &bind, NULL, &continuous,
                                 NULL));
        GOOD(MPI_T_pvar_handle_alloc(session, i, bind == MPI_T_BIND_MPI_COMM ? &world : NULL, &it->handle, &it->count));
        CHECK(it->count <= RANKS, "%s has %d numbers", it->name, it->count);
        if (!continuous)
            GOOD(MPI_T_pvar_start(session, it->handle));
        it->width = type == MPI_INT || type == MPI_UNSIGNED ? 4 : 8;
        // The bits of a double that is not negative grow with it.
        it->is_sum = class == MPI_T_PVAR_CLASS_COUNTER || class == MPI_T_PVAR_CLASS_AGGREGATE || class == MPI_T_PVAR_CLASS_TIMER ||
                     class == MPI_T_PVAR_CLASS_HIGHWATERMARK;
        known++;
    }
}

static unsigned long long of(const char *name, int at)
{
    unsigned long long values[RANKS];
    for (int i = 0; i < known; i++)
        if (!strcmp(variables[i].name, name)) {
            GOOD(MPI_T_pvar_read(session, variables[i].handle, values));
            return values[at];
        }
    CHECK(0, "no %s", name);
    return 0;
}

static void begin_signals(void)
{
    struct sigaction action = {.sa_handler = read_some, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct itimerspec every = {{0, 100000}, {0, 100000}};
    sigaction(SIGALRM, &action, NULL);
    EQUAL(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    EQUAL(timer_settime(timer, 0, &every, NULL), 0);
}

int main(int argc, char **argv)
{
    int level;
    static char data[1 << 18], in[1 << 18];
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    GOOD(MPI_T_pvar_session_create(&session));
    start(&argc, &argv);
    open_all();
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Barrier(MPI_COMM_WORLD);
    unsigned long long messages = of("sent_messages_to", next), bytes = of("sent_bytes_to", next);
    unsigned long long sent = 0, sent_bytes = 0;
    begin_signals();
    double since = MPI_Wtime();
    int on = 1;
    while (on) {
        static const int sizes[] = {8, 8, 8, 4, 100, 5000, 40000, 1 << 18};
        for (int turn = 0; turn < 20 * COUNT_OF(sizes); turn++) {
            int count = sizes[turn % COUNT_OF(sizes)];
            MPI_Request both[2];
            MPI_Irecv(in, count, MPI_BYTE, before, 1, MPI_COMM_WORLD, &both[0]);
            MPI_Isend(data, count, MPI_BYTE, next, 1, MPI_COMM_WORLD, &both[1]);
            MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
            sent++;
            sent_bytes += count;
        }
        // Rank 0 decides when to end, by a message that is passed round.
        on = MPI_Wtime() - since < 1;
        if (rank != 0)
            MPI_Recv(&on, 1, MPI_INT, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (next != 0) {
            MPI_Send(&on, 1, MPI_INT, next, 2, MPI_COMM_WORLD);
            sent++;
            sent_bytes += sizeof on;
        }
    }
    timer_delete(timer);
    if (size > 1 || next == rank) {
        EQUAL(of("sent_messages_to", next) - messages, sent);
        EQUAL(of("sent_bytes_to", next) - bytes, sent_bytes);
    }
    CHECK(reads > 1000, "only %llu reads", reads);
    CHECK(wrong == -1, "%s went back or could not be read", variables[wrong < 0 ? 0 : wrong].name);
    if (getenv("CHECK_TRACE"))
        fprintf(stderr, "rank %d: %llu reads of %d variables\n", rank, (unsigned long long)reads, known);
    MPI_Barrier(MPI_COMM_WORLD);
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
    return finish();
}
