// SPDX-License-Identifier: MIT OR Apache-2.0
// The durations of the phases of the start, as a tool reads them; with the argument `alone`, those of a process without
// a launcher.
#include "check.h"

#include <time.h>

static const char *const LAUNCH[] = {"launch_command_ns", "launch_hosts_ns", "launch_daemons_ns", "launch_start_ns",
                                     "launch_program_ns"};
static const char *const INIT[] = {"init_job_ns", "init_network_ns", "init_rest_ns"};

static MPI_T_pvar_session session;
static int is_alone;

static unsigned long long read_one(const char *name)
{
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index = -1, count = 0;
    unsigned long long value = ~0ull;
    GOOD(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_GENERIC, &index));
    GOOD(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    EQUAL(count, 1);
    GOOD(MPI_T_pvar_read(session, handle, &value));
    EQUAL(MPI_T_pvar_start(session, handle), MPI_T_ERR_PVAR_NO_STARTSTOP);
    EQUAL(MPI_T_pvar_reset(session, handle), MPI_T_ERR_PVAR_NO_WRITE);
    GOOD(MPI_T_pvar_handle_free(session, &handle));
    return value;
}

static unsigned long long sum(const char *const *names, int count)
{
    unsigned long long all = 0;
    for (int i = 0; i < count; i++)
        all += read_one(names[i]);
    return all;
}

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void before_mpi_nothing_is_known(void)
{
    EQUAL(sum(LAUNCH, COUNT_OF(LAUNCH)) + sum(INIT, COUNT_OF(INIT)), 0);
}

static void the_phases_of_the_library_are_all_of_its_initialization(unsigned long long took_ns)
{
    unsigned long long all = sum(INIT, COUNT_OF(INIT));
    CHECK(all > 0 && all <= took_ns, "the phases took %llu ns, MPI_Init %llu ns", all, took_ns);
    for (int i = 0; i < COUNT_OF(INIT); i++)
        CHECK(read_one(INIT[i]) > 0, "%s is 0", INIT[i]);
}

static void those_of_the_launcher_are_told_if_it_is_ours(unsigned long long slept_ns)
{
    for (int i = 0; i < COUNT_OF(LAUNCH); i++) {
        unsigned long long value = read_one(LAUNCH[i]);
        // A job on one host has no phase of reaching others.
        if (is_alone)
            EQUAL(value, 0);
        else
            CHECK(value > 0 || !strcmp(LAUNCH[i], "launch_hosts_ns"), "%s is 0", LAUNCH[i]);
        CHECK(value < 600000000000ull, "%s is %llu", LAUNCH[i], value);
    }
    if (!is_alone)
        CHECK(read_one("launch_program_ns") >= slept_ns, "the program slept %llu ns", slept_ns);
}

static void nothing_changes(void)
{
    unsigned long long before = sum(LAUNCH, COUNT_OF(LAUNCH)) + sum(INIT, COUNT_OF(INIT));
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    EQUAL(sum(LAUNCH, COUNT_OF(LAUNCH)) + sum(INIT, COUNT_OF(INIT)), before);
}

int main(int argc, char **argv)
{
    int level;
    struct timespec nap = {.tv_nsec = 20000000};
    is_alone = argc > 1 && !strcmp(argv[1], "alone");
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    GOOD(MPI_T_pvar_session_create(&session));
    before_mpi_nothing_is_known();
    nanosleep(&nap, NULL);
    unsigned long long before = now_ns();
    start(&argc, &argv);
    unsigned long long took_ns = now_ns() - before;
    RUN(nothing_changes);
    check_test = "phases";
    the_phases_of_the_library_are_all_of_its_initialization(took_ns);
    those_of_the_launcher_are_told_if_it_is_ours(nap.tv_nsec);
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
    return finish();
}
