// SPDX-License-Identifier: MIT OR Apache-2.0
// Initialization, finalization, versions, names and clocks: MPI 5.0 sections 9.1, 9.6, 11.2 and chapter 20.
#include "check.h"

#include <time.h>

static void before_init(void)
{
    int flag = 9, version = 0, subversion = 0, length = -1;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    GOOD(MPI_Initialized(&flag));
    EQUAL(flag, 0);
    GOOD(MPI_Finalized(&flag));
    EQUAL(flag, 0);
    GOOD(MPI_Get_version(&version, &subversion));
    EQUAL(version, MPI_VERSION);
    EQUAL(subversion, MPI_SUBVERSION);
    GOOD(MPI_Get_library_version(text, &length));
    CHECK(length > 0 && length < MPI_MAX_LIBRARY_VERSION_STRING, "length %d", length);
    EQUAL(strlen(text), length);
    GOOD(MPI_Abi_get_version(&version, &subversion));
    EQUAL(version, 1);
    EQUAL(subversion, 0);
}

static void s11_2_flags_after_init(void)
{
    int flag = 9;
    GOOD(MPI_Initialized(&flag));
    EQUAL(flag, 1);
    GOOD(MPI_Finalized(&flag));
    EQUAL(flag, 0);
}

static void s11_2_2_thread_level(void)
{
    int level = -1, flag = -1;
    GOOD(MPI_Query_thread(&level));
    CHECK(level >= MPI_THREAD_SINGLE && level <= MPI_THREAD_MULTIPLE, "level %d", level);
    GOOD(MPI_Is_thread_main(&flag));
    EQUAL(flag, 1);
}

static void s9_1_2_processor_name(void)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = -1;
    memset(name, 'x', sizeof name);
    GOOD(MPI_Get_processor_name(name, &length));
    CHECK(length > 0 && length < MPI_MAX_PROCESSOR_NAME, "length %d", length);
    CHECK(name[length] == 0, "no end at %d", length);
}

static void s9_6_clocks(void)
{
    double tick = MPI_Wtick(), last = MPI_Wtime();
    CHECK(tick > 0 && tick <= 1e-3, "tick %g", tick);
    for (int i = 0; i < 100000; i++) {
        double now = MPI_Wtime();
        CHECK(now >= last, "the clock went back by %g", last - now);
        last = now;
    }
    double start_time = MPI_Wtime();
    struct timespec nap = {0, 20 * 1000000};
    nanosleep(&nap, NULL);
    double slept = MPI_Wtime() - start_time;
    CHECK(slept >= 0.019 && slept < 20, "20 ms took %g s", slept);
}

static void s20_abi_information(void)
{
    int flag = -1;
    char value[64];
    int length = sizeof value;
    MPI_Info info;
    GOOD(MPI_Abi_get_info(&info));
    GOOD(MPI_Info_get_string(info, "mpi_aint_size", &length, value, &flag));
    EQUAL(flag, 1);
    EQUAL(atoi(value), sizeof(MPI_Aint));
    length = sizeof value;
    GOOD(MPI_Info_get_string(info, "mpi_count_size", &length, value, &flag));
    EQUAL(flag, 1);
    EQUAL(atoi(value), sizeof(MPI_Count));
    MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
    before_init();
    // MPI 5.0 section 11.2.1: both arguments may be NULL.
    if (argc > 1 && !strcmp(argv[1], "null"))
        start(NULL, NULL);
    else
        start(&argc, &argv);
    RUN(s11_2_flags_after_init);
    RUN(s11_2_2_thread_level);
    RUN(s9_1_2_processor_name);
    RUN(s9_6_clocks);
    RUN(s20_abi_information);
    int result = finish(), flag = 0;
    MPI_Initialized(&flag);
    if (!flag)
        return 11;
    MPI_Finalized(&flag);
    return flag ? result : 12;
}
