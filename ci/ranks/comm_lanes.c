// SPDX-License-Identifier: MIT OR Apache-2.0
// The calls of chapter 3 in many communicators in turn: with ranks in the order of MPI_COMM_WORLD and in others,
// intercommunicators, freed communicators, and more communicators than the library caches. With the argument "threads",
// at MPI_THREAD_MULTIPLE.
#include "check.h"

enum { KINDS = 7, BYTES = 1000, MANY = 700 };

struct kind {
    MPI_Comm comm;
    // The size of the group to which this rank sends, and its rank in its own group.
    int n, me;
};

static struct kind kinds[KINDS];
static int kind_count;
static const int sizes[] = {0, 1, 4, 8, 9, 48, 64, BYTES};

static void add(MPI_Comm comm)
{
    struct kind *kind = &kinds[kind_count++];
    int is_inter;
    kind->comm = comm;
    MPI_Comm_rank(comm, &kind->me);
    MPI_Comm_test_inter(comm, &is_inter);
    if (is_inter)
        MPI_Comm_remote_size(comm, &kind->n);
    else
        MPI_Comm_size(comm, &kind->n);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

static MPI_Comm split(int color, int key)
{
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm);
    return comm;
}

static void make_kinds(void)
{
    MPI_Comm comm, half;
    int whole[1] = {size}, periodic[1] = {1}, is_first = rank < size / 2;
    add(MPI_COMM_WORLD);
    add(MPI_COMM_SELF);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    add(comm);
    add(split(0, -rank));
    add(split(rank % 2, -rank));
    MPI_Cart_create(MPI_COMM_WORLD, 1, whole, periodic, 1, &comm);
    add(comm);
    // Two halves of the same size; with an odd number the last rank is in none.
    half = split(rank < size / 2 * 2 ? is_first : MPI_UNDEFINED, rank);
    if (half != MPI_COMM_NULL) {
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_first ? size / 2 : 0, 77, &comm);
        MPI_Comm_free(&half);
        add(comm);
    }
}

// The ranks to which this rank sends and from which it receives, `by` places further.
static int right(const struct kind *kind, int by)
{
    return (kind->me + by) % kind->n;
}

static int left(const struct kind *kind, int by)
{
    return (kind->me + kind->n - by % kind->n) % kind->n;
}

static unsigned seed(int kind, int from, int tag)
{
    return (unsigned)(kind * 1000 + from * 10 + tag);
}

static unsigned char out[KINDS][BYTES], in[KINDS][BYTES + 1];

static void begin(int kind, int bytes, int tag)
{
    fill(out[kind], (size_t)bytes, seed(kind, kinds[kind].me, tag));
    memset(in[kind], 255, sizeof in[kind]);
}

static void verify(int kind, const MPI_Status *status, int by, int tag, int bytes)
{
    int from = left(&kinds[kind], by);
    STATUS(status, from, tag, bytes);
    PAYLOAD(in[kind], bytes, seed(kind, from, tag));
    EQUAL(in[kind][bytes], 255);
}

// Receives in all communicators are active at once; they are waited for in another order than they were started in.
static void exchange(int bytes, int by, int tag)
{
    MPI_Request receives[KINDS], sends[KINDS];
    MPI_Status status;
    for (int i = 0; i < kind_count; i++) {
        begin(i, bytes, tag);
        GOOD(MPI_Irecv(in[i], bytes, MPI_BYTE, left(&kinds[i], by), tag, kinds[i].comm, &receives[i]));
    }
    for (int i = kind_count - 1; i >= 0; i--)
        GOOD(MPI_Isend(out[i], bytes, MPI_BYTE, right(&kinds[i], by), tag, kinds[i].comm, &sends[i]));
    for (int i = 0; i < kind_count; i++) {
        int kind = (i * 3 + by) % kind_count, done = 0;
        if (kind_count % 3 == 0)
            kind = (i + by) % kind_count;
        if (i % 2)
            GOOD(MPI_Wait(&receives[kind], &status));
        while (i % 2 == 0 && !done)
            GOOD(MPI_Test(&receives[kind], &done, &status));
        verify(kind, &status, by, tag, bytes);
    }
    GOOD(MPI_Waitall(kind_count, sends, MPI_STATUSES_IGNORE));
}

static void s3_7_all_communicators_at_once(void)
{
    for (int s = 0; s < COUNT_OF(sizes); s++)
        for (int by = 0; by < 3; by++)
            for (int round = 0; round < 3; round++)
                exchange(sizes[s], by, round);
}

static void s3_7_5_waitall_over_communicators(void)
{
    for (int s = 0; s < COUNT_OF(sizes); s++) {
        MPI_Request requests[2 * KINDS];
        MPI_Status statuses[2 * KINDS];
        for (int i = 0; i < kind_count; i++) {
            begin(i, sizes[s], 1);
            MPI_Irecv(in[i], BYTES, MPI_BYTE, left(&kinds[i], 1), 1, kinds[i].comm, &requests[2 * i]);
            MPI_Isend(out[i], sizes[s], MPI_BYTE, right(&kinds[i], 1), 1, kinds[i].comm,
                      &requests[2 * i + 1]);
        }
        GOOD(MPI_Waitall(2 * kind_count, requests, statuses));
        for (int i = 0; i < kind_count; i++)
            verify(i, &statuses[2 * i], 1, 1, sizes[s]);
    }
}

