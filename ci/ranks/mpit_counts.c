// SPDX-License-Identifier: MIT OR Apache-2.0
// What the performance variables of rmpi count, and when which threads and signal handlers may read them: MPI 5.0
// section 15.3.7.
// MPIT-035..042, MPIT-044, MPIT-070..077, MPIT-110, MPIT-115..117, MPIT-122, MPIT-125
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static MPI_T_pvar_session session;

static MPI_T_pvar_handle bind(MPI_T_pvar_session in, const char *name, int class, void *object)
{
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index = -1, count = 0;
    GOOD(MPI_T_pvar_get_index(name, class, &index));
    GOOD(MPI_T_pvar_handle_alloc(in, index, object, &handle, &count));
    EQUAL(count, 1);
    return handle;
}

static unsigned long long longs(MPI_T_pvar_session in, MPI_T_pvar_handle handle)
{
    unsigned long long value = ~0ull;
    GOOD(MPI_T_pvar_read(in, handle, &value));
    return value;
}

static unsigned shorts(MPI_T_pvar_handle handle)
{
    unsigned value = ~0u;
    GOOD(MPI_T_pvar_read(session, handle, &value));
    return value;
}

// Rank 0 sends `count` messages of `bytes` bytes that rank 1 has no receive for when they arrive.
static void flood(MPI_Comm comm, int count, int bytes, MPI_Request *requests, void *data)
{
    if (rank == 0)
        for (int i = 0; i < count; i++)
            MPI_Isend(data, bytes, MPI_BYTE, 1, 7, comm, &requests[i]);
    int go = 0;
    // A later message arrives later: then all of them have arrived.
    if (rank == 0)
        MPI_Send(&go, 1, MPI_INT, 1, 8, comm);
    if (rank == 1)
        MPI_Recv(&go, 1, MPI_INT, 0, 8, comm, MPI_STATUS_IGNORE);
}

