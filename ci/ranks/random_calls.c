// SPDX-License-Identifier: MIT OR Apache-2.0
// Random calls: the path of a message through the library depends on its size, its datatypes and the calls that send,
// receive and complete it; the results must not depend on the path. MPI 5.0 sections 3.2 to 3.10.
#include "check.h"

enum { ROUNDS = 150, MOST = 40, ROOM = 8300, GUARD = 16, TAG = 7, UNTOUCHED = 77, WINDOW = 2 * MOST };

// A step of a generator; both ends of a message draw the same numbers from the same seed.
static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

// The calls by which a rank completes its requests.
enum { WAITALL, WAITALL_IGNORING, WAIT, WAIT_IGNORING, WAITANY, TEST, TESTALL, WAYS };

struct message {
    int bytes, send_type, receive_type, any_source, any_tag, send_persists, receive_persists;
    unsigned seed;
};

struct round {
    int count, posted_first, completion;
    struct message list[MOST];
};

static MPI_Datatype own_byte;
static unsigned char out[MOST][ROOM], in[MOST][ROOM + GUARD];

static int draw_bytes(unsigned *state)
{
    switch (draw(state, 8)) {
    case 0:
        return 8;
    case 1:
        return (int)draw(state, 5) + 46; // around the longest body of a slot
    case 2:
        return (int)draw(state, 9) + 8186; // around the eager limit
    case 3:
        return (int)draw(state, 4096);
    default:
        return (int)draw(state, 49);
    }
}

static void draw_round(struct round *round, int sender, int number)
{
    unsigned state = (unsigned)sender * 7919u + (unsigned)number * 104729u + 1;
    round->count = 1 + (int)draw(&state, MOST);
    round->posted_first = (int)draw(&state, 2);
    for (int i = 0; i < round->count; i++) {
        struct message *message = &round->list[i];
        message->bytes = draw_bytes(&state);
        message->send_type = (int)draw(&state, 4);
        message->receive_type = (int)draw(&state, 4);
        message->any_source = draw(&state, 8) == 0;
        message->any_tag = draw(&state, 8) == 0;
        message->send_persists = draw(&state, 4) == 0;
        message->receive_persists = draw(&state, 4) == 0;
        message->seed = draw(&state, 1u << 20);
    }
    // Each rank chooses for itself how it completes its requests.
    unsigned own = (unsigned)rank * 31u + (unsigned)number;
    round->completion = (int)draw(&own, WAYS);
}

// The datatype of a kind; changes `count` from bytes to items of the type.
static MPI_Datatype type_of(int kind, int *count)
{
    if (kind == 1 && *count % 4 == 0) {
        *count /= 4;
        return MPI_INT;
    }
    return kind == 2 ? own_byte : kind == 3 ? MPI_CHAR : MPI_BYTE;
}

static MPI_Request start_receive(const struct message *message, int at, int left)
{
    MPI_Request request;
    int count = message->bytes;
    MPI_Datatype type = type_of(message->receive_type, &count);
    int source = message->any_source ? MPI_ANY_SOURCE : left;
    int tag = message->any_tag ? MPI_ANY_TAG : TAG;
    memset(in[at], 0xaa, sizeof in[at]);
    if (!message->receive_persists) {
        MPI_Irecv(in[at], count, type, source, tag, MPI_COMM_WORLD, &request);
        return request;
    }
    MPI_Recv_init(in[at], count, type, source, tag, MPI_COMM_WORLD, &request);
    GOOD(MPI_Start(&request));
    return request;
}

static MPI_Request start_send(const struct message *message, int at, int right)
{
    MPI_Request request;
    int count = message->bytes;
    MPI_Datatype type = type_of(message->send_type, &count);
    fill(out[at], (size_t)message->bytes, message->seed);
    if (!message->send_persists) {
        MPI_Isend(out[at], count, type, right, TAG, MPI_COMM_WORLD, &request);
        return request;
    }
    MPI_Send_init(out[at], count, type, right, TAG, MPI_COMM_WORLD, &request);
    GOOD(MPI_Startall(1, &request));
    return request;
}

static void await_any(MPI_Request *requests, int count, MPI_Status *statuses)
{
    for (int left = count; left > 0; left--) {
        int at = -1;
        MPI_Status status;
        GOOD(MPI_Waitany(count, requests, &at, &status));
        if (at == MPI_UNDEFINED)
            break;
        status.MPI_ERROR = UNTOUCHED;
        statuses[at] = status;
    }
}