static void s3_9_persistent_over_communicators(void)
{
    MPI_Request requests[2 * KINDS];
    MPI_Status statuses[2 * KINDS];
    for (int i = 0; i < kind_count; i++) {
        MPI_Recv_init(in[i], BYTES, MPI_BYTE, left(&kinds[i], 1), 2, kinds[i].comm, &requests[2 * i]);
        MPI_Send_init(out[i], 8, MPI_BYTE, right(&kinds[i], 1), 2, kinds[i].comm, &requests[2 * i + 1]);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < kind_count; i++)
            begin(i, 8, 2);
        GOOD(MPI_Startall(2 * kind_count, requests));
        GOOD(MPI_Waitall(2 * kind_count, requests, statuses));
        for (int i = 0; i < kind_count; i++)
            verify(i, &statuses[2 * i], 1, 2, 8);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < 2 * kind_count; i++)
        MPI_Request_free(&requests[i]);
}

static void s3_10_sendrecv_and_blocking(void)
{
    for (int s = 0; s < COUNT_OF(sizes); s++)
        for (int i = 0; i < kind_count; i++) {
            const struct kind *kind = &kinds[i];
            MPI_Status status;
            int bytes = sizes[s];
            begin(i, bytes, 3);
            GOOD(MPI_Sendrecv(out[i], bytes, MPI_BYTE, right(kind, 1), 3, in[i], BYTES, MPI_BYTE,
                              left(kind, 1), 3, kind->comm, &status));
            verify(i, &status, 1, 3, bytes);
            begin(i, bytes, 4);
            GOOD(MPI_Send(out[i], bytes, MPI_BYTE, right(kind, 1), 4, kind->comm));
            GOOD(MPI_Recv(in[i], BYTES, MPI_BYTE, left(kind, 1), 4, kind->comm, &status));
            verify(i, &status, 1, 4, bytes);
        }
}

// A rank that does not exist is an error in each communicator, and the message names it.
static void s3_2_3_no_such_rank(void)
{
    for (int i = 0; i < kind_count; i++) {
        MPI_Request request;
        MPI_Comm comm = kinds[i].comm;
        FAILS(MPI_Send(out[i], 8, MPI_BYTE, kinds[i].n, 5, comm), MPI_ERR_RANK);
        FAILS(MPI_Isend(out[i], 8, MPI_BYTE, -77, 5, comm, &request), MPI_ERR_RANK);
        FAILS(MPI_Irecv(in[i], 8, MPI_BYTE, kinds[i].n, 5, comm, &request), MPI_ERR_RANK);
        FAILS(MPI_Recv(in[i], 8, MPI_BYTE, -77, 5, comm, MPI_STATUS_IGNORE), MPI_ERR_RANK);
    }
}

// A freed communicator exists until its messages have arrived; the communicator that is made next has other ranks.
static void s7_4_3_freed_with_a_receive(void)
{
    unsigned char got[8] = {0}, sent[8];
    MPI_Comm comm = split(0, -rank), next;
    MPI_Request request, send;
    MPI_Status status;
    int me, from, to;
    MPI_Comm_rank(comm, &me);
    to = (me + 1) % size;
    from = (me + size - 1) % size;
    fill(sent, 8, (unsigned)me);
    MPI_Irecv(got, 8, MPI_BYTE, from, 6, comm, &request);
    MPI_Isend(sent, 8, MPI_BYTE, to, 6, comm, &send);
    MPI_Comm_free(&comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &next);
    MPI_Sendrecv(&me, 1, MPI_INT, (rank + 1) % size, 6, &me, 1, MPI_INT, (rank + size - 1) % size, 6,
                 next, &status);
    EQUAL(status.MPI_SOURCE, (rank + size - 1) % size);
    GOOD(MPI_Wait(&request, &status));
    STATUS(&status, from, 6, 8);
    PAYLOAD(got, 8, (unsigned)from);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Comm_free(&next);
}

// Handles and contexts are used again, in communicators with another order.
static void s7_4_2_many_one_after_the_other(void)
{
    for (int i = 0; i < MANY; i++) {
        MPI_Comm comms[2];
        MPI_Status status;
        comms[i % 2] = split(0, rank);
        comms[1 - i % 2] = split(0, -rank);
        for (int j = 0; j < 3; j++) {
            MPI_Comm comm = j < 2 ? comms[j] : MPI_COMM_WORLD;
            int me, got = -1;
            MPI_Comm_rank(comm, &me);
            MPI_Sendrecv(&me, 1, MPI_INT, (me + 1) % size, i, &got, 1, MPI_INT,
                         (me + size - 1) % size, i, comm, &status);
            STATUS(&status, (me + size - 1) % size, i, 4);
            EQUAL(got, (me + size - 1) % size);
        }
        MPI_Comm_free(&comms[0]);
        MPI_Comm_free(&comms[1]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "threads") == 0)
        start_threads(&argc, &argv);
    else
        start(&argc, &argv);
    make_kinds();
    RUN(s3_7_all_communicators_at_once);
    RUN(s3_7_5_waitall_over_communicators);
    RUN(s3_9_persistent_over_communicators);
    RUN(s3_10_sendrecv_and_blocking);
    RUN(s3_2_3_no_such_rank);
    RUN(s7_4_3_freed_with_a_receive);
    RUN(s7_4_2_many_one_after_the_other);
    for (int i = 2; i < kind_count; i++)
        MPI_Comm_free(&kinds[i].comm);
    return finish();
}
