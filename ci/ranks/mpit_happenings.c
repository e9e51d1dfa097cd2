// SPDX-License-Identifier: MIT OR Apache-2.0
// Events of rmpi: when callbacks are called, and with what data: MPI 5.0 section 15.3.8. Two ranks.
#include "check.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { HEARD = 4096, LARGE = 1 << 20 };

typedef unsigned long long number;

// The events of one type that were received.
struct heard {
    MPI_T_event_registration handle;
    char elements[256];
    int calls, count;
    number dropped;
    struct {
        number values[8];
        MPI_Count at;
    } list[HEARD];
};

static MPI_Count latest;

// The element of that name of the n-th event.
static number element(const struct heard *heard, int n, const char *name)
{
    char names[256], *rest = names;
    strcpy(names, heard->elements);
    for (int i = 0; rest; i++) {
        char *this = strsep(&rest, ",");
        if (!strcmp(this, name))
            return heard->list[n].values[i];
    }
    CHECK(0, "no element %s in %s", name, heard->elements);
    return 0;
}

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    struct heard *heard = data;
    int source = -1;
    MPI_Count at = -1;
    (void)safety;
    CHECK(registration == heard->handle, "%p", (void *)registration);
    GOOD(MPI_T_event_get_source(instance, &source));
    EQUAL(source, 0);
    GOOD(MPI_T_event_get_timestamp(instance, &at));
    // The source is ordered: times do not decrease.
    CHECK(at >= latest, "%lld after %lld", (long long)at, (long long)latest);
    latest = at;
    if (heard->calls < HEARD) {
        heard->list[heard->calls].at = at;
        for (int i = 0; i < heard->count; i++) {
            // Some elements are ints.
            number *value = &heard->list[heard->calls].values[i];
            *value = 0;
            GOOD(MPI_T_event_read(instance, i, value));
        }
        EQUAL(MPI_T_event_read(instance, heard->count, &source), MPI_T_ERR_INVALID_INDEX);
        EQUAL(MPI_T_event_read(instance, -1, &source), MPI_T_ERR_INVALID_INDEX);
        EQUAL(MPI_T_event_read(instance, 0, NULL), MPI_T_ERR_INVALID);
    }
    heard->calls++;
}

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety, void *data)
{
    struct heard *heard = data;
    (void)safety;
    CHECK(registration == heard->handle && source == 0 && count > 0, "count %lld", (long long)count);
    heard->dropped += (number)count;
}

static void listen_with(struct heard *heard, const char *name, MPI_T_cb_safety safety, MPI_T_event_cb_function *function)
{
    int index = -1, flag = 0;
    MPI_Info info;
    memset(heard, 0, sizeof *heard);
    GOOD(MPI_T_event_get_index(name, &index));
    GOOD(MPI_T_event_get_info(index, 0, 0, 0, 0, 0, &heard->count, 0, &info, 0, 0, 0));
    int length = sizeof heard->elements;
    GOOD(MPI_Info_get_string(info, "rmpi_elements", &length, heard->elements, &flag));
    GOOD(MPI_Info_free(&info));
    GOOD(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &heard->handle));
    GOOD(MPI_T_event_register_callback(heard->handle, safety, MPI_INFO_NULL, heard, function));
}

static void listen_to(struct heard *heard, const char *name)
{
    listen_with(heard, name, MPI_T_CB_REQUIRE_MPI_RESTRICTED, on_event);
}

static void leave(struct heard *heard) { GOOD(MPI_T_event_handle_free(heard->handle, NULL, NULL)); }

static int with_tag(const struct heard *heard, number tag)
{
    int found = 0;
    for (int n = 0; n < heard->calls && n < HEARD; n++)
        found += element(heard, n, "tag") == tag;
    return found;
}

static const int other_tag = 77;

