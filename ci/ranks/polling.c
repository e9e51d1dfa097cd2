// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs that wait by polling (MPI 5.0 sections 3.7.3 and 3.8.1) while ranks share cores, which testlist arranges.
// Calls that find nothing are counted, not timed.
#include "check.h"
#include <sys/resource.h>
#include <time.h>

enum { TAG = 5, LATE_MS = 300 };

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int token;
static MPI_Request request;
static MPI_Status status;

static int by_test(void)
{
    int flag = 0;
    MPI_Test(&request, &flag, &status);
    return flag;
}

static int by_testall(void)
{
    int flag = 0;
    MPI_Request two[] = {request, MPI_REQUEST_NULL};
    MPI_Testall(2, two, &flag, MPI_STATUSES_IGNORE);
    request = two[0];
    return flag;
}

static int by_testany(void)
{
    int flag = 0, index;
    MPI_Testany(1, &request, &index, &flag, &status);
    return flag;
}

static int by_testsome(void)
{
    int count = 0, index;
    MPI_Testsome(1, &request, &count, &index, &status);
    return count == 1;
}

static int by_get_status(void)
{
    int flag = 0;
    MPI_Request_get_status(request, &flag, &status);
    return flag && (MPI_Wait(&request, &status), 1);
}

static int by_get_status_all(void)
{
    int flag = 0;
    MPI_Request_get_status_all(1, &request, &flag, &status);
    return flag && (MPI_Wait(&request, &status), 1);
}

static int by_get_status_any(void)
{
    int flag = 0, index;
    MPI_Request_get_status_any(1, &request, &index, &flag, &status);
    return flag && (MPI_Wait(&request, &status), 1);
}

static int by_get_status_some(void)
{
    int count = 0, index;
    MPI_Request_get_status_some(1, &request, &count, &index, &status);
    return count == 1 && (MPI_Wait(&request, &status), 1);
}

static int by_iprobe(void)
{
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, &status);
    if (flag)
        MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &status);
    return flag;
}

static int by_improbe(void)
{
    int flag = 0;
    MPI_Message message;
    MPI_Improbe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &flag, &message, &status);
    if (flag)
        MPI_Mrecv(&token, 1, MPI_INT, &message, &status);
    return flag;
}

static int by_barrier(void)
{
    return by_test();
}

static const struct {
    const char *name;
    int (*poll)(void);
    int posts;
} ways[] = {
    {"MPI_Test", by_test, 1},
    {"MPI_Testall", by_testall, 1},
    {"MPI_Testany", by_testany, 1},
    {"MPI_Testsome", by_testsome, 1},
    {"MPI_Request_get_status", by_get_status, 1},
    {"MPI_Request_get_status_all", by_get_status_all, 1},
    {"MPI_Request_get_status_any", by_get_status_any, 1},
    {"MPI_Request_get_status_some", by_get_status_some, 1},
    {"MPI_Iprobe", by_iprobe, 0},
    {"MPI_Improbe", by_improbe, 0},
    {"MPI_Test of MPI_Ibarrier", by_barrier, 0},
};

// A rank that polls for a late message gives up its core: it sleeps at most a millisecond at a time, so it polls a few
// times per millisecond instead of thousands of times.
static void s3_7_3_who_polls_in_vain_gives_up_the_core(void)
{
    const struct timespec late = {0, LATE_MS * 1000000L};
    for (int i = 0; i < COUNT_OF(ways); i++) {
        int barrier = ways[i].poll == by_barrier;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            long polls = 0;
            double begin = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
            if (ways[i].posts)
                MPI_Irecv(&token, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &request);
            else if (barrier)
                MPI_Ibarrier(MPI_COMM_WORLD, &request);
            while (!ways[i].poll())
                polls++;
            double took = seconds(CLOCK_MONOTONIC) - begin;
            cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
            CHECK(polls < 2000 + 10000 * took, "%s: %ld polls in %g s", ways[i].name, polls, took);
            CHECK(cpu < 0.02 + took / 3, "%s: %g s of CPU time in %g s", ways[i].name, cpu, took);
            CHECK(barrier || token == 7 + i, "%s received %d", ways[i].name, token);
        } else {
            nanosleep(&late, NULL);
            int number = 7 + i;
            if (barrier) {
                MPI_Ibarrier(MPI_COMM_WORLD, &request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            } else if (rank == 1)
                MPI_Send(&number, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
        }
    }
}

static long sleeps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void compute(double time)
{
    for (double begin = seconds(CLOCK_MONOTONIC); seconds(CLOCK_MONOTONIC) - begin < time;)
        ;
}

// A program that computes between two polls is not put to sleep.
static void s3_7_3_who_computes_between_polls_keeps_the_core(void)
{
    enum { POLLS = 2000 };
    if (rank == 0) {
        int flag = 0;
        MPI_Irecv(&token, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD, &request);
        long before = sleeps();
        for (int i = 0; i < POLLS; i++) {
            compute(50e-6);
            MPI_Test(&request, &flag, &status);
            CHECK(!flag, "nothing was sent");
        }
        long slept = sleeps() - before;
        CHECK(slept < POLLS / 10, "%ld sleeps in %d polls", slept, POLLS);
        MPI_Send(&rank, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
    } else if (rank == 1) {
        MPI_Recv(&token, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, &status);
        MPI_Send(&rank, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    }
}

// A token is passed round, and each rank polls by another call: a sleeping rank is woken by the message for which it
// polls.
static void s3_8_1_a_token_goes_round(void)
{
    enum { ROUNDS = 20 };
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int i = 0; i < ROUNDS; i++) {
        int way = (rank + i) % (COUNT_OF(ways) - 1), number = i;
        if (rank == 0)
            MPI_Send(&number, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
        if (ways[way].posts)
            MPI_Irecv(&token, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &request);
        while (!ways[way].poll())
            ;
        EQUAL(token, i);
        if (rank != 0)
            MPI_Send(&number, 1, MPI_INT, right, TAG, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    RUN(s3_8_1_a_token_goes_round);
    if (argc > 1 && strcmp(argv[1], "ring") == 0)
        return finish();
    RUN(s3_7_3_who_polls_in_vain_gives_up_the_core);
    RUN(s3_7_3_who_computes_between_polls_keeps_the_core);
    return finish();
}
