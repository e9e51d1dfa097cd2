// SPDX-License-Identifier: MIT OR Apache-2.0
// How long and in which manner a rank waited, and what moved its large messages: MPI 5.0 section 15.3.7.
// MPIT-043
#include "check.h"
#include <time.h>

static MPI_T_pvar_session session;

static MPI_T_pvar_handle begin(const char *name, int class)
{
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index = -1, count = 0;
    GOOD(MPI_T_pvar_get_index(name, class, &index));
    GOOD(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
    EQUAL(count, 1);
    GOOD(MPI_T_pvar_start(session, handle));
    return handle;
}

static unsigned long long value(MPI_T_pvar_handle handle)
{
    unsigned long long value = ~0ull;
    GOOD(MPI_T_pvar_read(session, handle, &value));
    return value;
}

static double seconds(MPI_T_pvar_handle handle)
{
    double value = -1;
    GOOD(MPI_T_pvar_read(session, handle, &value));
    return value;
}

static void nap(double time)
{
    struct timespec span = {(time_t)time, (long)((time - (time_t)time) * 1e9)};
    nanosleep(&span, NULL);
}

// Rank 0 is late, and all others wait for its message.
static void be_late(double time)
{
    int word = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        nap(time);
        for (int to = 1; to < size; to++)
            MPI_Send(&word, 1, MPI_INT, to, 1, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void mpit_043_a_timer_counts_seconds_as_mpi_wtime_does(void)
{
    MPI_T_pvar_handle time = begin("time_waiting", MPI_T_PVAR_CLASS_TIMER);
    MPI_T_pvar_handle waits = begin("waits_long", MPI_T_PVAR_CLASS_COUNTER);
    double since = MPI_Wtime();
    be_late(0.2);
    double passed = MPI_Wtime() - since, waited = seconds(time);
    CHECK(waited >= 0 && waited <= passed, "%g s of %g s", waited, passed);
    if (rank != 0) {
        CHECK(waited > 0.1, "waited %g s for who slept 0.2 s", waited);
        CHECK(value(waits) >= 1, "%llu waits", value(waits));
    }
    // Written and reset in the same unit, and stopped.
    GOOD(MPI_T_pvar_stop(session, time));
    double set = 12.5;
    GOOD(MPI_T_pvar_write(session, time, &set));
    be_late(0.05);
    CHECK(seconds(time) == 12.5, "%g s", seconds(time));
    set = -1;
    EQUAL(MPI_T_pvar_write(session, time, &set), MPI_T_ERR_INVALID);
    GOOD(MPI_T_pvar_reset(session, time));
    CHECK(seconds(time) == 0, "%g s", seconds(time));
    GOOD(MPI_T_pvar_handle_free(session, &time));
    GOOD(MPI_T_pvar_handle_free(session, &waits));
}

// A rank that waits long yields its core or sleeps, and is woken.
static void s15_3_7_sleeps_and_wakeups_are_counted(void)
{
    MPI_T_pvar_handle yields = begin("yields", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle sleeps = begin("sleeps", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle wakeups = begin("wakeups", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle bells = begin("bells_rung", MPI_T_PVAR_CLASS_COUNTER);
    be_late(0.3);
    if (rank == 0 && on_one_host()) {
        // A sleeping rank is woken by its doorbell.
        CHECK(value(bells) + value(wakeups) >= 1, "nobody was told");
        CHECK(value(wakeups) >= 1, "nobody was woken");
    } else if (rank != 0) {
        CHECK(value(yields) >= 1 && value(sleeps) >= 1, "%llu yields, %llu sleeps", value(yields), value(sleeps));
    }
    MPI_T_pvar_handle *all[] = {&yields, &sleeps, &wakeups, &bells};
    for (int i = 0; i < COUNT_OF(all); i++)
        GOOD(MPI_T_pvar_handle_free(session, all[i]));
}

// Whatever moves a large message, one message and its bytes are counted.
static void s15_3_7_large_messages_are_read_or_streamed(void)
{
    enum { MESSAGES = 7, BYTES = 300000 };
    static char data[BYTES];
    MPI_T_pvar_handle read = begin("rendezvous_receives_read", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle streamed = begin("rendezvous_receives_streamed", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle read_bytes = begin("rendezvous_read_bytes", MPI_T_PVAR_CLASS_AGGREGATE);
    MPI_T_pvar_handle streamed_bytes = begin("rendezvous_streamed_bytes", MPI_T_PVAR_CLASS_AGGREGATE);
    MPI_T_pvar_handle frames = begin("shm_frames_sent", MPI_T_PVAR_CLASS_COUNTER);
    for (int turn = 0; turn < MESSAGES; turn++) {
        if (rank == 0)
            MPI_Send(data, BYTES, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        if (rank == 1)
            MPI_Recv(data, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 1) {
        EQUAL(value(read) + value(streamed), MESSAGES);
        EQUAL(value(read_bytes) + value(streamed_bytes), MESSAGES * BYTES);
        EQUAL(value(read_bytes), value(read) * BYTES);
        const char *way = getenv("RMPI_SINGLE_COPY");
        if (way && !strcmp(way, "off") && on_one_host())
            EQUAL(value(streamed), MESSAGES);
    }
    if (rank < 2 && on_one_host())
        CHECK(value(frames) >= MESSAGES, "%llu frames for %d messages", value(frames), MESSAGES);
    MPI_T_pvar_handle *all[] = {&read, &streamed, &read_bytes, &streamed_bytes, &frames};
    for (int i = 0; i < COUNT_OF(all); i++)
        GOOD(MPI_T_pvar_handle_free(session, all[i]));
}

static void s15_3_7_cancels_are_counted(void)
{
    MPI_T_pvar_handle cancels = begin("cancels", MPI_T_PVAR_CLASS_COUNTER);
    for (int turn = 0; turn < 3; turn++) {
        MPI_Request request;
        int word;
        MPI_Irecv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    EQUAL(value(cancels), 3);
    GOOD(MPI_T_pvar_handle_free(session, &cancels));
}

// A receiver with a small budget requests rendezvous from its sender, and later ends that; and a message may be too
// long.
static void s15_3_7_floods_and_long_messages_are_counted(void)
{
    enum { MESSAGES = 200, BYTES = 4000 };
    static char data[MESSAGES][BYTES];
    MPI_Request requests[MESSAGES];
    MPI_T_pvar_handle throttled = begin("throttled_by_receivers", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle released = begin("released_by_receivers", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle truncated = begin("receives_truncated", MPI_T_PVAR_CLASS_COUNTER);
    const char *budget = getenv("RMPI_UNEXPECTED_BUDGET");
    int word = 0;
    if (rank == 0) {
        for (int i = 0; i < MESSAGES; i++)
            MPI_Isend(data[i], BYTES, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &requests[i]);
        MPI_Send(&word, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
        MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
        // The receiver's requests before this message arrived before it.
        MPI_Recv(&word, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (budget) {
            EQUAL(value(throttled), 1);
            EQUAL(value(released), 1);
        } else {
            EQUAL(value(throttled), 0);
        }
        MPI_Send(data[0], 100, MPI_BYTE, 1, 6, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(&word, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < MESSAGES; i++)
            MPI_Recv(data[i], BYTES, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        FAILS(MPI_Recv(data[0], 10, MPI_BYTE, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        EQUAL(value(truncated), 1);
    }
    MPI_T_pvar_handle *all[] = {&throttled, &released, &truncated};
    for (int i = 0; i < COUNT_OF(all); i++)
        GOOD(MPI_T_pvar_handle_free(session, all[i]));
}

int main(int argc, char **argv)
{
    int level;
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &level));
    GOOD(MPI_T_pvar_session_create(&session));
    start(&argc, &argv);
    RUN(mpit_043_a_timer_counts_seconds_as_mpi_wtime_does);
    RUN(s15_3_7_sleeps_and_wakeups_are_counted);
    RUN(s15_3_7_large_messages_are_read_or_streamed);
    RUN(s15_3_7_cancels_are_counted);
    RUN(s15_3_7_floods_and_long_messages_are_counted);
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
    return finish();
}