// Afterwards this rank has processed all messages that the other rank sent.
static void meet(void)
{
    int token = 0;
    MPI_Sendrecv_replace(&token, 1, MPI_INT, 1 - rank, other_tag, 1 - rank, other_tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void s15_3_8_unexpected_messages_and_their_receives(void)
{
    static struct heard came, taken;
    double data[3] = {1, 2, 3};
    if (rank == 0) {
        meet();
        MPI_Send(data, 3, MPI_DOUBLE, 1, 5, MPI_COMM_WORLD);
        meet();
        return;
    }
    listen_to(&came, "unexpected_message");
    listen_to(&taken, "unexpected_message_matched");
    meet();
    meet();
    EQUAL(with_tag(&came, 5), 1);
    EQUAL(with_tag(&taken, 5), 0);
    MPI_Recv(data, 3, MPI_DOUBLE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    struct heard *both[] = {&came, &taken};
    for (int i = 0; i < 2; i++) {
        EQUAL(with_tag(both[i], 5), 1);
        for (int n = 0; n < both[i]->calls; n++)
            if (element(both[i], n, "tag") == 5) {
                CHECK((MPI_Comm)(uintptr_t)element(both[i], n, "communicator") == MPI_COMM_WORLD, "%s", "another one");
                EQUAL(element(both[i], n, "source"), 0);
                EQUAL(element(both[i], n, "bytes"), 24);
                EQUAL(element(both[i], n, "internal"), 0);
            }
    }
    leave(&came);
    leave(&taken);
}

static void s15_3_8_large_messages_begin_and_end(void)
{
    static struct heard begin, end;
    static char data[LARGE];
    listen_to(&begin, rank ? "rendezvous_receive_begin" : "rendezvous_send_begin");
    listen_to(&end, rank ? "rendezvous_receive_end" : "rendezvous_send_end");
    if (rank == 0)
        MPI_Send(data, LARGE, MPI_CHAR, 1, 9, MPI_COMM_WORLD);
    else
        MPI_Recv(data, LARGE, MPI_CHAR, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(begin.calls, 1);
    EQUAL(end.calls, 1);
    EQUAL(element(&begin, 0, "bytes"), LARGE);
    EQUAL(element(&end, 0, "bytes"), LARGE);
    EQUAL(element(&end, 0, "tag"), 9);
    EQUAL(element(&end, 0, rank ? "source" : "destination"), 1 - rank);
    CHECK(end.list[0].at > begin.list[0].at, "%s", "it took no time");
    leave(&begin);
    leave(&end);
}

// Events of requests that would take the fast path, too, from the registration of a handle on.
static void s15_3_8_requests_complete(void)
{
    static struct heard heard;
    double data = 1;
    MPI_Request request;
    for (int round = 0; round < 100; round++)
        meet();
    if (rank == 1) {
        MPI_Irecv(&data, 1, MPI_DOUBLE, 0, 3, MPI_COMM_WORLD, &request);
        listen_to(&heard, "request_complete");
        meet();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Recv(&data, 1, MPI_DOUBLE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        int found[2] = {0, 0};
        for (int n = 0; n < heard.calls; n++) {
            number tag = element(&heard, n, "tag");
            if (tag == 3 || tag == 4) {
                found[tag - 3]++;
                EQUAL(element(&heard, n, "operation"), 1);
                EQUAL(element(&heard, n, "peer"), 0);
                EQUAL(element(&heard, n, "bytes"), 8);
            }
        }
        EQUAL(found[0], 1);
        EQUAL(found[1], 1);
        leave(&heard);
    } else {
        meet();
        MPI_Send(&data, 1, MPI_DOUBLE, 1, 3, MPI_COMM_WORLD);
        MPI_Send(&data, 1, MPI_DOUBLE, 1, 4, MPI_COMM_WORLD);
    }
    // No handle is registered: the fast path is open again, and no event is delivered.
    int before = heard.calls;
    for (int round = 0; round < 100; round++)
        meet();
    EQUAL(heard.calls, before);
}

static void s15_3_8_communicators_come_and_go(void)
{
    static struct heard made, freed;
    MPI_Comm two, three;
    MPI_Request request;
    listen_to(&made, "communicator_created");
    listen_to(&freed, "communicator_freed");
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &two);
    MPI_Comm_idup(MPI_COMM_SELF, &three, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(made.calls, 2);
    CHECK((MPI_Comm)(uintptr_t)element(&made, 0, "communicator") == two, "%s", "another one");
    EQUAL(element(&made, 0, "size"), 2);
    EQUAL(element(&made, 0, "rank"), 1 - rank);
    CHECK((MPI_Comm)(uintptr_t)element(&made, 1, "communicator") == three, "%s", "another one");
    EQUAL(element(&made, 1, "size"), 1);
    MPI_Comm was = two;
    MPI_Comm_free(&two);
    MPI_Comm_free(&three);
    EQUAL(freed.calls, 2);
    CHECK((MPI_Comm)(uintptr_t)element(&freed, 0, "communicator") == was, "%s", "another one");
    leave(&made);
    leave(&freed);
}

static void s15_3_8_collectives_begin_and_end_by_their_names(void)
{
    static struct heard begin, end;
    int index, length = 64, value, mine = rank, sum;
    char name[64] = "";
    MPI_T_enum words;
    MPI_Request request;
    listen_to(&begin, "collective_begin");
    listen_to(&end, "collective_end");
    GOOD(MPI_T_event_get_index("collective_end", &index));
    GOOD(MPI_T_event_get_info(index, 0, 0, 0, 0, 0, 0, &words, 0, 0, 0, 0));
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(begin.calls, 2);
    EQUAL(end.calls, 2);
    const char *wanted[] = {"Allreduce", "Barrier"};
    for (int n = 0; n < 2; n++) {
        length = sizeof name;
        GOOD(MPI_T_enum_get_item(words, (int)element(&end, n, "collective"), &value, name, &length));
        CHECK(!strcmp(name, wanted[n]), "%s", name);
        EQUAL(value, element(&begin, n, "collective"));
        CHECK((MPI_Comm)(uintptr_t)element(&end, n, "communicator") == MPI_COMM_WORLD, "%s", "another one");
    }
    leave(&begin);
    leave(&end);
}

static void s15_3_8_a_flood_is_throttled_and_released(void)
{
    static struct heard begin, end;
    enum { MANY = 64, EACH = 4096 };
    static char data[EACH];
    listen_to(&begin, rank ? "sender_throttled" : "credit_stall_begin");
    listen_to(&end, rank ? "sender_released" : "credit_stall_end");
    if (rank == 0) {
        MPI_Request requests[MANY];
        for (int i = 0; i < MANY; i++)
            MPI_Isend(data, EACH, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &requests[i]);
        meet();
        MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
        meet();
    } else {
        meet();
        for (int i = 0; i < MANY; i++)
            MPI_Recv(data, EACH, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        meet();
    }
    CHECK(begin.calls >= 1, "%d stalls", begin.calls);
    EQUAL(end.calls, begin.calls);
    EQUAL(element(&begin, 0, "peer"), 1 - rank);
    leave(&begin);
    leave(&end);
}

static void s15_3_8_errors_that_return_are_told(void)
{
    static struct heard heard;
    int data = 0;
    listen_to(&heard, "error_raised");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    FAILS(MPI_Send(&data, 1, MPI_INT, 99, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    EQUAL(heard.calls, 1);
    EQUAL(element(&heard, 0, "class"), MPI_ERR_RANK);
    leave(&heard);
}

// A rank that is not scheduled when the message arrives finds the message and does not sleep: then it is tried again.
static void s15_3_8_sleep_begins_and_ends(void)
{
    static struct heard begin, end;
    struct timespec pause = {0, 50 * 1000 * 1000};
    int data = 0, slept = 0;
    if (rank == 1) {
        listen_to(&begin, "sleep_begin");
        listen_to(&end, "sleep_end");
    }
    for (int attempt = 0; attempt < 40 && !slept; attempt++) {
        if (rank == 0) {
            nanosleep(&pause, NULL);
            MPI_Send(&data, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
        } else {
            MPI_Recv(&data, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            slept = begin.calls >= 1;
        }
        MPI_Bcast(&slept, 1, MPI_INT, 1, MPI_COMM_WORLD);
    }
    if (rank == 0)
        return;
    CHECK(slept, "%d sleeps", begin.calls);
    EQUAL(end.calls, begin.calls);
    leave(&begin);
    leave(&end);
}

enum { ANSWER = 77 };
static int other_process, in_receive, answer, told_inside, told_level;

static void on_first(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    on_event(instance, registration, safety, data);
    const struct heard *heard = data;
    if (element(heard, heard->calls - 1, "tag") == 4) {
        told_inside = in_receive && answer != ANSWER;
        told_level = (int)safety;
        kill(other_process, SIGUSR1);
    }
}

// Callbacks that may not call MPI are called within a blocking call. If a callback may call MPI, it is called when the
// call ends.
static void s15_3_8_waits_are_told_to_those_who_can_bear_it(void)
{
    // The ranks send each other signals.
    if (!on_one_host())
        return;
    static struct heard heard;
    struct timespec long_pause = {20, 0}, pause = {0, 50 * 1000 * 1000};
    int mine = (int)getpid(), data = 0;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    MPI_Sendrecv(&mine, 1, MPI_INT, 1 - rank, 0, &other_process, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    // Rank 1 may process the message before its receive: then it is tried again.
    for (int attempt = 0, may = 0; may < 2; attempt++) {
        MPI_T_cb_safety level = may ? MPI_T_CB_REQUIRE_NONE : MPI_T_CB_REQUIRE_THREAD_SAFE;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            listen_with(&heard, "unexpected_message", level, on_first);
            meet();
            answer = 0;
            in_receive = 1;
            MPI_Recv(&answer, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            in_receive = 0;
            if (may)
                EQUAL(told_inside, 0);
            EQUAL(with_tag(&heard, 4), 1);
            EQUAL(told_level, told_inside ? MPI_T_CB_REQUIRE_MPI_RESTRICTED : MPI_T_CB_REQUIRE_NONE);
            leave(&heard);
            MPI_Recv(&data, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(told_inside || may || attempt < 40, "not told inside in %d attempts", attempt);
            may += may || told_inside || attempt >= 40;
            MPI_Send(&may, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
            continue;
        }
        meet();
        nanosleep(&pause, NULL);
        MPI_Request request;
        MPI_Isend(&data, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, &request);
        int signal = sigtimedwait(&set, NULL, may ? &pause : &long_pause), last = ANSWER;
        if (!may)
            EQUAL(signal, SIGUSR1);
        MPI_Send(&last, 1, MPI_INT, 1, 6, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (signal == -1)
            EQUAL(sigtimedwait(&set, NULL, &long_pause), SIGUSR1);
        MPI_Recv(&may, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static int by_level[4];

#define LEVEL(n)                                                                                   \
    static void level_##n(MPI_T_event_instance instance, MPI_T_event_registration registration,    \
                          MPI_T_cb_safety safety, void *data)                                      \
    {                                                                                              \
        (void)instance, (void)registration, (void)safety, (void)data;                              \
        by_level[n]++;                                                                             \
    }
LEVEL(0)
LEVEL(1)
LEVEL(2)
LEVEL(3)

// Of several callbacks only that of the lowest sufficient safety level is called.
static void s15_3_8_the_lowest_level_that_will_do_is_called(void)
{
    static struct heard heard;
    static MPI_T_event_cb_function *const functions[] = {level_0, level_1, level_2, level_3};
    static const MPI_T_cb_safety levels[] = {MPI_T_CB_REQUIRE_NONE, MPI_T_CB_REQUIRE_MPI_RESTRICTED,
                                             MPI_T_CB_REQUIRE_THREAD_SAFE, MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE};
    MPI_Comm one;
    listen_with(&heard, "communicator_freed", levels[3], functions[3]);
    for (int lowest = 3; lowest >= 0; lowest--) {
        GOOD(MPI_T_event_register_callback(heard.handle, levels[lowest], MPI_INFO_NULL, NULL, functions[lowest]));
        memset(by_level, 0, sizeof by_level);
        MPI_Comm_dup(MPI_COMM_SELF, &one);
        MPI_Comm_free(&one);
        for (int i = 0; i < 4; i++)
            EQUAL(by_level[i], i == lowest);
    }
    for (int i = 0; i < 4; i++)
        GOOD(MPI_T_event_register_callback(heard.handle, levels[i], MPI_INFO_NULL, NULL, NULL));
    memset(by_level, 0, sizeof by_level);
    MPI_Comm_dup(MPI_COMM_SELF, &one);
    MPI_Comm_free(&one);
    EQUAL(by_level[0] + by_level[1] + by_level[2] + by_level[3], 0);
    leave(&heard);
}

static struct heard copied;
static int freed_at;

static void on_free(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    (void)safety;
    CHECK(registration == copied.handle && data == &freed_at, "%p", data);
    freed_at = copied.calls;
}

static MPI_T_event_instance kept;

// Copies the event, calls MPI, which may raise further events, and frees its own handle: the free callback is called
// after this callback has returned.
static void on_created(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety, void *data)
{
    struct {
        number communicator;
        int size, rank;
        char behind;
    } copy;
    MPI_Comm more;
    (void)data;
    EQUAL(safety, MPI_T_CB_REQUIRE_NONE);
    memset(&copy, '#', sizeof copy);
    GOOD(MPI_T_event_copy(instance, &copy));
    EQUAL(copy.size, 2);
    EQUAL(copy.rank, rank);
    EQUAL(copy.behind, '#');
    EQUAL(MPI_T_event_copy(instance, NULL), MPI_T_ERR_INVALID);
    GOOD(MPI_Comm_dup(MPI_COMM_SELF, &more));
    GOOD(MPI_Comm_free(&more));
    GOOD(MPI_T_event_handle_free(registration, &freed_at, on_free));
    EQUAL(freed_at, -1);
    kept = instance;
    copied.calls++;
}

static void s15_3_8_callbacks_may_call_mpi_and_free_their_handle(void)
{
    MPI_Comm two;
    int value;
    freed_at = -1;
    listen_with(&copied, "communicator_created", MPI_T_CB_REQUIRE_NONE, on_created);
    MPI_Comm_dup(MPI_COMM_WORLD, &two);
    EQUAL(copied.calls, 1);
    EQUAL(freed_at, 1);
    EQUAL(MPI_T_event_handle_free(copied.handle, NULL, NULL), MPI_T_ERR_INVALID_HANDLE);
    // After the callback the event instance can no longer be read.
    EQUAL(MPI_T_event_read(kept, 0, &value), MPI_T_ERR_INVALID_HANDLE);
    MPI_Comm_free(&two);
}

// More events occur within one call than can be stored: lost events are counted, and none is delivered twice.
static void s15_3_8_what_is_lost_is_told(void)
{
    static struct heard heard;
    enum { MANY = 3000 };
    int data = 0;
    if (rank == 0) {
        static MPI_Request requests[MANY];
        meet();
        for (int i = 0; i < MANY; i++)
            MPI_Isend(&data, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, &requests[i]);
        meet();
        MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    } else {
        listen_with(&heard, "unexpected_message", MPI_T_CB_REQUIRE_NONE, on_event);
        GOOD(MPI_T_event_set_dropped_handler(heard.handle, on_dropped));
        meet();
        // All of them are raised while this waits for the last.
        meet();
        for (int i = 0; i < MANY; i++)
            MPI_Recv(&data, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        // The number of lost events is reported with the next event.
        while (heard.dropped == 0 && heard.calls < MANY) {
            MPI_Send(&data, 1, MPI_INT, 1, 8, MPI_COMM_WORLD);
            int flag = 0;
            while (!flag)
                MPI_Iprobe(1, 8, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            MPI_Recv(&data, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        EQUAL(with_tag(&heard, 2) + (int)heard.dropped, MANY);
        CHECK(heard.dropped > 0, "all %d were told", heard.calls);
        leave(&heard);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

// If the system does not allow a process to read another's memory, a large message is sent in frames, and an event
// reports that.
static void s15_3_8_a_copy_that_is_refused(const struct heard *heard)
{
    static char data[LARGE];
    if (rank == 0) {
        fill(data, LARGE, 5);
        MPI_Send(data, LARGE, MPI_CHAR, 1, 9, MPI_COMM_WORLD);
        return;
    }
    int before = heard->calls;
    MPI_Recv(data, LARGE, MPI_CHAR, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    PAYLOAD(data, LARGE, 5);
    EQUAL(heard->calls, before + 1);
    EQUAL(element(heard, before, "peer"), 0);
    EQUAL(element(heard, before, "bytes"), LARGE);
}

static void refuse_copies(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
    };
    struct sock_fprog program = {COUNT_OF(filter), filter};
    EQUAL(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EQUAL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

int main(int argc, char **argv)
{
    static struct heard first, refused;
    int provided;
    int refuses = argc > 1 && !strcmp(argv[1], "refused");
    if (refuses) {
        setenv("RMPI_SINGLE_COPY", "on", 1);
        refuse_copies();
    } else {
        setenv("RMPI_UNEXPECTED_BUDGET", "64K", 1);
    }
    // A handle from before MPI_Init receives events of MPI_Init.
    GOOD(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    listen_to(&first, "communicator_created");
    listen_to(&refused, "single_copy_refused");
    start(&argc, &argv);
    EQUAL(first.calls, 2);
    CHECK((MPI_Comm)(uintptr_t)element(&first, 0, "communicator") == MPI_COMM_WORLD, "%s", "another one");
    EQUAL(element(&first, 0, "size"), size);
    CHECK((MPI_Comm)(uintptr_t)element(&first, 1, "communicator") == MPI_COMM_SELF, "%s", "another one");
    leave(&first);
    if (refuses) {
        check_test = "s15_3_8_a_copy_that_is_refused";
        s15_3_8_a_copy_that_is_refused(&refused);
        s15_3_8_a_copy_that_is_refused(&refused);
        leave(&refused);
        return finish();
    }
    leave(&refused);
    RUN(s15_3_8_unexpected_messages_and_their_receives);
    RUN(s15_3_8_large_messages_begin_and_end);
    RUN(s15_3_8_requests_complete);
    RUN(s15_3_8_communicators_come_and_go);
    RUN(s15_3_8_collectives_begin_and_end_by_their_names);
    RUN(s15_3_8_a_flood_is_throttled_and_released);
    RUN(s15_3_8_errors_that_return_are_told);
    RUN(s15_3_8_sleep_begins_and_ends);
    RUN(s15_3_8_waits_are_told_to_those_who_can_bear_it);
    RUN(s15_3_8_the_lowest_level_that_will_do_is_called);
    RUN(s15_3_8_callbacks_may_call_mpi_and_free_their_handle);
    RUN(s15_3_8_what_is_lost_is_told);
    EQUAL(refused.calls, 0);
    // MPI_T_finalize frees all handles.
    listen_to(&first, "collective_begin");
    GOOD(MPI_T_finalize());
    MPI_Barrier(MPI_COMM_WORLD);
    EQUAL(first.calls, 0);
    return finish();
}
