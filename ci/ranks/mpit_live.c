// SPDX-License-Identifier: MIT OR Apache-2.0
// Control variables that take effect immediately when a tool writes them while MPI runs: MPI 5.0 section 15.3.6.
// Performance variables show the effect. The program runs with RMPI_WAIT=yield, so that a wait is the same on every
// machine.
#include "counting.h"
#include <time.h>

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

// The yields of a rank that waits without spinning first (RMPI_SPIN_TIME=0).
static unsigned long long yields_of(long milliseconds, int alone)
{
    GOOD(set("RMPI_SPIN_TIME", 0));
    MPI_T_pvar_handle yields = begin("yields");
    be_late(milliseconds, alone);
    unsigned long long count = end(yields);
    GOOD(set("RMPI_SPIN_TIME", 1000));
    return count;
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
    GOOD(set("RMPI_YIELDS", 4));
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

// Large messages that are streamed are sent in frames of the size that was set before MPI_Init.
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
    if (rank == 0 && on_one_host())
        CHECK(sent >= BYTES / CHUNK && sent < 2 * BYTES / CHUNK, "%llu frames", sent);
}

// Sends a message from rank 0 to rank 1; returns how many rendezvous were started.
static unsigned long long announced(int bytes)
{
    static char data[16384];
    MPI_T_pvar_handle sends = begin("rendezvous_sends");
    if (rank == 0)
        MPI_Send(data, bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Recv(data, bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return end(sends);
}

// The limit is lowered and raised, also below the size of messages on the fastest path; the next sends obey it.
static void s15_3_6_the_eager_limit(void)
{
    static const unsigned long long limits[] = {8192, 100, 8, 7, 0, 4096, 8192};
    static const int sizes[] = {8, 4, 100, 101, 4096, 8192, 8193};
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        GOOD(set("RMPI_EAGER_LIMIT", limits[l]));
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            unsigned long long seen = announced(sizes[s]);
            if (rank == 0)
                CHECK(seen == ((unsigned long long)sizes[s] > limits[l]),
                      "limit %llu: %llu of a message of %d bytes", limits[l], seen, sizes[s]);
        }
    }
    EQUAL(set("RMPI_EAGER_LIMIT", 8193), MPI_T_ERR_INVALID);
}