static void drain(MPI_Comm comm, int count, int bytes, MPI_Request *requests, void *data)
{
    if (rank == 1)
        for (int i = 0; i < count; i++)
            MPI_Recv(data, bytes, MPI_BYTE, 0, 7, comm, MPI_STATUS_IGNORE);
    if (rank == 0)
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

static void mpit_125_umq_length_is_that_of_its_communicator(void)
{
    MPI_Request requests[10];
    MPI_Comm other;
    char data[64] = {0};
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    flood(other, 2, 64, requests, data);
    MPI_T_pvar_handle here = bind(session, "MPI_T_UMQ_LENGTH", MPI_T_PVAR_CLASS_LEVEL, &(MPI_Comm){MPI_COMM_WORLD});
    MPI_T_pvar_handle there = bind(session, "MPI_T_UMQ_LENGTH", MPI_T_PVAR_CLASS_LEVEL, &other);
    GOOD(MPI_T_pvar_start(session, here));
    GOOD(MPI_T_pvar_start(session, there));
    MPI_Request more[10];
    flood(MPI_COMM_WORLD, 5, 64, more, data);
    if (rank == 1) {
        EQUAL(shorts(here), 5);
        EQUAL(shorts(there), 2);
        int flag;
        MPI_Message message;
        MPI_Improbe(0, 7, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
        EQUAL(flag, 1);
        EQUAL(shorts(here), 4);
        MPI_Mrecv(data, 64, MPI_BYTE, &message, MPI_STATUS_IGNORE);
        EQUAL(shorts(here), 4);
    }
    drain(MPI_COMM_WORLD, rank == 1 ? 4 : 5, 64, more, data);
    EQUAL(shorts(here), 0);
    EQUAL(shorts(there), rank == 1 ? 2 : 0);
    GOOD(MPI_T_pvar_stop(session, there));
    drain(other, 2, 64, requests, data);
    EQUAL(shorts(there), rank == 1 ? 2 : 0);
    MPI_Comm_free(&other);
    unsigned value;
    EQUAL(MPI_T_pvar_read(session, there, &value), MPI_T_ERR_INVALID_HANDLE);
    GOOD(MPI_T_pvar_handle_free(session, &there));
    GOOD(MPI_T_pvar_handle_free(session, &here));
}

// The value of a watched variable; `otherwise` if it is not watched.
static int length(MPI_T_pvar_handle watched, int otherwise)
{
    return watched == MPI_T_PVAR_HANDLE_NULL ? otherwise : (int)shorts(watched);
}

// Posts and completes receives by different calls; messages of 8 bytes take the fastest path as long as no communicator
// is watched.
static void post_and_take(MPI_Comm comm, MPI_T_pvar_handle here, MPI_T_pvar_handle there)
{
    enum { MOST = 6 };
    static char data[MOST][100000];
    static const int bytes[MOST] = {8, 8, 64, 5000, 100000, 8}, to[MOST] = {0, MPI_ANY_SOURCE, 0, 0, MPI_ANY_SOURCE, 0};
    MPI_Request requests[MOST], kept, vain;
    for (int i = 0; i < MOST && rank == 1; i++) {
        MPI_Irecv(data[i], bytes[i], MPI_BYTE, to[i], i == 2 ? MPI_ANY_TAG : 20 + i, comm, &requests[i]);
        EQUAL(length(here, i + 1), i + 1);
        EQUAL(length(there, 0), 0);
    }
    if (rank == 1) {
        MPI_Recv_init(data[0], 8, MPI_BYTE, 0, 30, comm, &kept);
        EQUAL(length(here, MOST), MOST);
        MPI_Start(&kept);
        MPI_Irecv(data[0], 8, MPI_BYTE, 0, 31, comm, &vain);
        EQUAL(length(here, MOST + 2), MOST + 2);
        MPI_Cancel(&vain);
        MPI_Wait(&vain, MPI_STATUS_IGNORE);
        MPI_Cancel(&kept);
        MPI_Wait(&kept, MPI_STATUS_IGNORE);
        MPI_Request_free(&kept);
        EQUAL(length(here, MOST), MOST);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MOST; i++) {
        if (rank == 0)
            MPI_Send(data[i], bytes[i], MPI_BYTE, 1, 20 + i, comm);
        if (rank != 1)
            continue;
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        // Later messages may have come as well.
        int left = length(here, 0);
        CHECK(left >= 0 && left < MOST - i, "%d after %d", left, i);
    }
    if (rank == 0)
        MPI_Send(data[0], 8, MPI_BYTE, 1, 40, comm);
    if (rank == 1)
        MPI_Recv(data[0], 8, MPI_BYTE, 0, 40, comm, MPI_STATUS_IGNORE);
    EQUAL(length(here, 0), 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void posted_receives_are_counted(void)
{
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    for (int round = 0; round < 3; round++) {
        MPI_Request early;
        int word = 0;
        // It was posted on the fastest path, before a variable was watched.
        if (rank == 1)
            MPI_Irecv(&word, 1, MPI_INT, 0, 50, other, &early);
        post_and_take(MPI_COMM_WORLD, MPI_T_PVAR_HANDLE_NULL, MPI_T_PVAR_HANDLE_NULL);
        MPI_T_pvar_handle here =
            bind(session, "communicator_posted_recvq_length", MPI_T_PVAR_CLASS_LEVEL, &(MPI_Comm){MPI_COMM_WORLD});
        MPI_T_pvar_handle there = bind(session, "communicator_posted_recvq_length", MPI_T_PVAR_CLASS_LEVEL, &other);
        GOOD(MPI_T_pvar_start(session, here));
        GOOD(MPI_T_pvar_start(session, there));
        EQUAL(shorts(there), rank == 1);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Send(&round, 1, MPI_INT, 1, 50, other);
        if (rank == 1) {
            MPI_Wait(&early, MPI_STATUS_IGNORE);
            EQUAL(word, round);
        }
        EQUAL(shorts(there), 0);
        post_and_take(MPI_COMM_WORLD, here, there);
        post_and_take(other, there, here);
        GOOD(MPI_T_pvar_handle_free(session, &here));
        GOOD(MPI_T_pvar_handle_free(session, &there));
    }
    // A communicator that is freed while a receive in it is posted.
    MPI_Request last = MPI_REQUEST_NULL;
    int word = 0;
    if (rank == 0)
        MPI_Send_init(&word, 1, MPI_INT, 1, 60, other, &last);
    if (rank == 1)
        MPI_Irecv(&word, 1, MPI_INT, 0, 60, other, &last);
    MPI_Comm_free(&other);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Start(&last);
    MPI_Wait(&last, MPI_STATUS_IGNORE);
    if (rank == 0)
        MPI_Request_free(&last);
    // A communicator that was freed with a posted receive still exists until another one is freed.
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Comm_free(&other);
}

static void mpit_116_sessions_and_watermarks_are_apart(void)
{
    MPI_Request requests[8];
    char data[64] = {0};
    MPI_T_pvar_session mine;
    GOOD(MPI_T_pvar_session_create(&mine));
    MPI_T_pvar_handle all = bind(session, "unexpected_messages", MPI_T_PVAR_CLASS_COUNTER, NULL);
    MPI_T_pvar_handle some = bind(mine, "unexpected_messages", MPI_T_PVAR_CLASS_COUNTER, NULL);
    MPI_T_pvar_handle high = bind(session, "unexpected_recvq_length_high", MPI_T_PVAR_CLASS_HIGHWATERMARK, NULL);
    MPI_T_pvar_handle low = bind(mine, "unexpected_recvq_length_low", MPI_T_PVAR_CLASS_LOWWATERMARK, NULL);
    GOOD(MPI_T_pvar_start(session, all));
    MPI_Barrier(MPI_COMM_WORLD);
    flood(MPI_COMM_WORLD, 6, 64, requests, data);
    GOOD(MPI_T_pvar_start(mine, MPI_T_PVAR_ALL_HANDLES));
    MPI_T_pvar_handle later = bind(session, "unexpected_recvq_length_low", MPI_T_PVAR_CLASS_LOWWATERMARK, NULL);
    if (rank == 1) {
        CHECK(longs(session, all) >= 6, "%llu unexpected", longs(session, all));
        EQUAL(longs(mine, some), 0);
        EQUAL(longs(mine, low), 0);
        CHECK(longs(session, high) >= 6 && longs(session, later) >= 6, "%llu", longs(session, high));
    }
    drain(MPI_COMM_WORLD, 6, 64, requests, data);
    unsigned long long peak = longs(session, high), value = 0;
    GOOD(MPI_T_pvar_reset(mine, MPI_T_PVAR_ALL_HANDLES));
    EQUAL(longs(session, high), peak);
    GOOD(MPI_T_pvar_readreset(session, high, &value));
    EQUAL(value, peak);
    CHECK(longs(session, high) <= peak && (rank != 1 || longs(session, later) < 6), "%llu", longs(session, high));
    GOOD(MPI_T_pvar_stop(session, all));
    value = longs(session, all);
    flood(MPI_COMM_WORLD, 2, 64, requests, data);
    drain(MPI_COMM_WORLD, 2, 64, requests, data);
    EQUAL(longs(session, all), value);
    GOOD(MPI_T_pvar_session_free(&mine));
    GOOD(MPI_T_pvar_handle_free(session, &later));
    GOOD(MPI_T_pvar_handle_free(session, &high));
    GOOD(MPI_T_pvar_handle_free(session, &all));
}

static void s15_3_7_large_messages_are_announced(void)
{
    enum { LARGE = 1 << 20 };
    static char data[LARGE];
    MPI_Request requests[3];
    MPI_T_pvar_handle sends = bind(session, "rendezvous_sends", MPI_T_PVAR_CLASS_COUNTER, NULL);
    MPI_T_pvar_handle bytes = bind(session, "rendezvous_send_bytes", MPI_T_PVAR_CLASS_AGGREGATE, NULL);
    GOOD(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    flood(MPI_COMM_WORLD, 3, LARGE, requests, data);
    drain(MPI_COMM_WORLD, 3, LARGE, requests, data);
    EQUAL(longs(session, sends), rank == 0 ? 3 : 0);
    EQUAL(longs(session, bytes), rank == 0 ? 3 * LARGE : 0);
    GOOD(MPI_T_pvar_handle_free(session, &sends));
    GOOD(MPI_T_pvar_handle_free(session, &bytes));
}

static void s15_3_7_collectives_are_counted_by_communicator(void)
{
    MPI_Comm half;
    MPI_Request request;
    unsigned value;
    int of_half, in_half, sum, index, count;
    unsigned long long before, made;
    MPI_T_pvar_handle level = bind(session, "communicators", MPI_T_PVAR_CLASS_LEVEL, NULL);
    MPI_T_pvar_handle born = bind(session, "communicators_made", MPI_T_PVAR_CLASS_COUNTER, NULL);
    GOOD(MPI_T_pvar_start(session, born));
    before = longs(session, level);
    CHECK(before >= 2, "%llu communicators", before);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    EQUAL(longs(session, level), before + 1);
    made = longs(session, born);
    EQUAL(made, 1);
    MPI_Comm_size(half, &of_half);
    MPI_Comm_rank(half, &in_half);
    MPI_T_pvar_handle here = bind(session, "collective_allreduce_calls", MPI_T_PVAR_CLASS_COUNTER, &half);
    MPI_T_pvar_handle world = bind(session, "collective_allreduce_calls", MPI_T_PVAR_CLASS_COUNTER, &(MPI_Comm){MPI_COMM_WORLD});
    MPI_T_pvar_handle active = bind(session, "collective_barrier_active", MPI_T_PVAR_CLASS_LEVEL, &half);
    MPI_T_pvar_handle extent = bind(session, "communicator_size", MPI_T_PVAR_CLASS_SIZE, &half);
    MPI_T_pvar_handle place = bind(session, "communicator_rank", MPI_T_PVAR_CLASS_GENERIC, &half);
    EQUAL(shorts(extent), of_half);
    EQUAL(shorts(place), in_half);
    GOOD(MPI_T_pvar_start(session, here));
    GOOD(MPI_T_pvar_start(session, world));
    for (int i = 0; i < 3; i++)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(shorts(here), 3);
    EQUAL(shorts(world), 1);
    EQUAL(shorts(active), 0);
    MPI_Ibarrier(half, &request);
    if (of_half > 1 && in_half == 0)
        CHECK(shorts(active) <= 1, "%u barriers", shorts(active));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(shorts(active), 0);
    MPI_Comm freed = half;
    MPI_Comm_free(&half);
    EQUAL(longs(session, level), before);
    EQUAL(MPI_T_pvar_read(session, here, &value), MPI_T_ERR_INVALID_HANDLE);
    GOOD(MPI_T_pvar_get_index("communicator_size", MPI_T_PVAR_CLASS_SIZE, &index));
    MPI_T_pvar_handle none;
    EQUAL(MPI_T_pvar_handle_alloc(session, index, &freed, &none, &count), MPI_T_ERR_INVALID);
    EQUAL(MPI_T_pvar_handle_alloc(session, index, &half, &none, &count), MPI_T_ERR_INVALID);
    GOOD(MPI_T_pvar_session_free(&session));
    GOOD(MPI_T_pvar_session_create(&session));
}

static double seconds(MPI_T_pvar_handle handle)
{
    double value = -1;
    GOOD(MPI_T_pvar_read(session, handle, &value));
    return value;
}

// The time of a barrier is how late its last rank is, and is counted for the communicator of the call.
static void s15_3_7_collectives_are_timed_by_communicator(void)
{
    MPI_Comm world = MPI_COMM_WORLD, half;
    MPI_Comm_dup(world, &half);
    MPI_T_pvar_handle here = bind(session, "collective_barrier_time", MPI_T_PVAR_CLASS_TIMER, &half);
    MPI_T_pvar_handle there = bind(session, "collective_barrier_time", MPI_T_PVAR_CLASS_TIMER, &world);
    MPI_T_pvar_handle other = bind(session, "collective_bcast_time", MPI_T_PVAR_CLASS_TIMER, &half);
    GOOD(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    double begun = MPI_Wtime();
    MPI_Barrier(half);
    double took = MPI_Wtime() - begun, told = seconds(here);
    CHECK(told > 0 && told <= took, "%g of %g s", told, took);
    CHECK(seconds(there) == 0 && seconds(other) == 0, "%g and %g", seconds(there), seconds(other));
    // A nonblocking collective is timed until it is complete: rank 0 starts it after the others, and completes it
    // later.
    struct timespec late = {0, 100000000};
    int go = 0;
    MPI_Request request;
    if (rank == 0) {
        for (int from = 1; from < size; from++)
            MPI_Recv(&go, 1, MPI_INT, from, 9, half, MPI_STATUS_IGNORE);
        nanosleep(&late, NULL);
    }
    MPI_Ibarrier(half, &request);
    if (rank != 0)
        MPI_Send(&go, 1, MPI_INT, 0, 9, half);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(seconds(here) - told >= (rank == 0 ? 0 : 0.1), "%g and %g", seconds(here), told);
    GOOD(MPI_T_pvar_stop(session, here));
    told = seconds(here);
    MPI_Barrier(half);
    CHECK(seconds(here) == told, "%g and %g", seconds(here), told);
    GOOD(MPI_T_pvar_handle_free(session, &here));
    GOOD(MPI_T_pvar_handle_free(session, &there));
    GOOD(MPI_T_pvar_handle_free(session, &other));
    MPI_Comm_free(&half);
}

static void s15_3_7_watches_run_out_and_come_back(void)
{
    MPI_T_pvar_handle handles[65], none;
    MPI_Comm world = MPI_COMM_WORLD;
    int index, count;
    GOOD(MPI_T_pvar_get_index("MPI_T_UMQ_LENGTH", MPI_T_PVAR_CLASS_LEVEL, &index));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 64; i++)
            GOOD(MPI_T_pvar_handle_alloc(session, index, &world, &handles[i], &count));
        EQUAL(MPI_T_pvar_handle_alloc(session, index, &world, &none, &count), MPI_T_ERR_OUT_OF_HANDLES);
        for (int i = 0; i < 64; i++)
            GOOD(MPI_T_pvar_handle_free(session, &handles[i]));
    }
}

// A signal handler reads, resets, stops and starts, whatever it has interrupted.
static MPI_T_pvar_handle in_handler[5];
static volatile unsigned long long reads, wrong;

static void handler(int number)
{
    unsigned long long value = 0;
    unsigned word = 0;
    (void)number;
    wrong += MPI_T_pvar_read(session, in_handler[0], &value) != MPI_SUCCESS || value > 1u << 24;
    wrong += MPI_T_pvar_read(session, in_handler[1], &word) != MPI_SUCCESS || word > 64;
    wrong += MPI_T_pvar_readreset(session, in_handler[2], &value) != MPI_SUCCESS || value > 1u << 24;
    wrong += MPI_T_pvar_read(session, in_handler[4], &word) != MPI_SUCCESS || word > 64;
    wrong += MPI_T_pvar_stop(session, in_handler[3]) != MPI_SUCCESS;
    wrong += MPI_T_pvar_start(session, in_handler[3]) != MPI_SUCCESS;
    reads++;
}

static void mpit_122_signal_handlers_read_under_traffic(void)
{
    enum { ROUNDS = 400, EACH = 20 };
    MPI_Request requests[EACH];
    static char data[20000];
    struct itimerval every = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    in_handler[0] = bind(session, "match_attempts", MPI_T_PVAR_CLASS_AGGREGATE, NULL);
    in_handler[1] = bind(session, "MPI_T_UMQ_LENGTH", MPI_T_PVAR_CLASS_LEVEL, &(MPI_Comm){MPI_COMM_WORLD});
    in_handler[2] = bind(session, "unexpected_messages", MPI_T_PVAR_CLASS_COUNTER, NULL);
    in_handler[3] = bind(session, "rendezvous_sends", MPI_T_PVAR_CLASS_COUNTER, NULL);
    in_handler[4] =
        bind(session, "communicator_posted_recvq_length", MPI_T_PVAR_CLASS_LEVEL, &(MPI_Comm){MPI_COMM_WORLD});
    GOOD(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    // Until every rank has had enough signals.
    for (int round = 0, more = 1; round < ROUNDS || (more && round < 100 * ROUNDS); round++) {
        int bytes = round % 3 ? 8 : 20000, mine = reads < 100;
        flood(MPI_COMM_WORLD, EACH, bytes, requests, data);
        drain(MPI_COMM_WORLD, EACH, bytes, requests, data);
        MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(reads > 0, "%s", "the handler never ran");
    EQUAL(wrong, 0);
    EQUAL(shorts(in_handler[1]), 0);
    EQUAL(shorts(in_handler[4]), 0);
    for (int i = 0; i < 5; i++)
        GOOD(MPI_T_pvar_handle_free(session, &in_handler[i]));
}

// Another thread reads all the while.
static volatile int over;

static void *reader(void *nothing)
{
    MPI_T_pvar_handle handle = bind(session, "match_attempts", MPI_T_PVAR_CLASS_AGGREGATE, NULL);
    unsigned long long last = 0, value;
    (void)nothing;
    GOOD(MPI_T_pvar_start(session, handle));
    while (!over) {
        GOOD(MPI_T_pvar_read(session, handle, &value));
        CHECK(value >= last, "%llu after %llu", value, last);
        last = value;
    }
    GOOD(MPI_T_pvar_handle_free(session, &handle));
    return NULL;
}

static void mpit_122_another_thread_reads_under_traffic(void)
{
    enum { EACH = 20 };
    MPI_Request requests[EACH];
    static char data[64];
    pthread_t thread;
    pthread_create(&thread, NULL, reader, NULL);
    for (int round = 0; round < 100; round++) {
        flood(MPI_COMM_WORLD, EACH, 64, requests, data);
        drain(MPI_COMM_WORLD, EACH, 64, requests, data);
    }
    over = 1;
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    int provided, phase = -1, wanted = 0;
    GOOD(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
    GOOD(MPI_T_pvar_session_create(&session));
    MPI_T_pvar_session early;
    GOOD(MPI_T_pvar_session_create(&early));
    MPI_T_pvar_handle state = bind(early, "process_phase", MPI_T_PVAR_CLASS_STATE, NULL);
    MPI_T_pvar_handle made = bind(early, "communicators_made", MPI_T_PVAR_CLASS_COUNTER, NULL);
    MPI_T_pvar_handle most = bind(early, "communicators_high", MPI_T_PVAR_CLASS_HIGHWATERMARK, NULL);
    GOOD(MPI_T_pvar_start(early, made));
    GOOD(MPI_T_pvar_read(early, state, &phase));
    EQUAL(phase, wanted++);
    EQUAL(longs(early, made), 0);
    start(&argc, &argv);
    GOOD(MPI_T_pvar_read(early, state, &phase));
    EQUAL(phase, wanted++);
    EQUAL(longs(early, made), 2);
    EQUAL(longs(early, most), 2);
    RUN(mpit_125_umq_length_is_that_of_its_communicator);
    RUN(posted_receives_are_counted);
    RUN(mpit_116_sessions_and_watermarks_are_apart);
    RUN(s15_3_7_large_messages_are_announced);
    RUN(s15_3_7_collectives_are_counted_by_communicator);
    RUN(s15_3_7_collectives_are_timed_by_communicator);
    RUN(s15_3_7_watches_run_out_and_come_back);
    RUN(mpit_122_signal_handlers_read_under_traffic);
    RUN(mpit_122_another_thread_reads_under_traffic);
    CHECK(longs(early, most) >= 3, "%llu communicators", longs(early, most));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    GOOD(MPI_T_pvar_read(early, state, &phase));
    EQUAL(phase, wanted);
    GOOD(MPI_T_finalize());
    EQUAL(MPI_T_pvar_read(early, state, &phase), MPI_T_ERR_NOT_INITIALIZED);
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    EQUAL(MPI_T_pvar_read(early, state, &phase), MPI_T_ERR_INVALID_SESSION);
    GOOD(MPI_T_finalize());
    if (check_errors > 0) {
        fprintf(stderr, "rank %d: %d errors\n", rank, check_errors);
        return 1;
    }
    puts("ok");
    return 0;
}
