// SPDX-License-Identifier: MIT OR Apache-2.0
// If there are more ranks than CPUs, each rank prefers one CPU, and gives up this preference when it would do harm.
// `placement WAY`: `sleep` all sleep; `threads` rank 0 starts a thread; `compute` ranks 0 and 1, which prefer the same
// CPU, compute while the others sleep; `bound` rank 0 was bound to a CPU before MPI_Init, not by the library.
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

static int cpus(void)
{
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    return CPU_COUNT(&mask);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Waits, computing or sleeping, until this rank may run on `wanted` CPUs.
static int comes_to(int wanted, int computes)
{
    double end = now() + 30;
    while (cpus() != wanted && now() < end)
        if (!computes)
            usleep(10000);
    return cpus();
}

static void *thread(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED))
        usleep(10000);
    return NULL;
}

static void with_a_thread(int whole)
{
    int stop = 0;
    pthread_t other;
    pthread_create(&other, NULL, thread, &stop);
    EQUAL(comes_to(whole, 0), whole);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "sleep";
    int whole = cpus(), token = 0, bound = !strcmp(way, "bound");
    const char *number = getenv("RMPI_RANK");
    if (bound && number && atoi(number) == 0) {
        cpu_set_t mask;
        sched_getaffinity(0, sizeof mask, &mask);
        // The last CPU: the preference would be the first.
        for (int cpu = 0, left = whole; left > 1; cpu++)
            if (CPU_ISSET(cpu, &mask)) {
                CPU_CLR(cpu, &mask);
                left--;
            }
        sched_setaffinity(0, sizeof mask, &mask);
    }
    start(&argc, &argv);
    if (whole == 1 || size <= whole)
        return finish();
    if (bound && rank == 0) {
        int before = sched_getcpu();
        sleep(1);
        EQUAL(cpus(), 1);
        EQUAL(sched_getcpu(), before);
    } else {
        EQUAL(comes_to(1, 0), 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && !strcmp(way, "threads"))
        with_a_thread(whole);
    if (rank <= 1 && !strcmp(way, "compute")) {
        EQUAL(comes_to(whole, 1), whole);
        // A rank that sleeps again prefers its CPU again, unless a thread of the library waits for a network: a rank
        // with threads keeps all CPUs.
        if (on_one_host())
            EQUAL(comes_to(1, 0), 1);
    }
    if (rank == 0)
        for (int to = 1; to < size; to++)
            MPI_Send(&token, 1, MPI_INT, to, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    EQUAL(comes_to(bound && rank == 0 ? 1 : whole, 0), bound && rank == 0 ? 1 : whole);
    if (check_errors == 0)
        puts("ok");
    return check_errors != 0;
}
