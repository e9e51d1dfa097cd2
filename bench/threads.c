// SPDX-License-Identifier: MIT OR Apache-2.0
/* Message rate of ranks whose threads all call MPI: each thread of rank 0 sends windows of small messages to one thread
 * of rank 1, in a communicator that only these two threads use. */
#define BENCH_THREADS
#include "windows.h"
#include <pthread.h>

enum { MAX_THREADS = 4 };

static int two, three, four;

struct team {
    struct windows windows[MAX_THREADS];
    MPI_Comm comms[MAX_THREADS];
    int threads;
};

struct member {
    struct windows *windows;
    long count;
};

static void *work(void *argument) {
    struct member *member = argument;
    run_windows(member->windows, member->count);
    return NULL;
}

/* All threads together run `count` windows. */
static void run_team(void *state, long count) {
    struct team *team = state;
    struct member members[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    for (int i = 0; i < team->threads; i++) {
        members[i] = (struct member){&team->windows[i], (count + i) / team->threads};
        if (i > 0 && pthread_create(&threads[i], NULL, work, &members[i]) != 0)
            die(FAILED, "no further thread can be made");
    }
    work(&members[0]);
    for (int i = 1; i < team->threads; i++)
        pthread_join(threads[i], NULL);
}

static struct timing one_size(const struct options *options, size_t size, double *per_iteration) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct team team = {.threads = four ? 4 : three ? 3 : two ? 2 : 1};
    for (int i = 0; i < team.threads; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &team.comms[i]);
        team.windows[i] = open_windows(options, size, rank, 1 - rank);
        team.windows[i].comm = team.comms[i];
        team.windows[i].sender = rank == 0;
        team.windows[i].receiver = rank == 1;
        if (options->validate)
            validate_windows(&team.windows[i], size);
    }
    *per_iteration = (double)options->window;
    struct timing timing = measure(options, run_team, &team, CLOCK_OF_RANK_0);
    for (int i = 0; i < team.threads; i++) {
        close_windows(&team.windows[i]);
        MPI_Comm_free(&team.comms[i]);
    }
    return timing;
}

int main(int argc, char **argv) {
    static const struct flag flags[] = {
        {"--two", &two, "two threads a rank"},
        {"--three", &three, "three threads a rank"},
        {"--four", &four, "four threads a rank"},
        {0},
    };
    static const struct program program = {
        "threads",
        "messages per second from rank 0 to rank 1, all threads together, at MPI_THREAD_MULTIPLE",
        flags,
        {{8}, 1, 0, 100, 0.5, 64, 64, 0, 0, 0},
    };
    return bench_main(argc, argv, &program, (struct column){"Messages/s", "messages/s", MESSAGES_PER_SECOND, 64}, 2,
                      one_size);
}