// A small message that is sent while the limit is 0 waits for its receive.
static void s15_3_6_a_word_waits_where_nothing_is_eager(void)
{
    double word = 1, got = 0;
    int done = 0, go = 1;
    MPI_Request request;
    GOOD(set("RMPI_EAGER_LIMIT", 0));
    if (rank == 0) {
        MPI_Isend(&word, 1, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD, &request);
        for (int i = 0; i < 1000; i++) {
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            EQUAL(done, 0);
        }
        GOOD(set("RMPI_EAGER_LIMIT", 8192));
        MPI_Send(&go, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Recv(&go, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&got, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == word, "%f", got);
    }
    GOOD(set("RMPI_EAGER_LIMIT", 8192));
}

static void s15_3_6_no_message_goes_early_where_none_may(void)
{
    enum { BYTES = 32768 };
    static char data[BYTES];
    for (int i = 0; i < 2; i++) {
        GOOD(set("RMPI_EARLY_LIMIT", i == 0 ? 65536 : 0));
        MPI_T_pvar_handle early = begin("early_sends"), late = begin("rendezvous_sends");
        for (int n = 0; n < 10; n++) {
            if (rank == 0)
                MPI_Send(data, BYTES, MPI_BYTE, 1, 4, MPI_COMM_WORLD);
            if (rank == 1)
                MPI_Recv(data, BYTES, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        unsigned long long at_once = end(early), announcements = end(late);
        // Whether they do where they may depends on the cores.
        if (rank == 0)
            CHECK(at_once + announcements == 10 && (i == 0 || at_once == 0), "%llu and %llu", at_once, announcements);
    }
}

// Unexpected messages: beyond the budget the receiver requests rendezvous from the sender, and ends that when the
// budget is raised.
static void s15_3_6_the_budget_of_unexpected_messages(void)
{
    enum { COUNT = 32, BYTES = 4096 };
    static char data[BYTES];
    for (int i = 0; i < 2; i++) {
        MPI_T_pvar_handle throttled = begin("senders_throttled");
        int arrived = 0;
        GOOD(set("RMPI_UNEXPECTED_BUDGET", i == 0 ? 16384 : 1 << 24));
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Request requests[COUNT];
            for (int n = 0; n < COUNT; n++)
                MPI_Isend(data, BYTES, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &requests[n]);
            MPI_Send(data, 0, MPI_BYTE, 1, 6, MPI_COMM_WORLD);
            MPI_Waitall(COUNT, requests, MPI_STATUSES_IGNORE);
        } else if (rank == 1) {
            // It arrives after all of them.
            while (!arrived)
                MPI_Iprobe(0, 6, MPI_COMM_WORLD, &arrived, MPI_STATUS_IGNORE);
            for (int n = 0; n < COUNT; n++)
                MPI_Recv(data, BYTES, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(data, 0, MPI_BYTE, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        unsigned long long times = end(throttled);
        if (rank == 1)
            CHECK((times > 0) == (i == 0), "%llu times", times);
    }
    GOOD(set("RMPI_UNEXPECTED_BUDGET", 64 << 20));
}

static int set_word(const char *name, int word)
{
    MPI_T_cvar_handle handle;
    int index = -1, count = 0, seen = -1;
    GOOD(MPI_T_cvar_get_index(name, &index));
    GOOD(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    int code = MPI_T_cvar_write(handle, &word);
    GOOD(MPI_T_cvar_read(handle, &seen));
    if (code == MPI_SUCCESS)
        EQUAL(seen, word);
    GOOD(MPI_T_cvar_handle_free(&handle));
    return code;
}

// Values: auto, spin, yield. A rank that spins never sleeps.
static void s15_3_6_how_a_rank_waits(void)
{
    unsigned long long slept[3];
    for (int i = 0; i < 3; i++) {
        GOOD(set_word("RMPI_WAIT", i == 1 ? 1 : 2));
        MPI_T_pvar_handle sleeps = begin("sleeps");
        be_late(200, 1);
        slept[i] = end(sleeps);
    }
    if (rank != 0)
        CHECK(slept[0] > 0 && slept[1] == 0 && slept[2] > 0, "%llu, %llu, %llu", slept[0], slept[1], slept[2]);
    GOOD(set_word("RMPI_WAIT", 0));
    be_late(20, 0);
    GOOD(set_word("RMPI_WAIT", 2));
    EQUAL(set_word("RMPI_WAIT", 3), MPI_T_ERR_INVALID);
}

// Values: auto, off, on. If the system does not allow the copy, the message is streamed in any case.
static void s15_3_6_whether_large_messages_are_copied_once(void)
{
    enum { BYTES = 1 << 20 };
    static char data[BYTES];
    for (int i = 0; i < 4; i++) {
        GOOD(set_word("RMPI_SINGLE_COPY", i % 2 == 0 ? 1 : 2));
        MPI_T_pvar_handle read = begin("rendezvous_receives_read");
        MPI_T_pvar_handle streamed = begin("rendezvous_receives_streamed");
        if (rank == 0)
            MPI_Send(data, BYTES, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
        if (rank == 1)
            MPI_Recv(data, BYTES, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        unsigned long long once = end(read), twice = end(streamed);
        if (rank == 1 && i % 2 == 0 && on_one_host())
            CHECK(once == 0 && twice == 1, "off: %llu and %llu", once, twice);
        if (rank == 1 && i % 2 == 1)
            CHECK(once + twice >= 1, "on: %llu and %llu", once, twice);
    }
    GOOD(set_word("RMPI_SINGLE_COPY", 1));
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
    RUN(s15_3_6_the_eager_limit);
    RUN(s15_3_6_a_word_waits_where_nothing_is_eager);
    RUN(s15_3_6_no_message_goes_early_where_none_may);
    RUN(s15_3_6_the_budget_of_unexpected_messages);
    RUN(s15_3_6_how_a_rank_waits);
    RUN(s15_3_6_whether_large_messages_are_copied_once);
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_finalize());
    return finish();
}
