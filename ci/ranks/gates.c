// SPDX-License-Identifier: MIT OR Apache-2.0
// Persistent requests that were started often, and calls that may interfere: MPI 5.0 section 3.9 with 3.5 (order), 3.8
// (probe and cancel) and 3.7 (wildcards, freed requests). Ranks are partners in pairs; with an odd number, the last
// rank is its own partner.
#include "check.h"

enum { TAG = 5, WARM = 12 };

static int partner;

struct channel {
    MPI_Request send, receive;
    char *out, *in;
    int bytes, tag;
    unsigned sent, received;
};

static struct channel open_channel(int bytes, int tag, int shared, MPI_Comm comm)
{
    struct channel it = {.bytes = bytes, .tag = tag};
    if (shared) {
        GOOD(MPI_Alloc_mem(bytes + 1, MPI_INFO_NULL, &it.out));
        GOOD(MPI_Alloc_mem(bytes + 1, MPI_INFO_NULL, &it.in));
    } else {
        it.out = allocate((size_t)bytes + 1);
        it.in = allocate((size_t)bytes + 1);
    }
    GOOD(MPI_Send_init(it.out, bytes, MPI_BYTE, partner, tag, comm, &it.send));
    GOOD(MPI_Recv_init(it.in, bytes, MPI_BYTE, partner, tag, comm, &it.receive));
    return it;
}

static void close_channel(struct channel *it, int shared)
{
    GOOD(MPI_Request_free(&it->send));
    GOOD(MPI_Request_free(&it->receive));
    if (shared) {
        GOOD(MPI_Free_mem(it->out));
        GOOD(MPI_Free_mem(it->in));
    } else {
        free(it->out);
        free(it->in);
    }
}

static void start_send(struct channel *it)
{
    fill(it->out, (size_t)it->bytes, (unsigned)rank * 1000 + it->sent++);
    GOOD(MPI_Start(&it->send));
}

static void start_receive(struct channel *it)
{
    memset(it->in, 0, (size_t)it->bytes);
    GOOD(MPI_Start(&it->receive));
}

static void check_bytes(struct channel *it, const char *bytes)
{
    PAYLOAD(bytes, (size_t)it->bytes, (unsigned)partner * 1000 + it->received++);
}

static void end_receive(struct channel *it)
{
    MPI_Status status;
    GOOD(MPI_Wait(&it->receive, &status));
    STATUS(&status, partner, it->tag, it->bytes);
    check_bytes(it, it->in);
}

static void exchange(struct channel *it, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        start_receive(it);
        start_send(it);
        end_receive(it);
        GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
    }
}

static const int sizes[] = {0, 8, 1000, 9000, 70000, 400000};

static void s3_9_exchanges_of_all_sizes(void)
{
    for (int i = 0; i < COUNT_OF(sizes); i++)
        for (int shared = 0; shared < 2; shared++) {
            struct channel it = open_channel(sizes[i], TAG, shared, MPI_COMM_WORLD);
            exchange(&it, 3 * WARM);
            close_channel(&it, shared);
        }
}

// Runs a hazard with messages of each size, in each kind of memory; afterwards the channel must still work, in order.
static void for_all(void (*hazard)(struct channel *))
{
    for (int i = 1; i < COUNT_OF(sizes); i++)
        for (int shared = 0; shared < 2; shared++) {
            struct channel it = open_channel(sizes[i], TAG, shared, MPI_COMM_WORLD);
            for (int again = 0; again < 3; again++) {
                exchange(&it, again == 1 ? 5 * WARM : WARM);
                hazard(&it);
            }
            exchange(&it, WARM);
            close_channel(&it, shared);
        }
}

static void receive_ordinary(struct channel *it, int source, int tag)
{
    MPI_Status status;
    char *other = allocate((size_t)it->bytes + 1);
    GOOD(MPI_Recv(other, it->bytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status));
    STATUS(&status, partner, it->tag, it->bytes);
    check_bytes(it, other);
    free(other);
}

static void any_source(struct channel *it)
{
    start_send(it);
    receive_ordinary(it, MPI_ANY_SOURCE, it->tag);
    GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
}