// Completes all requests; `told[i]` is set if `statuses[i]` was passed to the call.
static void await_all(int way, MPI_Request *requests, int count, MPI_Status *statuses, int *told)
{
    for (int i = 0; i < count; i++) {
        statuses[i].MPI_ERROR = UNTOUCHED;
        told[i] = way != WAITALL_IGNORING && way != WAIT_IGNORING && requests[i] != MPI_REQUEST_NULL;
    }
    int done = 0;
    if (way == WAITALL || way == WAITALL_IGNORING)
        GOOD(MPI_Waitall(count, requests, way == WAITALL ? statuses : MPI_STATUSES_IGNORE));
    else if (way == WAITANY)
        await_any(requests, count, statuses);
    else if (way == TESTALL)
        while (!done)
            GOOD(MPI_Testall(count, requests, &done, statuses));
    for (int i = 0; i < count && (way == WAIT || way == WAIT_IGNORING || way == TEST); i++) {
        MPI_Status *status = told[i] ? &statuses[i] : MPI_STATUS_IGNORE;
        if (way != TEST)
            GOOD(MPI_Wait(&requests[i], status));
        for (done = way != TEST; !done;)
            GOOD(MPI_Test(&requests[i], &done, status));
    }
}

// A completed request is null, or inactive if it is persistent.
static void check_ended(MPI_Request *request, int persists)
{
    CHECK((*request != MPI_REQUEST_NULL) == persists, "a request is %s", persists ? "gone" : "still there");
    if (!persists)
        return;
    int done = 0;
    MPI_Status status;
    GOOD(MPI_Test(request, &done, &status));
    EQUAL(done, 1);
    EQUAL(status.MPI_SOURCE, MPI_ANY_SOURCE);
    GOOD(MPI_Request_free(request));
}

static void check_message(const struct message *message, int at, int left, const MPI_Status *status)
{
    PAYLOAD(in[at], message->bytes, message->seed);
    for (int i = message->bytes; i < message->bytes + GUARD; i++)
        CHECK(in[at][i] == 0xaa, "byte %d behind a message of %d was written", i, message->bytes);
    if (!status)
        return;
    STATUS(status, left, TAG, message->bytes);
    EQUAL(status->MPI_ERROR, UNTOUCHED);
}

static void one_round(int number)
{
    static struct round mine, theirs;
    static MPI_Status statuses[WINDOW];
    MPI_Request requests[WINDOW];
    int told[WINDOW], right = (rank + 1) % size, left = (rank + size - 1) % size;
    draw_round(&mine, rank, number);
    draw_round(&theirs, left, number);
    // In some rounds the receives are posted before the messages arrive, in others after.
    for (int i = 0; i < theirs.count && theirs.posted_first; i++)
        requests[i] = start_receive(&theirs.list[i], i, left);
    for (int i = 0; i < mine.count; i++)
        requests[theirs.count + i] = start_send(&mine.list[i], i, right);
    for (int i = 0; i < theirs.count && !theirs.posted_first; i++)
        requests[i] = start_receive(&theirs.list[i], i, left);
    await_all(mine.completion, requests, theirs.count + mine.count, statuses, told);
    for (int i = 0; i < theirs.count; i++)
        check_message(&theirs.list[i], i, left, told[i] ? &statuses[i] : NULL);
    for (int i = 0; i < theirs.count; i++)
        check_ended(&requests[i], theirs.list[i].receive_persists);
    for (int i = 0; i < mine.count; i++)
        check_ended(&requests[theirs.count + i], mine.list[i].send_persists);
}

// Ranks are not synchronized between rounds: a fast rank may be ahead of its neighbour.
static void s3_4_random_calls_of_all_sizes_cannot_be_told_apart(void)
{
    for (int number = 0; number < ROUNDS; number++)
        one_round(number);
}

// Blocking calls: odd ranks receive first.
static void s3_2_blocking_calls_of_all_sizes(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int number = ROUNDS; size % 2 == 0 && number < 2 * ROUNDS; number++) {
        static struct round mine, theirs;
        draw_round(&mine, rank, number);
        draw_round(&theirs, left, number);
        for (int phase = 0; phase < 2; phase++) {
            for (int i = 0; i < mine.count && (phase + rank) % 2 == 0; i++) {
                int count = mine.list[i].bytes;
                MPI_Datatype type = type_of(mine.list[i].send_type, &count);
                fill(out[0], (size_t)mine.list[i].bytes, mine.list[i].seed);
                GOOD(MPI_Send(out[0], count, type, right, TAG, MPI_COMM_WORLD));
            }
            for (int i = 0; i < theirs.count && (phase + rank) % 2 == 1; i++) {
                int count = theirs.list[i].bytes;
                MPI_Datatype type = type_of(theirs.list[i].receive_type, &count);
                MPI_Status status;
                status.MPI_ERROR = UNTOUCHED;
                memset(in[0], 0xaa, sizeof in[0]);
                GOOD(MPI_Recv(in[0], count, type, left, TAG, MPI_COMM_WORLD, &status));
                check_message(&theirs.list[i], 0, left, &status);
            }
        }
    }
}

