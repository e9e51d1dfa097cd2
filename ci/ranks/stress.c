// SPDX-License-Identifier: MIT OR Apache-2.0
// Random traffic from a seed: every rank sends random sizes in random modes to random ranks, and receives by random
// means. All ranks know the whole plan, so every byte and every order is checked. `stress SEED [MESSAGES [LARGEST
// [FILE]]]`; a failure repeats with the same arguments and the same number of ranks. With FILE, plans are executed one
// after another until the file exists.
#include "check.h"

#include <time.h>
#include <unistd.h>

enum { OPEN_MAX = 40, TAGS = 3 };

struct message {
    int from, to, tag, bytes, number;
};

static struct message *plan;
// Messages of one plan, and of those before it.
static int plan_count, plan_first, largest;
static uint64_t plan_state, own_state;

static unsigned random_below(uint64_t *state, unsigned bound)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (unsigned)((z ^ (z >> 31)) % bound);
}

static int random_bytes(void)
{
    unsigned kind = random_below(&plan_state, 100);
    if (kind < 60)
        return (int)random_below(&plan_state, 100);
    if (kind < 90)
        return (int)random_below(&plan_state, 20000);
    return (int)random_below(&plan_state, (unsigned)largest);
}

static void make_plan(void)
{
    plan = allocate((size_t)plan_count * sizeof *plan);
    for (int i = 0; i < plan_count; i++) {
        struct message *m = &plan[i];
        m->from = (int)random_below(&plan_state, (unsigned)size);
        m->to = (int)random_below(&plan_state, (unsigned)size);
        m->tag = (int)random_below(&plan_state, TAGS);
        m->bytes = random_bytes() + 4;
        m->number = plan_first + i;
    }
}

// The requests and buffers of this rank's active sends.
static MPI_Request sends[OPEN_MAX];
static char *send_buffers[OPEN_MAX];
static int open_sends;

static void reap_sends(int all)
{
    int flag;
    for (int i = 0; i < open_sends;) {
        if (all)
            MPI_Wait(&sends[i], MPI_STATUS_IGNORE);
        else
            MPI_Test(&sends[i], &flag, MPI_STATUS_IGNORE);
        if (all || flag) {
            free(send_buffers[i]);
            open_sends--;
            sends[i] = sends[open_sends];
            send_buffers[i] = send_buffers[open_sends];
        } else {
            i++;
        }
    }
}

static void start_send(const struct message *m)
{
    char *buffer = allocate((size_t)m->bytes);
    memcpy(buffer, &m->number, 4);
    fill(buffer + 4, (size_t)m->bytes - 4, (unsigned)m->number);
    if (random_below(&own_state, 4) == 0)
        MPI_Issend(buffer, m->bytes, MPI_BYTE, m->to, m->tag, MPI_COMM_WORLD, &sends[open_sends]);
    else
        MPI_Isend(buffer, m->bytes, MPI_BYTE, m->to, m->tag, MPI_COMM_WORLD, &sends[open_sends]);
    send_buffers[open_sends++] = buffer;
}

// The next message that must come from `from` with `tag`: because of the order of messages there is only one.
static int *expected;

static int *next_of(int from, int tag)
{
    return &expected[from * TAGS + tag];
}

static void advance(int from, int tag)
{
    int *next = next_of(from, tag);
    do
        ++*next;
    while (*next < plan_count &&
           (plan[*next].from != from || plan[*next].to != rank || plan[*next].tag != tag));
}

static void check_arrival(const char *buffer, const MPI_Status *status)
{
    int number, from = status->MPI_SOURCE, tag = status->MPI_TAG;
    memcpy(&number, buffer, 4);
    int wanted = *next_of(from, tag);
    EQUAL(number, plan_first + wanted);
    if (number == plan_first + wanted && wanted < plan_count) {
        STATUS(status, from, tag, plan[wanted].bytes);
        PAYLOAD(buffer + 4, (size_t)plan[wanted].bytes - 4, (unsigned)number);
    }
    advance(from, tag);
}

// Takes one message if one is there, by one of several means; true if it took one.
static int take_one(char *buffer, int room)
{
    int flag = 0, count;
    MPI_Message message;
    MPI_Status status;
    int by_match = random_below(&own_state, 2) == 0;
    if (by_match)
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status);
    else
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
    if (!flag)
        return 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count >= 4 && count <= room, "a message of %d bytes", count);
    if (by_match)
        MPI_Mrecv(buffer, count, MPI_BYTE, &message, &status);
    else
        MPI_Recv(buffer, room, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
    check_arrival(buffer, &status);
    return 1;
}

// Posts a receive for the next message of some rank and tag, or for any message.
static void take_posted(char *buffer, int room)
{
    MPI_Status status;
    MPI_Request request;
    int from = MPI_ANY_SOURCE, tag = MPI_ANY_TAG, flag = 0;
    for (int tries = 0; tries < 8; tries++) {
        int f = (int)random_below(&own_state, (unsigned)size), t = (int)random_below(&own_state, TAGS);
        // Only a message that its sender can send without waiting for this rank.
        if (*next_of(f, t) < plan_count && random_below(&own_state, 2)) {
            from = f;
            tag = t;
            break;
        }
    }
    MPI_Irecv(buffer, room, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request);
    MPI_Test(&request, &flag, &status);
    if (!flag) {
        // Cancel it unless its message has arrived: both outcomes must be right.
        int cancelled = 0;
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        flag = !cancelled;
    }
    if (flag)
        check_arrival(buffer, &status);
}

static int outstanding(void)
{
    for (int i = 0; i < size * TAGS; i++)
        if (expected[i] < plan_count)
            return 1;
    return 0;
}

static void s3_5_random_traffic_arrives_whole_and_in_order(void)
{
    int room = largest + 20000, next = -1;
    char *buffer = allocate((size_t)room);
    expected = allocate((size_t)(size * TAGS) * sizeof *expected);
    for (int from = 0; from < size; from++)
        for (int tag = 0; tag < TAGS; tag++) {
            *next_of(from, tag) = -1;
            advance(from, tag);
        }
    do
        next++;
    while (next < plan_count && plan[next].from != rank);
    while (next < plan_count || outstanding()) {
        if (next < plan_count && open_sends < OPEN_MAX && random_below(&own_state, 3)) {
            start_send(&plan[next]);
            do
                next++;
            while (next < plan_count && plan[next].from != rank);
        }
        if (random_below(&own_state, 4) == 0)
            take_posted(buffer, room);
        while (take_one(buffer, room)) {
        }
        reap_sends(0);
    }
    reap_sends(1);
    free(buffer);
    free(expected);
}

// Whether the file exists that ends the program; rank 0 checks.
static int is_over(const char *file)
{
    int over = file == NULL || access(file, F_OK) == 0;
    MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return over;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    plan_count = argc > 2 ? atoi(argv[2]) : 3000;
    largest = argc > 3 ? atoi(argv[3]) : size > 16 ? 50000 : 400000;
    if (seed == 0) {
        // A new one each time; it is printed, so that a failure can be repeated.
        seed = (uint64_t)time(NULL);
        MPI_Bcast(&seed, 8, MPI_BYTE, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("seed %llu\n", (unsigned long long)seed);
    }
    plan_state = seed;
    own_state = seed * 1000003u + (uint64_t)rank;
    do {
        make_plan();
        RUN(s3_5_random_traffic_arrives_whole_and_in_order);
        free(plan);
        plan_first += plan_count;
    } while (!is_over(argc > 4 ? argv[4] : NULL));
    return finish();
}