static void any_tag(struct channel *it)
{
    start_send(it);
    receive_ordinary(it, partner, MPI_ANY_TAG);
    GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
}

static void named(struct channel *it)
{
    start_send(it);
    receive_ordinary(it, partner, it->tag);
    GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
}

// A wildcard that was posted before the start takes the first message, one posted after it the second.
static void wildcard_before_and_after(struct channel *it)
{
    MPI_Request before, after;
    char *first = allocate((size_t)it->bytes + 1), *last = allocate((size_t)it->bytes + 1);
    GOOD(MPI_Irecv(first, it->bytes, MPI_BYTE, MPI_ANY_SOURCE, it->tag, MPI_COMM_WORLD, &before));
    start_receive(it);
    GOOD(MPI_Irecv(last, it->bytes, MPI_BYTE, partner, MPI_ANY_TAG, MPI_COMM_WORLD, &after));
    for (int i = 0; i < 3; i++) {
        start_send(it);
        GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
    }
    GOOD(MPI_Wait(&after, MPI_STATUS_IGNORE));
    GOOD(MPI_Wait(&before, MPI_STATUS_IGNORE));
    check_bytes(it, first);
    end_receive(it);
    check_bytes(it, last);
    free(first);
    free(last);
}

static void probed(struct channel *it)
{
    MPI_Status status;
    start_send(it);
    GOOD(MPI_Probe(partner, it->tag, MPI_COMM_WORLD, &status));
    STATUS(&status, partner, it->tag, it->bytes);
    start_receive(it);
    end_receive(it);
    GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
}

static void probed_and_matched(struct channel *it)
{
    MPI_Status status;
    MPI_Message message;
    char *other = allocate((size_t)it->bytes + 1);
    start_send(it);
    for (int flag = 0; !flag;)
        GOOD(MPI_Improbe(MPI_ANY_SOURCE, it->tag, MPI_COMM_WORLD, &flag, &message, &status));
    STATUS(&status, partner, it->tag, it->bytes);
    GOOD(MPI_Mrecv(other, it->bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE));
    check_bytes(it, other);
    GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
    free(other);
}

// Ordinary sends between starts of persistent sends keep their order.
static void sent_between(struct channel *it)
{
    MPI_Request sends[2];
    char *one = allocate((size_t)it->bytes + 1), *two = allocate((size_t)it->bytes + 1);
    fill(one, (size_t)it->bytes, (unsigned)rank * 1000 + it->sent++);
    GOOD(MPI_Isend(one, it->bytes, MPI_BYTE, partner, it->tag, MPI_COMM_WORLD, &sends[0]));
    start_send(it);
    fill(two, (size_t)it->bytes, (unsigned)rank * 1000 + it->sent++);
    GOOD(MPI_Issend(two, it->bytes, MPI_BYTE, partner, it->tag, MPI_COMM_WORLD, &sends[1]));
    for (int i = 0; i < 3; i++) {
        start_receive(it);
        end_receive(it);
    }
    GOOD(MPI_Waitall(2, sends, MPI_STATUSES_IGNORE));
    GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
    free(one);
    free(two);
}

// A receive that is cancelled before any message was sent is cancelled; the next message is for the next receive.
static void cancelled(struct channel *it)
{
    MPI_Status status;
    int flag;
    MPI_Barrier(MPI_COMM_WORLD);
    start_receive(it);
    GOOD(MPI_Cancel(&it->receive));
    GOOD(MPI_Wait(&it->receive, &status));
    GOOD(MPI_Test_cancelled(&status, &flag));
    CHECK(flag, "a receive that nothing was sent to is not cancelled");
    MPI_Barrier(MPI_COMM_WORLD);
    exchange(it, 2);
}

// A receive whose cancellation races with its message either receives it or leaves it to the next receive.
static void cancelled_in_a_race(struct channel *it)
{
    MPI_Status status;
    int flag;
    start_receive(it);
    start_send(it);
    GOOD(MPI_Cancel(&it->receive));
    GOOD(MPI_Wait(&it->receive, &status));
    GOOD(MPI_Test_cancelled(&status, &flag));
    if (flag) {
        start_receive(it);
        end_receive(it);
    } else {
        STATUS(&status, partner, it->tag, it->bytes);
        check_bytes(it, it->in);
    }
    GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
}