// Calls that send and receive; sometimes a rank at an end of the row has no neighbour, or a buffer is too short.
static void s3_10_sendrecv_of_all_sizes(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int number = 2 * ROUNDS; number < 4 * ROUNDS; number++) {
        static struct round mine, theirs;
        draw_round(&mine, rank, number);
        draw_round(&theirs, left, number);
        int is_open = number % 5 == 0, calls = 4 + number % 7;
        for (int i = 0; i < calls; i++) {
            const struct message *send = &mine.list[i], *receive = &theirs.list[i];
            int sent = send->bytes, room = receive->bytes;
            MPI_Datatype send_type = type_of(send->send_type, &sent);
            MPI_Datatype receive_type = type_of(receive->receive_type, &room);
            int dest = is_open && rank == size - 1 ? MPI_PROC_NULL : right;
            int source = is_open && rank == 0 ? MPI_PROC_NULL : receive->any_source ? MPI_ANY_SOURCE : left;
            MPI_Status status;
            status.MPI_ERROR = UNTOUCHED;
            memset(in[0], 0xaa, sizeof in[0]);
            fill(out[0], (size_t)send->bytes, send->seed);
            GOOD(MPI_Sendrecv(out[0], sent, send_type, dest, TAG, in[0], room, receive_type, source,
                              receive->any_tag ? MPI_ANY_TAG : TAG, MPI_COMM_WORLD, &status));
            if (source != MPI_PROC_NULL)
                check_message(receive, 0, left, &status);
            else
                EQUAL(status.MPI_SOURCE, MPI_PROC_NULL);
        }
    }
}

static void s3_10_a_sendrecv_says_what_is_wrong(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, one = 1;
    MPI_Status status;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 20; i++) {
        // If the receive is wrong, nothing may be sent.
        FAILS(MPI_Sendrecv(out[0], 8, MPI_BYTE, right, TAG, in[0], 8, MPI_BYTE, size, TAG, MPI_COMM_WORLD, &status),
             MPI_ERR_RANK);
        FAILS(MPI_Sendrecv(out[0], 8, MPI_BYTE, size, TAG, in[0], 8, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &status),
             MPI_ERR_RANK);
        FAILS(MPI_Sendrecv(out[0], 8, MPI_BYTE, right, TAG, in[0], 4, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &status),
             MPI_ERR_TRUNCATE);
    }
    GOOD(MPI_Barrier(MPI_COMM_WORLD));
    GOOD(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &one, &status));
    EQUAL(one, 0);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void s3_7_5_a_request_that_is_in_a_list_twice_is_an_error(void)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size, done = 0, code;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Request list[2];
    MPI_Irecv(in[0], 8, MPI_BYTE, left, TAG, MPI_COMM_WORLD, &list[0]);
    list[1] = list[0];
    MPI_Send(out[0], 8, MPI_BYTE, right, TAG, MPI_COMM_WORLD);
    do
        code = MPI_Testall(2, list, &done, MPI_STATUSES_IGNORE);
    while (code == MPI_SUCCESS && !done);
    CHECK(code != MPI_SUCCESS, "code %d", code);
    CHECK(list[0] == MPI_REQUEST_NULL, "the first one is %s", "still there");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    if (getenv("RANDOM_CALLS_THREADS"))
        start_threads(&argc, &argv);
    else
        start(&argc, &argv);
    MPI_Type_contiguous(1, MPI_BYTE, &own_byte);
    MPI_Type_commit(&own_byte);
    RUN(s3_4_random_calls_of_all_sizes_cannot_be_told_apart);
    RUN(s3_2_blocking_calls_of_all_sizes);
    RUN(s3_10_sendrecv_of_all_sizes);
    RUN(s3_10_a_sendrecv_says_what_is_wrong);
    RUN(s3_7_5_a_request_that_is_in_a_list_twice_is_an_error);
    MPI_Type_free(&own_byte);
    return finish();
}
