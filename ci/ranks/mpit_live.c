// SPDX-License-Identifier: MIT OR Apache-2.0
// Settings that hold at once when a tool writes them while MPI runs: MPI 5.0 section 15.3.6. What they steer is seen by what
// is counted. It runs with RMPI_WAIT=yield, so that a wait is the same on every machine.
#include "check.h"
#include <time.h>

static MPI_T_pvar_session session;

static MPI_T_pvar_handle begin(const char *name)
{
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index = -1, count = 0;
    GOOD(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index));
    GOOD(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    GOOD(MPI_T_pvar_start(session, handle));
    return handle;
}

static unsigned long long end(MPI_T_pvar_handle handle)
{
    unsigned long long value = ~0ull;
    GOOD(MPI_T_pvar_read(session, handle, &value));
    GOOD(MPI_T_pvar_handle_free(session, &handle));
    return value;
}

static int set(const char *name, unsigned long long value)
{
    MPI_T_cvar_handle handle;
    int index = -1, count = 0;
    unsigned long long seen = ~0ull;
    GOOD(MPI_T_cvar_get_index(name, &index));
    GOOD(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    int code = MPI_T_cvar_write(handle, &value);
    GOOD(MPI_T_cvar_read(handle, &seen));
    if (code == MPI_SUCCESS)
        CHECK(seen == value, "%s is %llu, and was set to %llu", name, seen, value);
    GOOD(MPI_T_cvar_handle_free(&handle));
    return code;
}

static void nap(long milliseconds)
{
    struct timespec span = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&span, NULL);
}

// Rank 0 is late; `alone`: the others wait for its message, else in a barrier.
static void be_late(long milliseconds, int alone)
{
    int word = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        nap(milliseconds);
    if (!alone)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (rank == 0)
        for (int to = 1; to < size; to++)
            MPI_Send(&word, 1, MPI_INT, to, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static unsigned long long yields_of(long milliseconds, int alone)
{
    MPI_T_pvar_handle yields = begin("yields");
    be_late(milliseconds, alone);
    return end(yields);
}

static void s15_3_6_yields_before_a_sleep(void)
{
    GOOD(set("RMPI_PATIENT_YIELDS", 0));
    GOOD(set("RMPI_YIELDS", 1000));
    unsigned long long many = yields_of(300, 1);
    GOOD(set("RMPI_YIELDS", 0));
    unsigned long long few = yields_of(300, 1);
    if (rank != 0)
        CHECK(many >= 1000 && few < 500, "%llu and %llu yields", many, few);
    GOOD(set("RMPI_YIELDS", 2));
}

static void s15_3_6_yields_before_a_sleep_in_collectives(void)
{
    GOOD(set("RMPI_PATIENT_YIELDS", 1000));
    unsigned long long many = yields_of(300, 0);
    GOOD(set("RMPI_PATIENT_YIELDS", 0));
    unsigned long long few = yields_of(300, 0);
    if (rank != 0)
        CHECK(many >= 1000 && few < 500, "%llu and %llu yields", many, few);
    GOOD(set("RMPI_PATIENT_YIELDS", 20));
}

static void s15_3_6_the_longest_sleep(void)
{
    GOOD(set("RMPI_LONG_SLEEP", 2));
    MPI_T_pvar_handle sleeps = begin("sleeps");
    be_late(400, 1);
    unsigned long long many = end(sleeps);
    GOOD(set("RMPI_LONG_SLEEP", 1000));
    sleeps = begin("sleeps");
    be_late(400, 1);
    unsigned long long few = end(sleeps);
    if (rank != 0)
        CHECK(many >= 20 && few < 20, "%llu and %llu sleeps", many, few);
    GOOD(set("RMPI_LONG_SLEEP", 100));
}

static void s15_3_6_others_are_fixed_and_ranges_hold(void)
{
    EQUAL(set("RMPI_STREAM_CHUNK", 1024), MPI_T_ERR_CVAR_SET_NOT_NOW);
    EQUAL(set("RMPI_LONG_SLEEP", 0), MPI_T_ERR_INVALID);
    EQUAL(set("RMPI_SENDS_PER_LOOK", 0), MPI_T_ERR_INVALID);
    GOOD(set("RMPI_SENDS_PER_LOOK", 1));
    GOOD(set("RMPI_SENDS_PER_LOOK", 16));
}

// Large messages that are streamed go in frames of the size that was said before MPI began.
static void s15_3_6_frames_of_a_stream(void)
{
    enum { BYTES = 1 << 20, CHUNK = 1024 };
    static char data[BYTES];
    MPI_T_pvar_handle frames = begin("shm_frames_sent");
    if (rank == 0)
        MPI_Send(data, BYTES, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Recv(data, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    unsigned long long sent = end(frames);
    if (rank == 0)
        CHECK(sent >= BYTES / CHUNK && sent < 2 * BYTES / CHUNK, "%llu frames", sent);
}

int main(int argc, char **argv)
{
    int level;
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    GOOD(MPI_T_pvar_session_create(&session));
    GOOD(set("RMPI_STREAM_CHUNK", 1024));
    GOOD(set("RMPI_EARLY_LIMIT", 0));
    start(&argc, &argv);
    RUN(s15_3_6_yields_before_a_sleep);
    RUN(s15_3_6_yields_before_a_sleep_in_collectives);
    RUN(s15_3_6_the_longest_sleep);
    RUN(s15_3_6_others_are_fixed_and_ranges_hold);
    RUN(s15_3_6_frames_of_a_stream);
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
    return finish();
}