// A cancelled send is not received, unless the cancellation came too late.
static void cancelled_send(struct channel *it)
{
    MPI_Status status;
    int flag, mine, theirs;
    MPI_Barrier(MPI_COMM_WORLD);
    start_send(it);
    GOOD(MPI_Cancel(&it->send));
    if (partner == rank) {
        MPI_Test(&it->send, &flag, &status);
        if (!flag) {
            start_receive(it);
            end_receive(it);
            GOOD(MPI_Wait(&it->send, &status));
        } else {
            MPI_Test_cancelled(&status, &mine);
            if (mine)
                it->received++;
            else {
                start_receive(it);
                end_receive(it);
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        return;
    }
    GOOD(MPI_Wait(&it->send, &status));
    GOOD(MPI_Test_cancelled(&status, &mine));
    GOOD(MPI_Sendrecv(&mine, 1, MPI_INT, partner, TAG + 1, &theirs, 1, MPI_INT, partner, TAG + 1, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    if (theirs)
        it->received++;
    else {
        start_receive(it);
        end_receive(it);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

// Requests that are freed while they are active still do what they were started for.
static void freed_while_active(struct channel *it)
{
    char *in = allocate((size_t)it->bytes + 1), *out = allocate((size_t)it->bytes + 1);
    MPI_Request receive, send;
    memset(in, 0, (size_t)it->bytes);
    GOOD(MPI_Recv_init(in, it->bytes, MPI_BYTE, partner, it->tag, MPI_COMM_WORLD, &receive));
    GOOD(MPI_Send_init(out, it->bytes, MPI_BYTE, partner, it->tag, MPI_COMM_WORLD, &send));
    GOOD(MPI_Start(&receive));
    GOOD(MPI_Request_free(&receive));
    fill(out, (size_t)it->bytes, (unsigned)rank * 1000 + it->sent++);
    GOOD(MPI_Start(&send));
    GOOD(MPI_Request_free(&send));
    unsigned first = (unsigned)partner * 1000 + it->received++;
    exchange(it, 1);
    // Only the bytes show when a freed receive is complete.
    for (int flag; first_wrong(in, (size_t)it->bytes, first) != -1;)
        MPI_Iprobe(partner, TAG + 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    free(in);
    free(out);
}

// Shorter messages leave the rest of the buffer unchanged, and longer ones are an error of the receive.
static void other_lengths(struct channel *it)
{
    MPI_Request less, more;
    MPI_Status status;
    int code, class;
    char *out = allocate((size_t)it->bytes + 20);
    fill(out, (size_t)it->bytes + 20, 77);
    GOOD(MPI_Send_init(out, it->bytes / 2, MPI_BYTE, partner, it->tag, MPI_COMM_WORLD, &less));
    GOOD(MPI_Send_init(out, it->bytes + 20, MPI_BYTE, partner, it->tag, MPI_COMM_WORLD, &more));
    for (int round = 0; round < 2; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        memset(it->in, 3, (size_t)it->bytes);
        GOOD(MPI_Start(&it->receive));
        MPI_Barrier(MPI_COMM_WORLD);
        GOOD(MPI_Start(&less));
        GOOD(MPI_Wait(&it->receive, &status));
        STATUS(&status, partner, it->tag, it->bytes / 2);
        PAYLOAD(it->in, (size_t)it->bytes / 2, 77);
        CHECK(it->in[it->bytes - 1] == 3, "what lies behind a short message was changed");
        GOOD(MPI_Wait(&less, MPI_STATUS_IGNORE));
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    GOOD(MPI_Start(&it->receive));
    GOOD(MPI_Start(&more));
    code = MPI_Wait(&it->receive, &status);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TRUNCATE, "a message that is too long: error class %d", class);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    GOOD(MPI_Wait(&more, MPI_STATUS_IGNORE));
    GOOD(MPI_Request_free(&less));
    GOOD(MPI_Request_free(&more));
    free(out);
}

// A small message is sent although its receive is not posted.
static void sent_first(struct channel *it)
{
    if (it->bytes > 4000)
        return;
    for (int round = 0; round < 3; round++) {
        start_send(it);
        GOOD(MPI_Wait(&it->send, MPI_STATUS_IGNORE));
        start_receive(it);
        end_receive(it);
    }
}

static void s3_9_any_source_between(void) { for_all(any_source); }
static void s3_9_any_tag_between(void) { for_all(any_tag); }
static void s3_9_a_named_receive_between(void) { for_all(named); }
static void s3_9_wildcards_before_and_after_a_start(void) { for_all(wildcard_before_and_after); }
static void s3_8_a_probe_sees_what_waits(void) { for_all(probed); }
static void s3_8_a_matched_probe_takes_what_waits(void) { for_all(probed_and_matched); }
static void s3_5_sends_between_keep_their_order(void) { for_all(sent_between); }
static void s3_8_4_a_receive_is_cancelled(void) { for_all(cancelled); }
static void s3_8_4_a_receive_is_cancelled_in_a_race(void) { for_all(cancelled_in_a_race); }
static void s3_8_4_a_send_is_cancelled(void) { for_all(cancelled_send); }
static void s3_7_3_active_requests_are_freed(void) { for_all(freed_while_active); }
static void s3_9_messages_of_other_lengths(void) { for_all(other_lengths); }
static void s3_9_small_messages_sent_first(void) { for_all(sent_first); }

// Several active requests of one class match in the order of their starts, with all memory reachable for the sender and
// with both kinds of memory mixed.
static void s3_5_several_of_one_class(void)
{
    enum { MANY = 5 };
    for (int i = 2; i < 2 * COUNT_OF(sizes); i++) {
        struct channel all[MANY];
        MPI_Request requests[2 * MANY];
        unsigned number = 0;
        int bytes = sizes[i / 2], mixed = i % 2;
        for (int at = 0; at < MANY; at++) {
            all[at] = open_channel(bytes, TAG, !mixed || at % 2, MPI_COMM_WORLD);
            requests[at] = all[at].receive;
            requests[MANY + at] = all[at].send;
        }
        for (int round = 0; round < 2 * WARM; round++) {
            for (int at = 0; at < MANY; at++)
                fill(all[at].out, (size_t)bytes, (unsigned)rank * 1000 + number + (unsigned)at);
            GOOD(MPI_Startall(2 * MANY, requests));
            GOOD(MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE));
            for (int at = 0; at < MANY; at++)
                PAYLOAD(all[at].in, (size_t)bytes, (unsigned)partner * 1000 + number + (unsigned)at);
            number += MANY;
        }
        for (int at = 0; at < MANY; at++)
            close_channel(&all[at], !mixed || at % 2);
    }
}

// A communicator that is freed leaves nothing to the next one.
static void s7_4_communicators_come_and_go(void)
{
    for (int round = 0; round < 10; round++) {
        MPI_Comm comm;
        GOOD(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        struct channel it = open_channel(50000, TAG, round % 2, comm);
        exchange(&it, 5 + round);
        close_channel(&it, round % 2);
        GOOD(MPI_Comm_free(&comm));
    }
}

static unsigned chance;

static unsigned chosen(unsigned below)
{
    chance = chance * 1664525u + 1013904223u;
    return (chance >> 8) % below;
}

// Random windows: both partners draw the same sends; the receiver chooses how it receives. For each tag, messages are
// received in the order in which their receives were posted.
enum { TAGS = 3, WINDOW = 6, MEMBERS = 2 };

struct traffic {
    MPI_Request sends[TAGS][MEMBERS], receives[TAGS][MEMBERS];
    char *out[TAGS][MEMBERS], *in[TAGS][MEMBERS];
    int out_free[TAGS][MEMBERS], in_free[TAGS][MEMBERS];
    unsigned sent[TAGS], got[TAGS];
    int bytes, mixed;
};

// Of mixed traffic, one receive of each tag is in memory that the sender reaches.
static void open_traffic(struct traffic *it, int bytes, int mixed)
{
    memset(it, 0, sizeof *it);
    it->bytes = bytes;
    it->mixed = mixed;
    for (int tag = 0; tag < TAGS; tag++)
        for (int at = 0; at < MEMBERS; at++) {
            GOOD(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &it->out[tag][at]));
            if (at == 0 || !mixed)
                GOOD(MPI_Alloc_mem(bytes, MPI_INFO_NULL, &it->in[tag][at]));
            else
                it->in[tag][at] = allocate((size_t)bytes);
            MPI_Send_init(it->out[tag][at], bytes, MPI_BYTE, partner, tag, MPI_COMM_WORLD, &it->sends[tag][at]);
            MPI_Recv_init(it->in[tag][at], bytes, MPI_BYTE, partner, tag, MPI_COMM_WORLD, &it->receives[tag][at]);
        }
}

static void close_traffic(struct traffic *it)
{
    for (int tag = 0; tag < TAGS; tag++)
        for (int at = 0; at < MEMBERS; at++) {
            GOOD(MPI_Request_free(&it->sends[tag][at]));
            GOOD(MPI_Request_free(&it->receives[tag][at]));
            MPI_Free_mem(it->out[tag][at]);
            if (at == 0 || !it->mixed)
                MPI_Free_mem(it->in[tag][at]);
            else
                free(it->in[tag][at]);
        }
}

struct posted {
    MPI_Request request;
    MPI_Request *own; // the persistent one, if it is one
    int *is_free;
    char *bytes, *mine;
    MPI_Status status;
    int is_cancelled;
};

static void send_one(struct traffic *it, int tag, MPI_Request *request, char **mine, int **is_free, int persistent)
{
    *mine = NULL;
    *is_free = NULL;
    for (int at = 0; persistent && at < MEMBERS; at++)
        if (!it->out_free[tag][at]) {
            it->out_free[tag][at] = 1;
            *is_free = &it->out_free[tag][at];
            fill(it->out[tag][at], (size_t)it->bytes, it->sent[tag]++ * TAGS + (unsigned)tag);
            GOOD(MPI_Start(&it->sends[tag][at]));
            *request = it->sends[tag][at];
            return;
        }
    *mine = allocate((size_t)it->bytes);
    fill(*mine, (size_t)it->bytes, it->sent[tag]++ * TAGS + (unsigned)tag);
    GOOD(MPI_Isend(*mine, it->bytes, MPI_BYTE, partner, tag, MPI_COMM_WORLD, request));
}

static void post_one(struct traffic *it, int tag, int any, struct posted *post, int persistent)
{
    memset(post, 0, sizeof *post);
    for (int at = 0; persistent && at < MEMBERS; at++)
        if (!it->in_free[tag][at]) {
            it->in_free[tag][at] = 1;
            post->is_free = &it->in_free[tag][at];
            post->bytes = it->in[tag][at];
            memset(post->bytes, 0, (size_t)it->bytes);
            GOOD(MPI_Start(&it->receives[tag][at]));
            post->request = it->receives[tag][at];
            return;
        }
    post->mine = post->bytes = allocate((size_t)it->bytes);
    GOOD(MPI_Irecv(post->bytes, it->bytes, MPI_BYTE, any == 1 ? MPI_ANY_SOURCE : partner, any == 2 ? MPI_ANY_TAG : tag,
                   MPI_COMM_WORLD, &post->request));
}

static void window(struct traffic *it, unsigned calm)
{
    // Both partners draw the same sends.
    int count = 1 + (int)chosen(WINDOW), tags[WINDOW], kinds[WINDOW], all_any = chosen(calm) == 0;
    for (int i = 0; i < count; i++) {
        tags[i] = (int)chosen(TAGS);
        kinds[i] = chosen(calm) != 0;
    }
    unsigned common = chance;
    chance += (unsigned)rank * 7919u;
    int probes = chosen(calm) == 0, cancels = chosen(calm) == 0, late = (int)chosen(3);
    struct posted posts[WINDOW + 1];
    int posted = 0;
    MPI_Request sends[WINDOW];
    char *mine[WINDOW];
    int *is_free[WINDOW], sent = 0;
    for (int step = 0; step < 2; step++) {
        if (step == (late == 0))
            for (; sent < count; sent++)
                send_one(it, tags[sent], &sends[sent], &mine[sent], &is_free[sent], kinds[sent]);
        if (step == (late != 0)) {
            if (probes && late) {
                int flag;
                MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
            }
            int rotated = (int)chosen((unsigned)count), missing = 0;
            for (int i = 0; i < count; i++) {
                int tag = tags[all_any ? i : (i + rotated) % count], way = (int)chosen(calm);
                post_one(it, tag, all_any ? 2 : way == 1, &posts[posted], !all_any && way > 1);
                if (cancels && !all_any && i == 0 && posts[0].is_free) {
                    GOOD(MPI_Cancel(&posts[0].request));
                    GOOD(MPI_Wait(&posts[0].request, &posts[0].status));
                    MPI_Test_cancelled(&posts[0].status, &posts[0].is_cancelled);
                    posts[0].request = MPI_REQUEST_NULL;
                    missing = posts[0].is_cancelled;
                }
                posted++;
            }
            if (missing)
                post_one(it, tags[rotated], 0, &posts[posted++], 0);
        }
        if (late == 2)
            for (volatile int spin = 0; spin < 3000; spin++)
                ;
    }
    // The receive with the tag of the cancelled one is posted last, so it gets the last message of that tag.
    for (int i = 0; i < posted; i++)
        if (posts[i].request != MPI_REQUEST_NULL)
            GOOD(MPI_Wait(&posts[i].request, &posts[i].status));
    for (int i = 0; i < posted; i++) {
        if (!posts[i].is_cancelled) {
            int tag = posts[i].status.MPI_TAG;
            STATUS(&posts[i].status, partner, tag, it->bytes);
            PAYLOAD(posts[i].bytes, (size_t)it->bytes, it->got[tag]++ * TAGS + (unsigned)tag);
        }
        if (posts[i].is_free)
            *posts[i].is_free = 0;
        free(posts[i].mine);
    }
    GOOD(MPI_Waitall(count, sends, MPI_STATUSES_IGNORE));
    for (int i = 0; i < count; i++) {
        if (is_free[i])
            *is_free[i] = 0;
        free(mine[i]);
    }
    chance = common;
}

static void s3_5_random_traffic(void)
{
    static const int lengths[] = {8, 3000, 20000, 100000};
    for (unsigned seed = 1; seed <= 12; seed++) {
        struct traffic it;
        chance = seed * 2654435761u + (unsigned)(rank < partner ? rank : partner);
        open_traffic(&it, lengths[seed % COUNT_OF(lengths)], seed > 8);
        for (int i = 0; i < 400; i++)
            window(&it, seed % 3 == 0 ? 4 : 60);
        close_traffic(&it);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    partner = rank % 2 == 1 ? rank - 1 : rank + 1 < size ? rank + 1 : rank;
    RUN(s3_9_exchanges_of_all_sizes);
    RUN(s3_9_any_source_between);
    RUN(s3_9_any_tag_between);
    RUN(s3_9_a_named_receive_between);
    RUN(s3_9_wildcards_before_and_after_a_start);
    RUN(s3_8_a_probe_sees_what_waits);
    RUN(s3_8_a_matched_probe_takes_what_waits);
    RUN(s3_5_sends_between_keep_their_order);
    RUN(s3_8_4_a_receive_is_cancelled);
    RUN(s3_8_4_a_receive_is_cancelled_in_a_race);
    RUN(s3_8_4_a_send_is_cancelled);
    RUN(s3_7_3_active_requests_are_freed);
    RUN(s3_9_messages_of_other_lengths);
    RUN(s3_9_small_messages_sent_first);
    RUN(s3_5_several_of_one_class);
    RUN(s7_4_communicators_come_and_go);
    RUN(s3_5_random_traffic);
    return finish();
}
